/* Prints for which processor OpenBLAS has chosen its kernels, as its configuration says it too. */
#include <stdio.h>
#include <string.h>

char *openblas_get_config(void), *openblas_get_corename(void);

int main(void)
{
    const char *core = openblas_get_corename(), *config = openblas_get_config();
    if (!strstr(config, core) || !strstr(config, "DYNAMIC_ARCH")) return printf("WRONG %s\n", config), 1;
    puts(core);
    return 0;
}
