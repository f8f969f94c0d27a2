/* Times level-3 BLAS calls of whatever BLAS this program is run with; data in ordinary malloc memory.
 * Standard input holds one case a line: routine m n k output, with output "touched" (written before) or
 * "fresh" (new pages in every call). Routines: {s,d,z}gemm (N N, beta 0), dsyrk (L N, n x n of n x k, beta
 * 0), dsymm (L L, beta 0), dtrsm and dtrmm (L L N N, in place). Prints one JSON object a line; times in ms,
 * the first call of a case is not counted. Calls of more than three seconds are made twice, and the second counts.
 */
#include <complex.h>

#include "bench.h"

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
static const double SLOW_MS = 3000;   /* from here on one counted call has to do */

int main(void)
{
    struct bench_case x;
    while (next_case(&x)) {
        const char *routine = x.routine;
        const int m = x.m, n = x.n, k = x.k, fresh = !strcmp(x.output, "fresh");
        char *a = x.a, *b = x.b, *c = x.c;
        const float s1 = 1, s0 = 0;
        const double d1 = 1, d0 = 0;
        const double complex z1 = 1, z0 = 0;
        double ms[MOST_RUNS], spent = 0;
        int runs = -1, least = LEAST_RUNS;
        for (; runs < MOST_RUNS && (runs < least || spent < ENOUGH_MS); runs++) {
            if (fresh) free(c), c = memory(x.c_bytes);
            double t = now_ms();
            if (!strcmp(routine, "dgemm")) dgemm_("N", "N", &m, &n, &k, &d1, (double *)a, &m, (double *)b, &k, &d0, (double *)c, &m, 1, 1);
            else if (!strcmp(routine, "sgemm")) sgemm_("N", "N", &m, &n, &k, &s1, (float *)a, &m, (float *)b, &k, &s0, (float *)c, &m, 1, 1);
            else if (!strcmp(routine, "zgemm")) zgemm_("N", "N", &m, &n, &k, &z1, a, &m, b, &k, &z0, c, &m, 1, 1);
            else if (x.syrk) dsyrk_("L", "N", &n, &k, &d1, (double *)a, &n, &d0, (double *)c, &n, 1, 1);
            else if (!strcmp(routine, "dsymm")) dsymm_("L", "L", &m, &n, &d1, (double *)a, &m, (double *)b, &m, &d0, (double *)c, &m, 1, 1);
            else if (!strcmp(routine, "dtrsm")) dtrsm_("L", "L", "N", "N", &m, &n, &d1, (double *)a, &m, (double *)c, &m, 1, 1, 1, 1);
            else if (!strcmp(routine, "dtrmm")) dtrmm_("L", "L", "N", "N", &m, &n, &d1, (double *)a, &m, (double *)c, &m, 1, 1, 1, 1);
            else { fprintf(stderr, "no routine %s\n", routine); return 2; }
            t = now_ms() - t;
            if (runs >= 0) ms[runs] = t, spent += t;
            else if (t > SLOW_MS) least = 1;
        }
        qsort(ms, runs, sizeof *ms, ascending);
        printf("{\"routine\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"output\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"runs\": %d}\n",
               routine, m, n, k, x.output, ms[runs / 2], ms[0], runs);
        fflush(stdout);
        free(a), free(b), free(c);
    }
    return 0;
}
