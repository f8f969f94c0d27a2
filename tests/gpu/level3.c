/* Times level-3 BLAS calls of whatever BLAS this program is run with; data in ordinary malloc memory.
 * Standard input holds one case a line: routine m n k output, with output "touched" (written before) or
 * "fresh" (new pages in every call). Routines: {s,d,z}gemm (N N, beta 0), dsyrk (L N, n x n of n x k, beta
 * 0), dsymm (L L, beta 0), dtrsm and dtrmm (L L N N, in place). Prints one JSON object a line; times in ms,
 * the first call of a case is not counted.
 */
#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef const int *Int;
typedef const char *Chr;
void sgemm_(Chr, Chr, Int, Int, Int, const float *, const float *, Int, const float *, Int, const float *, float *, Int, size_t, size_t);
void dgemm_(Chr, Chr, Int, Int, Int, const double *, const double *, Int, const double *, Int, const double *, double *, Int, size_t, size_t);
void zgemm_(Chr, Chr, Int, Int, Int, const double complex *, const void *, Int, const void *, Int, const double complex *, void *, Int, size_t, size_t);
void dsyrk_(Chr, Chr, Int, Int, const double *, const double *, Int, const double *, double *, Int, size_t, size_t);
void dsymm_(Chr, Chr, Int, Int, const double *, const double *, Int, const double *, Int, const double *, double *, Int, size_t, size_t);
void dtrsm_(Chr, Chr, Chr, Chr, Int, Int, const double *, const double *, Int, double *, Int, size_t, size_t, size_t, size_t);
void dtrmm_(Chr, Chr, Chr, Chr, Int, Int, const double *, const double *, Int, double *, Int, size_t, size_t, size_t, size_t);

enum { MOST_RUNS = 9, LEAST_RUNS = 3 };
static const double ENOUGH_MS = 2500; /* a case stops after this time */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void *memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) { fprintf(stderr, "no memory for %zu bytes\n", bytes); exit(1); }
    return p;
}

/* Random numbers of [-0.5, 0.5): a block of them over and over, which no arithmetic can tell apart. */
static void fill(void *p, size_t bytes, int single)
{
    enum { BLOCK = 1 << 20 };
    static char block[2][BLOCK];
    static int made;
    if (!made) {
        unsigned long x = 88172645463325252ul;
        for (size_t i = 0; i < BLOCK / 8; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            double value = (double)(x >> 11) / 9007199254740992.0 - 0.5;
            memcpy(block[0] + 8 * i, &value, 8);
            float narrow[2] = {(float)value, (float)-value};
            memcpy(block[1] + 8 * i, narrow, 8);
        }
        made = 1;
    }
    for (size_t at = 0; at < bytes; at += BLOCK)
        memcpy((char *)p + at, block[single], bytes - at < BLOCK ? bytes - at : BLOCK);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    char routine[16], output[16];
    int m, n, k;
    while (scanf("%15s %d %d %d %15s", routine, &m, &n, &k, output) == 5) {
        const int single = routine[0] == 's', complex_ = routine[0] == 'z';
        const size_t each = single ? 4 : complex_ ? 16 : 8;
        const int gemm = !strcmp(routine + 1, "gemm"), syrk = !strcmp(routine, "dsyrk");
        const int fresh = !strcmp(output, "fresh"), in_place = !gemm && !syrk && strcmp(routine, "dsymm");
        const size_t a_bytes = each * m * (size_t)(gemm || syrk ? k : m);
        const size_t b_bytes = gemm ? each * k * (size_t)n : syrk || in_place ? 0 : each * m * (size_t)n;
        const size_t c_bytes = each * m * (size_t)n;
        char *a = memory(a_bytes), *b = b_bytes ? memory(b_bytes) : NULL, *c = memory(c_bytes);
        fill(a, a_bytes, single);
        fill(b, b_bytes, single);
        fill(c, c_bytes, single);
        if (in_place) { /* well-conditioned, so that repeated calls stay finite */
            double *t = (double *)a;
            for (size_t i = 0; i < (size_t)m * m; i++) t[i] /= m;
            for (size_t i = 0; i < (size_t)m; i++) t[i * m + i] = 2;
        }
        const float s1 = 1, s0 = 0;
        const double d1 = 1, d0 = 0;
        const double complex z1 = 1, z0 = 0;
        double ms[MOST_RUNS], spent = 0;
        int runs = -1;
        for (; runs < MOST_RUNS && (runs < LEAST_RUNS || spent < ENOUGH_MS); runs++) {
            if (fresh) free(c), c = memory(c_bytes);
            double t = now_ms();
            if (!strcmp(routine, "dgemm")) dgemm_("N", "N", &m, &n, &k, &d1, (double *)a, &m, (double *)b, &k, &d0, (double *)c, &m, 1, 1);
            else if (!strcmp(routine, "sgemm")) sgemm_("N", "N", &m, &n, &k, &s1, (float *)a, &m, (float *)b, &k, &s0, (float *)c, &m, 1, 1);
            else if (!strcmp(routine, "zgemm")) zgemm_("N", "N", &m, &n, &k, &z1, a, &m, b, &k, &z0, c, &m, 1, 1);
            else if (syrk) dsyrk_("L", "N", &n, &k, &d1, (double *)a, &n, &d0, (double *)c, &n, 1, 1);
            else if (!strcmp(routine, "dsymm")) dsymm_("L", "L", &m, &n, &d1, (double *)a, &m, (double *)b, &m, &d0, (double *)c, &m, 1, 1);
            else if (!strcmp(routine, "dtrsm")) dtrsm_("L", "L", "N", "N", &m, &n, &d1, (double *)a, &m, (double *)c, &m, 1, 1, 1, 1);
            else if (!strcmp(routine, "dtrmm")) dtrmm_("L", "L", "N", "N", &m, &n, &d1, (double *)a, &m, (double *)c, &m, 1, 1, 1, 1);
            else { fprintf(stderr, "no routine %s\n", routine); return 2; }
            t = now_ms() - t;
            if (runs >= 0) ms[runs] = t, spent += t;
        }
        qsort(ms, runs, sizeof *ms, ascending);
        printf("{\"routine\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"output\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"runs\": %d}\n",
               routine, m, n, k, output, ms[runs / 2], ms[0], runs);
        fflush(stdout);
        free(a), free(b), free(c);
    }
    return 0;
}
