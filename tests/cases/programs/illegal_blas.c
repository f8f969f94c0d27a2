/* Each argument of each level-2 and level-3 routine made illegal in turn (case F7).
 * Prints one line a call: spelling, routine, argument index, the name and info that the program's own
 * xerbla_ got, and how often it was called. Outputs must stay untouched.
 * Exit status 1 if a Fortran or column-major call does not report the argument's own position.
 */
#include "blas_table.h"

static char reported_name[64];
static int reported_info, reports;

void xerbla_(const char *name, const int *info, size_t length)
{
    if (length > 32) length = 32;
    memcpy(reported_name, name, length);
    reported_name[length] = 0;
    /* OpenBLAS counts its terminating NUL in the length. */
    for (int i = (int)length - 1; i >= 0 && (reported_name[i] == ' ' || !reported_name[i]); i--)
        reported_name[i] = 0;
    reported_info = *info;
    reports++;
}

/* Netlib's CBLAS reports here, OpenBLAS's through xerbla_. */
void cblas_xerbla(int info, const char *name, const char *form, ...)
{
    (void)form;
    snprintf(reported_name, sizeof reported_name, "%s", name);
    reported_info = info - 1;
    reports++;
}

static int bad;
static unsigned char memory[3][1 << 16], before[1 << 16];

static void arrays(struct call *c)
{
    int used = 0;
    for (int i = 0; c->r->args[i]; i++)
        if (is_letter_of(c->r->args[i], "ABCPXY")) c->array[i] = memory[used++ % 3];
}

static void judge(const struct call *c, const char *spelling, int index, int expected)
{
    int touched = 0;
    for (int i = 0; i < 3; i++) touched |= memcmp(memory[i], before, sizeof before) != 0;
    printf("%s %c%s %d name=%s info=%d reports=%d%s\n", spelling, c->type, c->r->name, index,
           reported_name, reported_info, reports, touched ? " TOUCHED" : "");
    int wrong = reports != 1 || touched;
    if (expected >= 0) {
        char name[16];
        sprintf(name, "%c%s", c->type - 32, c->r->name);
        for (char *p = name; *p; p++)
            if (*p >= 'a') *p -= 32;
        /* OpenBLAS reports gemmtr under the older name of the same routine, gemmt: harmless. */
        if (!strcmp(c->r->name, "gemmtr")) name[6] = 0;
        wrong |= reported_info != expected || strcmp(name, reported_name) != 0;
    }
    if (wrong) {
        printf("WRONG %s %c%s argument %d: expected info %d once\n", spelling, c->type, c->r->name,
               index, expected);
        bad = 1;
    }
    for (int i = 0; i < 3; i++) memcpy(memory[i], before, sizeof before);
}

static void start(void)
{
    reported_name[0] = 0;
    reported_info = -99;
    reports = 0;
}

int main(void)
{
    for (size_t i = 0; i < sizeof before; i++) before[i] = 0x3f;
    for (int i = 0; i < 3; i++) memcpy(memory[i], before, sizeof before);
    for (int row = 0; row < ROUTINE_COUNT; row++) {
        const struct routine *r = &ROUTINES[row];
        for (const char *type = r->types; *type; type++) {
            struct call c;
            for (int i = -1; i < 0 || r->args[i]; i++) {
                char letter = i < 0 ? 'O' : r->args[i];
                if (i >= 0 && !is_letter_of(letter, "TtUDSmnkluLI")) continue;
                for (int spelling = 0; spelling < 3; spelling++) {
                    if (i < 0 && spelling != 1) continue;
                    ordinary(&c, r, *type, 6);
                    if (spelling == 2) /* row-major: generous leading dimensions are legal */
                        for (int j = 0; r->args[j]; j++)
                            if (r->args[j] == 'L') c.integer[j] = 12;
                    arrays(&c);
                    if (i >= 0) {
                        if (is_letter_of(letter, "TtUDS")) c.chr[i] = 'X';
                        else if (letter == 'I') c.integer[i] = 0;
                        else if (letter == 'L') c.integer[i] = spelling == 2 ? 0 : c.integer[i] - 1;
                        else c.integer[i] = -1;
                    }
                    start();
                    int there = spelling == 0 ? call_fortran(&c)
                                              : call_cblas(&c, i < 0 ? 55 : spelling == 1 ? 102 : 101);
                    const char *names[] = {"fortran", "colmajor", "rowmajor"};
                    if (!there) {
                        printf("MISSING %s %c%s\n", names[spelling], *type, r->name);
                        bad = 1;
                        continue;
                    }
                    judge(&c, names[spelling], i + 1, spelling == 2 ? -1 : i + 1);
                }
            }
            /* The conjugate transpose is illegal where the routine has only the other one. */
            int t = arg_index(r, 't');
            if (t >= 0 && is_complex(*type)) {
                ordinary(&c, r, *type, 6);
                arrays(&c);
                c.chr[t] = r->name[0] == 'h' ? 'T' : 'C';
                start();
                call_fortran(&c);
                judge(&c, "fortran", t + 1, t + 1);
            }
        }
    }
    return bad;
}
