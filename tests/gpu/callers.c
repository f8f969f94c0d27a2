/* Many threads that each call dgemm, against the same calls one after another. Arguments: threads, n, calls
 * of each thread. Every result is compared with the first one, which must not depend on who else calls.
 * Prints one JSON object; times in ms. Exit status 1 if a result differs from the serial one by more than
 * 4 sqrt(n) eps times the bound of the sums.
 */
#include <float.h>
#include <math.h>
#include <pthread.h>

#include "bench.h"

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);

static int n, calls;
static double *a, *b, *reference;
static double worst;
static pthread_barrier_t start;

static void multiply(double *c)
{
    const double one = 1, zero = 0;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
}

static void *work(void *memory)
{
    double *c = memory;
    pthread_barrier_wait(&start);
    for (int i = 0; i < calls; i++) multiply(c);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    const int threads = atoi(argv[1]);
    n = atoi(argv[2]), calls = atoi(argv[3]);
    const size_t nn = (size_t)n * n;
    a = malloc(nn * sizeof *a), b = malloc(nn * sizeof *b), reference = malloc(nn * sizeof *b);
    unsigned long x = 88172645463325252ul;
    for (size_t i = 0; i < nn; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        a[i] = (double)(x >> 11) / 9007199254740992.0 - 0.5;
        b[i] = (double)(x >> 40) / 16777216.0 - 0.5;
    }
    double **c = malloc(threads * sizeof *c);
    for (int t = 0; t < threads; t++) {
        c[t] = malloc(nn * sizeof **c);
        memset(c[t], 0xff, nn * sizeof **c);
    }
    multiply(reference); /* the start of the GPU is in here */
    for (int t = 0; t < threads; t++) multiply(c[t]);
    double began = now_ms();
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < calls; i++) multiply(c[t]);
    double serial = now_ms() - began;
    for (int t = 0; t < threads; t++) memset(c[t], 0xff, nn * sizeof **c);
    pthread_t *id = malloc(threads * sizeof *id);
    pthread_barrier_init(&start, NULL, threads + 1);
    for (int t = 0; t < threads; t++)
        if (pthread_create(id + t, NULL, work, c[t])) return 2;
    began = now_ms();
    pthread_barrier_wait(&start);
    for (int t = 0; t < threads; t++) pthread_join(id[t], NULL);
    double together = now_ms() - began;
    /* |A||B| is at most n / 4. */
    const double bound = 2 * 4 * sqrt(n) * DBL_EPSILON * n / 4;
    for (int t = 0; t < threads; t++)
        for (size_t i = 0; i < nn; i++) {
            double error = fabs(c[t][i] - reference[i]) / bound;
            if (!(error <= worst)) worst = isnan(error) ? 1e300 : error;
        }
    printf("{\"threads\": %d, \"n\": %d, \"serial_ms\": %.1f, \"together_ms\": %.1f, \"worst_ratio\": %.4g}\n", threads, n, serial, together, worst);
    return worst > 1;
}
