# R's linear algebra (case L7) on well-conditioned matrices of the order given. Prints a line each:
# name and numbers with 17 digits, signs and order normalised, for comparison with another library's.
n <- as.integer(commandArgs(TRUE)[1])
set.seed(7)
say <- function(what, x) cat(what, sprintf("%.17g", as.vector(x)), "\n")
# Vectors are determined up to their sign; only those whose eigenvalue stands apart, to 1e-10.
columns <- function(v, which) {
  v <- v[, which]
  sweep(v, 2, sign(v[cbind(max.col(t(abs(v)), "first"), seq_along(which))]), "*")
}
a <- matrix(rnorm(n * n), n)
good <- a + diag(3 * sqrt(n), n)
b <- rnorm(n)
say("solve", solve(good, b))
say("inverse", diag(solve(good)))
p <- crossprod(a) + n * diag(n)
say("crossprod", p[1, ])
r <- chol(p)
say("chol.diagonal", diag(r))
say("chol.column", r[, n])
say("chol2inv", diag(chol2inv(r)))
d <- svd(a)
say("svd.values", d$d)
say("svd.left", columns(d$u, 1:2))
say("svd.right", columns(d$v, 1:2))
s <- a + t(a)
e <- eigen(s, symmetric = TRUE)
say("eigen.symmetric.values", e$values)
say("eigen.symmetric.vectors", columns(e$vectors, c(1, 2, n)))
z <- eigen(a, symmetric = FALSE, only.values = TRUE)$values
say("eigen.real", sort(Re(z)))
say("eigen.imaginary", sort(Im(z)))
q <- qr(a, LAPACK = TRUE)
say("qr.pivot", q$pivot)
say("qr.diagonal", abs(diag(qr.R(q))))
x <- a[, 1:50]
say("lm", coef(lm(b ~ x)))
say("product", (a %*% good)[, 1])
