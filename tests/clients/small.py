"""Products and solutions with small matrices in NumPy, counted by callgrind.

Arguments: product or solve, n, how many. Before them each kind runs some times, so that the difference of two runs holds
nothing but that many calls.
"""
import sys

import numpy as np

what, n, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def matrix(n):
    return np.eye(n) * n + np.arange(n * n).reshape(n, n) / n**2


def product(a, count):
    for _ in range(count):
        a @ a


def solve(a, count):
    for _ in range(count):
        np.linalg.solve(a, a)


for each in (product, solve):
    for size in (4, 8, 16, 32):
        each(matrix(size), 50)
(product if what == "product" else solve)(matrix(n), count)
