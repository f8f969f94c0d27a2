/* One process as a host of the GPU path, and what hosts do (cases E2, E3, E5, E7 to E11).
 *   guest REFERENCE ACTION [ARGUMENT...]
 *     all N              every level-3 routine in every precision at size N
 *     fork N             the same, then in a child, in eight children at once, in a grandchild by exec; then
 *                        here again
 *     mid-start US       another thread's first call starts the GPU; fork after US microseconds
 *     end HOW WHEN       ends by return, exit, quick_exit, _exit, kill; WHEN is "during" or "after" calls
 *     host-cuda N        this program has CUDA in use, as a framework would; a child forked before our first call
 *                        computes on the CPU; then this process by the GPU, with its own context kept
 *     daemon WHEN        becomes a daemon "before" or "after" its first call; the daemon tells through a pipe
 *     signals            handlers for SIGALRM (every millisecond), SIGCHLD and SIGUSR1 run on this program's
 *                        own threads, calls are right, and no call of the program is interrupted by us
 *     cancel             a thread is cancelled inside calls; afterwards everything works
 *     reload DIR         opens DIR's libblas.so.3, calls, closes, opens again; not linked with any BLAS
 *     rows N             two threads write interleaved rows of one matrix
 *     hog BYTES          another process leaves BYTES, and later everything
 *     sticky WHEN        the device breaks "between" or "during" calls
 * Prints WRONG lines; exit status 1 if something is wrong.
 */
#include "checked_calls.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

/* Far above what a child's calls take (well below a second alone), far below for ever. */
enum { CHILD_LIMIT_S = 60, SMALL = 24, WORKERS = 8 };

static char **arguments;
static const char *reference_path;

static int complain(const char *what)
{
    printf("WRONG %s\n", what);
    fflush(stdout);
    return 1;
}

/* Calls of cuBLAS and the driver's allocator so far: whatever else happens, a GPU path makes them. */
static unsigned long device_calls(void) { return reported("calls cublasSetStream_v2 ") + reported("calls cuMemcpyHtoDAsync_v2 ") + reported("calls cuMemcpy2DAsync_v2 "); }

static int all_on_device(struct caller *w, int size)
{
    unsigned long before = device_calls();
    int bad = every_routine(w, size);
    if (device_calls() == before) bad = complain("the device was not used");
    return bad;
}

/* In a child: right, in time, and without touching the device. Returns the exit status. */
static int child_calls(int size)
{
    alarm(CHILD_LIMIT_S);
    struct caller w = { .state = 3 };
    unsigned long before = device_calls();
    int bad = every_routine(&w, size);
    if (device_calls() != before) bad = complain("a forked child used the device");
    return bad != 0;
}

static int ended_well(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status) printf("WRONG child ended with status %#x\n", status);
    fflush(stdout);
    return status == 0;
}

static pid_t start_child(int size, int then_exec)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    int bad = child_calls(size);
    if (bad || !then_exec) _exit(bad);
    unsetenv("SIM_CUDA_REPORT");
    execl(arguments[0], arguments[0], reference_path, "all", "24", (char *)NULL);
    _exit(5);
}

static int act_all(struct caller *w) { return all_on_device(w, atoi(arguments[3])); }

static int act_fork(struct caller *w)
{
    int size = atoi(arguments[3]), bad = all_on_device(w, size);
    bad |= !ended_well(start_child(size, 0));
    pid_t pool[WORKERS];
    for (int i = 0; i < WORKERS; i++) pool[i] = start_child(size, 0);
    for (int i = 0; i < WORKERS; i++) bad |= !ended_well(pool[i]);
    bad |= !ended_well(start_child(size, 1));
    return bad | all_on_device(w, size);
}

static void *first_calls(void *bad)
{
    struct caller w = { .state = 5 };
    *(int *)bad = every_routine(&w, SMALL);
    return NULL;
}

static int act_mid_start(struct caller *w)
{
    pthread_t t;
    int bad = 0;
    pthread_create(&t, NULL, first_calls, &bad);
    usleep(atoi(arguments[3]));
    /* No report here: the simulation's lock may be held by a thread that the child does not have. */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_LIMIT_S);
        _exit(every_routine(w, SMALL) != 0);
    }
    int well = ended_well(pid);
    pthread_join(t, NULL);
    return bad | !well;
}

/* A child whose calls nobody forces to the GPU: of one that is heavy enough to go there. */
static pid_t start_unforced_child(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    alarm(CHILD_LIMIT_S);
    setenv("GPU_OFFLOAD", "auto", 1), unsetenv("GPU_OFFLOAD_THRESHOLD");
    enum { LARGE = 3000 };
    const int n = LARGE;
    const double one = 1, zero = 0;
    double *a = malloc(sizeof *a * n * n), *c = malloc(sizeof *c * n * n);
    void (*dgemm)(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
        const double *, const int *, const double *, double *, const int *, size_t, size_t) = dlsym(library_under_test, "dgemm_");
    for (int i = 0; i < n * n; i++) a[i] = 1;
    dgemm("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    for (int i = 0; i < n * n; i++)
        if (c[i] != n) _exit(1);
    _exit(0);
}

static int act_host_cuda(struct caller *w)
{
    int size = atoi(arguments[3]), bad = 0;
    if (!dlopen("libcuda.so.1", RTLD_NOW)) return complain("no libcuda.so.1");
    int (*init)(unsigned) = simulated("cuInit"), (*retain)(void **, int) = simulated("cuDevicePrimaryCtxRetain");
    int (*push)(void *) = simulated("cuCtxPushCurrent_v2"), (*current)(void **) = simulated("cuCtxGetCurrent");
    void *context = NULL, *now = NULL;
    if (!init || init(0) || retain(&context, 0) || push(context)) return complain("no CUDA for this program");
    /* CUDA does not work in the child, whose own engine begins to start all the same. */
    for (int i = 0; i < 2; i++) bad |= !ended_well(start_child(size, i));
    bad |= !ended_well(start_unforced_child());
    bad |= all_on_device(w, size);
    if (current(&now) || now != context) bad = complain("another context is current");
    return bad | !ended_well(start_child(size, 0));
}

static atomic_int inside;

/* Calls that are not compared: the reference's own destructor unmaps at exit what its calls would use. */
static void *call_for_ever(void *unused)
{
    (void)unused;
    static _Thread_local struct caller w = { .state = 13 };
    for (;;) {
        struct call c;
        for (int row = 0; row < ROUTINE_COUNT; row++) {
            if (!is_level3(&ROUTINES[row])) continue;
            ordinary(&c, &ROUTINES[row], ROUTINES[row].types[0], 64);
            lay_out(&w, &c, FORTRAN, 0);
            for (int i = 0; i < w.operands; i++) c.array[w.operand[i].arg] = w.operand[i].at;
            call_through(library_under_test, &c, FORTRAN);
            atomic_store(&inside, 1);
        }
        pthread_testcancel(); /* for those that cancel it */
    }
    return NULL;
}

static int act_end(struct caller *w)
{
    int bad = all_on_device(w, SMALL);
    if (!strcmp(arguments[4], "during")) {
        pthread_t t;
        for (int i = 0; i < 3; i++) pthread_create(&t, NULL, call_for_ever, NULL);
        while (!atomic_load(&inside)) usleep(100);
        usleep(3000);
    }
    if (bad) _exit(1);
    fflush(stdout);
    const char *how = arguments[3];
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "quick_exit")) quick_exit(0);
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "kill")) kill(getpid(), SIGTERM);
    return 0;
}

/* Twice forked, a session of its own, as daemons do. Returns in the daemon alone. */
static void become_daemon(void)
{
    if (fork()) _exit(0);
    setsid();
    if (fork()) _exit(0);
}

static int act_daemon(struct caller *w)
{
    int ends[2], bad = 0, after = !strcmp(arguments[3], "after");
    char told = 'x';
    if (pipe(ends)) return complain("no pipe");
    if (after) bad = all_on_device(w, SMALL);
    fflush(stdout);
    pid_t starter = fork();
    if (starter == 0) {
        become_daemon();
        bad |= after ? child_calls(SMALL) : all_on_device(w, SMALL);
        fflush(stdout);
        if (write(ends[1], bad ? "w" : "r", 1) != 1) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    bad |= !ended_well(starter);
    if (read(ends[0], &told, 1) != 1 || told != 'r') bad = complain("the daemon");
    return bad;
}

static atomic_long delivered[65];
static atomic_int strangers;
static char stranger[17];
static _Thread_local int own_thread;

static void note(int number)
{
    atomic_fetch_add(&delivered[number], 1);
    if (!own_thread && !atomic_exchange(&strangers, 1)) prctl(PR_GET_NAME, stranger);
}

static void mask_all(int how)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(how, &all, NULL);
}

static void *call_through_signals(void *bad)
{
    own_thread = 1;
    mask_all(SIG_UNBLOCK);
    struct caller w = { .state = 11 };
    for (int i = 0; i < 3; i++) *(int *)bad |= every_routine(&w, 40);
    return NULL;
}

static int act_signals(struct caller *w)
{
    (void)w;
    struct sigaction before[32] = {0};
    for (int s = 1; s < 32; s++) sigaction(s, NULL, &before[s]);
    own_thread = 1;
    /* Without SA_RESTART: whoever forgets EINTR fails. */
    struct sigaction act = { .sa_handler = note };
    sigaction(SIGALRM, &act, NULL), sigaction(SIGCHLD, &act, NULL), sigaction(SIGUSR1, &act, NULL);
    struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_t t[4];
    int bad[4] = {0}, wrong = 0;
    /* A new thread is known as the program's own before a signal reaches it. */
    mask_all(SIG_BLOCK);
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, call_through_signals, &bad[i]);
    mask_all(SIG_UNBLOCK);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        kill(getpid(), SIGUSR1);
        ended_well(pid);
        usleep(2000);
    }
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL), wrong |= bad[i];
    timer = (struct itimerval){ { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &timer, NULL);
    if (atomic_load(&strangers)) wrong = complain("a handler ran on a thread of the libraries:"), puts(stranger);
    if (!delivered[SIGALRM] || !delivered[SIGCHLD] || !delivered[SIGUSR1]) wrong = complain("no signal arrived");
    struct sigaction now;
    for (int s = 1; s < 32; s++)
        if (!sigaction(s, NULL, &now) && now.sa_handler != note && now.sa_handler != before[s].sa_handler)
            wrong = complain("a handler that the program has not set");
    if (!device_calls()) wrong = complain("the device was not used");
    return wrong;
}

static int act_cancel(struct caller *w)
{
    int bad = all_on_device(w, SMALL);
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        void *how = NULL;
        atomic_store(&inside, 0);
        pthread_create(&t, NULL, call_for_ever, NULL);
        while (!atomic_load(&inside)) usleep(50);
        usleep(211 * i);
        pthread_cancel(t);
        pthread_join(t, &how);
        if (how != PTHREAD_CANCELED) bad = complain("the thread was not cancelled");
    }
    int state = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    if (state != PTHREAD_CANCEL_ENABLE) bad = complain("cancellation stayed disabled");
    return bad | all_on_device(w, SMALL);
}

static int act_reload(struct caller *w)
{
    (void)w;
    char path[4096];
    int bad = 0;
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "%s/libblas.so.3", arguments[3]);
        void *blas = library_under_test = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        /* Not liblapack.so.3: it would get its libblas.so.3 by that name, and the reference has it too. Not
         * RTLD_GLOBAL: a symbol that the main program looks up by RTLD_DEFAULT keeps its library for ever. */
        if (!blas) return complain("dlopen");
        /* In a thread that ends: what the calling thread owns keeps the library loaded until then. */
        pthread_t t;
        int wrong = 0;
        pthread_create(&t, NULL, first_calls, &wrong);
        pthread_join(t, NULL);
        bad |= wrong;
        if (!device_calls()) bad = complain("the device was not used");
        dlclose(blas);
        if (dlopen(path, RTLD_NOW | RTLD_NOLOAD)) bad = complain("the library is still there");
    }
    return bad;
}

/* A call whose output is moved to every second group of rows of a matrix that another thread shares. */
struct half {
    const struct routine *r;
    char type;
    int size, upper, bad;
    unsigned char *shared;
    int shared_ld;
    pthread_barrier_t *both;
};

static void *write_rows(void *p)
{
    struct half *h = p;
    struct caller w = { .state = 17 + (uint64_t)h->upper };
    struct call c;
    ordinary(&c, h->r, h->type, h->size);
    draw_options(&w, &c);
    lay_out(&w, &c, FORTRAN, 0);
    struct operand *out = output_of(&w, &c);
    size_t e = elem_bytes(h->type), line = (size_t)out->shape.rows * e;
    unsigned char *at = h->shared + (h->upper ? 0 : line);
    for (int i = 0; i < w.operands; i++) c.array[w.operand[i].arg] = w.operand[i].at;
    c.array[out->arg] = at;
    c.integer[out->arg + 1] = h->shared_ld;
    for (int col = 0; col < out->shape.cols; col++)
        memcpy(at + (size_t)col * h->shared_ld * e, out->before + col * line, line);
    pthread_barrier_wait(h->both);
    if (!call_through(library_under_test, &c, FORTRAN)) h->bad = complain("no such symbol");
    pthread_barrier_wait(h->both);
    for (int col = 0; col < out->shape.cols; col++)
        memcpy(out->at + col * line, at + (size_t)col * h->shared_ld * e, line);
    c.array[out->arg] = out->at;
    c.integer[out->arg + 1] = out->ld;
    h->bad |= check_results(&w, &c, FORTRAN);
    return NULL;
}

static int share_rows(const struct routine *r, char type, int size)
{
    struct call c;
    ordinary(&c, r, type, size);
    struct shape s = shape_of(&c, r->out);
    struct region region = {0};
    /* The last column has two groups of rows and no gap: what follows cannot be touched. */
    enum { GAP = 5 };
    int ld = 2 * s.rows + GAP;
    size_t e = elem_bytes(type), bytes = ((size_t)(s.cols - 1) * ld + 2 * s.rows) * e;
    unsigned char *shared = end_at_border(&region, bytes);
    memset(shared, 0x5A, bytes);
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    struct half half[2];
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        half[i] = (struct half){ r, type, size, i, 0, shared, ld, &both };
        pthread_create(&t[i], NULL, write_rows, &half[i]);
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    int bad = half[0].bad | half[1].bad;
    for (int col = 0; col + 1 < s.cols; col++)
        for (size_t i = 0; i < GAP * e; i++)
            if (shared[((size_t)col * ld + 2 * s.rows) * e + i] != 0x5A) bad |= 2;
    if (bad & 2) complain("the rows between were written");
    munmap(region.map, region.usable_bytes + PAGE_BYTES);
    return bad;
}

static int act_rows(struct caller *w)
{
    int bad = all_on_device(w, SMALL), size = atoi(arguments[3]);
    for (int row = 0; row < ROUTINE_COUNT; row++)
        for (const char *type = ROUTINES[row].types; is_level3(&ROUTINES[row]) && *type; type++)
            for (int i = 0; i < 3; i++) bad |= share_rows(&ROUTINES[row], *type, size);
    return bad;
}

/* Time after which the libraries ask again for memory that was refused: a second, and a little. */
enum { ASK_AGAIN_US = 1300000 };

static int act_hog(struct caller *w)
{
    int bad = all_on_device(w, SMALL);
    void (*hog)(uint64_t) = simulated("sim_cuda_set_hog");
    size_t total = 0, available = 0;
    int (*memory)(size_t *, size_t *) = simulated("cuMemGetInfo_v2");
    int (*retain)(void **, int) = simulated("cuDevicePrimaryCtxRetain"), (*push)(void *) = simulated("cuCtxPushCurrent_v2");
    void *context = NULL;
    if (!hog || retain(&context, 0) || push(context) || memory(&available, &total)) return complain("no memory information");
    uint64_t left = strtoull(arguments[3], NULL, 10);
    for (int round = 0; round < 2; round++) {
        hog(left < available ? available - left : 0);
        bad |= every_routine(w, 200) != 0;
        hog(0);
        usleep(ASK_AGAIN_US);
        bad |= all_on_device(w, 200);
    }
    return bad;
}

static void *break_soon(void *unused)
{
    (void)unused;
    uint32_t (*set_fault)(const char *) = simulated("sim_cuda_set_fault");
    usleep(2000);
    return (void *)(size_t)set_fault("cuEventRecord:3:lost");
}

static int act_sticky(struct caller *w)
{
    int bad = all_on_device(w, SMALL);
    uint32_t (*set_fault)(const char *) = simulated("sim_cuda_set_fault");
    int (*get)(size_t *, size_t *) = simulated("cuMemGetInfo_v2");
    if (!strcmp(arguments[3], "between")) {
        /* The host's own call finds the sticky error. */
        size_t a, b;
        set_fault("cuMemGetInfo_v2:1:lost");
        if (!get(&a, &b)) bad = complain("the host's call succeeded");
    } else {
        pthread_t t;
        void *refused = NULL;
        pthread_create(&t, NULL, break_soon, NULL);
        for (int i = 0; i < 3; i++) bad |= every_routine(w, 64);
        pthread_join(t, &refused);
        if (refused) bad = complain("the fault was refused");
    }
    for (int i = 0; i < 2; i++) bad |= every_routine(w, 64);
    return bad;
}

static const struct {
    const char *name;
    int (*act)(struct caller *);
} ACTIONS[] = {
    {"all", act_all}, {"fork", act_fork}, {"mid-start", act_mid_start}, {"host-cuda", act_host_cuda},
    {"end", act_end}, {"daemon", act_daemon}, {"signals", act_signals}, {"cancel", act_cancel},
    {"reload", act_reload}, {"rows", act_rows}, {"hog", act_hog}, {"sticky", act_sticky},
};

int main(int argc, char **argv)
{
    static struct caller w = { .state = 1 };
    static char *given[8];
    for (int i = 0; i < argc && i < 8; i++) given[i] = argv[i];
    arguments = given;
    if (argc < 3) return 9;
    reference_path = argv[1];
    open_reference(argv[1]);
    for (size_t i = 0; i < sizeof ACTIONS / sizeof *ACTIONS; i++)
        if (!strcmp(argv[2], ACTIONS[i].name)) return ACTIONS[i].act(&w) != 0;
    return 9;
}
