/* Concurrent callers (issue "GPU engine", concurrency): argv[2] threads call dgemm n = argv[3] for argv[4]
 * seconds, all at once. Entries are small whole numbers, so that every result is exact and is compared bit by
 * bit with that of the archive without us, argv[1].
 * Prints the calls that the slowest and the fastest thread finished. Exit status 1 if a result is wrong.
 */
#include "checked_calls.h"
#include <pthread.h>
#include <time.h>

enum { MOST_THREADS = 64 };

static int n;
static double seconds, began, *a, *b, *wanted;
static long finished[MOST_THREADS];
static int wrong;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void multiply(void *library, double *c)
{
    struct call call;
    ordinary(&call, &ROUTINES[0], 'd', n);
    for (int row = 0; row < ROUTINE_COUNT; row++)
        if (!strcmp(ROUTINES[row].name, "gemm")) ordinary(&call, &ROUTINES[row], 'd', n);
    const char *args = call.r->args;
    for (int i = 0; args[i]; i++) {
        if (strchr("mnkL", args[i])) call.integer[i] = n;
        if (args[i] == 'a') call.scalar[i][0] = 1;
        if (args[i] == 'b') call.scalar[i][0] = 0;
        if (args[i] == 'A') call.array[i] = a;
        if (args[i] == 'B') call.array[i] = b;
        if (args[i] == 'C') call.array[i] = c;
    }
    call_through(library, &call, FORTRAN);
}

static void *work(void *number)
{
    size_t bytes = sizeof(double) * n * n;
    double *c = malloc(bytes);
    while (now() - began < seconds) {
        memset(c, 0xFF, bytes);
        multiply(library_under_test, c);
        if (memcmp(c, wanted, bytes)) __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
        /* What ends after the time does not count: everybody finishes one call at last. */
        if (now() - began < seconds) finished[(size_t)number]++;
    }
    free(c);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 9;
    int threads = atoi(argv[2]);
    n = atoi(argv[3]), seconds = atof(argv[4]);
    if (threads > MOST_THREADS) return 9;
    open_reference(argv[1]);
    struct caller w = { .state = 1 };
    size_t bytes = sizeof(double) * n * n;
    a = malloc(bytes), b = malloc(bytes), wanted = malloc(bytes);
    for (int i = 0; i < n * n; i++) a[i] = draw_below(&w, 9) - 4, b[i] = draw_below(&w, 9) - 4;
    multiply(reference_library, wanted);
    double *first = malloc(bytes);
    multiply(library_under_test, first); /* the start is over */
    if (memcmp(first, wanted, bytes)) wrong = 1;
    began = now();
    pthread_t t[MOST_THREADS];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], NULL, work, (void *)(size_t)i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    long least = finished[0], most = finished[0];
    for (int i = 1; i < threads; i++) {
        if (finished[i] < least) least = finished[i];
        if (finished[i] > most) most = finished[i];
    }
    printf("%ld %ld\n", least, most);
    return wrong || !reported("calls cublasGemmEx_64 ");
}
