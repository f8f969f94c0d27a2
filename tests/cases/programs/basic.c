/* dgemm of the sizes given as arguments, checked by C x = A (B x) (case F1 and wherever a right answer
 * under odd circumstances is asked for). Exit status 0 only if every element of the check agrees. It
 * writes nothing, so that it runs with every descriptor closed.
 */
#include <math.h>
#include <stdlib.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);

static double value(unsigned long i)
{
    i = (i + 1) * 0x9E3779B97F4A7C15ul;
    i ^= i >> 29;
    i *= 0xBF58476D1CE4E5B9ul;
    return (double)((i ^ (i >> 32)) >> 11) / 9007199254740992.0 - 0.5;
}

static int check(int n)
{
    size_t nn = (size_t)n * n;
    double *a = malloc(nn * sizeof *a), *b = malloc(nn * sizeof *b), *c = malloc(nn * sizeof *c);
    double *x = malloc(n * sizeof *x), *bx = calloc(n, sizeof *bx), *abx = calloc(n, sizeof *abx),
           *cx = calloc(n, sizeof *cx);
    const double one = 1, zero = 0;
    for (size_t i = 0; i < nn; i++) a[i] = value(i), b[i] = value(i + nn), c[i] = NAN;
    for (int i = 0; i < n; i++) x[i] = value(i + 2 * nn);
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
            bx[i] += b[(size_t)j * n + i] * x[j];
            cx[i] += c[(size_t)j * n + i] * x[j];
        }
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) abx[i] += a[(size_t)j * n + i] * bx[j];
    int bad = 0;
    /* Entries are below 1/2 and each sum has n terms; 2 n^2 eps / 8 bounds what rounding can do. */
    for (int i = 0; i < n; i++) bad |= !(fabs(cx[i] - abx[i]) <= 2.3e-16 * n * (double)n / 4);
    free(a), free(b), free(c), free(x), free(bx), free(abx), free(cx);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = argc < 2;
    for (int i = 1; i < argc; i++) bad |= check(atoi(argv[i]));
    return bad;
}
