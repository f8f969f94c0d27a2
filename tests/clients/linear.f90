! A Fortran client: dgemm, dgesv, dsyev and zheev, each checked by its residual.
program linear
  implicit none
  integer, parameter :: n = 200, lwork = 64 * n
  double precision :: a(n, n), s(n, n), f(n, n), c(n, n), x(n), b(n), w(n), work(lwork), rwork(3 * n)
  complex(8) :: h(n, n), v(n, n), zwork(lwork)
  integer :: ipiv(n), info, i, j
  logical :: bad = .false.
  call random_seed()
  call random_number(a)
  call random_number(s)
  call random_number(b)
  s = s + transpose(s)
  call dgemm('N', 'N', n, n, n, 1d0, a, n, s, n, 0d0, c, n)
  call judge('dgemm', maxval(abs(c - matmul(a, s))), dble(n), 0)
  f = a
  x = b
  call dgesv(n, 1, f, n, ipiv, x, n, info)
  call judge('dgesv', maxval(abs(matmul(a, x) - b)), n * max(1d0, maxval(abs(x))), info)
  f = s
  call dsyev('V', 'U', n, f, n, w, work, lwork, info)
  do j = 1, n
    c(:, j) = matmul(s, f(:, j)) - w(j) * f(:, j)
  end do
  call judge('dsyev', maxval(abs(c)), maxval(abs(w)), info)
  do j = 1, n
    do i = 1, n
      h(i, j) = cmplx(s(i, j), a(i, j) - a(j, i), kind=8)
    end do
  end do
  v = h
  call zheev('V', 'L', n, v, n, w, zwork, lwork, rwork, info)
  do j = 1, n
    v(:, j) = matmul(h, v(:, j)) - w(j) * v(:, j)
  end do
  call judge('zheev', maxval(abs(v)), maxval(abs(w)), info)
  if (bad) stop 1
contains
  subroutine judge(what, residual, norm, info)
    character(*), intent(in) :: what
    double precision, intent(in) :: residual, norm
    integer, intent(in) :: info
    double precision :: ratio
    ratio = residual / (norm * n * epsilon(1d0))
    if (info /= 0 .or. .not. ratio < 30) then
      print *, 'WRONG ', what, info, ratio
      bad = .true.
    else
      print *, 'ok ', what, ratio
    end if
  end subroutine
end program
