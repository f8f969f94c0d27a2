/* One dgemm, in a program that is told by the kernel whether it runs with more rights than its user.
 * Prints that and nothing else; exit status 0 only if the product is right.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);

int main(void)
{
    const int n = 300;
    const double one = 1, zero = 0;
    double *a = malloc(sizeof *a * n * n), *c = malloc(sizeof *c * n * n);
    int wrong = 0;
    for (int i = 0; i < n * n; i++) a[i] = 1, c[i] = NAN;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    for (int i = 0; i < n * n; i++) wrong |= c[i] != n;
    printf("secure %lu user %d effective %d\n", getauxval(AT_SECURE), (int)getuid(), (int)geteuid());
    return wrong;
}
