/* A program linked with -lopenblas and nothing else: BLAS, LAPACK, LAPACKE where the library has it, and
 * OpenBLAS's own functions. Arguments: a word that must be part of a mapped file's name, or !word for one
 * that must not. */
#define _GNU_SOURCE
#include "mapped.h"
#include <dlfcn.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
            const int *, const double *, const int *, const double *, double *, const int *);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
void openblas_set_num_threads(int);
int openblas_get_num_threads(void);
char *openblas_get_config(void);

int main(int argc, char **argv) {
    int two = 2, one = 1, pivots[2], info = -1;
    double a[4] = {2, 1, 1, 3}, unit[4] = {1, 0, 0, 1}, c[4], b[2] = {10, 15}, yes = 1, no = 0;
    dgemm_("N", "N", &two, &two, &two, &yes, a, &two, unit, &two, &no, c, &two);
    openblas_set_num_threads(1);
    dgesv_(&two, &one, c, &two, pivots, b, &two, &info);
    if (info || b[0] < 2.99 || b[0] > 3.01 || b[1] < 3.99 || b[1] > 4.01) {
        printf("dgesv: info %d, %g %g\n", info, b[0], b[1]);
        return 1;
    }
    if (openblas_get_num_threads() != 1 || strncmp(openblas_get_config(), "OpenBLAS", 8)) {
        printf("%d threads, %s\n", openblas_get_num_threads(), openblas_get_config());
        return 1;
    }
    int (*lapacke)(int, int, int, double *, int, int *, double *, int) =
        (int (*)(int, int, int, double *, int, int *, double *, int))dlsym(RTLD_DEFAULT, "LAPACKE_dgesv");
    double d[2] = {10, 15};
    if (lapacke ? lapacke(102, 2, 1, a, 2, pivots, d, 2) : mapped("gpu-offload/libopenblas.so.0")) {
        printf("LAPACKE_dgesv %s\n", lapacke ? "fails" : "is missing");
        return 1;
    }
    return judge_mapped(argc, argv);
}
