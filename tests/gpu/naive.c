/* The same cases as level3.c by plain CUDA: what a first port of a program does (copy the operands from
 * ordinary memory, compute, copy the result back; device memory is allocated before the clock starts), and
 * the kernel alone. cuBLAS's default arithmetic. Built where CUDA is:
 *   nvcc -O2 -o naive naive.c -lcublas
 * Prints one JSON object a case with naive_ms and kernel_ms (medians).
 */
#include <cublas_v2.h>
#include <cuComplex.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 5 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void check(int code, const char *what)
{
    if (code) { fprintf(stderr, "%s: error %d\n", what, code); exit(1); }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms)
{
    qsort(ms, RUNS, sizeof *ms, ascending);
    return ms[RUNS / 2];
}

/* Random numbers of [-0.5, 0.5) in either precision; never zeros, which draw less power. */
static void fill(char *p, size_t bytes, int single)
{
    unsigned long x = 88172645463325252ul;
    size_t block = bytes < (1 << 20) ? bytes : (1 << 20);
    for (size_t i = 0; i + 8 <= block; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        double value = (double)(x >> 11) / 9007199254740992.0 - 0.5;
        float narrow[2] = {(float)value, (float)-value};
        memcpy(p + i, single ? (void *)narrow : (void *)&value, 8);
    }
    for (size_t at = block; at < bytes; at += block)
        memcpy(p + at, p, bytes - at < block ? bytes - at : block);
}

int main(void)
{
    char routine[16], output[16];
    int m, n, k;
    cublasHandle_t h;
    check(cublasCreate(&h), "cublasCreate");
    cudaEvent_t from, to;
    check(cudaEventCreate(&from), "event");
    check(cudaEventCreate(&to), "event");
    while (scanf("%15s %d %d %d %15s", routine, &m, &n, &k, output) == 5) {
        const int single = routine[0] == 's', complex_ = routine[0] == 'z';
        const size_t each = single ? 4 : complex_ ? 16 : 8;
        const int gemm = !strcmp(routine + 1, "gemm"), syrk = !strcmp(routine, "dsyrk");
        const int symm = !strcmp(routine, "dsymm"), in_place = !gemm && !syrk && !symm;
        const size_t a_bytes = each * m * (size_t)(gemm || syrk ? k : m);
        const size_t b_bytes = gemm ? each * k * (size_t)n : symm ? each * m * (size_t)n : 0;
        const size_t c_bytes = each * m * (size_t)n;
        char *a = malloc(a_bytes), *b = malloc(b_bytes + 1), *c = malloc(c_bytes);
        if (!a || !b || !c) { fprintf(stderr, "no memory\n"); return 1; }
        fill(a, a_bytes, single);
        fill(b, b_bytes, single);
        fill(c, c_bytes, single);
        if (in_place) {
            double *t = (double *)a;
            for (size_t i = 0; i < (size_t)m * m; i++) t[i] /= m;
            for (size_t i = 0; i < (size_t)m; i++) t[i * m + i] = 2;
        }
        void *da, *db, *dc;
        check(cudaMalloc(&da, a_bytes), "cudaMalloc");
        check(cudaMalloc(&db, b_bytes + 1), "cudaMalloc");
        check(cudaMalloc(&dc, c_bytes), "cudaMalloc");
        const float s1 = 1, s0 = 0;
        const double d1 = 1, d0 = 0;
        const cuDoubleComplex z1 = {1, 0}, z0 = {0, 0};
        double naive[RUNS], kernel[RUNS];
        for (int r = -1; r < RUNS; r++) {
            double t = now_ms();
            check(cudaMemcpy(da, a, a_bytes, cudaMemcpyHostToDevice), "copy");
            if (b_bytes) check(cudaMemcpy(db, b, b_bytes, cudaMemcpyHostToDevice), "copy");
            if (in_place) check(cudaMemcpy(dc, c, c_bytes, cudaMemcpyHostToDevice), "copy");
            check(cudaEventRecord(from, 0), "record");
            int code = -1;
            if (!strcmp(routine, "dgemm")) code = cublasDgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &d1, da, m, db, k, &d0, dc, m);
            else if (!strcmp(routine, "sgemm")) code = cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &s1, da, m, db, k, &s0, dc, m);
            else if (!strcmp(routine, "zgemm")) code = cublasZgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &z1, da, m, db, k, &z0, dc, m);
            else if (syrk) code = cublasDsyrk(h, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, n, k, &d1, da, n, &d0, dc, n);
            else if (symm) code = cublasDsymm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, m, n, &d1, da, m, db, m, &d0, dc, m);
            else if (!strcmp(routine, "dtrsm")) code = cublasDtrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n, &d1, da, m, dc, m);
            else if (!strcmp(routine, "dtrmm")) code = cublasDtrmm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n, &d1, da, m, dc, m, dc, m);
            check(code, routine);
            check(cudaEventRecord(to, 0), "record");
            check(cudaMemcpy(c, dc, c_bytes, cudaMemcpyDeviceToHost), "copy");
            t = now_ms() - t;
            float alone;
            check(cudaEventElapsedTime(&alone, from, to), "elapsed");
            if (r >= 0) naive[r] = t, kernel[r] = alone;
        }
        printf("{\"routine\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"output\": \"%s\", \"naive_ms\": %.4f, \"kernel_ms\": %.4f}\n",
               routine, m, n, k, output, median(naive), median(kernel));
        fflush(stdout);
        cudaFree(da), cudaFree(db), cudaFree(dc);
        free(a), free(b), free(c);
    }
    return 0;
}
