// Eigen with its BLAS and LAPACKE back ends on these libraries: products of every structure and each decomposition, in
// four precisions, each checked by its residual.
#define EIGEN_USE_BLAS
#define EIGEN_USE_LAPACKE
#include "judge.hpp"
#include <Eigen/Dense>
#include <complex>

using namespace Eigen;

// Large enough for Eigen to hand products on, and for LAPACK's blocked code.
static const Index n = 150;

template <typename M> static double largest(const M &a)
{
    return double(a.cwiseAbs().maxCoeff());
}

// The product by its definition, which calls no BLAS.
template <typename M> __attribute__((noinline)) static M by_definition(const M &a, const M &b)
{
    M c = M::Zero(a.rows(), b.cols());
    for (Index j = 0; j < b.cols(); j++)
        for (Index k = 0; k < a.cols(); k++)
            for (Index i = 0; i < a.rows(); i++) c(i, j) += a(i, k) * b(k, j);
    return c;
}

template <typename T> static void each(const char *precision)
{
    typedef typename NumTraits<T>::Real R;
    typedef Matrix<T, Dynamic, Dynamic> M;
    typedef Matrix<T, Dynamic, Dynamic, RowMajor> Rows;
    typedef Matrix<std::complex<R>, Dynamic, Dynamic> C;
    const auto is = [&](const char *what, double residual, double norm) {
        judge<R>(precision, what, residual, norm, double(n));
    };
    const auto product = [](const M &x, const M &y) { return by_definition<M>(x, y); };
    const auto done = [](bool succeeded, double residual) { return succeeded ? residual : double(NAN); };
    const M a = M::Random(n, n), b = M::Random(n, 7), tall = M::Random(2 * n, n), one = M::Identity(n, n);
    const M sym = a + a.adjoint(), spd = product(a, a.adjoint()) + R(n) * one;

    is("product", largest(M(a * sym) - product(a, sym)), double(n));
    is("product with the adjoint", largest(M(a.adjoint() * b) - product(a.adjoint(), b)), double(n));
    is("product with the transpose", largest(M(b.transpose() * a) - product(b.transpose(), a)), double(n));
    const Rows row_a = a, row_s = sym;
    const Rows row_c = row_a * row_s;
    is("product, by rows", largest(M(row_c) - product(a, sym)), double(n));
    M c = b;
    c.noalias() -= a * b;
    is("product subtracted", largest(c - (b - product(a, b))), double(n));
    const Matrix<T, Dynamic, 1> v = a * b.col(0);
    is("matrix and vector", largest(v - product(a, b.col(0))), double(n));

    const M low = a.template triangularView<Lower>(), up = spd.template triangularView<Upper>();
    is("selfadjoint, left", largest(M(sym.template selfadjointView<Lower>() * a) - product(sym, a)), double(n));
    is("selfadjoint, right", largest(M(a * sym.template selfadjointView<Upper>()) - product(a, sym)), double(n));
    is("triangular, left", largest(M(a.template triangularView<Lower>() * sym) - product(low, sym)), double(n));
    is("triangular, right", largest(M(sym * a.template triangularView<Lower>()) - product(sym, low)), double(n));
    M k = M::Zero(n, n);
    k.template selfadjointView<Lower>().rankUpdate(tall.adjoint(), R(2));
    M whole = k.template selfadjointView<Lower>();
    is("rank update", largest(whole - R(2) * product(tall.adjoint(), tall)), double(2 * n));
    k.setZero();
    k.template triangularView<Upper>() = a * sym;
    is("triangle of a product", largest(k - M(product(a, sym).template triangularView<Upper>())), double(n));

    M x = spd.template triangularView<Upper>().solve(b);
    is("triangular solve", largest(product(up, x) - b), largest(spd) * largest(x));
    x = spd.template triangularView<Upper>().adjoint().template solve<OnTheRight>(b.adjoint());
    is("triangular solve from the right", largest(product(x, up.adjoint()) - M(b.adjoint())), largest(spd) * largest(x));

    PartialPivLU<M> lu(a);
    const M unit = lu.matrixLU().template triangularView<UnitLower>();
    const M upper = lu.matrixLU().template triangularView<Upper>();
    is("PartialPivLU", largest(product(unit, upper) - M(lu.permutationP() * a)), largest(upper));
    x = lu.solve(b);
    is("PartialPivLU::solve", largest(product(a, x) - b), largest(x) * largest(a));
    x = lu.inverse();
    is("PartialPivLU::inverse", largest(product(a, x) - one), largest(x) * largest(a));
    PartialPivLU<Rows> by_rows(row_a);
    x = by_rows.solve(Rows(b));
    is("PartialPivLU by rows", largest(product(a, x) - b), largest(x) * largest(a));
    FullPivLU<M> full(a);
    x = full.solve(b);
    is("FullPivLU", largest(product(a, x) - b), largest(x) * largest(a));
    LLT<M> llt(spd);
    const M l = llt.matrixL();
    is("LLT", done(llt.info() == Success, largest(product(l, l.adjoint()) - spd)), largest(spd));
    LLT<M, Upper> llt_upper(spd);
    const M r_upper = llt_upper.matrixU();
    is("LLT, upper", done(llt_upper.info() == Success, largest(product(r_upper.adjoint(), r_upper) - spd)), largest(spd));
    x = llt.solve(b);
    is("LLT::solve", largest(product(spd, x) - b), largest(spd) * largest(x));
    x = LDLT<M>(spd).solve(b);
    is("LDLT", largest(product(spd, x) - b), largest(spd) * largest(x));

    HouseholderQR<M> qr(tall);
    const M q = qr.householderQ();
    M r = M::Zero(2 * n, n);
    r.topRows(n) = qr.matrixQR().topRows(n).template triangularView<Upper>();
    is("HouseholderQR", largest(product(q, r) - tall), largest(r));
    is("HouseholderQR, orthogonality", largest(product(q.adjoint(), q) - M::Identity(2 * n, 2 * n)), 1);
    ColPivHouseholderQR<M> pivoted(tall);
    const M pq = pivoted.householderQ();
    r.setZero();
    r.topRows(n) = pivoted.matrixR().topRows(n).template triangularView<Upper>();
    is("ColPivHouseholderQR", done(pivoted.rank() == n, largest(product(pq, r) - M(tall * pivoted.colsPermutation()))), largest(r));
    ColPivHouseholderQR<Rows> pivoted_rows{Rows(tall)};
    const M right = M::Random(2 * n, 3);
    const M apart = pivoted_rows.solve(Rows(right));
    is("least squares by rows", largest(product(tall.adjoint(), product(tall, apart) - right)), double(2 * n));
    x = CompleteOrthogonalDecomposition<M>(tall).solve(right);
    is("CompleteOrthogonalDecomposition", largest(x - apart), largest(apart));

    JacobiSVD<M> svd(tall, ComputeThinU | ComputeThinV);
    const auto diagonal = [](const Matrix<R, Dynamic, 1> &s) -> Matrix<T, Dynamic, 1> { return s.template cast<T>(); };
    is("JacobiSVD", largest(product(svd.matrixU() * diagonal(svd.singularValues()).asDiagonal(), svd.matrixV().adjoint()) - tall), double(svd.singularValues()[0]));
    JacobiSVD<M> square(a, ComputeFullU | ComputeFullV);
    is("JacobiSVD, square", largest(product(square.matrixU() * diagonal(square.singularValues()).asDiagonal(), square.matrixV().adjoint()) - a), double(square.singularValues()[0]));
    BDCSVD<M> bdc(tall, ComputeThinU | ComputeThinV);
    is("BDCSVD", largest(product(bdc.matrixU() * diagonal(bdc.singularValues()).asDiagonal(), bdc.matrixV().adjoint()) - tall), double(bdc.singularValues()[0]));
    is("singular values", largest(svd.singularValues() - bdc.singularValues()), double(bdc.singularValues()[0]));

    SelfAdjointEigenSolver<M> eigen(sym);
    const M vectors = eigen.eigenvectors();
    is("SelfAdjointEigenSolver", done(eigen.info() == Success, largest(product(sym, vectors) - M(vectors * diagonal(eigen.eigenvalues()).asDiagonal()))), largest(eigen.eigenvalues()));
    GeneralizedSelfAdjointEigenSolver<M> pencil(sym, spd);
    const M gv = pencil.eigenvectors();
    is("GeneralizedSelfAdjointEigenSolver", done(pencil.info() == Success, largest(product(sym, gv) - M(product(spd, gv) * diagonal(pencil.eigenvalues()).asDiagonal()))), largest(sym) * largest(gv) * double(n));
    const C ca = a.template cast<std::complex<R>>();
    ComplexSchur<C> schur(ca);
    const C su = schur.matrixU(), st = schur.matrixT();
    is("ComplexSchur", done(schur.info() == Success, largest(C(su * st * su.adjoint()) - ca)), largest(st));
    ComplexEigenSolver<C> general(ca);
    const C cv = general.eigenvectors();
    is("ComplexEigenSolver", done(general.info() == Success, largest(C(ca * cv - cv * general.eigenvalues().asDiagonal()))), largest(general.eigenvalues()));
    const M scaled = a / std::exp(upper.diagonal().cwiseAbs().array().log().mean());
    is("determinant", std::abs(double(std::log(std::abs(scaled.determinant())))), double(n));
}

// What Eigen has for real matrices only.
template <typename R> static void real(const char *precision)
{
    typedef Matrix<R, Dynamic, Dynamic> M;
    const M a = M::Random(n, n);
    RealSchur<M> schur(a);
    const M u = schur.matrixU(), t = schur.matrixT();
    judge<R>(precision, "RealSchur", schur.info() == Success ? largest(M(u * t * u.transpose()) - a) : NAN, largest(t), n);
    EigenSolver<M> eigen(a);
    const auto v = eigen.eigenvectors();
    const auto residual = (a.template cast<std::complex<R>>() * v - v * eigen.eigenvalues().asDiagonal()).eval();
    judge<R>(precision, "EigenSolver", eigen.info() == Success ? largest(residual) : NAN, largest(eigen.eigenvalues()), n);
}

// One precision a program (`-DSCALAR=double`), so that they can be compiled side by side: a minute each.
int main()
{
    std::srand(7);
    const bool single = sizeof(NumTraits<SCALAR>::Real) == sizeof(float);
    if (NumTraits<SCALAR>::IsComplex) {
        each<SCALAR>(single ? "complex float" : "complex double");
    } else {
        each<SCALAR>(single ? "float" : "double");
        real<NumTraits<SCALAR>::Real>(single ? "float" : "double");
    }
    return bad;
}
