/* LAPACKE as a C program meets it: the headers of the prefix, both layouts, a high-level function that brings its own
 * workspace and one with the caller's, a complex one, an illegal argument and NaN in the input.
 */
#include <lapacke.h>
#include <math.h>
#include <stdio.h>

static int bad;

static void near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-12)) printf("WRONG %s: %.17g, expected %.17g\n", what, got, wanted), bad = 1;
}

int main(void)
{
    for (int layout = LAPACK_ROW_MAJOR; layout <= LAPACK_COL_MAJOR; layout++) {
        int rows = layout == LAPACK_ROW_MAJOR;
        lapack_int ipiv[2];
        /* A = [1 2; 3 4], x = [1 2; -1 1] and B = A x = [-1 4; -1 10]. */
        double a[] = {1, rows ? 2 : 3, rows ? 3 : 2, 4}, b[] = {-1, rows ? 4 : -1, rows ? -1 : 4, 10};
        near("dgesv info", LAPACKE_dgesv(layout, 2, 2, a, 2, ipiv, b, 2), 0);
        near("dgesv x11", b[0], 1), near("dgesv x12", b[rows ? 1 : 2], 2);
        near("dgesv x21", b[rows ? 2 : 1], -1), near("dgesv x22", b[3], 1);

        double s[] = {2, 1, 1, 2}, w[2], work[64];
        near("dsyevd info", LAPACKE_dsyevd(layout, 'V', 'U', 2, s, 2, w), 0);
        near("dsyevd w1", w[0], 1), near("dsyevd w2", w[1], 3);
        double t[] = {2, 1, 1, 2};
        near("dsyev_work info", LAPACKE_dsyev_work(layout, 'N', 'L', 2, t, 2, w, work, 64), 0);
        near("dsyev_work w2", w[1], 3);

        /* Hermitian: [2 i; -i 2] has the eigenvalues 1 and 3, and the determinant 3. */
        lapack_complex_double i = lapack_make_complex_double(0, 1);
        lapack_complex_double h[] = {2, rows ? i : -i, rows ? -i : i, 2};
        near("zpotrf info", LAPACKE_zpotrf(layout, 'L', 2, h, 2), 0);
        near("zpotrf l11", lapack_complex_double_real(h[0]), sqrt(2));
        near("zpotrf l22", lapack_complex_double_real(h[3]), sqrt(1.5));

        double f[] = {3, 0, 0, -4}, sigma[2], u[4], vt[4];
        near("dgesdd info", LAPACKE_dgesdd(layout, 'A', 2, 2, f, 2, sigma, u, 2, vt, 2), 0);
        near("dgesdd s1", sigma[0], 4), near("dgesdd s2", sigma[1], 3);

        double nan_in[] = {1, NAN, 2, 1};
        near("dgetrf of NaN", LAPACKE_dgetrf(layout, 2, 2, nan_in, 2, ipiv), -4);
        near("dgetrf of n = -1", LAPACKE_dgetrf_work(layout, 2, -1, a, 2, ipiv), -3);
    }
    return bad;
}
