/* Calls routines with operands of one small size while callgrind counts: arguments are the number of calls, then
 * routine and n as often as wanted. For each pair callgrind writes a dump whose description ends with "routine n",
 * of the calls after a first one, which is not counted: it reads the settings once.
 */
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#define I const int *
#define D double *
#define S const char *
double ddot_(I, const D, I, const D, I);
void dgemv_(S, I, I, const D, const D, I, const D, I, const D, D, I, size_t);
void dgemm_(S, S, I, I, I, const D, const D, I, const D, I, const D, D, I, size_t, size_t);
void cblas_dgemm(int, int, int, int, int, int, double, const D, int, const D, int, double, D, int);
void dtrsm_(S, S, S, S, I, I, const D, const D, I, D, I, size_t, size_t, size_t, size_t);
void cblas_dtrsm(int, int, int, int, int, int, int, double, const D, int, D, int);
void dsyrk_(S, S, I, I, const D, const D, I, const D, D, I, size_t, size_t);
void cblas_dsyrk(int, int, int, int, int, double, const D, int, double, D, int);
void dsymm_(S, S, I, I, const D, const D, I, const D, I, const D, D, I, size_t, size_t);
void cblas_dsymm(int, int, int, int, int, double, const D, int, const D, int, double, D, int);
void dgetrf_(I, I, D, I, int *, int *);
void dgetrs_(S, I, I, const D, I, I, D, I, int *, size_t);
void dgetri_(I, D, I, I, D, I, int *);
void dgesv_(I, I, D, I, int *, D, I, int *);
void dpotrf_(S, I, D, I, int *, size_t);
void dpotrs_(S, I, I, const D, I, D, I, int *, size_t);
void dpotri_(S, I, D, I, int *, size_t);
void dposv_(S, I, I, D, I, D, I, int *, size_t);
void dtrtri_(S, S, I, D, I, int *, size_t, size_t);
void dtrtrs_(S, S, S, I, I, const D, I, D, I, int *, size_t, size_t, size_t);
void dlauum_(S, I, D, I, int *, size_t);
void dgeqrf_(I, I, D, I, D, D, I, int *);
void dgelqf_(I, I, D, I, D, D, I, int *);
void dgeqr2_(I, I, D, I, D, D, int *);
void dpotf2_(S, I, D, I, int *, size_t);
void dorgqr_(I, I, I, D, I, const D, D, I, int *);
void dormlq_(S, S, I, I, I, D, I, const D, D, I, D, I, int *, size_t, size_t);
void dormqr_(S, S, I, I, I, D, I, const D, D, I, D, I, int *, size_t, size_t);
void dgels_(S, I, I, I, D, I, D, I, D, I, int *, size_t);
void dgelsd_(I, I, I, D, I, D, I, D, const D, int *, D, I, int *, int *);
void dgelss_(I, I, I, D, I, D, I, D, const D, int *, D, I, int *);
void dsyev_(S, S, I, D, I, D, D, I, int *, size_t, size_t);
void dsyevd_(S, S, I, D, I, D, D, I, int *, I, int *, size_t, size_t);
void dsyevr_(S, S, S, I, D, I, const D, const D, I, I, const D, int *, D, D, I, int *, D, I, int *, I, int *, size_t, size_t, size_t);
void dsyevx_(S, S, S, I, D, I, const D, const D, I, I, const D, int *, D, D, I, D, I, int *, int *, int *, size_t, size_t, size_t);
void dsygv_(I, S, S, I, D, I, D, I, D, D, I, int *, size_t, size_t);
void dsygvd_(I, S, S, I, D, I, D, I, D, D, I, int *, I, int *, size_t, size_t);
void dsygvx_(I, S, S, S, I, D, I, D, I, const D, const D, I, I, const D, int *, D, D, I, D, I, int *, int *, int *, size_t, size_t, size_t);
void dgesvd_(S, S, I, I, D, I, D, D, I, D, I, D, I, int *, size_t, size_t);
void dgesdd_(S, I, I, D, I, D, D, I, D, I, D, I, int *, int *, size_t);
void dgeev_(S, S, I, D, I, D, D, D, I, D, I, D, I, int *, size_t, size_t);

enum { MOST = 64 };
static double start[MOST * MOST], a[MOST * MOST], b[MOST * MOST], c[MOST * MOST], v[MOST * MOST], work[8 * MOST * MOST];
static double tau[MOST], wi[MOST];
static int ipiv[MOST], iwork[8 * MOST], fail[MOST], n, info, found;
static const int one = 1, room = 8 * MOST * MOST, iroom = 8 * MOST;
static const double d1 = 1, d0 = 0, tiny = -1;
static volatile double sink;

/* The operands are the same for every call: a = b = start, symmetric and positive definite. */
#define CALL(name, ...) static void call_##name(void) { __VA_ARGS__; }
CALL(ddot, sink = ddot_(&n, a, &one, b, &one))
CALL(dgemv, dgemv_("N", &n, &n, &d1, a, &n, b, &one, &d0, c, &one, 1))
CALL(dgemm, dgemm_("N", "N", &n, &n, &n, &d1, a, &n, b, &n, &d0, c, &n, 1, 1))
CALL(cblas_dgemm, cblas_dgemm(102, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n))
CALL(dtrsm, dtrsm_("L", "L", "N", "U", &n, &n, &d1, a, &n, c, &n, 1, 1, 1, 1))
CALL(cblas_dtrsm, cblas_dtrsm(102, 141, 122, 111, 132, n, n, 1, a, n, c, n))
CALL(dsyrk, dsyrk_("U", "N", &n, &n, &d1, a, &n, &d0, c, &n, 1, 1))
CALL(cblas_dsyrk, cblas_dsyrk(102, 121, 111, n, n, 1, a, n, 0, c, n))
CALL(dsymm, dsymm_("L", "U", &n, &n, &d1, a, &n, b, &n, &d0, c, &n, 1, 1))
CALL(cblas_dsymm, cblas_dsymm(102, 141, 121, n, n, 1, a, n, b, n, 0, c, n))
CALL(dgetrf, dgetrf_(&n, &n, a, &n, ipiv, &info))
CALL(dgetrs, dgetrs_("N", &n, &n, a, &n, ipiv, b, &n, &info, 1))
CALL(dgetri, dgetri_(&n, a, &n, ipiv, work, &room, &info))
CALL(dgesv, dgesv_(&n, &n, a, &n, ipiv, b, &n, &info))
CALL(dpotrf, dpotrf_("L", &n, a, &n, &info, 1))
CALL(dpotf2, dpotf2_("L", &n, a, &n, &info, 1))
CALL(dpotrs, dpotrs_("L", &n, &n, a, &n, b, &n, &info, 1))
CALL(dpotri, dpotri_("L", &n, a, &n, &info, 1))
CALL(dposv, dposv_("L", &n, &n, a, &n, b, &n, &info, 1))
CALL(dtrtri, dtrtri_("L", "N", &n, a, &n, &info, 1, 1))
CALL(dtrtrs, dtrtrs_("L", "N", "N", &n, &n, a, &n, b, &n, &info, 1, 1, 1))
CALL(dlauum, dlauum_("L", &n, a, &n, &info, 1))
CALL(dgeqrf, dgeqrf_(&n, &n, a, &n, tau, work, &room, &info))
CALL(dgelqf, dgelqf_(&n, &n, a, &n, tau, work, &room, &info))
CALL(dgeqr2, dgeqr2_(&n, &n, a, &n, tau, work, &info))
CALL(dorgqr, dorgqr_(&n, &n, &n, a, &n, wi, work, &room, &info))
CALL(dormqr, dormqr_("L", "T", &n, &n, &n, a, &n, wi, b, &n, work, &room, &info, 1, 1))
CALL(dormlq, dormlq_("L", "T", &n, &n, &n, a, &n, wi, b, &n, work, &room, &info, 1, 1))
CALL(dgels, dgels_("N", &n, &n, &n, a, &n, b, &n, work, &room, &info, 1))
CALL(dgelsd, dgelsd_(&n, &n, &n, a, &n, b, &n, tau, &tiny, &found, work, &room, iwork, &info))
CALL(dgelss, dgelss_(&n, &n, &n, a, &n, b, &n, tau, &tiny, &found, work, &room, &info))
CALL(dsyev, dsyev_("N", "L", &n, a, &n, tau, work, &room, &info, 1, 1))
CALL(dsyevd, dsyevd_("N", "L", &n, a, &n, tau, work, &room, iwork, &iroom, &info, 1, 1))
CALL(dsyevr, dsyevr_("N", "A", "L", &n, a, &n, &d0, &d0, &one, &n, &d0, &found, tau, v, &n, ipiv, work, &room, iwork, &iroom, &info, 1, 1, 1))
CALL(dsyevx, dsyevx_("N", "A", "L", &n, a, &n, &d0, &d0, &one, &n, &d0, &found, tau, v, &n, work, &room, iwork, fail, &info, 1, 1, 1))
CALL(dsygv, dsygv_(&one, "N", "L", &n, a, &n, b, &n, tau, work, &room, &info, 1, 1))
CALL(dsygvd, dsygvd_(&one, "N", "L", &n, a, &n, b, &n, tau, work, &room, iwork, &iroom, &info, 1, 1))
CALL(dsygvx, dsygvx_(&one, "N", "A", "L", &n, a, &n, b, &n, &d0, &d0, &one, &n, &d0, &found, tau, v, &n, work, &room, iwork, fail, &info, 1, 1, 1))
CALL(dgesvd, dgesvd_("N", "N", &n, &n, a, &n, tau, b, &n, v, &n, work, &room, &info, 1, 1))
CALL(dgesdd, dgesdd_("N", &n, &n, a, &n, tau, b, &n, v, &n, work, &room, iwork, &info, 1))
CALL(dgeev, dgeev_("N", "N", &n, a, &n, tau, wi, b, &n, v, &n, work, &room, &info, 1, 1))

#define ROW(name) { #name, call_##name }
static const struct { const char *name; void (*call)(void); } ROWS[] = {
    ROW(ddot), ROW(dgemv), ROW(dgemm), ROW(cblas_dgemm), ROW(dtrsm), ROW(cblas_dtrsm), ROW(dsyrk), ROW(cblas_dsyrk),
    ROW(dsymm), ROW(cblas_dsymm), ROW(dgetrf), ROW(dgetrs), ROW(dgetri), ROW(dgesv), ROW(dpotrf), ROW(dpotf2),
    ROW(dpotrs), ROW(dpotri), ROW(dposv), ROW(dtrtri), ROW(dtrtrs), ROW(dlauum), ROW(dgeqrf), ROW(dgelqf), ROW(dgeqr2),
    ROW(dorgqr), ROW(dormqr), ROW(dormlq), ROW(dgels), ROW(dgelsd), ROW(dgelss), ROW(dsyev), ROW(dsyevd), ROW(dsyevr), ROW(dsyevx),
    ROW(dsygv), ROW(dsygvd), ROW(dsygvx), ROW(dgesvd), ROW(dgesdd), ROW(dgeev),
};

static void operands(void)
{
    memcpy(a, start, sizeof(double) * n * n);
    memcpy(b, start, sizeof(double) * n * n);
    for (int i = 0; i < n; i++) ipiv[i] = i + 1;
}

static __attribute__((noinline)) int rows(int argc, char **argv)
{
    const int calls = argc > 1 ? atoi(argv[1]) : 0;
    for (int arg = 2; arg + 1 < argc; arg += 2) {
        void (*call)(void) = 0;
        for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
            if (!strcmp(argv[arg], ROWS[i].name)) call = ROWS[i].call;
        n = atoi(argv[arg + 1]);
        if (!call || n < 1 || n > MOST) {
            fprintf(stderr, "no row %s %s\n", argv[arg], argv[arg + 1]);
            return 2;
        }
        for (int j = 0; j < n; j++) {
            wi[j] = 0;
            for (int i = 0; i < n; i++) start[i + j * n] = i == j ? 2 * n + i : 0.01 * ((i + j) % 7);
        }
        char row[64];
        snprintf(row, sizeof row, "%s %d", argv[arg], n);
        info = 0;
        operands();
        call();
        CALLGRIND_ZERO_STATS;
        for (int i = 0; i < calls; i++) {
            operands();
            call();
        }
        CALLGRIND_DUMP_STATS_AT(row);
        if (info) {
            fprintf(stderr, "%s: info %d\n", row, info);
            return 1;
        }
    }
    return 0;
}

/* Where the stack begins depends on the lengths of paths and variables, and memset's instructions on the alignment of
 * what it clears: scratch on the stack in OpenBLAS's dsyrk, 28 instructions at n = 32. So the rows' stack begins a
 * fixed distance from a border of pages. */
int main(int argc, char **argv)
{
    const uintptr_t here = (uintptr_t)alloca(16);
    volatile char *border = alloca(here % 4096 + 16);
    *border = 0;
    return rows(argc, argv);
}
