/* How long the system takes to make fresh pages of malloc: the least that writing a fresh result costs on top of
 * streaming it. Arguments: bytes, most threads, rounds. For 1, 2, 4, ... threads, each of which makes an equal part, by
 * touching each page and by MADV_POPULATE_WRITE. Prints one JSON object: the median of the rounds in ms for the best
 * of these ways, and which one it was.
 */
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { MOST_THREADS = 256, MOST_ROUNDS = 99 };

struct part {
    char *at;
    size_t bytes;
    int populate, failed;
    pthread_barrier_t *start, *end;
};

static void *make(void *argument)
{
    struct part *part = argument;
    pthread_barrier_wait(part->start);
    if (part->populate)
        part->failed = madvise(part->at, part->bytes, MADV_POPULATE_WRITE);
    else
        for (size_t i = 0; i < part->bytes; i += 4096) ((volatile char *)part->at)[i] = 0;
    pthread_barrier_wait(part->end);
    return NULL;
}

/* Time to make the pages by so many threads, their start not counted; negative if the system cannot. */
static double faults_ms(size_t bytes, int threads, int populate)
{
    struct part parts[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t start, end;
    char *block = memory(bytes);
    const uintptr_t page = 4096, first = ((uintptr_t)block + page - 1) & -page;
    const size_t pages = ((uintptr_t)block + bytes - first) / page;
    int failed = 0;
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        const size_t from = pages * i / threads, to = pages * (i + 1) / threads;
        parts[i] = (struct part){(char *)first + from * page, (to - from) * page, populate, 0, &start, &end};
        if (pthread_create(&ids[i], NULL, make, &parts[i])) { fprintf(stderr, "no thread\n"); exit(1); }
    }
    pthread_barrier_wait(&start);
    double t = now_ms();
    pthread_barrier_wait(&end);
    t = now_ms() - t;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL), failed |= parts[i].failed;
    free(block);
    return failed ? -1 : t;
}

int main(int argc, char **argv)
{
    if (argc != 4) { fprintf(stderr, "usage: faults BYTES THREADS ROUNDS\n"); return 2; }
    const size_t bytes = strtoull(argv[1], NULL, 10);
    const int most = atoi(argv[2]), rounds = atoi(argv[3]);
    /* Smaller blocks malloc takes from memory it has used before. */
    if (bytes < 64 << 20 || most < 1 || most > MOST_THREADS || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "faults: at least 64 MiB, 1 to %d threads, 1 to %d rounds\n", MOST_THREADS, MOST_ROUNDS);
        return 2;
    }
    double best = -1;
    int best_threads = 0, best_populate = 0;
    for (int populate = 0; populate < 2; populate++)
        for (int threads = 1; threads <= most; threads = threads < most && 2 * threads > most ? most : 2 * threads) {
            double ms[MOST_ROUNDS];
            for (int i = 0; i < rounds; i++) ms[i] = faults_ms(bytes, threads, populate);
            qsort(ms, rounds, sizeof *ms, ascending);
            if (ms[0] >= 0 && (best < 0 || ms[rounds / 2] < best))
                best = ms[rounds / 2], best_threads = threads, best_populate = populate;
        }
    printf("{\"ms\": %.3f, \"threads\": %d, \"populate\": %s}\n", best, best_threads, best_populate ? "true" : "false");
    return 0;
}
