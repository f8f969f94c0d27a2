/* An xerbla_ that never returns, as R's: 10,000 jumps out of each level-3 routine in both spellings, the
 * illegal argument a different one each time (case E11). Afterwards the thread can still be cancelled,
 * the memory has not grown, and a legal dgemm is right.
 * Prints a line a routine: name and the jumps that arrived. Exit status 1 if something is wrong.
 */
#include "blas_table.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

enum { TIMES = 10000, N = 6 };
/* Whole jumps leak at least a page; what the first calls of a kind allocate stays below this. */
enum { GROWTH_PAGES = 8192 };

static jmp_buf out;
static volatile int jumps;

void xerbla_(const char *name, const int *info, size_t length)
{
    (void)name, (void)info, (void)length;
    jumps++;
    longjmp(out, 1);
}

static unsigned char memory[3][1 << 14];

static void arrays(struct call *c)
{
    int used = 0;
    for (int i = 0; c->r->args[i]; i++)
        if (is_letter_of(c->r->args[i], "ABC")) c->array[i] = memory[used++ % 3];
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2) resident = -1;
    if (f) fclose(f);
    return resident;
}

/* Makes one argument illegal, going round those that can be. */
static void spoil(struct call *c, int turn)
{
    int count = 0, which[MAX_ARGS];
    for (int i = 0; c->r->args[i]; i++)
        if (is_letter_of(c->r->args[i], "TtUDSmnkL")) which[count++] = i;
    int i = which[turn % count];
    if (is_letter_of(c->r->args[i], "TtUDS")) c->chr[i] = 'X';
    else if (c->r->args[i] == 'L') c->integer[i] -= 1;
    else c->integer[i] = -1;
}

static int jump_out_of(const struct routine *r, char type, int cblas)
{
    static struct call c;
    static volatile int turn;
    jumps = 0;
    for (turn = 0; turn < TIMES; turn++) {
        ordinary(&c, r, type, N);
        arrays(&c);
        spoil(&c, turn);
        if (setjmp(out) == 0) {
            int there = cblas ? call_cblas(&c, 102) : call_fortran(&c);
            if (!there) return 1;
        }
    }
    printf("%s%c%s %d\n", cblas ? "cblas_" : "", type, r->name, jumps);
    return jumps != TIMES;
}

/* C = A B of ones: every entry is n. */
static int product_is_wrong(int n)
{
    void (*dgemm)(const char *, const char *, const int *, const int *, const int *, const double *,
                  const double *, const int *, const double *, const int *, const double *, double *,
                  const int *, size_t, size_t) = find_symbol("dgemm_");
    double *a = malloc(sizeof *a * n * n), *c = malloc(sizeof *c * n * n);
    const double one = 1, zero = 0;
    int wrong = 0;
    for (int i = 0; i < n * n; i++) a[i] = 1, c[i] = NAN;
    dgemm("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    for (int i = 0; i < n * n; i++) wrong |= c[i] != n;
    free(a), free(c);
    return wrong;
}

int main(void)
{
    int bad = product_is_wrong(200);
    long before = resident_pages();
    for (int row = 0; row < ROUTINE_COUNT; row++) {
        const struct routine *r = &ROUTINES[row];
        if (!is_level3(r)) continue;
        for (const char *type = r->types; *type; type++)
            for (int cblas = 0; cblas < 2; cblas++) bad |= jump_out_of(r, *type, cblas);
    }
    long grown = resident_pages() - before;
    int state = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    if (state != PTHREAD_CANCEL_ENABLE) printf("WRONG: the thread cannot be cancelled any more\n"), bad = 1;
    if (before < 0 || grown > GROWTH_PAGES) printf("WRONG: %ld pages more\n", grown), bad = 1;
    if (product_is_wrong(200)) printf("WRONG: dgemm\n"), bad = 1;
    return bad;
}
