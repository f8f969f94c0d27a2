/* Calls one routine a given number of times with operands of one small size; callgrind counts the
 * instructions. Arguments: routine, n, calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double ddot_(const int *, const double *, const int *, const double *, const int *);
void dgemv_(const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void dtrsm_(const char *, const char *, const char *, const char *, const int *, const int *, const double *, const double *, const int *, double *, const int *, size_t, size_t, size_t, size_t);
void cblas_dtrsm(int, int, int, int, int, int, int, double, const double *, int, double *, int);
void dsyrk_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void cblas_dsyrk(int, int, int, int, int, double, const double *, int, double, double *, int);
void dsymm_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void cblas_dsymm(int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dgeqrf_(const int *, const int *, double *, const int *, double *, double *, const int *, int *);
void dsyevd_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *, const int *, int *, size_t, size_t);
void dtrtri_(const char *, const char *, const int *, double *, const int *, int *, size_t, size_t);
void dgeqr2_(const int *, const int *, double *, const int *, double *, double *, int *);

enum { MOST = 64 };
static double a[MOST * MOST], b[MOST * MOST], c[MOST * MOST], tau[MOST];
static int ipiv[MOST];
static volatile double sink;

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    const char *r = argv[1];
    const int n = atoi(argv[2]), calls = atoi(argv[3]), one = 1, room = MOST * MOST, iroom = MOST;
    const double d1 = 1, d0 = 0;
    int info = 0;
    if (n < 1 || n > MOST) return 2;
    for (int i = 0; i < n * n; i++) b[i] = i % (n + 1) ? 0.01 * (i % 7) : n;
    memcpy(a, b, sizeof a);
    for (int i = 0; i < calls; i++) {
        if (!strcmp(r, "ddot")) sink = ddot_(&n, a, &one, b, &one);
        else if (!strcmp(r, "dgemv")) dgemv_("N", &n, &n, &d1, a, &n, b, &one, &d0, c, &one, 1);
        else if (!strcmp(r, "dgemm")) dgemm_("N", "N", &n, &n, &n, &d1, a, &n, b, &n, &d0, c, &n, 1, 1);
        else if (!strcmp(r, "cblas_dgemm")) cblas_dgemm(102, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
        else if (!strcmp(r, "dtrsm")) dtrsm_("L", "L", "N", "U", &n, &n, &d1, a, &n, c, &n, 1, 1, 1, 1);
        else if (!strcmp(r, "cblas_dtrsm")) cblas_dtrsm(102, 141, 122, 111, 132, n, n, 1, a, n, c, n);
        else if (!strcmp(r, "dsyrk")) dsyrk_("U", "N", &n, &n, &d1, a, &n, &d0, c, &n, 1, 1);
        else if (!strcmp(r, "cblas_dsyrk")) cblas_dsyrk(102, 121, 111, n, n, 1, a, n, 0, c, n);
        else if (!strcmp(r, "dsymm")) dsymm_("L", "U", &n, &n, &d1, a, &n, b, &n, &d0, c, &n, 1, 1);
        else if (!strcmp(r, "cblas_dsymm")) cblas_dsymm(102, 141, 121, n, n, 1, a, n, b, n, 0, c, n);
        else {
            memcpy(a, b, sizeof(double) * n * n); /* in place: the same matrix every time */
            if (!strcmp(r, "dpotrf")) dpotrf_("L", &n, a, &n, &info, 1);
            else if (!strcmp(r, "dgetrf")) dgetrf_(&n, &n, a, &n, ipiv, &info);
            else if (!strcmp(r, "dgeqrf")) dgeqrf_(&n, &n, a, &n, tau, c, &room, &info);
            else if (!strcmp(r, "dsyevd")) dsyevd_("N", "L", &n, a, &n, tau, c, &room, ipiv, &iroom, &info, 1, 1);
            else if (!strcmp(r, "dtrtri")) dtrtri_("L", "N", &n, a, &n, &info, 1, 1);
            else if (!strcmp(r, "dgeqr2")) dgeqr2_(&n, &n, a, &n, tau, c, &info);
            else return 2;
            if (info) return 1;
        }
    }
    return 0;
}
