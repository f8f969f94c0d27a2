/* C callers that omit the hidden string lengths (case F6): the results are right and the caller's
 * frame is as it was. Compiled with -O2 -fstack-protector-all; beside the compiler's canary, a block of
 * the caller's own stack around the calls is compared.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void dsyev_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *);
void dposv_(const char *, const int *, const int *, double *, const int *, double *, const int *, int *);
void dgesvd_(const char *, const char *, const int *, const int *, double *, const int *, double *, double *, const int *, double *, const int *, double *, const int *, int *);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *);
void dtrsm_(const char *, const char *, const char *, const char *, const int *, const int *, const double *, const double *, const int *, double *, const int *);
void dpotrf_(const char *, const int *, double *, const int *, int *);
void dgetrs_(const char *, const int *, const int *, const double *, const int *, const int *, double *, const int *, int *);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);

static int bad;
static void near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-12)) printf("WRONG %s: %.17g, expected %.17g\n", what, got, wanted), bad = 1;
}

__attribute__((noinline)) static void calls(void)
{
    volatile uint64_t guard[32];
    for (int i = 0; i < 32; i++) guard[i] = 0xDEADBEEFCAFEF00Dull ^ i;
    const int n = 2, one = 1, lwork = 64;
    const double alpha = 1, beta = 0;
    int info = -9, ipiv[2];
    double work[64], w[2], u[4], vt[4];

    double s[] = {2, 1, 1, 2};
    dsyev_("V", "U", &n, s, &n, w, work, &lwork, &info);
    near("dsyev w1", w[0], 1), near("dsyev w2", w[1], 3), near("dsyev info", info, 0);

    double p[] = {4, 2, 2, 3}, b[] = {8, 7};
    dposv_("L", &n, &one, p, &n, b, &n, &info);
    near("dposv x1", b[0], 1.25), near("dposv x2", b[1], 1.5), near("dposv info", info, 0);

    double g[] = {3, 0, 0, -4};
    dgesvd_("A", "A", &n, &n, g, &n, w, u, &n, vt, &n, work, &lwork, &info);
    near("dgesvd s1", w[0], 4), near("dgesvd s2", w[1], 3), near("dgesvd info", info, 0);

    double a[] = {1, 2, 3, 4}, c[4] = {NAN, NAN, NAN, NAN};
    dgemm_("N", "T", &n, &n, &n, &alpha, a, &n, a, &n, &beta, c, &n);
    near("dgemm c11", c[0], 10), near("dgemm c12", c[2], 14), near("dgemm c22", c[3], 20);

    double t[] = {2, 1, 0, 4}, x[] = {2, 9};
    dtrsm_("L", "L", "N", "N", &n, &one, &alpha, t, &n, x, &n);
    near("dtrsm x1", x[0], 1), near("dtrsm x2", x[1], 2);

    double f[] = {4, 2, 2, 5};
    dpotrf_("L", &n, f, &n, &info);
    near("dpotrf l11", f[0], 2), near("dpotrf l21", f[1], 1), near("dpotrf l22", f[3], 2);

    double l[] = {0, 2, 4, 6}, r[] = {4, 8};
    dgetrf_(&n, &n, l, &n, ipiv, &info);
    dgetrs_("N", &n, &one, l, &n, ipiv, r, &n, &info);
    near("dgetrs x1", r[0], 1), near("dgetrs x2", r[1], 1);

    for (int i = 0; i < 32; i++)
        if (guard[i] != (0xDEADBEEFCAFEF00Dull ^ i)) printf("WRONG stack word %d changed\n", i), bad = 1;
}

int main(void)
{
    for (int i = 0; i < 100; i++) calls();
    return bad;
}
