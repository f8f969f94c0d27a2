/* Workspaces of the routed LAPACK routines (case L6), leading dimensions above n, n = 0 and n = 1.
 *
 * Prints a line a call: what the routine left in info, in the first word of each workspace, and a sum over
 * all memory, to be compared with the same archive without us. Linked with mock_engine.c it also checks which
 * calls come to the engine: those with n > 0 and a workspace that LAPACK accepts, down to the shortest, each with its
 * own op, and no other.
 * Exit status 1 if not. With an argument the hidden string lengths are what a caller in C leaves on the stack that
 * omits them (case F6): anything.
 *
 * A row's letters, in Fortran order: J K job letters (value in `legal`), T trans, U uplo, S side, D diag; t itype;
 * m n k r dimensions (r = nrhs); A B G H matrices followed by their leading dimension L; V a vector or array that is no
 * matrix; I ipiv, isuppz, rank; x a real workspace with its length w; y an INTEGER one with its length i; O info.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *types, *name, *args, *legal;
    unsigned op;
};

static const struct row ROWS[] = {
    {"sdcz", "getrf", "mnALIO", "", 13},          {"sdcz", "getrs", "TnrALIBLO", "", 14},
    {"sdcz", "getri", "nALIxwO", "", 15},         {"sdcz", "gesv", "nrALIBLO", "", 16},
    {"sdcz", "potrf", "UnALO", "", 18},           {"sdcz", "potrs", "UnrALBLO", "", 19},
    {"sdcz", "potri", "UnALO", "", 20},           {"sdcz", "posv", "UnrALBLO", "", 21},
    {"sdcz", "trtri", "UDnALO", "", 22},          {"sdcz", "trtrs", "UTDnrALBLO", "", 23},
    {"sdcz", "lauum", "UnALO", "", 24},           {"sdcz", "gelqf", "mnALVxwO", "", 36},
    {"sdcz", "gels", "TmnrALBLxwO", "", 31},
    {"sdcz", "geqrf", "mnALVxwO", "", 28},        {"sd", "orgqr", "mnkALVxwO", "", 29},
    {"cz", "ungqr", "mnkALVxwO", "", 29},         {"sd", "ormqr", "STmnkALVBLxwO", "", 30},
    {"cz", "unmqr", "STmnkALVBLxwO", "", 30},     {"sd", "syev", "JUnALVxwO", "V", 37},
    {"cz", "heev", "JUnALVxwVO", "V", 37},        {"sd", "syevd", "JUnALVxwyiO", "V", 38},
    {"cz", "heevd", "JUnALVxwxwyiO", "V", 38},    {"sd", "syevr", "JKUnALVVVVVIVGLIxwyiO", "VA", 39},
    {"cz", "heevr", "JKUnALVVVVVIVGLIxwxwyiO", "VA", 39},
    {"sd", "syevx", "JKUnALVVVVVIVGLxwVIO", "VA", 40},
    {"cz", "heevx", "JKUnALVVVVVIVGLxwVVIO", "VA", 40},
    {"sd", "sygv", "tJUnALBLVxwO", "V", 41},      {"cz", "hegv", "tJUnALBLVxwVO", "V", 41},
    {"sd", "sygvd", "tJUnALBLVxwyiO", "V", 42},   {"cz", "hegvd", "tJUnALBLVxwxwyiO", "V", 42},
    {"sd", "sygvx", "tJKUnALBLVVVVVIVGLxwVIO", "VA", 54},
    {"cz", "hegvx", "tJKUnALBLVVVVVIVGLxwVVIO", "VA", 54},
    {"sd", "gelsd", "mnrALBLVVIxwVO", "", 32},    {"cz", "gelsd", "mnrALBLVVIxwVVO", "", 32},
    {"sd", "gelss", "mnrALBLVVIxwO", "", 33},     {"cz", "gelss", "mnrALBLVVIxwVO", "", 33},
    {"sd", "gesdd", "JmnALVGLHLxwVO", "S", 43},   {"cz", "gesdd", "JmnALVGLHLxwVVO", "S", 43},
    {"sd", "gesvd", "JKmnALVGLHLxwO", "SO", 44},  {"cz", "gesvd", "JKmnALVGLHLxwVO", "SO", 44},
    {"sd", "geev", "JKnALVVGLHLxwO", "NV", 46},   {"cz", "geev", "JKnALVGLHLxwVO", "NV", 46},
};

/* Of mock_engine.c, where it is there. */
struct routed_lapack {
    uint32_t struct_bytes, op;
    uint8_t precision, integer_bytes, reserved[2], letters[4];
    int64_t m, n, k;
};
extern unsigned long mock_lapack_calls __attribute__((weak));
extern struct routed_lapack mock_lapack_first __attribute__((weak));

static int reports;
static void *hidden_length = (void *)1;

void xerbla_(const char *name, const int *info, size_t length)
{
    (void)name, (void)info, (void)length;
    reports++;
}

typedef void (*any)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                    void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                    void *, void *, void *, void *, void *, void *, void *, void *);

enum { SLOTS = 16, DOUBLES = 1 << 14, NRHS = 2, MOST_LENGTHS = 3 };
static double memory[SLOTS][DOUBLES];

struct call {
    any f;
    const struct row *row;
    char type;
    int n, ld, info, lengths, length[MOST_LENGTHS];
    double best[MOST_LENGTHS];
    void *work[MOST_LENGTHS];
};

/* Diagonally dominant and symmetric, so that every routine succeeds; pivots 1, 2, 3, … */
static void fill(const struct call *c)
{
    const int complex = c->type == 'c' || c->type == 'z', single = c->type == 's' || c->type == 'c';
    memset(memory, 0, sizeof memory);
    for (int s = 0; s < SLOTS; s++)
        for (int j = 0; j < c->n && c->n <= 64; j++)
            for (int i = 0; i < c->ld; i++) {
                const int at = (j * c->ld + i) * (complex ? 2 : 1);
                const double value = i == j ? 40 + i : 1.0 / (1 + i + j);
                if (single) ((float *)memory[s])[at] = (float)value;
                else memory[s][at] = value;
            }
}

static void make(struct call *c)
{
    static int integers[40], pivots[DOUBLES];
    static char letters[40];
    void *a[40] = {0};
    int n = 0, jobs = 0, slot = 0, chars = 0, length = 0;
    for (int i = 0; i < DOUBLES; i++) pivots[i] = i + 1;
    for (const char *p = c->row->args; *p; p++, n++) {
        a[n] = &integers[n];
        switch (*p) {
        case 'J':
        case 'K': letters[n] = c->row->legal[jobs++]; break;
        case 'T': letters[n] = 'N'; break;
        case 'U': letters[n] = 'l'; break;
        case 'S': letters[n] = 'L'; break;
        case 'D': letters[n] = 'N'; break;
        case 'r': integers[n] = NRHS; break;
        case 't': integers[n] = 1; break;
        case 'm':
        case 'n':
        case 'k': integers[n] = c->n; break;
        case 'L': integers[n] = c->ld; break;
        case 'w':
        case 'i': integers[n] = c->length[length++]; break;
        case 'O': a[n] = &c->info; break;
        case 'I': a[n] = pivots; break;
        default: a[n] = memory[slot++];
        }
        if (strchr("JKTUSD", *p)) a[n] = &letters[n], chars++;
        if (*p == 'x' || *p == 'y') c->work[length] = a[n];
    }
    c->lengths = length;
    for (int i = 0; i < chars; i++) a[n++] = hidden_length;
    fill(c);
    c->info = 12345, reports = 0;
    if (&mock_lapack_calls) mock_lapack_calls = 0;
    c->f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
         a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27]);
    length = 0;
    for (const char *p = c->row->args; *p; p++)
        if (*p == 'x' || *p == 'y') {
            void *at = c->work[length];
            const int single = c->type == 's' || c->type == 'c';
            c->best[length++] = *p == 'y' ? *(int *)at : single ? *(float *)at : *(double *)at;
        }
}

static int bad;

static void show(struct call *c, const char *what, int routed)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof memory / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, (char *)memory + 8 * i, 8);
        sum = sum * 31 + word;
    }
    printf("%c%s n=%d %s: info=%d reports=%d", c->type, c->row->name, c->n, what, c->info, reports);
    for (int i = 0; i < c->lengths; i++) printf(" %.17g", c->best[i]);
    printf(" sum=%016llx\n", (unsigned long long)sum);
    if (!&mock_lapack_calls) return;
    const struct routed_lapack *first = &mock_lapack_first;
    const int own = mock_lapack_calls && first->op == c->row->op && first->precision == c->type - 32 &&
                    first->n == c->n && first->m == c->n;
    const int k = strchr(c->row->args, 'r') ? NRHS : c->n;
    if (own != routed || (own && (first->k != k || first->integer_bytes != 4))) {
        printf("WRONG %c%s n=%d %s: %lu calls came\n", c->type, c->row->name, c->n, what, mock_lapack_calls);
        bad = 1;
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) hidden_length = (void *)0xFEEDFACEDEADBEEFul;
    static const int LARGE[] = {9537, 32766, 32767, 46341};
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++)
        for (const char *type = ROWS[r].types; *type; type++) {
            char name[16];
            struct call c = {.row = &ROWS[r], .type = *type};
            sprintf(name, "%c%s_", *type, ROWS[r].name);
            c.f = (any)dlsym(RTLD_DEFAULT, name);
            if (!c.f) {
                printf("MISSING %s\n", name);
                return 1;
            }
            const int query[MOST_LENGTHS] = {-1, -1, -1};
            const int has_work = strchr(ROWS[r].args, 'w') != 0;
            for (size_t i = 0; has_work && i < sizeof LARGE / sizeof *LARGE; i++) {
                c.n = c.ld = LARGE[i];
                memcpy(c.length, query, sizeof query);
                make(&c);
                show(&c, "query", 0);
            }
            const int sizes[] = {0, 1, 2, 20};
            for (int i = 0; i < 4; i++) {
                int best[MOST_LENGTHS] = {0};
                c.n = sizes[i], c.ld = c.n + 3;
                if (has_work) {
                    memcpy(c.length, query, sizeof query);
                    make(&c);
                    show(&c, "query", 0);
                    for (int j = 0; j < c.lengths; j++) best[j] = (int)c.best[j];
                    if (c.n == 1) {
                        c.ld = 0;
                        make(&c);
                        show(&c, "illegal query", 0);
                        c.ld = c.n + 3;
                        memset(c.length, 0, sizeof c.length);
                        make(&c);
                        show(&c, "no workspace", 0);
                    }
                    if (c.n == 0)
                        for (int j = 0; j < c.lengths; j++) best[j] = best[j] > 100 ? best[j] : 100;
                }
                memcpy(c.length, best, sizeof best);
                make(&c);
                show(&c, "best", c.n > 0);
                for (int j = 0; c.n > 1 && j < c.lengths; j++) {
                    /* The shortest that LAPACK accepts, between one that it refuses and one that it does not. */
                    int refused = 0, accepted = best[j];
                    memcpy(c.length, best, sizeof best);
                    while (accepted - refused > 1) {
                        c.length[j] = refused + (accepted - refused) / 2;
                        make(&c);
                        if (c.info < 0) refused = c.length[j];
                        else accepted = c.length[j];
                    }
                    /* What the documents say of these is more than some of their paths check. */
                    const int exact = strncmp(ROWS[r].name, "ges", 3) != 0;
                    for (int less = 0; less < 2 && accepted - less > 0; less++) {
                        c.length[j] = accepted - less;
                        make(&c);
                        if (exact || less) show(&c, less ? "refused" : "least", !less);
                    }
                }
            }
        }
    return bad;
}
