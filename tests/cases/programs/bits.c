/* Hashes of gemm's results over many shapes, transposes, scalars and spellings, to be compared bit by
 * bit between two libraries. Argument: the largest dimension.
 *
 * With alpha = 0 the sign of a zero is not compared in real arithmetic: OpenBLAS's kernels for small matrices
 * on CPUs with AVX-512 add 0 * A * B, and libblas.so.3 does not.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;
static double uniform(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0 - 0.5;
}

static uint64_t hash(const void *p, size_t bytes)
{
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
    return h;
}

#define KIND(p, T, parts, scalar)                                                                  \
    void p##gemm_(const char *, const char *, const int *, const int *, const int *, const T *,    \
                  const T *, const int *, const T *, const int *, const T *, T *, const int *,     \
                  size_t, size_t);                                                                 \
    void cblas_##p##gemm(int, int, int, int, int, int, scalar, const T *, int, const T *, int,     \
                         scalar, T *, int);                                                        \
    static void p##one(int m, int n, int k, int ta, int tb, const T *alpha, const T *beta,         \
                       int spelling)                                                               \
    {                                                                                              \
        const int gap = 3, lda = (ta ? k : m) + gap, ldb = (tb ? n : k) + gap, ldc = m + gap;      \
        size_t na = (size_t)lda * (ta ? m : k), nb = (size_t)ldb * (tb ? k : n),                   \
               nc = (size_t)ldc * n;                                                               \
        T *a = malloc(na * parts * sizeof(T)), *b = malloc(nb * parts * sizeof(T)),                \
          *c = malloc(nc * parts * sizeof(T));                                                     \
        for (size_t i = 0; i < na * parts; i++) a[i] = (T)uniform();                               \
        for (size_t i = 0; i < nb * parts; i++) b[i] = (T)uniform();                               \
        for (size_t i = 0; i < nc * parts; i++) c[i] = (T)uniform();                               \
        if (spelling == 0)                                                                         \
            p##gemm_(&"NTC"[ta], &"NTC"[tb], &m, &n, &k, alpha, a, &lda, b, &ldb, beta, c, &ldc,   \
                     1, 1);                                                                        \
        else if (spelling == 1)                                                                    \
            cblas_##p##gemm(102, 111 + ta, 111 + tb, m, n, k, PASS_##p(alpha), a, lda, b, ldb,     \
                            PASS_##p(beta), c, ldc);                                               \
        else /* row-major: the transposed product of swapped operands */                           \
            cblas_##p##gemm(101, 111 + tb, 111 + ta, n, m, k, PASS_##p(alpha), b, ldb, a, lda,     \
                            PASS_##p(beta), c, ldc);                                               \
        if (parts == 1 && alpha[0] == 0)                                                           \
            for (size_t i = 0; i < nc; i++) c[i] += 0; /* -0 becomes 0 */                          \
        printf(#p "gemm %d %d %d %c%c spelling %d alpha %g beta %g: %016llx\n", m, n, k,           \
               "NTC"[ta], "NTC"[tb], spelling, (double)alpha[0], (double)beta[0],                  \
               (unsigned long long)hash(c, nc * parts * sizeof(T)));                               \
        free(a), free(b), free(c);                                                                 \
    }
#define PASS_s(x) *x
#define PASS_d(x) *x
#define PASS_c(x) x
#define PASS_z(x) x
KIND(s, float, 1, float)
KIND(d, double, 1, double)
KIND(c, float, 2, const void *)
KIND(z, double, 2, const void *)

int main(int argc, char **argv)
{
    int largest = argc > 1 ? atoi(argv[1]) : 300;
    static const int DIMS[] = {1, 2, 3, 7, 16, 33, 100, 257, 512, 1000};
    int count = 0;
    while (count < 10 && DIMS[count] <= largest) count++;
    static const float fs[][2] = {{0, 0}, {1, 0}, {-0.75f, 0.5f}};
    static const double ds[][2] = {{0, 0}, {1, 0}, {-0.75, 0.5}};
    unsigned turn = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            for (int l = 0; l < count; l++, turn++) {
                int m = DIMS[i], n = DIMS[j], k = DIMS[l];
                int ta = turn % 3, tb = turn / 3 % 3, al = turn / 2 % 3, be = turn / 5 % 3;
                int spelling = turn / 7 % 3;
                /* Long and thin shapes suffice above that size: this is not a benchmark. */
                if ((double)m * n * k > 3e7) continue;
                sone(m, n, k, ta, tb, fs[al], fs[be], spelling);
                done(m, n, k, tb, ta, ds[be], ds[al], spelling);
                cone(m, n, k, ta, tb, fs[al], fs[be], spelling);
                zone(m, n, k, tb, ta, ds[be], ds[al], spelling);
            }
    return 0;
}
