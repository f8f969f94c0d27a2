/* What a call below the threshold does besides computing: this program interposes the allocator and
 * the locks of libpthread and counts them during calls. Prints, for every routine and size, the
 * allocations and lock operations of a thousand calls. The first call of each is not counted: it reads
 * the settings once.
 */
#include <pthread.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static volatile int counting;
static long allocations, locks, clocks;

void *malloc(size_t n) { allocations += counting; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { allocations += counting; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { allocations += counting; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { allocations += counting; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { allocations += counting; *p = __libc_memalign(a, n); return *p ? 0 : 12; }
void free(void *p) { allocations += counting && p; __libc_free(p); }

#define LOCK(name, type)                                                                           \
    int name(type *l)                                                                              \
    {                                                                                              \
        static int (*next)(type *);                                                                \
        if (!next) next = (int (*)(type *))dlsym(RTLD_NEXT, #name);                                \
        locks += counting;                                                                         \
        return next(l);                                                                            \
    }
LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    clocks += counting;
    return next(id, t);
}


static void report(const char *name, int n)
{
    printf("%s %d allocations %ld locks %ld clocks %ld\n", name, n, allocations, locks, clocks);
    allocations = locks = clocks = 0;
}

/* Times 1,000, the first one not counted. */
#define COUNT(name, n, call)                                                                       \
    do {                                                                                           \
        call;                                                                                      \
        counting = 1;                                                                              \
        for (int i_ = 0; i_ < 1000; i_++) call;                                                    \
        counting = 0;                                                                              \
        report(name, n);                                                                           \
    } while (0)

#define GEMM(p, T)                                                                                 \
    void p##gemm_(const char *, const char *, const int *, const int *, const int *, const T *,    \
                  const T *, const int *, const T *, const int *, const T *, T *, const int *,     \
                  size_t, size_t);                                                                 \
    static void p##products(int n)                                                                 \
    {                                                                                              \
        static T a[2 * 64 * 64], c[2 * 64 * 64];                                                   \
        const T one[2] = {1, 0}, zero[2] = {0, 0};                                                 \
        COUNT(#p "gemm", n, p##gemm_("N", "T", &n, &n, &n, one, a, &n, a, &n, zero, c, &n, 1, 1)); \
    }
GEMM(s, float) GEMM(d, double) GEMM(c, float) GEMM(z, double)

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
double ddot_(const int *, const double *, const int *, const double *, const int *);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dtrsm_(const char *, const char *, const char *, const char *, const int *, const int *, const double *, const double *, const int *, double *, const int *, size_t, size_t, size_t, size_t);
void dsyrk_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void dsymm_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dgeqrf_(const int *, const int *, double *, const int *, double *, double *, const int *, int *);
void dsyevd_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *, const int *, int *, size_t, size_t);
void zgesdd_(const char *, const int *, const int *, double *, const int *, double *, double *, const int *, double *, const int *, double *, const int *, double *, int *, int *, size_t);

int main(void)
{
    static const int SIZES[] = {1, 4, 8, 32, 64};
    static double a[64 * 64], c[64 * 64], z[2 * 64 * 64], w[64], tau[64], work[32768], rwork[32768];
    static int ipiv[64], iwork[1024];
    const int lwork = 16384, liwork = 1024;
    const double zero = 0;
    for (int s = 0; s < 5; s++) {
        int n = SIZES[s], one = 1, info;
        const double alpha = 1;
        sproducts(n), dproducts(n), cproducts(n), zproducts(n);
        COUNT("cblas_dgemm", n, cblas_dgemm(101, 111, 112, n, n, n, 1, a, n, a, n, 0, c, n));
        COUNT("ddot", n, ddot_(&n, a, &one, c, &one));
        for (int i = 0; i < n; i++) a[i * n + i] = 1;
        COUNT("dtrsm", n, dtrsm_("L", "L", "N", "N", &n, &n, &alpha, a, &n, c, &n, 1, 1, 1, 1));
        COUNT("dpotrf", n, dpotrf_("L", &n, a, &n, &info, 1));
        COUNT("dsyrk", n, dsyrk_("U", "N", &n, &n, &alpha, a, &n, &zero, c, &n, 1, 1));
        COUNT("dsymm", n, dsymm_("L", "U", &n, &n, &alpha, a, &n, a, &n, &zero, c, &n, 1, 1));
        COUNT("dgetrf", n, dgetrf_(&n, &n, a, &n, ipiv, &info));
        COUNT("dgeqrf", n, dgeqrf_(&n, &n, c, &n, tau, work, &lwork, &info));
        COUNT("dsyevd", n, dsyevd_("N", "U", &n, c, &n, w, work, &lwork, iwork, &liwork, &info, 1, 1));
        COUNT("zgesdd", n, zgesdd_("N", &n, &n, z, &n, w, z, &n, z, &n, work, &lwork, rwork, iwork, &info, 1));
    }
    return 0;
}
