/* Functions that return complex or single-precision values, called from C by gfortran's convention
 * (case F5): complex values come back in xmm registers, float functions return float.
 */
#include <complex.h>
#include <math.h>
#include <stdio.h>

double complex zdotc_(const int *, const double complex *, const int *, const double complex *, const int *);
double complex zdotu_(const int *, const double complex *, const int *, const double complex *, const int *);
float complex cdotc_(const int *, const float complex *, const int *, const float complex *, const int *);
float complex cdotu_(const int *, const float complex *, const int *, const float complex *, const int *);
double complex zladiv_(const double complex *, const double complex *);
float complex cladiv_(const float complex *, const float complex *);
void cblas_zdotc_sub(int, const void *, int, const void *, int, void *);
void cblas_zdotu_sub(int, const void *, int, const void *, int, void *);
void cblas_cdotc_sub(int, const void *, int, const void *, int, void *);
void cblas_cdotu_sub(int, const void *, int, const void *, int, void *);
float sdot_(const int *, const float *, const int *, const float *, const int *);
float sdsdot_(const int *, const float *, const float *, const int *, const float *, const int *);
double dsdot_(const int *, const float *, const int *, const float *, const int *);
float snrm2_(const int *, const float *, const int *);
float sasum_(const int *, const float *, const int *);
float scnrm2_(const int *, const float complex *, const int *);
float scasum_(const int *, const float complex *, const int *);
double dznrm2_(const int *, const double complex *, const int *);
float slamch_(const char *, size_t);
double dlamch_(const char *, size_t);
float slange_(const char *, const int *, const int *, const float *, const int *, float *, size_t);
float clange_(const char *, const int *, const int *, const float complex *, const int *, float *, size_t);
float slapy2_(const float *, const float *);

static int bad;
static void same(const char *what, double complex got, double complex wanted)
{
    if (cabs(got - wanted) > 1e-6 * (1 + cabs(wanted))) {
        printf("WRONG %s: (%g, %g), expected (%g, %g)\n", what, creal(got), cimag(got), creal(wanted), cimag(wanted));
        bad = 1;
    }
}

int main(void)
{
    const int n = 3, one = 1;
    const double complex zx[] = {1 + 2 * I, 3 - 1 * I, -2 + 1 * I}, zy[] = {2 - 1 * I, 1 + 1 * I, 4 + 3 * I};
    const float complex cx[] = {1 + 2 * I, 3 - 1 * I, -2 + 1 * I}, cy[] = {2 - 1 * I, 1 + 1 * I, 4 + 3 * I};
    double complex u = 0, c = 0, z;
    float complex f;
    for (int i = 0; i < n; i++) u += zx[i] * zy[i], c += conj(zx[i]) * zy[i];
    same("zdotu", zdotu_(&n, zx, &one, zy, &one), u);
    same("zdotc", zdotc_(&n, zx, &one, zy, &one), c);
    same("cdotu", cdotu_(&n, cx, &one, cy, &one), u);
    same("cdotc", cdotc_(&n, cx, &one, cy, &one), c);
    cblas_zdotu_sub(n, zx, 1, zy, 1, &z), same("cblas_zdotu_sub", z, u);
    cblas_zdotc_sub(n, zx, 1, zy, 1, &z), same("cblas_zdotc_sub", z, c);
    cblas_cdotu_sub(n, cx, 1, cy, 1, &f), same("cblas_cdotu_sub", f, u);
    cblas_cdotc_sub(n, cx, 1, cy, 1, &f), same("cblas_cdotc_sub", f, c);
    same("zladiv", zladiv_(&zx[0], &zy[0]), zx[0] / zy[0]);
    same("cladiv", cladiv_(&cx[0], &cy[0]), zx[0] / zy[0]);
    const float sx[] = {3, 4, 12}, sy[] = {1, 0.5f, -2}, b = 10;
    same("sdot", sdot_(&n, sx, &one, sy, &one), 3 + 2 - 24);
    same("sdsdot", sdsdot_(&n, &b, sx, &one, sy, &one), 10 + 3 + 2 - 24);
    same("dsdot", dsdot_(&n, sx, &one, sy, &one), 3 + 2 - 24);
    same("snrm2", snrm2_(&n, sx, &one), 13);
    same("sasum", sasum_(&n, sx, &one), 19);
    same("scnrm2", scnrm2_(&n, cx, &one), sqrt(20));
    same("dznrm2", dznrm2_(&n, zx, &one), sqrt(20));
    same("scasum", scasum_(&n, cx, &one), 10);
    same("slamch eps", slamch_("E", 1) / 5.9604645e-8, 1);
    same("dlamch eps", dlamch_("E", 1) / 1.1102230246251565e-16, 1);
    float work[4];
    same("slange", slange_("M", &n, &one, sx, &n, work, 1), 12);
    same("clange", clange_("1", &n, &one, cx, &n, work, 1), 2 * sqrt(5) + sqrt(10));
    same("slapy2", slapy2_(&sx[0], &sx[1]), 5);
    return bad;
}
