# Products and solutions with small matrices in R, counted by callgrind.
#
# Arguments: product or solve, n, how many. Before them each kind runs some times, so that the difference of two runs
# holds nothing but that many calls.
args <- commandArgs(TRUE)
n <- as.integer(args[2])
count <- as.integer(args[3])
small <- function(n) diag(n, n) + matrix(seq_len(n * n) / n^2, n)
product <- function(a, count) for (i in seq_len(count)) a %*% a
solution <- function(a, count) for (i in seq_len(count)) solve(a, a)
for (each in list(product, solution)) for (size in c(4, 8, 16, 32)) each(small(size), 50)
if (args[1] == "product") product(small(n), count) else solution(small(n), count)
