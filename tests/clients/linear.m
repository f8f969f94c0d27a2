% An Octave client: product, solve, chol, eig, svd, each checked by its residual.
n = 200; rand("seed", 7); a = rand(n) - 0.5; s = a + a'; b = rand(n, 3);
bad = 0;
function bad = judge(bad, what, residual, norm, n)
  ratio = max(abs(residual(:))) / (norm * n * eps);
  if ratio < 30, printf("ok %s\n", what); else printf("WRONG %s %g\n", what, ratio); bad = 1; end
end
x = a \ b; bad = judge(bad, "solve", a * x - b, max(abs(x(:))), n);
p = a * a' + n * eye(n); r = chol(p); bad = judge(bad, "chol", r' * r - p, n, n);
[v, d] = eig(s); bad = judge(bad, "eig", s * v - v * d, max(abs(diag(d))), n);
[u, d, v] = svd(a); bad = judge(bad, "svd", u * d * v' - a, d(1), n);
exit(bad);
