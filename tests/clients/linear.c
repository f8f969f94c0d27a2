/* A C client: dgemm, dgesv, dgetrf, dpotrf, dsyev, dgesdd, dsysv, zheev at n = 200, each checked by its
 * residual. Prints a line each, then the number of the process's threads; exit status 1 if one is wrong.
 * Run on every mix of BLAS and LAPACK libraries.
 */
#include <complex.h>
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dgetrs_(const char *, const int *, const int *, const double *, const int *, const int *, double *, const int *, int *, size_t);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dsyev_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *, size_t, size_t);
void dgesdd_(const char *, const int *, const int *, double *, const int *, double *, double *, const int *, double *, const int *, double *, const int *, int *, int *, size_t);
void dsysv_(const char *, const int *, const int *, double *, const int *, int *, double *, const int *, double *, const int *, int *, size_t);
void zheev_(const char *, const char *, const int *, double complex *, const int *, double *, double complex *, const int *, double *, int *, size_t, size_t);

enum { N = 200, NN = N * N, LWORK = 64 * NN / N + 8 * NN };
static const int n = N, one = 1, lwork = LWORK;
static double a[NN], s[NN], f[NN], u[NN], vt[NN], w[N], x[N], b[N], work[LWORK];
static double complex h[NN], v[NN], zwork[LWORK];
static int ipiv[N], iwork[8 * N], bad;

static double uniform(void)
{
    static unsigned long state = 42;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0 - 0.5;
}

/* LAPACK's own measure: a residual over norm, n and eps stays below 30. */
static void judge(const char *what, double residual, double norm, int info)
{
    double ratio = residual / (norm * N * DBL_EPSILON);
    int wrong = info != 0 || !(ratio < 30);
    printf("%s %s info %d ratio %.3g\n", wrong ? "WRONG" : "ok", what, info, ratio);
    bad |= wrong;
}

static double solved(const double *m, const double *sol)
{
    double most = 0;
    for (int i = 0; i < N; i++) {
        double r = -b[i];
        for (int j = 0; j < N; j++) r += m[j * N + i] * sol[j];
        most = fmax(most, fabs(r));
    }
    return most;
}

int main(void)
{
    int info = 0;
    const double d1 = 1, d0 = 0;
    for (int i = 0; i < NN; i++) a[i] = uniform();
    for (int j = 0; j < N; j++)
        for (int i = 0; i <= j; i++) s[j * N + i] = s[i * N + j] = uniform();
    for (int i = 0; i < N; i++) b[i] = uniform();

    dgemm_("N", "T", &n, &n, &n, &d1, a, &n, s, &n, &d0, f, &n, 1, 1);
    double most = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double r = -f[j * N + i];
            for (int k = 0; k < N; k++) r += a[k * N + i] * s[k * N + j];
            most = fmax(most, fabs(r));
        }
    judge("dgemm", most, N / 4., 0);

    memcpy(f, a, sizeof a), memcpy(x, b, sizeof b);
    dgesv_(&n, &one, f, &n, ipiv, x, &n, &info);
    double size = 1;
    for (int i = 0; i < N; i++) size = fmax(size, fabs(x[i]));
    judge("dgesv", solved(a, x), size, info);

    memcpy(f, a, sizeof a), memcpy(x, b, sizeof b);
    dgetrf_(&n, &n, f, &n, ipiv, &info);
    int info2 = info;
    dgetrs_("N", &n, &one, f, &n, ipiv, x, &n, &info, 1);
    judge("dgetrf + dgetrs", solved(a, x), size, info | info2);

    memcpy(f, s, sizeof s);
    for (int i = 0; i < N; i++) f[i * N + i] += N;
    memcpy(u, f, sizeof f);
    dpotrf_("L", &n, f, &n, &info, 1);
    most = 0;
    for (int j = 0; j < N; j++)
        for (int i = j; i < N; i++) {
            double r = -u[j * N + i];
            for (int k = 0; k <= j; k++) r += f[k * N + i] * f[k * N + j];
            most = fmax(most, fabs(r));
        }
    judge("dpotrf", most, N, info);

    memcpy(f, s, sizeof s);
    dsyev_("V", "U", &n, f, &n, w, work, &lwork, &info, 1, 1);
    most = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double r = -w[j] * f[j * N + i];
            for (int k = 0; k < N; k++) r += s[k * N + i] * f[j * N + k];
            most = fmax(most, fabs(r));
        }
    judge("dsyev", most, fmax(fabs(w[0]), fabs(w[N - 1])), info);

    memcpy(f, a, sizeof a);
    dgesdd_("A", &n, &n, f, &n, w, u, &n, vt, &n, work, &lwork, iwork, &info, 1);
    most = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double r = -a[j * N + i];
            for (int k = 0; k < N; k++) r += u[k * N + i] * w[k] * vt[j * N + k];
            most = fmax(most, fabs(r));
        }
    judge("dgesdd", most, w[0], info);

    memcpy(f, s, sizeof s), memcpy(x, b, sizeof b);
    dsysv_("U", &n, &one, f, &n, ipiv, x, &n, work, &lwork, &info, 1);
    size = 1;
    for (int i = 0; i < N; i++) size = fmax(size, fabs(x[i]));
    judge("dsysv", solved(s, x), size, info);

    for (int j = 0; j < N; j++)
        for (int i = 0; i <= j; i++) {
            double complex z = uniform() + (i == j ? 0 : uniform() * I);
            h[j * N + i] = z, h[i * N + j] = conj(z);
        }
    memcpy(v, h, sizeof h);
    static double rwork[3 * N];
    zheev_("V", "L", &n, v, &n, w, zwork, &lwork, rwork, &info, 1, 1);
    most = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double complex r = -w[j] * v[j * N + i];
            for (int k = 0; k < N; k++) r += h[k * N + i] * v[j * N + k];
            most = fmax(most, cabs(r));
        }
    judge("zheev", most, fmax(fabs(w[0]), fabs(w[N - 1])), info);

    int tasks = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) tasks += e->d_name[0] != '.';
    printf("threads %d\n", tasks);
    return bad;
}
