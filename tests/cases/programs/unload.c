/* Loading and unloading (case F9). argv[1]: the folder of the libraries; argv[2]: what to do.
 *   loop N     N times: dlopen both, dgemm in a thread, dlclose here, then the thread ends
 *   exit       exit() while a thread is inside dgemm
 *   exit-lapack  the same inside dgemv, which is not routed, after one small call of LAPACK
 *   outlive    a thread that has called dgemm ends after the library is gone
 * The program itself is not linked with any BLAS.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*gemm)(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);

static gemm dgemm;
static pthread_barrier_t called, closed;
static int bad;

static void product(int n)
{
    size_t nn = (size_t)n * n;
    double *a = malloc(nn * sizeof *a), *c = malloc(nn * sizeof *c);
    const double one = 1, zero = 0;
    for (size_t i = 0; i < nn; i++) a[i] = 1;
    dgemm("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    for (size_t i = 0; i < nn; i++) bad |= c[i] != n;
    free(a), free(c);
}

static void *work(void *unused)
{
    (void)unused;
    product(64);
    pthread_barrier_wait(&called);
    pthread_barrier_wait(&closed);
    return NULL;
}

static void *for_ever(void *unused)
{
    (void)unused;
    product(64);
    pthread_barrier_wait(&called);
    for (;;) product(1000);
    return NULL;
}

static void *blas, *lapack;

/* Multi-threaded products of a matrix and a vector, without end. */
static void *vectors_for_ever(void *unused)
{
    void (*dgemv)(const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t) = dlsym(blas, "dgemv_");
    const int n = 1000, inc = 1;
    const double one = 1, zero = 0;
    double *a = calloc((size_t)n * n, sizeof *a), *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    (void)unused;
    pthread_barrier_wait(&called);
    for (;;) dgemv("N", &n, &n, &one, a, &n, x, &inc, &zero, y, &inc, 1);
    return NULL;
}

static void load(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libblas.so.3", dir);
    blas = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!blas) fprintf(stderr, "%s\n", dlerror()), exit(2);
    snprintf(path, sizeof path, "%s/liblapack.so.3", dir);
    lapack = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lapack) fprintf(stderr, "%s\n", dlerror()), exit(2);
    dgemm = (gemm)dlsym(blas, "dgemm_");
}

static void unload(void)
{
    dlclose(lapack);
    dlclose(blas);
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    int times = argc > 3 ? atoi(argv[3]) : 1;
    pthread_barrier_init(&called, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    if (!strcmp(argv[2], "exit")) {
        pthread_t t;
        load(argv[1]);
        pthread_create(&t, NULL, for_ever, NULL);
        pthread_barrier_wait(&called);
        usleep(20000);
        exit(bad);
    }
    if (!strcmp(argv[2], "exit-lapack")) {
        pthread_t t;
        const int n = 2, lwork = 64;
        int info = -1;
        double a[] = {2, 1, 1, 2}, w[2], work[64];
        load(argv[1]);
        void (*dsyev)(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *, size_t, size_t) = dlsym(lapack, "dsyev_");
        dsyev("V", "U", &n, a, &n, w, work, &lwork, &info, 1, 1);
        pthread_create(&t, NULL, vectors_for_ever, NULL);
        pthread_barrier_wait(&called);
        usleep(10000);
        exit(info);
    }
    for (int i = 0; i < times; i++) {
        pthread_t t;
        load(argv[1]);
        pthread_create(&t, NULL, work, NULL);
        pthread_barrier_wait(&called);
        unload();
        pthread_barrier_wait(&closed);
        pthread_join(t, NULL);
    }
    return bad;
}
