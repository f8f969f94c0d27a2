/* One illegal call of the routine named by the argument, without an xerbla_ of the program's own. */
#include <stdio.h>
#include <string.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dsyev_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *, size_t, size_t);

int main(int argc, char **argv)
{
    const int n = 2, wrong = -1, lwork = 64;
    const double one = 1, zero = 0;
    double a[4] = {1, 0, 0, 1}, c[4] = {7, 7, 7, 7}, w[2], work[64];
    int ipiv[2], info = 0;
    const char *r = argc > 1 ? argv[1] : "";
    if (!strcmp(r, "dgemm")) dgemm_("N", "N", &wrong, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    else if (!strcmp(r, "cblas_dgemm")) cblas_dgemm(102, 111, 111, wrong, n, n, 1, a, n, a, n, 0, c, n);
    else if (!strcmp(r, "dgetrf")) dgetrf_(&wrong, &n, a, &n, ipiv, &info);
    else if (!strcmp(r, "dpotrf")) dpotrf_("X", &n, a, &n, &info, 1);
    else if (!strcmp(r, "dsyev")) dsyev_("V", "U", &wrong, a, &n, w, work, &lwork, &info, 1, 1);
    else return 2;
    for (int i = 0; i < 4; i++)
        if (c[i] != 7) return 1;
    return 0;
}
