% Octave's own tests of everything that calls BLAS or LAPACK. Prints a line each: file, passed, all.
% The caller compares with another library's lines; nothing is judged here.
makeinfo_program("true"); % usage messages are looked for, not read
base = fullfile(OCTAVE_HOME, "share", "octave", OCTAVE_VERSION);
core = {"balance", "chol", "conv2", "data", "det", "dot", "eig", "__eigs__", "givens", "gsvd", ...
        "hess", "inv", "kron", "lsode", "lu", "mgorth", "ordqz", "ordschur", "pinv", "qr", "quad", ...
        "qz", "rcond", "schur", "sparse-xpow", "sqrtm", "svd", "sylvester", "__qp__", "dassl", "colloc"};
files = {};
for i = 1:numel(core)
  files = [files; glob(fullfile(base, "etc", "tests", "libinterp", "corefcn", [core{i} ".cc-tst"]))];
end
files = [files; glob(fullfile(base, "etc", "tests", "liboctave", "array", "*.cc-tst"))];
for name = {"diag-perm", "leftdiv", "transpose", "complex"}
  files = [files; glob(fullfile(base, "etc", "tests", "fixed", [name{1} ".tst"]))];
end
for name = {"linear-algebra", "polynomial", "special-matrix", "optimization"}
  files = [files; glob(fullfile(base, "m", name{1}, "*.m"))];
end
for name = {"eigs", "svds", "pcg", "gmres", "spdiags"}
  files = [files; glob(fullfile(base, "m", "sparse", [name{1} ".m"]))];
end
for i = 1:numel(files)
  rand("twister", 1); randn("twister", 1); % the same numbers for every library
  [passed, all] = test(files{i}, "quiet", "/dev/null");
  [~, name, extension] = fileparts(files{i});
  printf("%s%s %d %d\n", name, extension, passed, all);
end
