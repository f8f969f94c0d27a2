// Armadillo on these libraries: every decomposition and solver that it takes from BLAS and LAPACK (and, for sparse
// matrices, from ARPACK and SuperLU, which call both), in four precisions, each checked by its residual.
#include "judge.hpp"
#include <armadillo>
#include <complex>
#include <type_traits>

using namespace arma;

// Large enough for LAPACK's blocked code.
static const uword n = 150;

template <typename M> static double largest(const M &a)
{
    return double(abs(a).max());
}

template <typename T> static const char *name()
{
    if (std::is_same<T, float>::value) return "float";
    if (std::is_same<T, double>::value) return "double";
    return std::is_same<T, cx_float>::value ? "complex float" : "complex double";
}

// The product by its definition.
template <typename T> static Mat<T> product(const Mat<T> &a, const Mat<T> &b)
{
    Mat<T> c(a.n_rows, b.n_cols, fill::zeros);
    for (uword j = 0; j < b.n_cols; j++)
        for (uword k = 0; k < a.n_cols; k++)
            for (uword i = 0; i < a.n_rows; i++) c.at(i, j) += a.at(i, k) * b.at(k, j);
    return c;
}

// Sparse symmetric matrices, which Armadillo treats only where they are real.
template <typename T, typename R> struct Sparse {
    static void check() {}
};

template <typename R> struct Sparse<R, R> {
    static void check()
    {
        // The second difference, with a known spectrum: 2 - 2 cos(k pi / (n + 1)).
        const uword m = 400;
        SpMat<R> s(m, m);
        for (uword i = 0; i < m; i++) {
            s(i, i) = 2;
            if (i + 1 < m) s(i, i + 1) = s(i + 1, i) = -1;
        }
        Col<R> w;
        Mat<R> v;
        const bool found = eigs_sym(w, v, s, 5, "la");
        judge<R>(name<R>(), "eigs_sym", found ? largest(Mat<R>(s * v - v * diagmat(w))) : NAN, 4, m);
        Col<R> b(m, fill::randn), x;
        const bool solved = spsolve(x, s, b, "superlu");
        judge<R>(name<R>(), "spsolve", solved ? largest(Mat<R>(s * x - b)) : NAN, largest(x), m);
    }
};

template <typename T> static void each()
{
    typedef typename get_pod_type<T>::result R;
    typedef std::complex<R> C;
    const auto is = [](const char *what, double residual, double norm) {
        judge<R>(name<T>(), what, residual, norm, double(n));
    };
    const auto done = [](bool succeeded, double residual) { return succeeded ? residual : double(NAN); };
    const Mat<T> a(n, n, fill::randn), b(n, 7, fill::randn), tall(2 * n, n, fill::randn);
    const Mat<T> one(n, n, fill::eye), spd = Mat<T>(product<T>(a, trans(a))) + T(R(n)) * one;
    const Mat<T> sym = a + trans(a);

    is("product", largest(Mat<T>(a * sym - product<T>(a, sym))), largest(a) * largest(sym));
    is("product with the adjoint", largest(Mat<T>(trans(a) * b - product<T>(trans(a), b))), largest(a) * largest(b));
    is("a matrix with its adjoint", largest(Mat<T>(trans(tall) * tall - product<T>(trans(tall), tall))), largest(a) * largest(a));

    Mat<T> x, l, u, p, q, r, y, z;
    bool ok = solve(x, a, b, solve_opts::fast);
    is("solve", done(ok, largest(Mat<T>(a * x - b))), largest(a) * largest(x));
    ok = solve(x, a, b, solve_opts::refine + solve_opts::equilibrate);
    is("solve, refined", done(ok, largest(Mat<T>(a * x - b))), largest(a) * largest(x));
    ok = solve(x, spd, b, solve_opts::likely_sympd);
    is("solve, positive definite", done(ok, largest(Mat<T>(spd * x - b))), largest(spd) * largest(x));
    const Mat<T> upper = trimatu(spd);
    ok = solve(x, trimatu(spd), b);
    is("solve, triangular", done(ok, largest(Mat<T>(upper * x - b))), largest(spd) * largest(x));
    const Mat<T> right(2 * n, 7, fill::randn);
    ok = solve(x, tall, right, solve_opts::fast);
    is("least squares", done(ok, largest(Mat<T>(trans(tall) * (tall * x - right)))), R(2 * n) * largest(right));
    ok = solve(x, Mat<T>(trans(tall)), b, solve_opts::force_approx);
    is("minimum norm", done(ok, largest(Mat<T>(trans(tall) * x - b))), largest(tall) * largest(b));
    ok = inv(x, a);
    is("inv", done(ok, largest(Mat<T>(a * x - one))), largest(a) * largest(x));
    ok = inv_sympd(x, spd);
    is("inv_sympd", done(ok, largest(Mat<T>(spd * x - one))), largest(spd) * largest(x));
    ok = lu(l, u, p, a);
    is("lu", done(ok, largest(Mat<T>(l * u - p * a))), largest(u));
    ok = chol(r, spd);
    is("chol, upper", done(ok, largest(Mat<T>(trans(r) * r - spd))), largest(spd));
    ok = chol(l, spd, "lower");
    is("chol, lower", done(ok, largest(Mat<T>(l * trans(l) - spd))), largest(spd));
    ok = qr(q, r, tall);
    is("qr", done(ok, largest(Mat<T>(q * r - tall))), largest(r));
    is("qr, orthogonality", largest(Mat<T>(trans(q) * q - eye<Mat<T>>(2 * n, 2 * n))), 1);
    ok = qr_econ(q, r, tall);
    is("qr_econ", done(ok, largest(Mat<T>(q * r - tall))), largest(r));
    umat pivots;
    ok = qr(q, r, pivots, a, "matrix");
    is("qr with pivots", done(ok, largest(Mat<T>(q * r - a * conv_to<Mat<R>>::from(pivots)))), largest(r));
    Col<R> w, s;
    ok = eig_sym(w, x, sym, "dc");
    is("eig_sym, divide and conquer", done(ok, largest(Mat<T>(sym * x - x * diagmat(w)))), largest(w));
    ok = eig_sym(w, x, sym, "std");
    is("eig_sym", done(ok, largest(Mat<T>(sym * x - x * diagmat(w)))), largest(w));
    Col<C> e;
    Mat<C> v;
    ok = eig_gen(e, v, a);
    is("eig_gen", done(ok, largest(Mat<C>(a * v - v * diagmat(e)))), largest(e));
    ok = eig_pair(e, v, a, spd);
    is("eig_pair", done(ok, largest(Mat<C>(a * v - spd * v * diagmat(e)))), largest(spd) * largest(v));
    for (const char *method : {"dc", "std"}) {
        ok = svd(x, s, y, a, method);
        is(*method == 'd' ? "svd, divide and conquer" : "svd", done(ok, largest(Mat<T>(x * diagmat(s) * trans(y) - a))), s[0]);
    }
    ok = svd_econ(x, s, y, tall);
    is("svd_econ", done(ok, largest(Mat<T>(x * diagmat(s) * trans(y) - tall))), s[0]);
    ok = pinv(x, tall);
    is("pinv", done(ok, largest(Mat<T>(x * tall - one))), largest(tall) * largest(x));
    ok = orth(x, tall);
    is("orth", done(ok, largest(Mat<T>(trans(x) * x - one))), 1);
    ok = null(x, Mat<T>(trans(tall)));
    is("null", done(ok && x.n_cols == n, largest(Mat<T>(trans(tall) * x))), largest(tall));
    is("rank", double(arma::rank(tall)) - double(n), 1);
    // |det A| = |det U|.
    const double determinant = double(std::real(log_det(a)));
    double product_of_u = 0;
    lu(l, u, p, a);
    for (uword i = 0; i < n; i++) product_of_u += std::log(double(std::abs(u.at(i, i))));
    is("log_det", std::abs(determinant - product_of_u), std::abs(product_of_u));
    ok = schur(u, r, a);
    is("schur", done(ok, largest(Mat<T>(u * r * trans(u) - a))), largest(r));
    ok = qz(x, y, l, r, a, spd);
    is("qz", done(ok, largest(Mat<T>(l * a * r - x))), largest(x));
    ok = hess(u, r, a);
    is("hess", done(ok, largest(Mat<T>(u * r * trans(u) - a))), largest(r));
    ok = syl(x, spd, Mat<T>(spd + one), sym);
    is("syl", done(ok, largest(Mat<T>(spd * x + x * (spd + one) + sym))), largest(spd) * largest(x));
    const Mat<T> shrunk = sym / T(4 * largest(w));
    is("expmat", largest(Mat<T>(expmat(shrunk) * expmat(Mat<T>(-shrunk)) - one)), 1);
    is("sqrtmat_sympd", largest(Mat<T>(sqrtmat_sympd(spd) * sqrtmat_sympd(spd) - spd)), largest(spd));
    is("logmat_sympd", largest(Mat<T>(expmat_sym(logmat_sympd(spd)) - spd)), largest(spd));
    Sparse<T, R>::check();
}

int main()
{
    arma_rng::set_seed(7);
    each<float>();
    each<double>();
    each<cx_float>();
    each<cx_double>();
    return bad;
}
