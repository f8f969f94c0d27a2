/* The level-2 and level-3 routines as data, and one way to call any of them.
 *
 * A row's letters name the arguments in Fortran order:
 *   T trans   t trans of a symmetric or Hermitian rank-k update   U uplo   D diag   S side
 *   m n k     dimensions           l u   sub- and superdiagonals of a band
 *   a b       scalars of the routine's type      r q   the same, real in complex routines too
 *   A B C     matrices with a leading dimension (next letter L)
 *   P         packed triangle       X Y   vectors with an increment (next letter I)
 * x86-64 only: every Fortran argument is a pointer, every integer argument of CBLAS takes one integer
 * register or stack word, and real scalars go through vector registers without moving those. So one
 * function type with enough arguments calls every routine, hidden string lengths included.
 */
#ifndef BLAS_TABLE_H
#define BLAS_TABLE_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct routine {
    const char *types; /* letters of s, d, c, z */
    const char *name;  /* without the type's letter */
    const char *args;
    /* Which operand decides the shape: see shape_of(). */
    const char *family;
    int out; /* letter of the operand that is written */
    int cblas;
};

/* CBLAS has no csymv, csyr ... ; those are LAPACK's. */
static const struct routine ROUTINES[] = {
    {"sdcz", "gemv", "TmnaALXIbYI", "gemv", 'Y', 1},
    {"sdcz", "gbmv", "TmnluaALXIbYI", "gbmv", 'Y', 1},
    {"sd", "symv", "UnaALXIbYI", "sy", 'Y', 1},
    {"cz", "hemv", "UnaALXIbYI", "he", 'Y', 1},
    {"sd", "sbmv", "UnkaALXIbYI", "sb", 'Y', 1},
    {"cz", "hbmv", "UnkaALXIbYI", "hb", 'Y', 1},
    {"sd", "spmv", "UnaPXIbYI", "sp", 'Y', 1},
    {"cz", "hpmv", "UnaPXIbYI", "hp", 'Y', 1},
    {"sdcz", "trmv", "UTDnALXI", "tr", 'X', 1},
    {"sdcz", "trsv", "UTDnALXI", "tr", 'X', 1},
    {"sdcz", "tbmv", "UTDnkALXI", "tb", 'X', 1},
    {"sdcz", "tbsv", "UTDnkALXI", "tb", 'X', 1},
    {"sdcz", "tpmv", "UTDnPXI", "tp", 'X', 1},
    {"sdcz", "tpsv", "UTDnPXI", "tp", 'X', 1},
    {"sd", "ger", "mnaXIYIAL", "ger", 'A', 1},
    {"cz", "geru", "mnaXIYIAL", "ger", 'A', 1},
    {"cz", "gerc", "mnaXIYIAL", "ger", 'A', 1},
    {"sd", "syr", "UnaXIAL", "syr", 'A', 1},
    {"cz", "her", "UnrXIAL", "her", 'A', 1},
    {"sd", "spr", "UnaXIP", "spr", 'P', 1},
    {"cz", "hpr", "UnrXIP", "hpr", 'P', 1},
    {"sd", "syr2", "UnaXIYIAL", "syr", 'A', 1},
    {"cz", "her2", "UnaXIYIAL", "her", 'A', 1},
    {"sd", "spr2", "UnaXIYIP", "spr", 'P', 1},
    {"cz", "hpr2", "UnaXIYIP", "hpr", 'P', 1},
    {"sdcz", "gemm", "TTmnkaALBLbCL", "gemm", 'C', 1},
    {"sdcz", "symm", "SUmnaALBLbCL", "symm", 'C', 1},
    {"cz", "hemm", "SUmnaALBLbCL", "hemm", 'C', 1},
    {"sdcz", "syrk", "UtnkaALbCL", "syrk", 'C', 1},
    {"cz", "herk", "UtnkrALqCL", "herk", 'C', 1},
    {"sdcz", "syr2k", "UtnkaALBLbCL", "syr2k", 'C', 1},
    {"cz", "her2k", "UtnkaALBLqCL", "her2k", 'C', 1},
    {"sdcz", "trmm", "SUTDmnaALBL", "trm", 'B', 1},
    {"sdcz", "trsm", "SUTDmnaALBL", "trm", 'B', 1},
    {"sdcz", "gemmtr", "UTTnkaALBLbCL", "gemmtr", 'C', 1},
    {"sdcz", "gemmt", "UTTnkaALBLbCL", "gemmtr", 'C', 1},
    {"cz", "gemm3m", "TTmnkaALBLbCL", "gemm", 'C', 1},
};
enum { ROUTINE_COUNT = sizeof ROUTINES / sizeof ROUTINES[0] };

enum { MAX_ARGS = 24 };

/* One call: the value of each argument, in the order of the row's letters. */
struct call {
    const struct routine *r;
    char type;
    char chr[MAX_ARGS];
    int integer[MAX_ARGS];
    double scalar[MAX_ARGS][2];
    void *array[MAX_ARGS];
};

static inline int is_complex(char type) { return type == 'c' || type == 'z'; }
static inline int is_single(char type) { return type == 's' || type == 'c'; }
static inline size_t elem_bytes(char type)
{
    return (is_single(type) ? 4 : 8) * (is_complex(type) ? 2 : 1);
}
static inline int is_letter_of(char a, const char *set) { return strchr(set, a) != NULL; }

static inline const char *type_letters(const struct routine *r) { return r->types; }

/* Every operand is a matrix with a leading dimension, and there are at least two. */
static inline int is_level3(const struct routine *r)
{
    return !strpbrk(r->args, "PXY") && strchr(r->args, 'A');
}

/* Index of the first argument of that letter, or -1. */
static inline int arg_index(const struct routine *r, char letter)
{
    const char *p = strchr(r->args, letter);
    return p ? (int)(p - r->args) : -1;
}

static inline void *find_symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

typedef void (*any_fortran)(void *, void *, void *, void *, void *, void *, void *, void *, void *,
                            void *, void *, void *, void *, void *, void *, void *, void *, void *,
                            void *, void *);
typedef void (*any_cblas_f32)(float, float, long, long, long, long, long, long, long, long, long,
                              long, long, long, long, long, long, long);
typedef void (*any_cblas_f64)(double, double, long, long, long, long, long, long, long, long, long,
                              long, long, long, long, long, long, long);

static inline void fortran_name(char *out, const struct call *c)
{
    sprintf(out, "%c%s_", c->type, c->r->name);
}

static inline void cblas_name(char *out, const struct call *c)
{
    sprintf(out, "cblas_%c%s", c->type, c->r->name);
}

/* Calls the Fortran routine at an address. Returns 0 if there is none. */
static inline int call_fortran_at(void *routine, struct call *c)
{
    any_fortran f = (any_fortran)routine;
    if (!f) return 0;
    void *a[20] = {0};
    float single[MAX_ARGS][2];
    int n = 0, chars = 0;
    for (const char *p = c->r->args; *p; p++, n++) {
        if (is_letter_of(*p, "TtUDS")) {
            a[n] = &c->chr[n];
            chars++;
        } else if (is_letter_of(*p, "mnkluLI")) {
            a[n] = &c->integer[n];
        } else if (is_letter_of(*p, "abrq")) {
            single[n][0] = (float)c->scalar[n][0];
            single[n][1] = (float)c->scalar[n][1];
            a[n] = is_single(c->type) ? (void *)single[n] : (void *)c->scalar[n];
        } else {
            a[n] = c->array[n];
        }
    }
    for (int i = 0; i < chars; i++) a[n++] = (void *)1; /* hidden lengths */
    f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
      a[15], a[16], a[17], a[18], a[19]);
    return 1;
}

/* Calls the Fortran symbol. Returns 0 if the library has none. */
static inline int call_fortran(struct call *c)
{
    char name[40];
    fortran_name(name, c);
    return call_fortran_at(find_symbol(name), c);
}

/* The enum's value of a letter; an unknown letter gives an illegal value. */
static inline long cblas_enum(char letter, char value)
{
    switch (letter) {
    case 'T':
    case 't': return value == 'N' ? 111 : value == 'T' ? 112 : value == 'C' ? 113 : 999;
    case 'U': return value == 'U' ? 121 : value == 'L' ? 122 : 999;
    case 'D': return value == 'N' ? 131 : value == 'U' ? 132 : 999;
    default: return value == 'L' ? 141 : value == 'R' ? 142 : 999;
    }
}

/* Calls the CBLAS routine at an address with the given order (101 row-major, 102 column-major, others
 * illegal). Returns 0 if there is none. */
static inline int call_cblas_at(void *f, struct call *c, long order)
{
    if (!f) return 0;
    long w[18] = {order};
    double real[2] = {0, 0};
    float single[MAX_ARGS][2];
    int n = 1, reals = 0, i = 0;
    for (const char *p = c->r->args; *p; p++, i++) {
        if (is_letter_of(*p, "TtUDS")) {
            w[n++] = cblas_enum(*p, c->chr[i]);
        } else if (is_letter_of(*p, "mnkluLI")) {
            w[n++] = c->integer[i];
        } else if (is_letter_of(*p, "abrq")) {
            if (!is_complex(c->type) || is_letter_of(*p, "rq")) {
                real[reals++] = c->scalar[i][0];
            } else {
                single[i][0] = (float)c->scalar[i][0];
                single[i][1] = (float)c->scalar[i][1];
                w[n++] = (long)(is_single(c->type) ? (void *)single[i] : (void *)c->scalar[i]);
            }
        } else {
            w[n++] = (long)c->array[i];
        }
    }
    if (is_single(c->type))
        ((any_cblas_f32)f)((float)real[0], (float)real[1], w[0], w[1], w[2], w[3], w[4], w[5], w[6],
                           w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]);
    else
        ((any_cblas_f64)f)(real[0], real[1], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8],
                           w[9], w[10], w[11], w[12], w[13], w[14], w[15]);
    return 1;
}

/* Calls the CBLAS symbol. Returns 0 if the library has none. */
static inline int call_cblas(struct call *c, long order)
{
    char name[40];
    cblas_name(name, c);
    return call_cblas_at(find_symbol(name), c, order);
}

/* What a call needs of memory: rows and columns of each matrix, elements of each vector. */
struct shape {
    int rows, cols; /* of the operand as stored; a vector is rows x 1 */
    int least_ld;
};

static inline int max1(int v) { return v > 1 ? v : 1; }

/* Value of the first integer argument with that letter, or `none`. */
static inline int dim(const struct call *c, char letter, int none)
{
    int i = arg_index(c->r, letter);
    return i < 0 ? none : c->integer[i];
}

static inline char flag(const struct call *c, char letter, int nth)
{
    for (int i = 0; c->r->args[i]; i++)
        if (c->r->args[i] == letter && nth-- == 0) return c->chr[i];
    return 0;
}

/* Shape of operand `letter` (column-major). */
static inline struct shape shape_of(const struct call *c, char letter)
{
    const char *f = c->r->family;
    int m = dim(c, 'm', 0), n = dim(c, 'n', 0), k = dim(c, 'k', 0);
    struct shape s = {0, 0, 1};
    int trans0 = flag(c, 'T', 0) ? flag(c, 'T', 0) : flag(c, 't', 0);
    if (letter == 'X' || letter == 'Y') {
        s.cols = 1;
        if (!strcmp(f, "gemv") || !strcmp(f, "gbmv")) s.rows = (trans0 == 'N') == (letter == 'X') ? n : m;
        else if (!strcmp(f, "ger")) s.rows = letter == 'X' ? m : n;
        else s.rows = n;
        return s;
    }
    if (letter == 'P') {
        s.rows = n * (n + 1) / 2;
        s.cols = 1;
        return s;
    }
    if (!strcmp(f, "gemv") || !strcmp(f, "ger")) s.rows = m, s.cols = n;
    else if (!strcmp(f, "gbmv")) s.rows = dim(c, 'l', 0) + dim(c, 'u', 0) + 1, s.cols = n;
    else if (!strcmp(f, "sb") || !strcmp(f, "hb") || !strcmp(f, "tb")) s.rows = k + 1, s.cols = n;
    else if (!strcmp(f, "gemm") || !strcmp(f, "gemmtr")) {
        int rows = !strcmp(f, "gemm") ? m : n;
        if (letter == 'A') s.rows = flag(c, 'T', 0) == 'N' ? rows : k, s.cols = flag(c, 'T', 0) == 'N' ? k : rows;
        else if (letter == 'B') s.rows = flag(c, 'T', 1) == 'N' ? k : n, s.cols = flag(c, 'T', 1) == 'N' ? n : k;
        else s.rows = rows, s.cols = n;
    } else if (!strcmp(f, "symm") || !strcmp(f, "hemm") || !strcmp(f, "trm")) {
        if (letter == 'A') s.rows = s.cols = flag(c, 'S', 0) == 'L' ? m : n;
        else s.rows = m, s.cols = n;
    } else if (strstr(f, "rk") || strstr(f, "r2k")) {
        if (letter == 'C') s.rows = s.cols = n;
        else s.rows = trans0 == 'N' ? n : k, s.cols = trans0 == 'N' ? k : n;
    } else s.rows = s.cols = n;
    s.least_ld = max1(s.rows);
    return s;
}

/* Fills the pointer-free part with an ordinary legal call. */
static inline void ordinary(struct call *c, const struct routine *r, char type, int size)
{
    memset(c, 0, sizeof *c);
    c->r = r;
    c->type = type;
    for (int i = 0; r->args[i]; i++) {
        switch (r->args[i]) {
        case 'T':
        case 't': c->chr[i] = 'N'; break;
        case 'U': c->chr[i] = 'U'; break;
        case 'D': c->chr[i] = 'N'; break;
        case 'S': c->chr[i] = 'L'; break;
        case 'm': c->integer[i] = size + 1; break;
        case 'n': c->integer[i] = size; break;
        case 'k': c->integer[i] = size > 2 ? size - 2 : size; break;
        case 'l':
        case 'u': c->integer[i] = 1; break;
        case 'I': c->integer[i] = 1; break;
        case 'a':
        case 'r': c->scalar[i][0] = 0.75; break;
        case 'b':
        case 'q': c->scalar[i][0] = -0.5; break;
        }
        if (is_complex(type) && is_letter_of(r->args[i], "ab")) c->scalar[i][1] = 0.25;
    }
    for (int i = 0; r->args[i]; i++)
        if (r->args[i] == 'L') c->integer[i] = shape_of(c, r->args[i - 1]).least_ld;
}
#endif
