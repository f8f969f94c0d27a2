/* Calls LAPACK in double precision through the libraries that this program runs with, and checks the results.
 * Arguments: N RUNS ROUTINE...; routines: dpotrf (L), dgetrf, dgesv (one right-hand side), dgeqrf, dsyevd (V L),
 * dgesdd (S), dgeev (N V). Prints one JSON object a line: times in ms (all runs and the best), info, residual.
 *
 * The residual is that of the defining identity on a random vector x, || r ||_2 / (n eps ||A||_F ||x||_2), with the
 * loss of orthogonality || Q^T Q x - x ||_2 / (n eps ||x||_2) added: LAPACK's own measure, whose bound is 30. It
 * is computed with level-2 routines, which never go to a GPU. Exit status 1 if info is not 0 or a residual is above.
 */
#include <float.h>
#include <math.h>

#include "bench.h"

typedef const int *Int;
typedef const char *Chr;
void dpotrf_(Chr, Int, double *, Int, int *, size_t);
void dgetrf_(Int, Int, double *, Int, int *, int *);
void dgesv_(Int, Int, double *, Int, int *, double *, Int, int *);
void dgeqrf_(Int, Int, double *, Int, double *, double *, Int, int *);
void dsyevd_(Chr, Chr, Int, double *, Int, double *, double *, Int, int *, Int, int *, size_t, size_t);
void dgesdd_(Chr, Int, Int, double *, Int, double *, double *, Int, double *, Int, double *, Int, int *, int *, size_t);
void dgeev_(Chr, Chr, Int, double *, Int, double *, double *, double *, Int, double *, Int, double *, Int, int *, size_t, size_t);
void dgemv_(Chr, Int, Int, const double *, const double *, Int, const double *, Int, const double *, double *, Int, size_t);
void dtrmv_(Chr, Chr, Chr, Int, const double *, Int, double *, Int, size_t, size_t, size_t);
void dlaswp_(Int, double *, Int, Int, Int, Int, Int);

static const double BOUND = 30; /* of LAPACK's own tests */
static int n;
static const int one = 1;
static size_t bytes; /* of a matrix of order n */

static double *vector(void) { return memory(sizeof(double) * n); }

static double norm(const double *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* y := A x or A^T x. */
static void times(Chr trans, const double *a, const double *x, double *y)
{
    const double d1 = 1, d0 = 0;
    dgemv_(trans, &n, &n, &d1, a, &n, x, &one, &d0, y, &one, 1);
}

static double difference(const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

/* || Q^T Q x - x || / (n eps ||x||). */
static double lost_orthogonality(const double *q, const double *x)
{
    double *y = vector(), *back = vector();
    times("N", q, x, y);
    times("T", q, y, back);
    double lost = difference(back, x) / (n * DBL_EPSILON * norm(x, n));
    free(y), free(back);
    return lost;
}

struct call {
    double *a, *b, *u, *vt, *first, *second; /* the matrix, a right-hand side, factors, values */
    int *pivots, *iwork, liwork, lwork, info;
    double *work;
};

/* The routine itself; with lwork = -1 it only leaves the best workspace. */
static int apply(Chr routine, struct call *c)
{
    if (!strcmp(routine, "dpotrf")) dpotrf_("L", &n, c->a, &n, &c->info, 1);
    else if (!strcmp(routine, "dgetrf")) dgetrf_(&n, &n, c->a, &n, c->pivots, &c->info);
    else if (!strcmp(routine, "dgesv")) dgesv_(&n, &one, c->a, &n, c->pivots, c->b, &n, &c->info);
    else if (!strcmp(routine, "dgeqrf")) dgeqrf_(&n, &n, c->a, &n, c->first, c->work, &c->lwork, &c->info);
    else if (!strcmp(routine, "dsyevd")) dsyevd_("V", "L", &n, c->a, &n, c->first, c->work, &c->lwork, c->iwork, &c->liwork, &c->info, 1, 1);
    else if (!strcmp(routine, "dgesdd")) dgesdd_("S", &n, &n, c->a, &n, c->first, c->u, &n, c->vt, &n, c->work, &c->lwork, c->iwork, &c->info, 1);
    else if (!strcmp(routine, "dgeev")) dgeev_("N", "V", &n, c->a, &n, c->first, c->second, c->u, &n, c->vt, &n, c->work, &c->lwork, &c->info, 1, 1);
    else return 0;
    return 1;
}

/* Of what the routine has left, for the matrix `a` and the right-hand side `b` that it was given. */
static double residual(Chr routine, const double *a, const double *b, const struct call *c)
{
    double *x = vector(), *left = vector(), *right = vector(), *t = vector(), lost = 0;
    const size_t order = n;
    for (int i = 0; i < n; i++) x[i] = cos(1 + 0.7 * i * (1 + 0.1 * (i % 7)));
    double size = norm(x, n), scale = norm(a, order * order);
    times("N", a, x, left);
    memcpy(right, x, sizeof(double) * n);
    if (!strcmp(routine, "dpotrf")) {
        dtrmv_("L", "T", "N", &n, c->a, &n, right, &one, 1, 1, 1);
        dtrmv_("L", "N", "N", &n, c->a, &n, right, &one, 1, 1, 1);
    } else if (!strcmp(routine, "dgetrf")) {
        dlaswp_(&one, left, &n, &one, &n, c->pivots, &one);
        dtrmv_("U", "N", "N", &n, c->a, &n, right, &one, 1, 1, 1);
        dtrmv_("L", "N", "U", &n, c->a, &n, right, &one, 1, 1, 1);
    } else if (!strcmp(routine, "dgesv")) {
        times("N", a, c->b, left);
        memcpy(right, b, sizeof(double) * n);
        size = norm(c->b, n);
    } else if (!strcmp(routine, "dgeqrf")) { /* Q^T A x = R x */
        for (size_t j = 0; j < order; j++) {
            const double *v = c->a + j * order;
            double dot = left[j];
            for (size_t i = j + 1; i < order; i++) dot += v[i] * left[i];
            dot *= c->first[j];
            left[j] -= dot;
            for (size_t i = j + 1; i < order; i++) left[i] -= dot * v[i];
        }
        dtrmv_("U", "N", "N", &n, c->a, &n, right, &one, 1, 1, 1);
    } else if (!strcmp(routine, "dsyevd")) { /* A x = V W V^T x */
        lost = lost_orthogonality(c->a, x);
        times("T", c->a, x, t);
        for (int i = 0; i < n; i++) t[i] *= c->first[i];
        times("N", c->a, t, right);
    } else if (!strcmp(routine, "dgesdd")) { /* A x = U S V^T x */
        lost = lost_orthogonality(c->u, x) + lost_orthogonality(c->vt, x);
        times("N", c->vt, x, t);
        for (int i = 0; i < n; i++) t[i] *= c->first[i];
        times("N", c->u, t, right);
    } else { /* A V x = V W x; a complex pair takes two columns */
        times("N", c->vt, x, t);
        times("N", a, t, left);
        for (int j = 0; j < n; j++) {
            const double re = c->first[j], im = c->second[j];
            t[j] = re * x[j];
            if (im != 0 && j + 1 < n) {
                t[j] += im * x[j + 1];
                t[j + 1] = re * x[j + 1] - im * x[j];
                j++;
            }
        }
        times("N", c->vt, t, right);
    }
    double found = difference(left, right) / (n * DBL_EPSILON * scale * size) + lost;
    free(x), free(left), free(right), free(t);
    return found;
}

int main(int count, char **words)
{
    if (count < 4 || (n = atoi(words[1])) < 1 || atoi(words[2]) < 1) {
        fprintf(stderr, "usage: lapack N RUNS ROUTINE...\n");
        return 2;
    }
    const int runs = atoi(words[2]);
    const size_t order = n;
    int wrong = 0;
    bytes = sizeof(double) * order * order;
    double *general = memory(bytes), *symmetric = memory(bytes), *b = vector();
    /* Not `fill`: its repeated block would make a matrix of low rank. */
    unsigned long state = 88172645463325252ul;
    for (size_t i = 0; i < order * order; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        general[i] = (double)(state >> 11) / 9007199254740992.0 - 0.5;
    }
    for (size_t j = 0; j < order; j++)
        for (size_t i = 0; i < order; i++) symmetric[j * order + i] = general[i < j ? i * order + j : j * order + i];
    memcpy(b, general, sizeof(double) * n);
    for (int w = 3; w < count; w++) {
        const char *routine = words[w];
        const int definite = !strcmp(routine, "dpotrf");
        const double *a = definite || !strcmp(routine, "dsyevd") ? symmetric : general;
        for (size_t i = 0; definite && i < order; i++) symmetric[i * order + i] += n;
        double best = INFINITY, needed = 0;
        int least = 0;
        struct call c = {.a = memory(bytes), .b = vector(), .u = memory(bytes), .vt = memory(bytes), .first = vector(), .second = vector(),
                         .pivots = memory(sizeof(int) * n), .iwork = &least, .liwork = -1, .lwork = -1, .work = &needed};
        if (strcmp(routine, "dpotrf") && strcmp(routine, "dgetrf") && strcmp(routine, "dgesv")) { /* they have no workspace */
            if (!apply(routine, &c)) { fprintf(stderr, "no routine %s\n", routine); return 2; }
            if (c.info) { fprintf(stderr, "%s: info %d of a workspace query\n", routine, c.info); return 1; }
        }
        c.lwork = needed, c.liwork = least > 8 * n ? least : 8 * n; /* dgesdd needs 8 n, without asking */
        c.work = memory(sizeof(double) * (c.lwork + 1)), c.iwork = memory(sizeof(int) * c.liwork);
        printf("{\"routine\": \"%s\", \"n\": %d, \"ms\": [", routine, n);
        for (int run = 0; run < runs; run++) {
            memcpy(c.a, a, bytes), memcpy(c.b, b, sizeof(double) * n);
            c.info = -99;
            double t = now_ms();
            apply(routine, &c);
            t = now_ms() - t;
            printf("%s%.2f", run ? ", " : "", t);
            if (t < best) best = t;
            if (c.info) break;
        }
        const double found = c.info ? -1 : residual(routine, a, b, &c);
        const int held = !c.info && found <= BOUND; /* false for NaN */
        wrong |= !held;
        printf("], \"best_ms\": %.2f, \"info\": %d, \"residual\": \"%.3g\", \"held\": %s}\n", best, c.info, found, held ? "true" : "false");
        fflush(stdout);
        for (size_t i = 0; definite && i < order; i++) symmetric[i * order + i] -= n;
        free(c.a), free(c.b), free(c.u), free(c.vt), free(c.first), free(c.second), free(c.pivots), free(c.iwork), free(c.work);
    }
    free(general), free(symmetric), free(b);
    return wrong;
}
