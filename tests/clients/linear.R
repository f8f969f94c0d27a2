# An R client: crossprod, solve, chol, svd, eigen, qr(LAPACK = TRUE), each checked by its residual, and
# an illegal argument, which R's own xerbla_ turns into an R error by a jump out of the library.
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
z <- eigen(a)
judge("eigen, not symmetric", a %*% z$vectors - z$vectors %*% diag(z$values), max(Mod(z$values)))
q <- qr(a, LAPACK = TRUE)
judge("qr", qr.Q(q) %*% qr.R(q) - a[, q$pivot], max(abs(a)) * sqrt(n))
dyn.load(extSoftVersion()[["BLAS"]])
caught <- 0
for (i in 1:1000) {
  message <- tryCatch({
    .Fortran("dgemm", "N", "N", -1L, 1L, 1L, 1, 1, 1L, 1, 1L, 0, 1, 1L)
    "no error"
  }, error = conditionMessage)
  caught <- caught + grepl("DGEMM.*3", message)
}
if (caught != 1000) bad <- 1
cat(if (caught == 1000) "ok" else "WRONG", "illegal argument caught", caught, "times:", message, "\n")
quit(status = bad)
