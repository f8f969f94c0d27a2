/* A program of a conda environment: BLAS, CBLAS and LAPACK under conda-forge's names. Arguments: words that
 * must be part of a mapped file's name, or !word for those that must not. With -DLAPACK_ONLY it needs
 * liblapack.so.3 and nothing else. */
#include "mapped.h"

void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *,
                 int);
double ddot_(const int *, const double *, const int *, const double *, const int *);

int main(int argc, char **argv) {
    int two = 2, one = 1, pivots[2], info = -1;
    double a[4] = {2, 1, 1, 3}, b[2] = {10, 15};
#ifndef LAPACK_ONLY
    double c[4], unit[4] = {1, 0, 0, 1};
    cblas_dgemm(102, 111, 111, 2, 2, 2, 1, a, 2, unit, 2, 0, c, 2);
    if (ddot_(&two, c, &one, c, &one) != 5) {
        printf("cblas_dgemm, ddot: %g %g\n", c[0], c[1]);
        return 1;
    }
#endif
    dgesv_(&two, &one, a, &two, pivots, b, &two, &info);
    if (info || b[0] < 2.99 || b[0] > 3.01 || b[1] < 3.99 || b[1] > 4.01) {
        printf("dgesv: info %d, %g %g\n", info, b[0], b[1]);
        return 1;
    }
    return judge_mapped(argc, argv);
}
