/* Which files a program has mapped. */
#include <stdio.h>
#include <string.h>

static int mapped(const char *word) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, word) != NULL;
    if (maps) fclose(maps);
    return found;
}

/* Judges a program's arguments: words that must be part of a mapped file's name, or !word for those that must
 * not. Prints the first that is not so, and returns 1 then. */
static int judge_mapped(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        int unwanted = argv[i][0] == '!';
        if (mapped(argv[i] + unwanted) == unwanted) {
            printf("%s is %smapped\n", argv[i] + unwanted, unwanted ? "" : "not ");
            return 1;
        }
    }
    return 0;
}
