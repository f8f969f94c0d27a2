# An R client: crossprod, solve, chol, svd, eigen, qr(LAPACK = TRUE), each checked by its residual.
set.seed(7)
n <- 200
a <- matrix(rnorm(n * n), n)
b <- rnorm(n)
bad <- 0
judge <- function(what, residual, norm) {
  ratio <- max(Mod(residual)) / (norm * n * .Machine$double.eps)
  if (!(ratio < 30)) bad <<- 1
  cat(if (ratio < 30) "ok" else "WRONG", what, "\n")
}
x <- solve(a, b)
judge("solve", a %*% x - b, max(abs(x)) * max(abs(a)))
p <- crossprod(a) + n * diag(n)
r <- chol(p)
judge("chol", crossprod(r) - p, max(abs(p)))
d <- svd(a)
judge("svd", d$u %*% (d$d * t(d$v)) - a, d$d[1])
e <- eigen(a + t(a))
judge("eigen", (a + t(a)) %*% e$vectors - e$vectors %*% diag(e$values), max(abs(e$values)))
q <- qr(a, LAPACK = TRUE)
judge("qr", qr.Q(q) %*% qr.R(q) - a[, q$pivot], max(abs(a)) * sqrt(n))
# R's xerbla_ never returns: the error must arrive as an R error.
caught <- tryCatch({ .Internal(La_chol2inv(a, -1L)); FALSE }, error = function(e) TRUE)
if (!caught) bad <- 1
quit(status = bad)
