/* Threads (case F10). argv[1]:
 *   time T C   T OpenMP threads call dgemm n = 300 C times each; prints the seconds it took
 *   count      prints the process's threads after a large dgemm
 *   set N      openblas_set_num_threads(N) after a large dgemm; prints what openblas_get_num_threads
 *              and the CPU time per wall time of a large dgemm say
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
void openblas_set_num_threads(int);
int openblas_get_num_threads(void);

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void product(int n, int times)
{
    size_t nn = (size_t)n * n;
    double *a = malloc(nn * sizeof *a), *c = malloc(nn * sizeof *c);
    const double one = 1, zero = 0;
    for (size_t i = 0; i < nn; i++) a[i] = 1;
    for (int t = 0; t < times; t++) {
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
        if (c[nn / 2] != n) exit(3);
    }
    free(a), free(c);
}

static int tasks(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

int main(int argc, char **argv)
{
    int number = argc > 2 ? atoi(argv[2]) : 1, times = argc > 3 ? atoi(argv[3]) : 1;
    if (!strcmp(argv[1], "time")) {
        product(300, 2);
        double start = clock_s(CLOCK_MONOTONIC);
#pragma omp parallel num_threads(number)
        product(300, times);
        printf("%.6f\n", clock_s(CLOCK_MONOTONIC) - start);
    } else if (!strcmp(argv[1], "count")) {
        product(1000, 1);
        printf("%d\n", tasks());
    } else {
        product(1000, 1);
        openblas_set_num_threads(number);
        /* An idle worker spins for a while (about 30 ms) before it sleeps: that is no work. */
        nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
        double wall = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        product(1000, 3);
        wall = clock_s(CLOCK_MONOTONIC) - wall, cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%d %.3f\n", openblas_get_num_threads(), cpu / wall);
    }
    return 0;
}
