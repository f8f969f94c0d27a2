/* Each argument of a set of LAPACK routines made illegal in turn (case F7): info is minus the
 * argument's position, the program's own xerbla_ is called once with that position and the
 * routine's name, and no array is touched but for the first element of a work array, in which LAPACK leaves the
 * best length. Exit status 1 if not.
 *
 * A row's letters, in Fortran order: J K job letters (legal value in `legal`), T trans, U uplo, D diag,
 * S side; m n k r dimensions (r = nrhs); A B G H matrices followed by their leading dimension L; V a
 * vector or work array; I ipiv or iwork; w lwork; i liwork; t itype; p rwork-like lrwork; O info.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *types, *name, *args;
    const char *legal; /* of J and K, in order */
    const char *extra; /* name in z and c where it differs */
};

static const struct row ROWS[] = {
    {"sdcz", "getrf", "mnALIO", "", 0},       {"sdcz", "getf2", "mnALIO", "", 0},
    {"sdcz", "getrs", "TnrALIBLO", "", 0},    {"sdcz", "gesv", "nrALIBLO", "", 0},
    {"sdcz", "getri", "nALIVwO", "", 0},      {"sdcz", "potrf", "UnALO", "", 0},
    {"sdcz", "potf2", "UnALO", "", 0},        {"sdcz", "potrs", "UnrALBLO", "", 0},
    {"sdcz", "potri", "UnALO", "", 0},        {"sdcz", "posv", "UnrALBLO", "", 0},
    {"sdcz", "lauum", "UnALO", "", 0},        {"sdcz", "trtri", "UDnALO", "", 0},
    {"sdcz", "trtrs", "UTDnrALBLO", "", 0},   {"sdcz", "geqrf", "mnALVVwO", "", 0},
    {"sdcz", "geqr2", "mnALVVO", "", 0},      {"sdcz", "gelqf", "mnALVVwO", "", 0},
    {"sdcz", "geqp3", "mnALIVVwO", "", "R"},  {"sdcz", "gehrd", "nhhALVVwO", "", 0},
    {"sdcz", "gebrd", "mnALVVVVVwO", "", 0},  {"sd", "orgqr", "mnkALVVwO", "", 0},
    {"cz", "ungqr", "mnkALVVwO", "", 0},      {"sd", "ormqr", "STmnkALVBLVwO", "", 0},
    {"cz", "unmqr", "STmnkALVBLVwO", "", 0},  {"sdcz", "gels", "TmnrALBLVwO", "", 0},
    {"sdcz", "sysv", "UnrALIBLVwO", "", 0},   {"sdcz", "sytrf", "UnALIVwO", "", 0},
    {"cz", "hesv", "UnrALIBLVwO", "", 0},     {"cz", "hetrf", "UnALIVwO", "", 0},
    {"sd", "syev", "JUnALVVwO", "V", 0},      {"cz", "heev", "JUnALVVwVO", "V", 0},
    {"sd", "syevd", "JUnALVVwIiO", "V", 0},   {"cz", "heevd", "JUnALVVwVpIiO", "V", 0},
    {"sd", "syevr", "JKUnALVVVVVVVGLIVwIiO", "VA", 0},
    {"cz", "heevr", "JKUnALVVVVVVVGLIVwVpIiO", "VA", 0},
    {"sd", "sytrd", "UnALVVVVwO", "", 0},     {"cz", "hetrd", "UnALVVVVwO", "", 0},
    {"sd", "gesvd", "JKmnALVGLHLVwO", "AA", 0}, {"cz", "gesvd", "JKmnALVGLHLVwVO", "AA", 0},
    {"sd", "gesdd", "JmnALVGLHLVwIO", "A", 0},  {"cz", "gesdd", "JmnALVGLHLVwVIO", "A", 0},
    {"sd", "geev", "JKnALVVGLHLVwO", "VV", 0},  {"cz", "geev", "JKnALVGLHLVwVO", "VV", 0},
    {"sd", "sygv", "tJUnALBLVVwO", "V", 0},     {"cz", "hegv", "tJUnALBLVVwVO", "V", 0},
    {"sd", "sygvd", "tJUnALBLVVwIiO", "V", 0},  {"cz", "hegvd", "tJUnALBLVVwVpIiO", "V", 0},
    {"sd", "sygvx", "tJKUnALBLVVVVVVVGLVwIIO", "VA", 0},
    {"cz", "hegvx", "tJKUnALBLVVVVVVVGLVwVIIO", "VA", 0},
    {"sd", "syevx", "JKUnALVVVVVVVGLVwIIO", "VA", 0},
    {"cz", "heevx", "JKUnALVVVVVVVGLVwVIIO", "VA", 0},
    {"sdcz", "sytrs", "UnrALIBLO", "", 0},      {"cz", "hetrs", "UnrALIBLO", "", 0},
    {"sd", "gelsd", "mnrALBLVVVVwIO", "", 0},   {"cz", "gelsd", "mnrALBLVVVVwVIO", "", 0},
    {"sd", "gelss", "mnrALBLVVVVwO", "", 0},    {"cz", "gelss", "mnrALBLVVVVwVO", "", 0},
    {"sd", "gelsy", "mnrALBLIVVVwO", "", 0},    {"cz", "gelsy", "mnrALBLIVVVwVO", "", 0},
    {"d", "sgesv", "nrALIBLGLVVVO", "", 0},     {"z", "cgesv", "nrALIBLGLVVVVO", "", 0},
    {"d", "sposv", "UnrALBLGLVVVO", "", 0},     {"z", "cposv", "UnrALBLGLVVVVO", "", 0},
    {"sd", "sygst", "tUnALBLO", "", 0},         {"cz", "hegst", "tUnALBLO", "", 0},
};

static char reported_name[64];
static int reported_info, reports;

void xerbla_(const char *name, const int *info, size_t length)
{
    if (length > 32) length = 32;
    memcpy(reported_name, name, length);
    reported_name[length] = 0;
    for (int i = (int)length - 1; i >= 0 && (reported_name[i] == ' ' || !reported_name[i]); i--)
        reported_name[i] = 0;
    reported_info = *info;
    reports++;
}

typedef void (*any)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                    void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                    void *, void *, void *, void *, void *, void *, void *, void *);

enum { N = 6, WORK = 1000, SLOTS = 16, DOUBLES = 4096 };
static double memory[SLOTS][DOUBLES];

static double value(int j) { return j % (N + 1) ? 0.25 : 4; }

/* The first array that was written; `vectors` marks those whose first two words (a double complex) may be. */
static int touched(const char *vectors)
{
    for (int i = 0; i < SLOTS; i++)
        for (int j = vectors[i] ? 2 : 0; j < DOUBLES; j++)
            if (memory[i][j] != value(j)) return i;
    return -1;
}

int main(void)
{
    int bad = 0, calls = 0;
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++)
        for (const char *type = ROWS[r].types; *type; type++) {
            char args[40], name[24], upper[24];
            strcpy(args, ROWS[r].args);
            /* Complex geqp3 has rwork before info. */
            if (ROWS[r].extra && (*type == 'c' || *type == 'z')) strcpy(strchr(args, 'O'), "VO");
            sprintf(name, "%c%s_", *type, ROWS[r].name);
            any f = (any)dlsym(RTLD_DEFAULT, name);
            if (!f) {
                printf("MISSING %s\n", name);
                bad = 1;
                continue;
            }
            for (int wrong = 0; args[wrong]; wrong++) {
                if (!strchr("JKTUDSmnkrhLwitp", args[wrong])) continue;
                char letters[40], vectors[SLOTS] = {0};
                int integers[40], info = 12345, jobs = 0, highs = 0, slot = 0, n = 0, chars = 0;
                void *a[40] = {0};
                for (; args[n]; n++) {
                    char c = args[n];
                    a[n] = &integers[n];
                    switch (c) {
                    case 'J':
                    case 'K': letters[n] = ROWS[r].legal[jobs++]; break;
                    case 'T': letters[n] = 'N'; break;
                    case 'U': letters[n] = 'U'; break;
                    case 'D': letters[n] = 'N'; break;
                    case 'S': letters[n] = 'L'; break;
                    case 'h': integers[n] = highs++ ? N : 1; break; /* ilo, ihi */
                    case 'r': integers[n] = 2; break;
                    case 't': integers[n] = 1; break;
                    case 'w':
                    case 'i':
                    case 'p': integers[n] = WORK; break;
                    case 'O': a[n] = &info; break;
                    case 'm':
                    case 'n':
                    case 'k':
                    case 'L': integers[n] = N; break;
                    default:
                        vectors[slot] = c == 'V' || c == 'I';
                        a[n] = memory[slot++];
                    }
                    if (strchr("JKTUDS", c)) a[n] = &letters[n], chars++;
                    if (n != wrong) continue;
                    if (strchr("JKTUDS", c)) letters[n] = 'X';
                    else if (c == 'L') integers[n] = N - 1;
                    else if (c == 'w' || c == 'i' || c == 'p') integers[n] = -5; /* -1 would be a query */
                    else if (c == 't') integers[n] = 9;
                    else integers[n] = -1;
                }
                for (int i = 0; i < chars; i++) a[n++] = (void *)1;
                for (int i = 0; i < SLOTS; i++)
                    for (int j = 0; j < DOUBLES; j++) memory[i][j] = value(j);
                reports = 0, reported_info = -99, reported_name[0] = 0;
                f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                  a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23],
                  a[24], a[25], a[26], a[27]);
                calls++;
                sprintf(upper, "%s", name);
                upper[strlen(upper) - 1] = 0;
                for (char *p = upper; *p; p++) *p -= *p >= 'a' ? 32 : 0;
                printf("%s %d %c: name=%s info=%d reports=%d returned=%d\n", name, wrong + 1, args[wrong],
                       reported_name, reported_info, reports, info);
                if (info != -(wrong + 1) || reports != 1 || reported_info != wrong + 1 ||
                    strcmp(upper, reported_name)) {
                    printf("WRONG %s argument %d: expected info %d, one report\n", name, wrong + 1, -(wrong + 1));
                    bad = 1;
                }
                if (touched(vectors) >= 0) {
                    printf("WRONG %s argument %d: array %d was written\n", name, wrong + 1, touched(vectors) + 1);
                    bad = 1;
                }
            }
        }
    printf("%d calls\n", calls);
    return bad;
}
