/* The same cases as level3.c by plain CUDA: what a first port of a program does (copy the operands from
 * ordinary memory, compute, copy the result back; device memory is allocated before the clock starts), and
 * the kernel alone. cuBLAS's default arithmetic. Built where CUDA is:
 *   nvcc -O2 -o naive naive.c -lcublas
 * Prints one JSON object a case with naive_ms and kernel_ms (medians).
 */
#include <cublas_v2.h>
#include <cuComplex.h>
#include <cuda_runtime.h>

#include "bench.h"

enum { RUNS = 5 };

static void check(int code, const char *what)
{
    if (code) { fprintf(stderr, "%s: error %d\n", what, code); exit(1); }
}

static double median(double *ms)
{
    qsort(ms, RUNS, sizeof *ms, ascending);
    return ms[RUNS / 2];
}

int main(void)
{
    struct bench_case x;
    cublasHandle_t h;
    check(cublasCreate(&h), "cublasCreate");
    cudaEvent_t from, to;
    check(cudaEventCreate(&from), "event");
    check(cudaEventCreate(&to), "event");
    while (next_case(&x)) {
        const char *routine = x.routine;
        const int m = x.m, n = x.n, k = x.k;
        void *da, *db, *dc;
        check(cudaMalloc(&da, x.a_bytes), "cudaMalloc");
        check(cudaMalloc(&db, x.b_bytes + 1), "cudaMalloc");
        check(cudaMalloc(&dc, x.c_bytes), "cudaMalloc");
        const float s1 = 1, s0 = 0;
        const double d1 = 1, d0 = 0;
        const cuDoubleComplex z1 = {1, 0}, z0 = {0, 0};
        double naive[RUNS], kernel[RUNS];
        for (int r = -1; r < RUNS; r++) {
            double t = now_ms();
            check(cudaMemcpy(da, x.a, x.a_bytes, cudaMemcpyHostToDevice), "copy");
            if (x.b_bytes) check(cudaMemcpy(db, x.b, x.b_bytes, cudaMemcpyHostToDevice), "copy");
            if (x.in_place) check(cudaMemcpy(dc, x.c, x.c_bytes, cudaMemcpyHostToDevice), "copy");
            check(cudaEventRecord(from, 0), "record");
            int code = -1;
            if (!strcmp(routine, "dgemm")) code = cublasDgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &d1, da, m, db, k, &d0, dc, m);
            else if (!strcmp(routine, "sgemm")) code = cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &s1, da, m, db, k, &s0, dc, m);
            else if (!strcmp(routine, "zgemm")) code = cublasZgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &z1, da, m, db, k, &z0, dc, m);
            else if (x.syrk) code = cublasDsyrk(h, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, n, k, &d1, da, n, &d0, dc, n);
            else if (!strcmp(routine, "dsymm")) code = cublasDsymm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, m, n, &d1, da, m, db, m, &d0, dc, m);
            else if (!strcmp(routine, "dtrsm")) code = cublasDtrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n, &d1, da, m, dc, m);
            else if (!strcmp(routine, "dtrmm")) code = cublasDtrmm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n, &d1, da, m, dc, m, dc, m);
            check(code, routine);
            check(cudaEventRecord(to, 0), "record");
            check(cudaMemcpy(x.c, dc, x.c_bytes, cudaMemcpyDeviceToHost), "copy");
            t = now_ms() - t;
            float alone;
            check(cudaEventElapsedTime(&alone, from, to), "elapsed");
            if (r >= 0) naive[r] = t, kernel[r] = alone;
        }
        printf("{\"routine\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"output\": \"%s\", \"naive_ms\": %.4f, \"kernel_ms\": %.4f}\n",
               routine, m, n, k, x.output, median(naive), median(kernel));
        fflush(stdout);
        cudaFree(da), cudaFree(db), cudaFree(dc);
        free(x.a), free(x.b), free(x.c);
    }
    return 0;
}
