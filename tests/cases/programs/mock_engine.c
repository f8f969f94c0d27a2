/* An engine that takes every call and computes it by the Fortran routine of the same name, from nothing
 * but what the library decoded. Whatever the library decodes wrongly shows in the result.
 *
 * Built as libgpu_offload.so.0 and linked to a client, so that the library finds it in the process. At
 * exit it writes a line a routine, "dgemm 12", to the file that MOCK_ENGINE_COUNTS names.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The structs of engine-abi/src/lib.rs. */
struct host_table {
    uint32_t abi_version, struct_bytes;
    void (*set_threshold)(uint32_t op, uint32_t precision, uint64_t work);
    int32_t (*cpu_threads)(void);
    const char *(*cpu_config)(void);
    void (*rest)(int32_t);
};

struct routed_call {
    uint32_t struct_bytes, op;
    uint8_t precision, side, uplo, transa, transb, diag, reserved[2];
    int64_t m, n, k;
    double alpha[2], beta[2];
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *c;
    int64_t ldc;
    const struct host_table *host;
    void (*cpu)(const void *);
    const void *frame;
};

struct engine_table {
    uint32_t abi_version, struct_bytes;
    uint32_t (*route)(const struct routed_call *);
    uint32_t (*route_lapack)(const void *);
};

enum { DONE = 0, UNTOUCHED = 1, FAMILIES = 13 };

/* Arguments in Fortran's order: S side, U uplo, T transa, t transb, D diag, m n k, a alpha, b beta,
 * A B C the matrices with their leading dimensions, X the result of trmm and trsm. By the family's code. */
static const struct {
    const char *name, *args;
} FAMILY[FAMILIES] = {
    {"", ""},
    {"gemm", "TtmnkaABbC"},
    {"gemm3m", "TtmnkaABbC"},
    {"gemmtr", "UTtnkaABbC"},
    {"gemmt", "UTtnkaABbC"},
    {"symm", "SUmnaABbC"},
    {"hemm", "SUmnaABbC"},
    {"syrk", "UTnkaAbC"},
    {"herk", "UTnkaAbC"},
    {"syr2k", "UTnkaABbC"},
    {"her2k", "UTnkaABbC"},
    {"trmm", "SUTDmnaAX"},
    {"trsm", "SUTDmnaAX"},
};

static unsigned long counts[FAMILIES][128];
static __thread int inside;

typedef void (*any_fortran)(const void *, const void *, const void *, const void *, const void *,
                            const void *, const void *, const void *, const void *, const void *,
                            const void *, const void *, const void *, const void *, const void *,
                            const void *, const void *);

static uint32_t route(const struct routed_call *c)
{
    if (inside) return UNTOUCHED;
    if (c->struct_bytes != sizeof *c || c->op >= FAMILIES || c->op == 0) abort();
    const char letter = (char)(c->precision + 32);
    char name[16];
    snprintf(name, sizeof name, "%c%s_", letter, FAMILY[c->op].name);
    any_fortran f = (any_fortran)dlsym(RTLD_DEFAULT, name);
    if (!f) abort();
    const int m = (int)c->m, n = (int)c->n, k = (int)c->k;
    const int lda = (int)c->lda, ldb = (int)c->ldb, ldc = (int)c->ldc;
    const float alpha[2] = {(float)c->alpha[0], (float)c->alpha[1]};
    const float beta[2] = {(float)c->beta[0], (float)c->beta[1]};
    const int single = letter == 's' || letter == 'c';
    const void *w[17] = {0};
    int count = 0;
    for (const char *p = FAMILY[c->op].args; *p; p++) {
        switch (*p) {
        case 'S': w[count++] = &c->side; break;
        case 'U': w[count++] = &c->uplo; break;
        case 'T': w[count++] = &c->transa; break;
        case 't': w[count++] = &c->transb; break;
        case 'D': w[count++] = &c->diag; break;
        case 'm': w[count++] = &m; break;
        case 'n': w[count++] = &n; break;
        case 'k': w[count++] = &k; break;
        case 'a': w[count++] = single ? (const void *)alpha : c->alpha; break;
        case 'b': w[count++] = single ? (const void *)beta : c->beta; break;
        case 'A': w[count++] = c->a, w[count++] = &lda; break;
        case 'B': w[count++] = c->b, w[count++] = &ldb; break;
        default: w[count++] = c->c, w[count++] = &ldc; break;
        }
    }
    while (count < 17) w[count++] = (const void *)1; /* hidden lengths */
    inside = 1;
    f(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14],
      w[15], w[16]);
    inside = 0;
    __sync_fetch_and_add(&counts[c->op][c->precision], 1);
    return DONE;
}

/* The beginning of engine-abi's RoutedLapack. */
struct routed_lapack {
    uint32_t struct_bytes, op;
    uint8_t precision, integer_bytes, reserved[2], letters[4];
    int64_t m, n, k;
};

/* Calls of LAPACK that came, and the first of them since the client set the number to 0. */
unsigned long mock_lapack_calls;
struct routed_lapack mock_lapack_first;

/* Leaves every call to the CPU. */
static uint32_t route_lapack(const void *call)
{
    if (mock_lapack_calls++ == 0) mock_lapack_first = *(const struct routed_lapack *)call;
    return UNTOUCHED;
}

static const struct engine_table TABLE = {4, sizeof TABLE, route, route_lapack};

const struct engine_table *gpu_offload_engine_v1(const struct host_table *host)
{
    return host->struct_bytes == sizeof *host ? &TABLE : NULL;
}

static void __attribute__((destructor)) report(void)
{
    const char *path = getenv("MOCK_ENGINE_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    for (int op = 1; op < FAMILIES; op++)
        for (int p = 0; p < 128; p++)
            if (counts[op][p]) fprintf(file, "%c%s %lu\n", p + 32, FAMILY[op].name, counts[op][p]);
    fclose(file);
}
