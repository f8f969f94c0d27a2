/* Level-3 calls of every family, precision, spelling and option, each checked against the same OpenBLAS
 * archive without us, which is opened privately: argument, operands and result alike, and every byte around
 * the result must stay as it was. Every operand ends at a page border before a page that nobody may touch.
 *
 * Values are of size 1/2 and triangles are well conditioned, so that rounding is all that may differ.
 */
#ifndef CHECKED_CALLS_H
#define CHECKED_CALLS_H
#include "blas_table.h"
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

static void *reference_library;
/* The library under test: of the process unless it is set. */
static void *library_under_test = RTLD_DEFAULT;

/* Opens the archive without us. Not by RTLD_DEEPBIND, which would bind it past another malloc; its own
 * level-3 routines call no public name that the libraries under test have, too. */
static inline void open_reference(const char *path)
{
    reference_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!reference_library) fprintf(stderr, "%s\n", dlerror()), _exit(9);
    if (dlsym(reference_library, "dgemm_") == find_symbol("dgemm_")) {
        fprintf(stderr, "the reference is the library under test\n");
        _exit(9);
    }
}

/* The spellings of a routine. */
enum spelling { FORTRAN, CBLAS_COLUMNS, CBLAS_ROWS, SPELLINGS };

/* Memory that ends at a page border. */
struct region {
    unsigned char *map;
    size_t usable_bytes;
};

enum { PAGE_BYTES = 4096, OPERANDS = 3 };

static inline unsigned char *end_at_border(struct region *r, size_t bytes)
{
    size_t wanted = (bytes + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
    if (r->usable_bytes < wanted) {
        if (r->map) munmap(r->map, r->usable_bytes + PAGE_BYTES);
        r->map = mmap(NULL, wanted + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (r->map == MAP_FAILED || mprotect(r->map + wanted, PAGE_BYTES, PROT_NONE)) {
            fprintf(stderr, "no memory for %zu bytes\n", wanted);
            _exit(9);
        }
        r->usable_bytes = wanted;
    }
    return r->map + r->usable_bytes - bytes;
}

/* One operand: where it lies and how. */
struct operand {
    int arg;
    char letter;
    struct shape shape;
    int ld;
    size_t bytes;
    unsigned char *at, *before, *wanted;
};

/* One caller: its random numbers and its memory. */
struct caller {
    uint64_t state;
    struct region now[OPERANDS], before[OPERANDS], wanted[OPERANDS];
    struct operand operand[OPERANDS];
    int operands;
    const char *trouble;
};

static inline uint64_t draw(struct caller *w)
{
    /* Xorshift; 0 would stay 0. */
    if (!w->state) w->state = 88172645463325252ull;
    w->state ^= w->state << 13, w->state ^= w->state >> 7, w->state ^= w->state << 17;
    return w->state * 2685821657736338717ull >> 16;
}

static inline int draw_below(struct caller *w, int n) { return (int)(draw(w) % (uint64_t)n); }
static inline double draw_half(struct caller *w) { return (double)(draw(w) >> 8) / (double)(1ull << 40) - 0.5; }

static inline void put_value(void *p, char type, size_t i, double re, double im)
{
    switch (type) {
    case 's': ((float *)p)[i] = (float)re; break;
    case 'd': ((double *)p)[i] = re; break;
    case 'c': ((float *)p)[2 * i] = (float)re, ((float *)p)[2 * i + 1] = (float)im; break;
    default: ((double *)p)[2 * i] = re, ((double *)p)[2 * i + 1] = im;
    }
}

/* The real part for part 0, the imaginary one for part 1. */
static inline double value_at(const void *p, char type, size_t i, int part)
{
    switch (type) {
    case 's': return ((const float *)p)[i];
    case 'd': return ((const double *)p)[i];
    case 'c': return ((const float *)p)[2 * i + part];
    default: return ((const double *)p)[2 * i + part];
    }
}

static inline int is_triangular_solve_or_product(const struct routine *r) { return !strcmp(r->family, "trm"); }

/* True if the routine writes one triangle of C. */
static inline int writes_triangle(const struct routine *r)
{
    return strstr(r->family, "rk") || strstr(r->family, "r2k") || !strcmp(r->family, "gemmtr");
}

static inline int is_output_element(const struct call *c, int row, int col)
{
    if (!writes_triangle(c->r)) return 1;
    return flag(c, 'U', 0) == 'U' ? row <= col : row >= col;
}

static inline size_t element(const struct operand *o, enum spelling s, int row, int col)
{
    return s == CBLAS_ROWS ? (size_t)row * o->ld + col : (size_t)col * o->ld + row;
}

static inline int lines_of(const struct operand *o, enum spelling s) { return s == CBLAS_ROWS ? o->shape.rows : o->shape.cols; }
static inline int line_length(const struct shape *h, enum spelling s) { return s == CBLAS_ROWS ? h->cols : h->rows; }

/* Draws the options of a call; sizes are set before. */
static inline void draw_options(struct caller *w, struct call *c)
{
    int beta_zero = draw_below(w, 3) == 0;
    /* OpenBLAS 0.3.29 leaves an operand of complex gemmtr conjugated (its issue 5111). */
    int transposes = is_complex(c->type) && !strcmp(c->r->family, "gemmtr") ? 2 : 3;
    for (int i = 0; c->r->args[i]; i++) {
        char a = c->r->args[i];
        switch (a) {
        case 'T': c->chr[i] = "NTC"[draw_below(w, transposes)]; break;
        case 't': c->chr[i] = draw_below(w, 2) ? 'N' : c->r->name[0] == 'h' ? 'C' : 'T'; break;
        case 'U': c->chr[i] = "UL"[draw_below(w, 2)]; break;
        case 'D': c->chr[i] = "NU"[draw_below(w, 2)]; break;
        case 'S': c->chr[i] = "LR"[draw_below(w, 2)]; break;
        case 'a':
        case 'r': c->scalar[i][0] = draw_below(w, 2) ? 1 : 0.75; break;
        case 'b':
        case 'q':
            c->scalar[i][0] = beta_zero ? 0 : draw_below(w, 2) ? 1 : -0.5;
            if (beta_zero) c->scalar[i][1] = 0;
            break;
        }
    }
}

/* Gives every operand memory and values: NaN where beta = 0 overwrites. */
static inline void lay_out(struct caller *w, struct call *c, enum spelling s, int gap)
{
    int at_beta = arg_index(c->r, 'b') >= 0 ? arg_index(c->r, 'b') : arg_index(c->r, 'q');
    int overwritten = at_beta >= 0 && c->scalar[at_beta][0] == 0 && c->scalar[at_beta][1] == 0;
    w->operands = 0;
    for (int i = 0; c->r->args[i]; i++) {
        char letter = c->r->args[i];
        if (!is_letter_of(letter, "ABC")) continue;
        struct operand *o = &w->operand[w->operands];
        o->arg = i, o->letter = letter, o->shape = shape_of(c, letter);
        o->ld = max1(line_length(&o->shape, s)) + gap;
        c->integer[i + 1] = o->ld;
        o->bytes = ((size_t)(lines_of(o, s) - 1) * o->ld + line_length(&o->shape, s)) * elem_bytes(c->type);
        o->at = end_at_border(&w->now[w->operands], o->bytes);
        o->before = end_at_border(&w->before[w->operands], o->bytes);
        o->wanted = end_at_border(&w->wanted[w->operands], o->bytes);
        memset(o->at, 0xA5, o->bytes);
        int well_conditioned = letter == 'A' && is_triangular_solve_or_product(c->r);
        for (int col = 0; col < o->shape.cols; col++)
            for (int row = 0; row < o->shape.rows; row++) {
                double re = draw_half(w), im = draw_half(w);
                if (well_conditioned) re /= o->shape.rows, im /= o->shape.rows, re += row == col ? 1.5 : 0;
                if (letter == c->r->out && overwritten && is_output_element(c, row, col)) re = im = NAN;
                put_value(o->at, c->type, element(o, s, row, col), re, im);
            }
        memcpy(o->before, o->at, o->bytes);
        memcpy(o->wanted, o->at, o->bytes);
        w->operands++;
    }
}

static inline struct operand *output_of(struct caller *w, const struct call *c)
{
    for (int i = 0; i < w->operands; i++)
        if (w->operand[i].letter == c->r->out) return &w->operand[i];
    return NULL;
}

/* Calls the routine of a library. */
static inline int call_through(void *library, struct call *c, enum spelling s)
{
    char name[40];
    if (s == FORTRAN) fortran_name(name, c);
    else cblas_name(name, c);
    void *f = dlsym(library, name);
    return s == FORTRAN ? call_fortran_at(f, c) : call_cblas_at(f, c, s == CBLAS_ROWS ? 101 : 102);
}

/* Rounding of sums of `terms` products of values below 1, and as much again for a solve: 16 eps each. */
static inline double allowed(const struct call *c)
{
    int terms = is_triangular_solve_or_product(c->r) || arg_index(c->r, 'S') >= 0
                    ? shape_of(c, 'A').rows
                    : dim(c, 'k', 1);
    return (is_single(c->type) ? 1.2e-7 : 2.3e-16) * 16 * (terms + 4);
}

/* NULL, or what is wrong with an operand after the call. Makes output elements equal to see the rest. */
static inline const char *compare(const struct call *c, struct operand *o, enum spelling s)
{
    size_t element_bytes = elem_bytes(c->type);
    if (o->letter == c->r->out) {
        for (int col = 0; col < o->shape.cols; col++)
            for (int row = 0; row < o->shape.rows; row++) {
                if (!is_output_element(c, row, col)) continue;
                size_t at = element(o, s, row, col);
                for (int part = 0; part <= is_complex(c->type); part++) {
                    double got = value_at(o->at, c->type, at, part), wanted = value_at(o->wanted, c->type, at, part);
                    /* Written so that NaN is wrong. */
                    if (!(fabs(got - wanted) <= allowed(c))) return "the result is wrong";
                }
                memcpy(o->at + at * element_bytes, o->before + at * element_bytes, element_bytes);
            }
    }
    if (memcmp(o->at, o->before, o->bytes)) return "memory outside of the result was written";
    return NULL;
}

static inline void describe_call(const struct call *c, enum spelling s, const char *what)
{
    char options[MAX_ARGS + 1] = "";
    for (int i = 0, n = 0; c->r->args[i]; i++)
        if (is_letter_of(c->r->args[i], "TtUDS")) options[n++] = c->chr[i], options[n] = 0;
    printf("WRONG %c%s %s spelling %d m %d n %d k %d: %s\n", c->type, c->r->name, options, s, dim(c, 'm', -1),
           dim(c, 'n', -1), dim(c, 'k', -1), what);
    fflush(stdout);
}

/* What the library under test gets to compute, between lay_out() and this, is the caller's: here it is the
 * plain call. Returns 0 if everything is right. */
static inline int check_results(struct caller *w, struct call *c, enum spelling s)
{
    struct call reference = *c;
    for (int i = 0; i < w->operands; i++) reference.array[w->operand[i].arg] = w->operand[i].wanted;
    if (!call_through(reference_library, &reference, s)) return describe_call(c, s, "no reference"), 1;
    w->trouble = NULL;
    for (int i = 0; i < w->operands && !w->trouble; i++) w->trouble = compare(c, &w->operand[i], s);
    if (w->trouble) describe_call(c, s, w->trouble);
    return w->trouble != NULL;
}

static inline int checked_call(struct caller *w, struct call *c, enum spelling s, int gap)
{
    lay_out(w, c, s, gap);
    for (int i = 0; i < w->operands; i++) c->array[w->operand[i].arg] = w->operand[i].at;
    if (!call_through(library_under_test, c, s)) return describe_call(c, s, "no such symbol"), 1;
    return check_results(w, c, s);
}

/* A call of any family with sizes up to `most`, one in eight of them long in one direction. */
static inline int random_call(struct caller *w, int most)
{
    const struct routine *r;
    do r = &ROUTINES[draw_below(w, ROUTINE_COUNT)];
    while (!is_level3(r));
    struct call c;
    ordinary(&c, r, r->types[draw_below(w, (int)strlen(r->types))], 1);
    int longest = draw_below(w, 8) ? 0 : 1 + draw_below(w, 3);
    for (int i = 0; r->args[i]; i++)
        if (is_letter_of(r->args[i], "mnk")) {
            int size = 1 + draw_below(w, most);
            c.integer[i] = "0mnk"[longest] == r->args[i] ? 4 * size : size;
        }
    draw_options(w, &c);
    enum spelling s = draw_below(w, SPELLINGS);
    return checked_call(w, &c, s, draw_below(w, 4));
}

/* Every level-3 routine in every precision once, with options drawn. Returns how many were wrong. */
static inline int every_routine(struct caller *w, int size)
{
    int bad = 0;
    for (int row = 0; row < ROUTINE_COUNT; row++) {
        const struct routine *r = &ROUTINES[row];
        if (!is_level3(r)) continue;
        for (const char *type = r->types; *type; type++) {
            struct call c;
            ordinary(&c, r, *type, size);
            draw_options(w, &c);
            bad += checked_call(w, &c, draw_below(w, SPELLINGS), draw_below(w, 4));
        }
    }
    return bad;
}

/* The simulated CUDA's own function, or NULL as long as it is not loaded. */
static inline void *simulated(const char *name)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return cuda ? dlsym(cuda, name) : NULL;
}

/* The number after a line's beginning in the simulated CUDA's report; 0 without one. */
static inline unsigned long reported(const char *beginning)
{
    size_t (*report)(char *, size_t) = simulated("sim_cuda_report");
    if (!report) return 0;
    static char text[1 << 20];
    report(text, sizeof text);
    char *line = text;
    while (line && strncmp(line, beginning, strlen(beginning))) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    return line ? strtoul(line + strlen(beginning), NULL, 10) : 0;
}
#endif
