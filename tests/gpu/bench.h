/* What the clients of this folder share: a clock, data, the cases of bench.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static inline void *memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) { fprintf(stderr, "no memory for %zu bytes\n", bytes); exit(1); }
    return p;
}

/* Random numbers of [-0.5, 0.5): a block of them over and over, which no arithmetic can tell apart. Never
 * zeros, which draw less power. */
static inline void fill(void *p, size_t bytes, int single)
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

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One case: a line "routine m n k output", and its operands. b is NULL where there is none. */
struct bench_case {
    char routine[16], output[16];
    int m, n, k;
    int syrk, in_place;
    size_t a_bytes, b_bytes, c_bytes;
    char *a, *b, *c;
};

/* Reads a case and makes its operands; 0 at the end. */
static inline int next_case(struct bench_case *x)
{
    if (scanf("%15s %d %d %d %15s", x->routine, &x->m, &x->n, &x->k, x->output) != 5) return 0;
    const int single = x->routine[0] == 's', gemm = !strcmp(x->routine + 1, "gemm");
    const size_t each = single ? 4 : x->routine[0] == 'z' ? 16 : 8, m = x->m, n = x->n, k = x->k;
    x->syrk = !strcmp(x->routine, "dsyrk");
    x->in_place = !gemm && !x->syrk && strcmp(x->routine, "dsymm");
    x->a_bytes = each * (x->syrk ? n : m) * (gemm || x->syrk ? k : m);
    x->b_bytes = gemm ? each * k * n : x->syrk || x->in_place ? 0 : each * m * n;
    x->c_bytes = each * (x->syrk ? n : m) * n;
    x->a = memory(x->a_bytes), x->b = x->b_bytes ? memory(x->b_bytes) : NULL, x->c = memory(x->c_bytes);
    fill(x->a, x->a_bytes, single);
    fill(x->b, x->b_bytes, single);
    fill(x->c, x->c_bytes, single);
    if (x->in_place) { /* well-conditioned, so that repeated calls stay finite */
        double *t = (double *)x->a;
        for (size_t i = 0; i < m * m; i++) t[i] /= m;
        for (size_t i = 0; i < m; i++) t[i * m + i] = 2;
    }
    return 1;
}
