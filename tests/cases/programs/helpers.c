/* The names that OpenBLAS lacks and libblas.so.3 and liblapack.so.3 add: netlib CBLAS's Fortran helpers, the absolute
 * values of a complex number, CBLAS's two flags, and the parts of the old ?lamch. Each is called.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

static int bad;

static void same(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-6 * fabs(wanted))) {
        printf("WRONG %s: %.17g, expected %.17g\n", what, got, wanted);
        bad = 1;
    }
}

extern int RowMajorStrg, CBLAS_CallFromC;
double cblas_dcabs1(const void *), dcabs1_(const void *);
float cblas_scabs1(const void *), scabs1_(const void *);

/* x = (3, -4, 12), y = (1, 2, -1); as complex numbers u = (1 + 2i, 3 - i), v = (2 - i, 1 + i). */
#define REAL(p, T)                                                                                        \
    void p##asumsub_(const int *, const T *, const int *, T *);                                           \
    void p##nrm2sub_(const int *, const T *, const int *, T *);                                           \
    void i##p##amaxsub_(const int *, const T *, const int *, int *);                                      \
    void p##dotsub_(const int *, const T *, const int *, const T *, const int *, T *);                    \
    static void p##real(void)                                                                             \
    {                                                                                                     \
        const int n = 3, one = 1;                                                                         \
        const T x[] = {3, -4, 12}, y[] = {1, 2, -1};                                                      \
        T value = -1;                                                                                     \
        int index = -1;                                                                                   \
        p##asumsub_(&n, x, &one, &value), same(#p "asumsub", value, 19);                                  \
        p##nrm2sub_(&n, x, &one, &value), same(#p "nrm2sub", value, 13);                                  \
        i##p##amaxsub_(&n, x, &one, &index), same("i" #p "amaxsub", index, 3);                            \
        p##dotsub_(&n, x, &one, y, &one, &value), same(#p "dotsub", value, -17);                          \
    }
REAL(s, float) REAL(d, double)

#define COMPLEX(p, T, asum, nrm2, cabs1)                                                                  \
    void asum(const int *, const T *, const int *, T *);                                                  \
    void nrm2(const int *, const T *, const int *, T *);                                                  \
    void cabs1(const T *, T *);                                                                           \
    void i##p##amaxsub_(const int *, const T *, const int *, int *);                                      \
    void p##dotusub_(const int *, const T *, const int *, const T *, const int *, T *);                   \
    void p##dotcsub_(const int *, const T *, const int *, const T *, const int *, T *);                   \
    static void p##complex(void)                                                                          \
    {                                                                                                     \
        const int n = 2, one = 1;                                                                         \
        const T u[] = {1, 2, 3, -1}, v[] = {2, -1, 1, 1};                                                 \
        T value = -1, pair[2] = {-1, -1};                                                                 \
        int index = -1;                                                                                   \
        asum(&n, u, &one, &value), same(#asum, value, 7);                                                 \
        nrm2(&n, u, &one, &value), same(#nrm2, value, sqrt(15));                                          \
        cabs1(u + 2, &value), same(#cabs1, value, 4);                                                     \
        i##p##amaxsub_(&n, u, &one, &index), same("i" #p "amaxsub", index, 2);                            \
        p##dotusub_(&n, u, &one, v, &one, pair);                                                          \
        same(#p "dotusub, real part", pair[0], 8), same(#p "dotusub, imaginary part", pair[1], 5);        \
        p##dotcsub_(&n, u, &one, v, &one, pair);                                                          \
        same(#p "dotcsub, real part", pair[0], 2), same(#p "dotcsub, imaginary part", pair[1], -1);       \
    }
COMPLEX(c, float, scasumsub_, scnrm2sub_, scabs1sub_)
COMPLEX(z, double, dzasumsub_, dznrm2sub_, dcabs1sub_)

void dsdotsub_(const int *, const float *, const int *, const float *, const int *, double *);
void sdsdotsub_(const int *, const float *, const float *, const int *, const float *, const int *, float *);

#define LAMC(p, T, PREFIX)                                                                                \
    void p##lamc1_(int *, int *, int *, int *);                                                           \
    void p##lamc2_(int *, int *, int *, T *, int *, T *, int *, T *);                                     \
    T p##lamc3_(const T *, const T *);                                                                    \
    void p##lamc4_(int *, const T *, const int *);                                                        \
    void p##lamc5_(const int *, const int *, const int *, const int *, int *, T *);                       \
    T p##lamch_(const char *, size_t);                                                                    \
    static void p##lamc(void)                                                                             \
    {                                                                                                     \
        int beta, t, rnd, ieee, emin, emax;                                                               \
        T eps, rmin, rmax;                                                                                \
        const T a = 1, b = 2;                                                                             \
        p##lamc1_(&beta, &t, &rnd, &ieee);                                                                \
        same(#p "lamc1 beta", beta, 2), same(#p "lamc1 t", t, PREFIX##_MANT_DIG);                         \
        same(#p "lamc1 rnd", rnd, 1), same(#p "lamc1 ieee", ieee, 1);                                     \
        p##lamc2_(&beta, &t, &rnd, &eps, &emin, &rmin, &emax, &rmax);                                     \
        same(#p "lamc2 eps", eps, p##lamch_("E", 1)), same(#p "lamc2 emin", emin, p##lamch_("M", 1));     \
        same(#p "lamc2 rmin", rmin, p##lamch_("U", 1)), same(#p "lamc2 emax", emax, p##lamch_("L", 1));   \
        same(#p "lamc2 rmax", rmax, p##lamch_("O", 1)), same(#p "lamc2 t", t, p##lamch_("N", 1));         \
        same(#p "lamc3", p##lamc3_(&a, &b), 3);                                                           \
        p##lamc4_(&emin, &a, &beta), same(#p "lamc4", emin, PREFIX##_MIN_EXP - PREFIX##_MANT_DIG + 1);    \
        emin = PREFIX##_MIN_EXP, p##lamc5_(&beta, &t, &emin, &ieee, &emax, &rmax);                        \
        same(#p "lamc5 emax", emax, PREFIX##_MAX_EXP), same(#p "lamc5 rmax", rmax, PREFIX##_MAX);         \
    }
LAMC(s, float, FLT) LAMC(d, double, DBL)

int main(void)
{
    const int n = 3, one = 1;
    const float x[] = {3, -4, 12}, y[] = {1, 2, -1}, start = 10;
    const double z[] = {-3, 4};
    const float f[] = {-3, 4};
    float single;
    double value;
    sreal(), dreal(), ccomplex(), zcomplex(), slamc(), dlamc();
    dsdotsub_(&n, x, &one, y, &one, &value), same("dsdotsub", value, -17);
    sdsdotsub_(&n, &start, x, &one, y, &one, &single), same("sdsdotsub", single, -7);
    same("cblas_dcabs1", cblas_dcabs1(z), 7), same("dcabs1", dcabs1_(z), 7);
    same("cblas_scabs1", cblas_scabs1(f), 7), same("scabs1", scabs1_(f), 7);
    same("RowMajorStrg", RowMajorStrg, 0), same("CBLAS_CallFromC", CBLAS_CallFromC, 0);
    return bad;
}
