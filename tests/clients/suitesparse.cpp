// SuiteSparse on these libraries: UMFPACK's LU, CHOLMOD's supernodal Cholesky factorisation and SPQR's QR, whose dense
// fronts are BLAS's and LAPACK's, each checked by the residual of the solution.
#include "judge.hpp"
#include <SuiteSparseQR.hpp>
#include <cholmod.h>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <umfpack.h>
#include <vector>

typedef std::complex<double> Z;

// A grid of side^3 points: fronts of a hundred columns.
static const int side = 10, n = side * side * side;

// A matrix by columns, with sorted rows.
template <typename T> struct Sparse {
    std::vector<int> p, i;
    std::vector<T> x;
};

static double uniform()
{
    return std::rand() / double(RAND_MAX) - 0.5;
}

static void draw(double &x) { x = uniform(); }
static void draw(Z &x) { x = Z(uniform(), uniform()); }

// The Laplacian on the grid. With a wind it is not symmetric; else Hermitian and positive definite.
template <typename T> static Sparse<T> grid(double wind, T turn)
{
    Sparse<T> a;
    a.p.push_back(0);
    const int step[7] = {-side * side, -side, -1, 0, 1, side, side * side};
    for (int j = 0; j < n; j++) {
        const int at[3] = {j % side, j / side % side, j / (side * side)};
        for (int s = 0; s < 7; s++) {
            const int axis = s < 3 ? 2 - s : s - 4, up = s > 3;
            if (s != 3 && (up ? at[axis] == side - 1 : at[axis] == 0)) continue;
            a.i.push_back(j + step[s]);
            T value = s == 3 ? T(6.5) : up ? T(-1 - wind) * turn : T(-1 + wind) * (T(1) / turn);
            a.x.push_back(value);
        }
        a.p.push_back(int(a.i.size()));
    }
    return a;
}

// The largest entry of A x - b.
template <typename T> static double residual(const Sparse<T> &a, const T *x, const std::vector<T> &b)
{
    std::vector<T> r(b.size());
    for (size_t k = 0; k < b.size(); k++) r[k] = -b[k];
    for (int j = 0; j < n; j++)
        for (int k = a.p[j]; k < a.p[j + 1]; k++) r[a.i[k]] += a.x[k] * x[j];
    double most = 0;
    for (const T &value : r) most = std::isnan(std::abs(value)) ? NAN : std::fmax(most, std::abs(value));
    return most;
}

template <typename T> static double largest(const T *x)
{
    double most = 0;
    for (int k = 0; k < n; k++) most = std::fmax(most, std::abs(x[k]));
    return most;
}

template <typename T> static std::vector<T> right_hand_side()
{
    std::vector<T> b(n);
    for (T &value : b) draw(value);
    return b;
}

static void umfpack()
{
    {
        const Sparse<double> a = grid<double>(0.3, 1);
        const std::vector<double> b = right_hand_side<double>();
        std::vector<double> x(n);
        void *symbolic = nullptr, *numeric = nullptr;
        bool ok = umfpack_di_symbolic(n, n, a.p.data(), a.i.data(), a.x.data(), &symbolic, nullptr, nullptr) == UMFPACK_OK
            && umfpack_di_numeric(a.p.data(), a.i.data(), a.x.data(), symbolic, &numeric, nullptr, nullptr) == UMFPACK_OK
            && umfpack_di_solve(UMFPACK_A, a.p.data(), a.i.data(), a.x.data(), x.data(), b.data(), numeric, nullptr, nullptr) == UMFPACK_OK;
        judge<double>("double", "umfpack", ok ? residual(a, x.data(), b) : NAN, 8 * largest(x.data()), 7);
        umfpack_di_free_symbolic(&symbolic);
        umfpack_di_free_numeric(&numeric);
    }
    const Sparse<Z> a = grid<Z>(0.3, std::polar(1.0, 0.4));
    const std::vector<Z> b = right_hand_side<Z>();
    std::vector<Z> x(n);
    const auto packed = [](const std::vector<Z> &v) { return reinterpret_cast<const double *>(v.data()); };
    void *symbolic = nullptr, *numeric = nullptr;
    bool ok = umfpack_zi_symbolic(n, n, a.p.data(), a.i.data(), packed(a.x), nullptr, &symbolic, nullptr, nullptr) == UMFPACK_OK
        && umfpack_zi_numeric(a.p.data(), a.i.data(), packed(a.x), nullptr, symbolic, &numeric, nullptr, nullptr) == UMFPACK_OK
        && umfpack_zi_solve(UMFPACK_A, a.p.data(), a.i.data(), packed(a.x), nullptr, reinterpret_cast<double *>(x.data()), nullptr, packed(b), nullptr, numeric, nullptr, nullptr) == UMFPACK_OK;
    judge<double>("complex double", "umfpack", ok ? residual(a, x.data(), b) : NAN, 8 * largest(x.data()), 7);
    umfpack_zi_free_symbolic(&symbolic);
    umfpack_zi_free_numeric(&numeric);
}

// CHOLMOD's view of a matrix; its indices are of the width that `common` was started with.
template <typename T, typename I> static cholmod_sparse *view(const Sparse<T> &a, int stype, cholmod_common *common)
{
    const bool wide = sizeof(I) == 8, real = sizeof(T) == sizeof(double);
    const int kind = real ? CHOLMOD_REAL : CHOLMOD_COMPLEX;
    cholmod_sparse *s = wide ? cholmod_l_allocate_sparse(n, n, a.i.size(), 1, 1, stype, kind, common)
                             : cholmod_allocate_sparse(n, n, a.i.size(), 1, 1, stype, kind, common);
    for (size_t k = 0; k < a.p.size(); k++) static_cast<I *>(s->p)[k] = a.p[k];
    for (size_t k = 0; k < a.i.size(); k++) static_cast<I *>(s->i)[k] = a.i[k];
    for (size_t k = 0; k < a.x.size(); k++) static_cast<T *>(s->x)[k] = a.x[k];
    return s;
}

template <typename T> static cholmod_dense column(const std::vector<T> &b)
{
    cholmod_dense d = {};
    d.nrow = d.nzmax = d.d = n;
    d.ncol = 1;
    d.x = const_cast<T *>(b.data());
    d.xtype = sizeof(T) == sizeof(double) ? CHOLMOD_REAL : CHOLMOD_COMPLEX;
    d.dtype = CHOLMOD_DOUBLE;
    return d;
}

template <typename T> static void cholmod(const char *precision, T turn)
{
    cholmod_common common;
    cholmod_start(&common);
    common.supernodal = CHOLMOD_SUPERNODAL;
    const Sparse<T> a = grid<T>(0, turn);
    const std::vector<T> b = right_hand_side<T>();
    // Of both triangles, the upper one is used.
    cholmod_sparse *s = view<T, int>(a, 1, &common);
    cholmod_factor *factor = cholmod_analyze(s, &common);
    bool ok = cholmod_factorize(s, factor, &common) && common.status == CHOLMOD_OK && factor->is_super;
    cholmod_dense right = column(b);
    cholmod_dense *x = ok ? cholmod_solve(CHOLMOD_A, factor, &right, &common) : nullptr;
    const T *solution = x ? static_cast<const T *>(x->x) : b.data();
    judge<double>(precision, "cholmod, supernodal", x ? residual(a, solution, b) : NAN, 8 * largest(solution), 7);
    cholmod_free_dense(&x, &common);
    cholmod_free_factor(&factor, &common);
    cholmod_free_sparse(&s, &common);
    cholmod_finish(&common);
}

template <typename T> static void spqr(const char *precision, T turn)
{
    cholmod_common common;
    cholmod_l_start(&common);
    const Sparse<T> a = grid<T>(0.3, turn);
    const std::vector<T> b = right_hand_side<T>();
    cholmod_sparse *s = view<T, SuiteSparse_long>(a, 0, &common);
    cholmod_dense right = column(b);
    cholmod_dense *x = SuiteSparseQR<T>(s, &right, &common);
    const T *solution = x ? static_cast<const T *>(x->x) : b.data();
    judge<double>(precision, "spqr", x ? residual(a, solution, b) : NAN, 8 * largest(solution), 7);
    cholmod_l_free_dense(&x, &common);
    cholmod_l_free_sparse(&s, &common);
    cholmod_l_finish(&common);
}

int main()
{
    std::srand(7);
    umfpack();
    cholmod<double>("double", 1);
    cholmod<Z>("complex double", std::polar(1.0, 0.4));
    spqr<double>("double", 1);
    spqr<Z>("complex double", std::polar(1.0, 0.4));
    return bad;
}
