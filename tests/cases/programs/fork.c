/* fork after dgemm (case F8): in the child dgemm n = 8, 512, 4096 and dpotrf n = 300 finish within
 * seconds and are right, whoever called fork; the parent is as fast after as before.
 * Prints the parent's best times before and after.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* A of ones: every element of A * A is n. */
static int product(int n)
{
    size_t nn = (size_t)n * n;
    double *a = malloc(nn * sizeof *a), *c = malloc(nn * sizeof *c);
    const double one = 1, zero = 0;
    for (size_t i = 0; i < nn; i++) a[i] = 1, c[i] = NAN;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    int bad = 0;
    for (size_t i = 0; i < nn; i++) bad |= c[i] != n;
    free(a), free(c);
    return bad;
}

/* n * I + ones = L L': l11 = sqrt(n + 1). */
static int cholesky(int n)
{
    double *a = malloc((size_t)n * n * sizeof *a);
    int info;
    for (int i = 0; i < n * n; i++) a[i] = i % (n + 1) ? 1 : n + 1;
    dpotrf_("L", &n, a, &n, &info, 1);
    int bad = info != 0 || fabs(a[0] - sqrt(n + 1.0)) > 1e-12;
    free(a);
    return bad;
}

static double best(int n)
{
    double least = 1e9;
    for (int i = 0; i < 7; i++) {
        double t = now();
        if (product(n)) exit(3);
        t = now() - t;
        if (t < least) least = t;
    }
    return least;
}

/* SIGALRM's default action ends a child that hangs. */
static const unsigned CHILD_DEADLINE_S = 60;

static int in_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_DEADLINE_S);
        _exit(product(8) | product(512) | product(4096) | cholesky(300));
    }
    int status;
    waitpid(pid, &status, 0);
    if (status) printf("WRONG child ended with status %#x\n", status);
    return status != 0;
}

static void *in_thread(void *bad)
{
    *(int *)bad = in_child();
    return NULL;
}

int main(void)
{
    const int n = 700;
    double before = best(n);
    int bad = in_child(), from_thread = 0;
    pthread_t t;
    pthread_create(&t, NULL, in_thread, &from_thread);
    pthread_join(t, NULL);
    double after = best(n);
    printf("before_s %.6f after_s %.6f\n", before, after);
    return bad | from_thread;
}
