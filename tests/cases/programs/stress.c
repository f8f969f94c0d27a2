/* Many threads, every level-3 family, faults of the device at random, a fork in the middle (cases E1, E2, E9).
 *   stress REFERENCE threads T most M calls C | seconds S [seed N] [faults] [lose] [fork] [steady]
 *     T threads make random calls with sizes up to M, each checked, C in all or for S seconds.
 *     faults  another thread makes the device fail every few milliseconds
 *     lose    and at nine tenths the device is lost for good
 *     fork    in the middle the process forks; the child calls (on the CPU, within CHILD_LIMIT_S), then
 *             becomes a fresh process by exec that uses the device again
 *     steady  the second half must not take more memory
 *   stress REFERENCE fresh M seed N
 *     one thread; the device must have been used
 * Prints WRONG lines, and at the end what was done. Exit status 1 if something is wrong.
 */
#include "checked_calls.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#ifdef __SANITIZE_THREAD__
/* Names that Rust's compiler calls and GCC's runtime lacks; the runtime wraps what they do. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
void *__tsan_memset(void *to, int value, size_t bytes) { return memset(to, value, bytes); }
#endif

/* Some hundred small calls take well below a second; two loaded cores and 16 siblings make it ten. */
enum { CHILD_LIMIT_S = 60, CHILD_CALLS = 200, MOST_THREADS = 64, FAULT_EVERY_US = 3000 };
/* For runs of many thousand calls: caches are full after the first half, and what they and the allocators'
 * arenas still took was 12 MiB (2 cores, 2026-12-01). A leak of one operand in ten calls is far more. */
enum { GROWTH_PAGES = 16384 };

static int most = 48, threads = 16;
static long calls;
static double seconds;
static uint64_t seed = 1;
static atomic_long started, wrong;
static atomic_int over;
static double began;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Done so far, from 0 to 1. */
static double progress(void)
{
    return calls ? (double)atomic_load(&started) / calls : (now() - began) / seconds;
}

static void *work(void *number)
{
    struct caller w = { .state = seed * 1000003 + (uint64_t)(size_t)number };
    for (;;) {
        long mine = atomic_fetch_add(&started, 1);
        if (calls ? mine >= calls : now() - began > seconds) break;
        if (random_call(&w, most)) atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

/* Calls that fail while the device goes on working. Not among them: waits and questions about running work,
 * since one that fails says nothing about the work, so that the device counts as lost. */
static const char *const FUNCTIONS[] = {
    "cuMemAlloc_v2", "cuMemAllocHost_v2", "cuStreamCreate", "cuEventCreate", "cuStreamWaitEvent",
    "cuMemcpy2DAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuCtxPushCurrent_v2",
    "cuMemGetInfo_v2", "cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx_64",
    "cublasDtrsm_v2_64", "cublasStrmm_v2_64", "cublasZherk_v2_64", "cublasCsymm_v2_64", "cublasDsyr2k_v2_64",
};
/* Three errors in a row without a success end the GPU path, memory that is short does not: most faults are
 * of the second kind. */
static const char *const KINDS[] = {"oom", "oom", "oom", "oom", "invalid", "unsupported"};
/* How a device ends. */
static const char *const ENDS[] = {"cuEventRecord:%d:lost", "cublasGemmEx_64:%d:late", "cuCtxPushCurrent_v2:%d:lost"};

static void *spoil(void *with_loss)
{
    struct caller w = { .state = seed * 7919 };
    uint32_t (*set_fault)(const char *) = NULL;
    long set = 0;
    int lost = 0;
    while (!atomic_load(&over)) {
        usleep(FAULT_EVERY_US);
        if (progress() < 0.1) continue; /* the start has faults of its own, in other tests */
        if (!set_fault) set_fault = simulated("sim_cuda_set_fault");
        if (!set_fault) continue;
        char text[80];
        if (with_loss && !lost && progress() > 0.9) {
            snprintf(text, sizeof text, ENDS[seed / 2 % 3], 1 + draw_below(&w, 5));
            lost = 1;
        } else if (lost) {
            continue;
        } else {
            snprintf(text, sizeof text, "%s:%d:%s", FUNCTIONS[draw_below(&w, sizeof FUNCTIONS / sizeof *FUNCTIONS)],
                     1 + draw_below(&w, 8), KINDS[draw_below(&w, sizeof KINDS / sizeof *KINDS)]);
        }
        if (set_fault(text)) printf("WRONG fault %s\n", text), atomic_fetch_add(&wrong, 1);
        set++;
    }
    return (void *)set;
}

static long resident_pages(void)
{
    long size = 0, resident = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2) resident = -1;
    if (f) fclose(f);
    return resident;
}

static char *own_path, *reference_path;

/* The child of a fork among running calls. It must not ask the simulated CUDA anything: a thread that the
 * child does not have may hold its lock. Whoever calls it from here hangs, and the alarm tells. */
static void in_child(void)
{
    alarm(CHILD_LIMIT_S);
    struct caller w = { .state = seed + 17 };
    for (int i = 0; i < CHILD_CALLS; i++)
        if (random_call(&w, most)) _exit(3);
    unsetenv("SIM_CUDA_REPORT");
    char size[20], number[30];
    snprintf(size, sizeof size, "%d", most);
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed + 1);
    execl(own_path, own_path, reference_path, "fresh", size, "seed", number, (char *)NULL);
    _exit(5);
}

static int fork_in_the_middle(void)
{
    double t = now();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) in_child();
    int status = -1;
    waitpid(pid, &status, 0);
    printf("child: status %#x after %.1f s\n", status, now() - t);
    return status != 0;
}

static int fresh(void)
{
    struct caller w = { .state = seed };
    int bad = 0;
    for (int i = 0; i < CHILD_CALLS; i++) bad |= random_call(&w, most);
    return bad || !reported("calls cublasGemmEx_64 ");
}

int main(int argc, char **argv)
{
    int with_faults = 0, with_loss = 0, with_fork = 0, steady = 0;
    own_path = argv[0], reference_path = argv[1];
    open_reference(argv[1]);
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (!strcmp(argv[i], "threads")) threads = atoi(value), i++;
        else if (!strcmp(argv[i], "most")) most = atoi(value), i++;
        else if (!strcmp(argv[i], "calls")) calls = atol(value), i++;
        else if (!strcmp(argv[i], "seconds")) seconds = atof(value), i++;
        else if (!strcmp(argv[i], "seed")) seed = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "fresh")) most = atoi(value), threads = 0, i++;
        else if (!strcmp(argv[i], "faults")) with_faults = 1;
        else if (!strcmp(argv[i], "lose")) with_loss = 1;
        else if (!strcmp(argv[i], "fork")) with_fork = 1;
        else if (!strcmp(argv[i], "steady")) steady = 1;
        else return 9;
    }
    if (!threads) return fresh();
    if (threads > MOST_THREADS || !(calls || seconds)) return 9;
    pthread_t t[MOST_THREADS], faulty;
    began = now();
    for (int i = 0; i < threads; i++) pthread_create(&t[i], NULL, work, (void *)(size_t)(i + 1));
    if (with_faults) pthread_create(&faulty, NULL, spoil, with_loss ? (void *)1 : NULL);
    while (progress() < 0.5) usleep(500);
    long half = resident_pages();
    if (with_fork) atomic_fetch_add(&wrong, fork_in_the_middle());
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    atomic_store(&over, 1);
    void *faults = NULL;
    if (with_faults) pthread_join(faulty, &faults);
    long grown = resident_pages() - half;
    if (steady && grown > GROWTH_PAGES) printf("WRONG: %ld pages more\n", grown), atomic_fetch_add(&wrong, 1);
    printf("calls %ld faults %ld seconds %.1f pages %ld\n", atomic_load(&started) - threads, (long)faults, now() - began, grown);
    return atomic_load(&wrong) != 0;
}
