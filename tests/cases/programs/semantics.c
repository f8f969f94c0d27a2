/* What every level-2 and level-3 routine promises about memory and special values (cases F11, F12):
 *   - beta = 0: y or C full of NaN is overwritten, no NaN comes through
 *   - alpha = 0: A, B, x full of NaN are not read, C = beta * C exactly
 *   - a dimension of 0: nothing is touched, or C is scaled, with NULL for every empty operand, ld = 1
 *   - k = 0 scales C by beta, with NULL for A and B
 *   - increments -2, -1 and 3 give what increment 1 gives
 *   - the gap between the rows and ld, and the triangle that uplo does not name, stay as they were
 * Prints a line a call with a hash of all memory, so that two libraries can be compared bit by bit,
 * and WRONG lines with exit status 1. Argument "fortran", "cblas" or "rowmajor" picks the spelling (the
 * last one with level-3 routines only); a second one limits it to routines with that name.
 */
#include "blas_table.h"
#include <math.h>

enum { SIZE = 9, BYTES = 1 << 16 };
static unsigned char memory[3][BYTES], before[3][BYTES];
static int bad, through_cblas, row_major;
static const char *variant_now = "";

/* Xorshift; the same numbers in every run. */
static const uint64_t FIRST_STATE = 88172645463325252ull;
static uint64_t number_state = 88172645463325252ull;

static double uniform(void)
{
    number_state ^= number_state << 13, number_state ^= number_state >> 7;
    number_state ^= number_state << 17;
    return (double)(number_state >> 11) / 9007199254740992.0 - 0.5;
}

static void put(void *p, char type, size_t i, double re, double im)
{
    switch (type) {
    case 's': ((float *)p)[i] = (float)re; break;
    case 'd': ((double *)p)[i] = re; break;
    case 'c': ((float *)p)[2 * i] = (float)re, ((float *)p)[2 * i + 1] = (float)im; break;
    default: ((double *)p)[2 * i] = re, ((double *)p)[2 * i + 1] = im;
    }
}

static void get(const void *p, char type, size_t i, double *re, double *im)
{
    *im = 0;
    switch (type) {
    case 's': *re = ((const float *)p)[i]; break;
    case 'd': *re = ((const double *)p)[i]; break;
    case 'c': *re = ((const float *)p)[2 * i], *im = ((const float *)p)[2 * i + 1]; break;
    default: *re = ((const double *)p)[2 * i], *im = ((const double *)p)[2 * i + 1];
    }
}

/* Position of element (row, col) of a matrix whose leading dimension is ld. */
static size_t matrix_at(int ld, int row, int col)
{
    return row_major ? (size_t)row * ld + col : (size_t)col * ld + row;
}

static int least_ld(struct shape s) { return row_major ? max1(s.cols) : s.least_ld; }

static void complain(const struct call *c, const char *what)
{
    printf("WRONG %c%s %s: %s\n", c->type, c->r->name, variant_now, what);
    bad = 1;
}

enum fill { NUMBERS, ALL_NAN };

/* Position of element i of the vector that the increment describes, as BLAS counts. */
static size_t vector_at(int n, int inc, int i) { return inc > 0 ? (size_t)i * inc : (size_t)(n - 1 - i) * -inc; }

static int slot_of(const struct call *c, int arg)
{
    int used = 0;
    for (int i = 0; i < arg; i++) used += is_letter_of(c->r->args[i], "ABCPXY");
    return used;
}

/* Gives every operand memory: numbers that depend on (operand, i, j) alone, sentinels elsewhere. */
static void fill(struct call *c, char letter_of_fill, enum fill what)
{
    for (int i = 0; c->r->args[i]; i++) {
        char letter = c->r->args[i];
        if (!is_letter_of(letter, "ABCPXY")) continue;
        struct shape s = shape_of(c, letter);
        unsigned char *p = memory[slot_of(c, i)];
        for (size_t w = 0; w < BYTES / 4; w++) ((uint32_t *)p)[w] = 0xA5C3F00D;
        int next = c->r->args[i + 1] ? c->integer[i + 1] : 0;
        int vector = letter == 'X' || letter == 'Y';
        int triangular = !strncmp(c->r->family, "t", 1);
        for (int col = 0; col < s.cols; col++)
            for (int row = 0; row < s.rows; row++) {
                double re = uniform(), im = uniform();
                /* A well-conditioned triangle: the diagonal dominates. */
                if (letter == 'A' && triangular && (!strcmp(c->r->family, "tb") || row == col)) re += 4;
                if (letter == 'P' && triangular) re += 4;
                if (what == ALL_NAN && (letter == letter_of_fill ||
                                        (letter_of_fill == '*' && letter != c->r->out)))
                    re = im = NAN;
                size_t at = vector ? vector_at(s.rows, next, row)
                            : letter == 'P' ? (size_t)row
                                            : matrix_at(next, row, col);
                put(p, c->type, at, re, im);
            }
        c->array[i] = s.rows && s.cols ? p : NULL;
    }
    memcpy(before, memory, sizeof memory);
}

/* True if element (row, col) of the output belongs to it. */
static int in_output(const struct call *c, int row, int col)
{
    char uplo = flag(c, 'U', 0);
    int triangle = is_letter_of(c->r->out, "C") && (strstr(c->r->family, "rk") || strstr(c->r->family, "r2k") || !strcmp(c->r->family, "gemmtr"));
    triangle |= c->r->out == 'A' && strcmp(c->r->family, "ger") != 0;
    if (!triangle) return 1;
    return uplo == 'U' ? row <= col : row >= col;
}

static size_t out_at(const struct call *c, int arg, struct shape s, int row, int col)
{
    int next = c->r->args[arg + 1] ? c->integer[arg + 1] : 0;
    if (c->r->out == 'X' || c->r->out == 'Y') return vector_at(s.rows, next, row);
    if (c->r->out == 'P') return row;
    return matrix_at(next, row, col);
}

/* Restores what the output may change, then nothing may differ from before. */
static void check_untouched(const struct call *c)
{
    int arg = arg_index(c->r, c->r->out);
    struct shape s = shape_of(c, c->r->out);
    size_t bytes = elem_bytes(c->type);
    unsigned char *p = memory[slot_of(c, arg)], *q = before[slot_of(c, arg)];
    static unsigned char kept[BYTES];
    memcpy(kept, p, BYTES);
    for (int col = 0; col < s.cols; col++)
        for (int row = 0; row < s.rows; row++)
            if (in_output(c, row, col)) {
                size_t at = out_at(c, arg, s, row, col) * bytes;
                memcpy(p + at, q + at, bytes);
            }
    if (memcmp(memory, before, sizeof memory)) complain(c, "memory outside the output was written");
    memcpy(p, kept, BYTES);
}

static void hash_line(const struct call *c, const char *label)
{
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof memory; i++) h = (h ^ ((unsigned char *)memory)[i]) * 1099511628211ull;
    printf("%c%s %s %016llx\n", c->type, c->r->name, label, (unsigned long long)h);
}

static int invoke(struct call *c)
{
    int there = through_cblas ? call_cblas(c, row_major ? 101 : 102) : call_fortran(c);
    if (!there) complain(c, "no such symbol");
    return there;
}

static void with_gap(struct call *c)
{
    for (int i = 0; c->r->args[i]; i++)
        if (c->r->args[i] == 'L') c->integer[i] = least_ld(shape_of(c, c->r->args[i - 1])) + 3;
}

static void set_scalar(struct call *c, const char *letters, double re, double im)
{
    for (int i = 0; c->r->args[i]; i++)
        if (is_letter_of(c->r->args[i], letters))
            c->scalar[i][0] = re, c->scalar[i][1] = is_letter_of(c->r->args[i], "ab") ? im : 0;
}

static void each_output(const struct call *c, void (*see)(const struct call *, double, double, double, double))
{
    int arg = arg_index(c->r, c->r->out), slot = slot_of(c, arg);
    struct shape s = shape_of(c, c->r->out);
    for (int col = 0; col < s.cols; col++)
        for (int row = 0; row < s.rows; row++) {
            if (!in_output(c, row, col)) continue;
            double re, im, re0, im0;
            size_t at = out_at(c, arg, s, row, col);
            get(memory[slot], c->type, at, &re, &im);
            get(before[slot], c->type, at, &re0, &im0);
            see(c, re, im, re0, im0);
        }
}

static void see_no_nan(const struct call *c, double re, double im, double re0, double im0)
{
    (void)re0, (void)im0;
    if (!isfinite(re) || !isfinite(im)) complain(c, "NaN came through with beta = 0");
}

static void see_scaled(const struct call *c, double re, double im, double re0, double im0)
{
    /* beta is real and a power of two: the product is exact. */
    if (re != -0.5 * re0) complain(c, "not beta * C with alpha = 0 or k = 0 (real part)");
    /* her(2)k set the diagonal's imaginary part to zero. */
    if (im != -0.5 * im0 && !(im == 0 && c->r->name[0] == 'h')) complain(c, "not beta * C (imaginary part)");
}

static void see_same(const struct call *c, double re, double im, double re0, double im0)
{
    if (re != re0 || im != im0) complain(c, "alpha = 0 changed the output");
}

static void see_zero(const struct call *c, double re, double im, double re0, double im0)
{
    (void)re0, (void)im0;
    if (re != 0 || im != 0) complain(c, "alpha = 0 did not give zero");
}

static void one(struct call *base, const char *variant)
{
    struct call c = *base;
    const struct routine *r = c.r;
    char label[80];
    int has_beta = arg_index(r, 'b') >= 0 || arg_index(r, 'q') >= 0;
    int has_alpha = arg_index(r, 'a') >= 0 || arg_index(r, 'r') >= 0;

    with_gap(&c);
    fill(&c, 0, NUMBERS);
    if (!invoke(&c)) return;
    check_untouched(&c);
    snprintf(label, sizeof label, "%s plain", variant);
    hash_line(&c, label);

    if (has_beta) {
        c = *base;
        with_gap(&c);
        set_scalar(&c, "bq", 0, 0);
        fill(&c, r->out, ALL_NAN);
        invoke(&c);
        check_untouched(&c);
        each_output(&c, see_no_nan);
        snprintf(label, sizeof label, "%s beta0", variant);
        hash_line(&c, label);
    }
    if (has_alpha) {
        c = *base;
        with_gap(&c);
        set_scalar(&c, "ar", 0, 0);
        set_scalar(&c, "bq", -0.5, 0);
        fill(&c, '*', ALL_NAN);
        invoke(&c);
        check_untouched(&c);
        each_output(&c, has_beta ? see_scaled : !strcmp(r->family, "trm") ? see_zero : see_same);
        snprintf(label, sizeof label, "%s alpha0", variant);
        hash_line(&c, label);
    }
    /* Each dimension zero in turn, the tightest leading dimensions, NULL for empty operands. */
    for (const char *d = "mnk"; *d; d++) {
        int at = arg_index(r, *d);
        if (at < 0) continue;
        c = *base;
        c.integer[at] = 0;
        for (int i = 0; r->args[i]; i++)
            if (r->args[i] == 'L') c.integer[i] = least_ld(shape_of(&c, r->args[i - 1]));
        set_scalar(&c, "bq", -0.5, 0);
        fill(&c, 0, NUMBERS);
        invoke(&c);
        check_untouched(&c);
        if (*d == 'k' && is_letter_of(r->out, "C")) each_output(&c, see_scaled);
        snprintf(label, sizeof label, "%s %c=0", variant, *d);
        hash_line(&c, label);
    }
}

/* The same vectors under other increments give the same result, up to another order of summing. */
static void increments(const struct call *base, const char *variant)
{
    static const int INCS[][2] = {{1, 1}, {-2, 3}, {3, -1}, {-1, -2}};
    static double first[SIZE * SIZE * 4][2];
    const struct routine *r = base->r;
    if (arg_index(r, 'I') < 0) return;
    for (int t = 0; t < 4; t++) {
        struct call c = *base;
        int seen = 0;
        for (int i = 0; r->args[i]; i++)
            if (r->args[i] == 'I') c.integer[i] = INCS[t][seen++];
        with_gap(&c);
        number_state = FIRST_STATE; /* fill() draws in a fixed order: the same operands again */
        fill(&c, 0, NUMBERS);
        if (!invoke(&c)) return;
        check_untouched(&c);
        int arg = arg_index(r, r->out), at = 0;
        struct shape s = shape_of(&c, r->out);
        for (int col = 0; col < s.cols; col++)
            for (int row = 0; row < s.rows; row++, at++) {
                double re, im;
                get(memory[slot_of(&c, arg)], c.type, out_at(&c, arg, s, row, col), &re, &im);
                if (t == 0) first[at][0] = re, first[at][1] = im;
                /* 64 terms of size 1 at most: 64 eps, and 16 times that for the solves. */
                double bound = (is_single(c.type) ? 1.2e-7 : 2.3e-16) * 1024;
                if (in_output(&c, row, col) && (fabs(re - first[at][0]) > bound || fabs(im - first[at][1]) > bound))
                    complain(&c, "another increment gave another result");
            }
        char label[80];
        snprintf(label, sizeof label, "%s inc %d %d", variant, INCS[t][0], INCS[t][1]);
        hash_line(&c, label);
    }
}

int main(int argc, char **argv)
{
    row_major = argc > 1 && !strcmp(argv[1], "rowmajor");
    through_cblas = row_major || (argc > 1 && !strcmp(argv[1], "cblas"));
    for (int row = 0; row < ROUTINE_COUNT; row++) {
        const struct routine *r = &ROUTINES[row];
        if (argc > 2 && strcmp(argv[2], r->name)) continue;
        if (row_major && !is_level3(r)) continue;
        for (const char *type = r->types; *type; type++)
            for (int bits = 0; bits < 3 * 3 * 2 * 2 * 2; bits++) {
                struct call c;
                ordinary(&c, r, *type, SIZE);
                int v = bits, skip = 0;
                const int t0 = v % 3, t1 = v / 3 % 3, u = v / 9 % 2, d = v / 18 % 2, s = v / 36;
                int nth_t = 0, has_u = 0, has_d = 0, has_s = 0;
                for (int i = 0; r->args[i]; i++) {
                    if (r->args[i] == 'T') c.chr[i] = "NTC"[nth_t++ ? t1 : t0];
                    if (r->args[i] == 't') {
                        nth_t++;
                        c.chr[i] = "NTC"[t0];
                        /* Complex rank-k updates have one transpose each. */
                        if (is_complex(*type) && c.chr[i] == (r->name[0] == 'h' ? 'T' : 'C')) skip = 1;
                    }
                    if (r->args[i] == 'U') c.chr[i] = "UL"[u], has_u = 1;
                    if (r->args[i] == 'D') c.chr[i] = "NU"[d], has_d = 1;
                    if (r->args[i] == 'S') c.chr[i] = "LR"[s], has_s = 1;
                }
                skip |= (nth_t < 1 && t0) || (nth_t < 2 && t1) || (!has_u && u) || (!has_d && d) || (!has_s && s);
                if (skip) continue;
                char variant[16];
                snprintf(variant, sizeof variant, "%c%c%c%c%c", "NTC"[t0], "NTC"[t1], "UL"[u], "NU"[d], "LR"[s]);
                variant_now = variant;
                one(&c, variant);
                increments(&c, variant);
            }
    }
    return bad;
}
