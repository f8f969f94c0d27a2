/* alpha = 0 in every level-3 routine (case F12): C = beta * C, and A and B are not read. Their memory cannot
 * be read, so that a routine which does read ends in a signal, and the call is named.
 * All sizes from 1 to 100 and 500, every transpose; argument "fortran", "cblas" or "rowmajor".
 * Prints WRONG lines, then the number of calls; exit status 1 if anything was wrong.
 */
#include "blas_table.h"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LARGEST = 500, BYTES = (LARGEST + 2) * (LARGEST + 2) * 16 };
static int bad, row_major, through_cblas;
static char now[160];
static unsigned char *result, *before, *forbidden;

static void died(int signal)
{
    /* The process ends here; write is all that a handler may use. */
    static const char text[] = "WRONG read an operand: ";
    (void)signal;
    if (write(1, text, sizeof text - 1) < 0 || write(1, now, strlen(now)) < 0 || write(1, "\n", 1) < 0) _exit(3);
    _exit(2);
}

static double element(const unsigned char *p, char type, size_t i)
{
    return is_single(type) ? ((const float *)p)[i] : ((const double *)p)[i];
}

/* Small integers: beta times them is exact. */
static void fill(char type)
{
    for (size_t i = 0; i < BYTES / 8; i++) {
        double value = (double)(i % 17) - 8;
        if (is_single(type)) ((float *)before)[i] = (float)value;
        else ((double *)before)[i] = value;
    }
}

/* Whether element (row, col), column-major, belongs to the result. */
static int in_result(const struct call *c, int row, int col)
{
    char uplo = flag(c, 'U', 0);
    int triangle = strstr(c->r->family, "rk") || strstr(c->r->family, "r2k") || !strcmp(c->r->family, "gemmtr");
    if (!triangle) return 1;
    return uplo == 'U' ? row <= col : row >= col;
}

/* The largest size runs on two threads; waking them for the thousands of small calls takes minutes on a busy
 * machine. */
static void set_threads(int threads)
{
    static int current;
    void (*set)(int) = (void (*)(int))find_symbol("openblas_set_num_threads");
    if (set && threads != current) set(threads);
    current = threads;
}

static void check(const struct call *c, struct shape s, int ld, const double beta[2])
{
    int parts = is_complex(c->type) ? 2 : 1, hermitian = c->r->name[0] == 'h' && !strstr(c->r->name, "mm");
    for (int j = 0; j < s.cols; j++)
        for (int i = 0; i < s.rows; i++) {
            size_t at = (row_major ? (size_t)i * ld + j : (size_t)j * ld + i) * parts;
            double re0 = element(before, c->type, at), im0 = parts == 2 ? element(before, c->type, at + 1) : 0;
            double re = element(result, c->type, at), im = parts == 2 ? element(result, c->type, at + 1) : 0;
            double want_re = re0, want_im = im0;
            if (in_result(c, i, j)) {
                want_re = beta[0] * re0 - beta[1] * im0;
                want_im = beta[0] * im0 + beta[1] * re0;
                if (hermitian && i == j) {
                    /* her(2)k return early for beta = 1, and else make the diagonal real. */
                    want_im = beta[0] == 1 ? im : 0;
                }
            }
            if (re == want_re && im == want_im) continue;
            printf("WRONG %s: element (%d, %d) is %g %g, must be %g %g\n", now, i, j, re, im, want_re, want_im);
            bad = 1;
            return;
        }
}

static void one(struct call *c, int size, const double beta[2])
{
    const struct routine *r = c->r;
    int out = arg_index(r, r->out), in_place = r->out == 'B';
    set_threads(size == LARGEST ? 2 : 1);
    for (int i = 0; r->args[i]; i++) {
        char letter = r->args[i];
        if (is_letter_of(letter, "ar")) c->scalar[i][0] = size % 2 ? 0.0 : -0.0, c->scalar[i][1] = 0;
        if (is_letter_of(letter, "bq")) c->scalar[i][0] = beta[0], c->scalar[i][1] = beta[1];
        if (!is_letter_of(letter, "ABC")) continue;
        struct shape s = shape_of(c, letter);
        c->integer[i + 1] = max1(row_major ? s.cols : s.rows) + size % 2;
        c->array[i] = i == out ? result : forbidden;
    }
    snprintf(now, sizeof now, "%s%c%s size %d trans %c%c uplo %c side %c beta %g%+gi", through_cblas ? "cblas_" : "",
             c->type, r->name, size, flag(c, 'T', 0) ? flag(c, 'T', 0) : flag(c, 't', 0) ? flag(c, 't', 0) : '-',
             flag(c, 'T', 1) ? flag(c, 'T', 1) : '-', flag(c, 'U', 0) ? flag(c, 'U', 0) : '-',
             flag(c, 'S', 0) ? flag(c, 'S', 0) : '-', beta[0], beta[1]);
    struct shape s = shape_of(c, r->out);
    int ld = c->integer[out + 1];
    size_t used = (size_t)ld * (row_major ? s.rows : s.cols) * elem_bytes(c->type);
    memcpy(result, before, used);
    if (!(through_cblas ? call_cblas(c, row_major ? 101 : 102) : call_fortran(c))) {
        printf("WRONG %s: no such symbol\n", now);
        bad = 1;
        return;
    }
    static const double zero[2];
    check(c, s, ld, in_place ? zero : beta);
}

int main(int argc, char **argv)
{
    static const double BETAS[][2] = {{-0.5, 0}, {0, 0}, {1, 0}, {2, 0.5}};
    long calls = 0;
    row_major = argc > 1 && !strcmp(argv[1], "rowmajor");
    through_cblas = row_major || (argc > 1 && !strcmp(argv[1], "cblas"));
    before = malloc(BYTES), result = malloc(BYTES);
    forbidden = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!before || !result || forbidden == MAP_FAILED) return 4;
    signal(SIGSEGV, died);
    for (int row = 0; row < ROUTINE_COUNT; row++) {
        const struct routine *r = &ROUTINES[row];
        if (!is_level3(r)) continue;
        int only_real_beta = arg_index(r, 'q') >= 0;
        for (const char *type = r->types; *type; type++) {
            fill(*type);
            for (int size = 1; size <= LARGEST; size = size == 100 ? LARGEST : size + 1)
                for (int bits = 0; bits < 9; bits++) {
                    struct call c;
                    ordinary(&c, r, *type, size);
                    const char t0 = "NTC"[bits % 3], t1 = "NTC"[bits / 3];
                    int nth = 0, skip = 0;
                    for (int i = 0; r->args[i]; i++) {
                        if (r->args[i] == 'T') c.chr[i] = nth++ ? t1 : t0;
                        if (r->args[i] == 't') {
                            nth++;
                            c.chr[i] = t0;
                            /* Complex rank-k updates have one transpose each. */
                            if (is_complex(*type) && t0 == (r->name[0] == 'h' ? 'T' : 'C')) skip = 1;
                        }
                        /* The other options take turns. */
                        if (r->args[i] == 'U') c.chr[i] = "UL"[(size + bits) % 2];
                        if (r->args[i] == 'S') c.chr[i] = "LR"[(size + bits) / 2 % 2];
                        if (r->args[i] == 'm') c.integer[i] = size;
                    }
                    if (skip || (nth < 1 && bits % 3) || (nth < 2 && bits / 3)) continue;
                    double beta[2];
                    memcpy(beta, BETAS[(size + bits) % 4], sizeof beta);
                    if (only_real_beta || !is_complex(*type)) beta[1] = 0;
                    one(&c, size, beta);
                    calls++;
                }
        }
    }
    printf("%ld calls\n", calls);
    return bad;
}
