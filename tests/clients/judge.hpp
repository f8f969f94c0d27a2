// How the C++ clients judge: a line for each check, `ok` or `WRONG`, and the exit status.
// It must not compute anything that is under test.
#pragma once
#include <cmath>
#include <cstdio>
#include <limits>

inline bool bad = false;

// LAPACK's own measure: a residual over norm, n and eps of the precision R stays below 30. A NaN is wrong.
template <typename R> void judge(const char *precision, const char *what, double residual, double norm, double n)
{
    const double ratio = residual / (norm * n * double(std::numeric_limits<R>::epsilon()));
    const bool wrong = !(ratio < 30);
    std::printf("%s %s, %s: ratio %.3g\n", wrong ? "WRONG" : "ok", what, precision, ratio);
    bad |= wrong;
}
