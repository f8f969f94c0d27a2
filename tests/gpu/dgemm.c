/* C = A * B, square, column-major, in ordinary malloc memory. Arguments: n, repeats, and "check" to
 * compare sampled rows and columns with sums in long double: |C - Cref| <= 4 sqrt(k) eps |A||B|
 * elementwise. Prints one JSON object: times in ms (each call writes a fresh C), the worst ratio of the
 * error to the bound. Exit status 1 if an element is out of bound.
 */
#include <float.h>
#include <math.h>

#include "bench.h"

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);

static double value(unsigned long i)
{
    i = (i + 1) * 0x9E3779B97F4A7C15ul;
    i ^= i >> 29;
    i *= 0xBF58476D1CE4E5B9ul;
    return (double)((i ^ (i >> 32)) >> 11) / 9007199254740992.0 - 0.5;
}

static double ratio_of(const double *a, const double *b, const double *c, size_t n, size_t i, size_t j)
{
    long double sum = 0, size = 0;
    for (size_t k = 0; k < n; k++) {
        long double term = (long double)a[k * n + i] * b[j * n + k];
        sum += term;
        size += fabsl(term);
    }
    double ratio = (double)(fabsl(c[j * n + i] - sum) / (4 * sqrtl(n) * DBL_EPSILON * size));
    return isnan(ratio) ? INFINITY : ratio;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    const int n = atoi(argv[1]), repeats = atoi(argv[2]);
    const size_t nn = (size_t)n * n;
    const double one = 1, zero = 0;
    double *a = malloc(nn * sizeof *a), *b = malloc(nn * sizeof *b), *c = NULL;
    for (size_t i = 0; i < nn; i++) a[i] = value(i), b[i] = value(i + nn);
    printf("{\"n\": %d, \"ms\": [", n);
    for (int r = 0; r < repeats; r++) {
        free(c);
        c = malloc(nn * sizeof *c);
        /* Touched, as a program's C mostly is; NaN shows what was not written. */
        memset(c, 0xff, nn * sizeof *c);
        double t = now_ms();
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
        printf("%s%.3f", r ? ", " : "", now_ms() - t);
    }
    double worst = 0;
    if (argc > 3 && !strcmp(argv[3], "check")) {
        enum { SAMPLES = 6 };
        for (int s = 0; s < SAMPLES; s++) {
            size_t line = s == 0 ? 0 : s == 1 ? (size_t)n - 1 : (size_t)((value(7 * s) + 0.5) * n);
            for (size_t i = 0; i < (size_t)n; i++) {
                worst = fmax(worst, ratio_of(a, b, c, n, i, line));
                worst = fmax(worst, ratio_of(a, b, c, n, line, i));
            }
        }
    }
    printf("], \"worst_ratio\": %.4g}\n", isinf(worst) ? 1e300 : worst);
    return worst > 1;
}
