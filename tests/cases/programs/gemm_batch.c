/* cblas_?gemm_batch against cblas_?gemm, in four precisions and both layouts. Argument:
 * "legal": batches with small, large and empty groups, every pair of transposes, and beta = 0 over NaN. Every
 *     byte must be what one cblas_?gemm for each product leaves. Prints the number of products.
 * "large": batches without a small group; prints a hash of what each leaves.
 * "illegal": each argument of each group in turn. Prints the name and info that the program's own xerbla_ got,
 *     and how often it was called. Nothing may be written.
 * "small": one product of 2 x 2 matrices.
 * Exit status 1 if anything was WRONG.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 101, COLUMNS = 102, N = 111, T = 112, C = 113, R = 114 };
enum { GROUPS = 5, PRODUCTS = 8, LARGEST = 128, ELEMENTS = LARGEST * LARGEST };

typedef void batch(int, const int *, const int *, const int *, const int *, const int *, const void *, const void **,
                   const int *, const void **, const int *, const void *, void **, const int *, int, const int *);
batch cblas_sgemm_batch, cblas_dgemm_batch, cblas_cgemm_batch, cblas_zgemm_batch;
void cblas_sgemm(int, int, int, int, int, int, float, const void *, int, const void *, int, float, void *, int);
void cblas_dgemm(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
void cblas_cgemm(int, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                 void *, int);
void cblas_zgemm(int, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                 void *, int);

static const char PRECISIONS[] = "sdcz";
static batch *const BATCH[] = {cblas_sgemm_batch, cblas_dgemm_batch, cblas_cgemm_batch, cblas_zgemm_batch};
static const size_t BYTES[] = {4, 8, 8, 16};

static char reported[64];
static int reported_info, reports, bad;

void xerbla_(const char *name, const int *info, size_t length)
{
    snprintf(reported, sizeof reported, "%.*s", (int)length, name);
    reported_info = *info;
    reports++;
}

/* One batch, and its matrices: operands, results as they come, results as they should be. */
struct job {
    int p, order, groups;
    int transa[GROUPS], transb[GROUPS], m[GROUPS], n[GROUPS], k[GROUPS], lda[GROUPS], ldb[GROUPS], ldc[GROUPS];
    int size[GROUPS];
    double scalars[2][2 * GROUPS];
    unsigned char alpha[16 * GROUPS], beta[16 * GROUPS];
};
static unsigned char *a[PRODUCTS], *b[PRODUCTS], *c[PRODUCTS], *wanted[PRODUCTS];

static void put(int p, void *at, size_t i, double value)
{
    if (p % 2) ((double *)at)[i] = value;
    else ((float *)at)[i] = (float)value;
}

static double next(void)
{
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 40) / (1 << 24) - 0.5;
}

static void fill(const struct job *j)
{
    size_t numbers = ELEMENTS * (j->p < 2 ? 1 : 2);
    int product = 0;
    for (int g = 0; g < j->groups; g++)
        for (int i = 0; i < j->size[g]; i++, product++) {
            for (size_t at = 0; at < numbers; at++) {
                put(j->p, a[product], at, next());
                put(j->p, b[product], at, next());
                put(j->p, c[product], at, j->scalars[1][2 * g] || j->scalars[1][2 * g + 1] ? next() : NAN);
            }
            memcpy(wanted[product], c[product], ELEMENTS * BYTES[j->p]);
        }
}

static void scalars(struct job *j, const double alpha[2 * GROUPS], const double beta[2 * GROUPS])
{
    int parts = j->p < 2 ? 1 : 2;
    for (int g = 0; g < GROUPS; g++)
        for (int part = 0; part < 2; part++) {
            j->scalars[0][2 * g + part] = alpha[2 * g + part];
            j->scalars[1][2 * g + part] = part < parts ? beta[2 * g + part] : 0;
            if (part == parts) continue;
            put(j->p, j->alpha, g * parts + part, alpha[2 * g + part]);
            put(j->p, j->beta, g * parts + part, beta[2 * g + part]);
        }
}

/* Leading dimensions that are larger than they need be by `extra`. */
static void lead(struct job *j, int extra)
{
    for (int g = 0; g < j->groups; g++) {
        int plain_a = j->transa[g] == N || j->transa[g] == R, plain_b = j->transb[g] == N || j->transb[g] == R;
        int rows = j->order == ROWS;
        j->lda[g] = (plain_a == rows ? j->k[g] : j->m[g]) + extra;
        j->ldb[g] = (plain_b == rows ? j->n[g] : j->k[g]) + extra;
        j->ldc[g] = (rows ? j->n[g] : j->m[g]) + extra;
    }
}

static void run(const struct job *j)
{
    BATCH[j->p](j->order, j->transa, j->transb, j->m, j->n, j->k, j->alpha, (const void **)a, j->lda,
                (const void **)b, j->ldb, j->beta, (void **)c, j->ldc, j->groups, j->size);
}

static void one_by_one(const struct job *j)
{
    int product = 0;
    for (int g = 0; g < j->groups; g++)
        for (int i = 0; i < j->size[g]; i++, product++) {
            const void *alpha = j->alpha + g * BYTES[j->p], *beta = j->beta + g * BYTES[j->p];
            int o = j->order, ta = j->transa[g], tb = j->transb[g], m = j->m[g], n = j->n[g], k = j->k[g];
            const void *x = a[product], *y = b[product];
            void *z = wanted[product];
            switch (PRECISIONS[j->p]) {
            case 's':
                cblas_sgemm(o, ta, tb, m, n, k, *(float *)alpha, x, j->lda[g], y, j->ldb[g], *(float *)beta, z,
                            j->ldc[g]);
                break;
            case 'd':
                cblas_dgemm(o, ta, tb, m, n, k, *(double *)alpha, x, j->lda[g], y, j->ldb[g], *(double *)beta, z,
                            j->ldc[g]);
                break;
            case 'c': cblas_cgemm(o, ta, tb, m, n, k, alpha, x, j->lda[g], y, j->ldb[g], beta, z, j->ldc[g]); break;
            default: cblas_zgemm(o, ta, tb, m, n, k, alpha, x, j->lda[g], y, j->ldb[g], beta, z, j->ldc[g]);
            }
        }
}

/* How many products there were; those that differ are WRONG. */
static int compare(const struct job *j)
{
    int product = 0;
    for (int g = 0; g < j->groups; g++)
        for (int i = 0; i < j->size[g]; i++, product++)
            if (memcmp(c[product], wanted[product], ELEMENTS * BYTES[j->p])) {
                printf("WRONG %cgemm_batch order %d trans %d %d group %d product %d of %d x %d x %d\n",
                       PRECISIONS[j->p], j->order, j->transa[g], j->transb[g], g, i, j->m[g], j->n[g], j->k[g]);
                bad = 1;
            }
    return product;
}

static const double ALPHA[] = {1, 0, -0.5, 2, 0, 0, 1.5, -1, 1, 1}, BETA[] = {0, 0, 1, 0, 0.5, -1, 0, 0, 2, 0};

static void legal(void)
{
    int products = 0;
    for (int p = 0; p < 4; p++)
        for (int order = ROWS; order <= COLUMNS; order++)
            for (int trans = 0; trans < 16; trans++) {
                struct job j = {.p = p,
                                .order = order,
                                .groups = GROUPS,
                                .m = {2, 7, 0, 101, 5},
                                .n = {2, 3, 4, 101, 9},
                                .k = {2, 5, 6, 100, 0},
                                .size = {2, 1, 1, 2, 2}};
                for (int g = 0; g < GROUPS; g++) {
                    j.transa[g] = N + (trans + g) % 4;
                    j.transb[g] = N + (trans / 4 + g) % 4;
                }
                lead(&j, trans % 3);
                scalars(&j, ALPHA, BETA);
                fill(&j);
                one_by_one(&j);
                /* Nobody may look at the matrices of an empty group. */
                void *hidden[] = {a[3], b[3], c[3]};
                a[3] = b[3] = c[3] = NULL;
                run(&j);
                a[3] = hidden[0], b[3] = hidden[1], c[3] = hidden[2];
                products += compare(&j);
                /* Groups without products, and none at all. */
                for (int g = 0; g < GROUPS; g++) j.size[g] = g == 1 ? 2 : 0;
                fill(&j);
                one_by_one(&j);
                run(&j);
                products += compare(&j);
                j.groups = trans % 2 ? 0 : -1;
                run(&j);
            }
    printf("%d products\n", products);
}

static void large(void)
{
    for (int p = 0; p < 4; p++)
        for (int order = ROWS; order <= COLUMNS; order++) {
            struct job j = {.p = p,
                            .order = order,
                            .groups = 2,
                            .transa = {N, C},
                            .transb = {T, N},
                            .m = {101, 120},
                            .n = {110, 100},
                            .k = {100, 90},
                            .size = {3, 2}};
            lead(&j, 1);
            scalars(&j, ALPHA, BETA);
            fill(&j);
            run(&j);
            uint64_t hash = 14695981039346656037ull;
            for (int product = 0; product < 5; product++)
                for (size_t i = 0; i < ELEMENTS * BYTES[p]; i++) hash = (hash ^ c[product][i]) * 1099511628211ull;
            printf("%cgemm_batch order %d %016llx\n", PRECISIONS[p], order, (unsigned long long)hash);
        }
}

/* Makes one argument of a group illegal; the layout is the batch's. */
static void spoil(struct job *j, int g, int argument)
{
    int *const one[] = {&j->order, &j->transa[g], &j->transb[g], &j->m[g], &j->n[g],
                        &j->k[g],  &j->lda[g],    &j->ldb[g],    &j->ldc[g]};
    if (argument < 3) *one[argument] = 7;
    else if (argument < 6) *one[argument] = -1;
    else *one[argument] -= 1;
}

static void illegal(void)
{
    for (int p = 0; p < 4; p++)
        for (int order = ROWS; order <= COLUMNS; order++)
            for (int g = 0; g < 3; g++)
                for (int argument = 0; argument < 9; argument++) {
                    struct job j = {.p = p,
                                    .order = order,
                                    .groups = 3,
                                    .transa = {N, T, C},
                                    .transb = {T, N, R},
                                    .m = {2, 3, 4},
                                    .n = {5, 6, 7},
                                    .k = {8, 9, 10},
                                    .size = {1, 2, 1}};
                    lead(&j, 0);
                    scalars(&j, ALPHA, ALPHA);
                    fill(&j);
                    spoil(&j, g, argument);
                    reports = reported_info = 0, reported[0] = 0;
                    run(&j);
                    printf("%c order %d group %d argument %d: %s info %d reports %d\n", PRECISIONS[p], order, g, argument,
                           reported, reported_info, reports);
                    if (reports != 1) printf("WRONG number of reports\n"), bad = 1;
                    compare(&j);
                }
}

static void small(void)
{
    struct job j = {.p = 1, .order = ROWS, .groups = 1, .transa = {N}, .transb = {N}, .m = {2}, .n = {2}, .k = {2},
                    .size = {1}};
    lead(&j, 0);
    scalars(&j, ALPHA, BETA);
    fill(&j);
    one_by_one(&j);
    run(&j);
    compare(&j);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    for (int i = 0; i < PRODUCTS; i++) {
        unsigned char **all[] = {a, b, c, wanted};
        for (int k = 0; k < 4; k++)
            if (!(all[k][i] = malloc(ELEMENTS * 16))) return 9;
    }
    if (!strcmp(what, "legal")) legal();
    else if (!strcmp(what, "large")) large();
    else if (!strcmp(what, "illegal")) illegal();
    else if (!strcmp(what, "small")) small();
    else return 9;
    return bad;
}
