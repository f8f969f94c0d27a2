! Functions that return complex or single-precision values, called by gfortran (case F5).
program complex_functions
  implicit none
  complex(8), external :: zdotc, zdotu, zladiv
  complex(4), external :: cdotc, cdotu, cladiv
  real(4), external :: sdot, snrm2, scnrm2, slamch, slange
  complex(8) :: zx(3) = [(1d0, 2d0), (3d0, -1d0), (-2d0, 1d0)]
  complex(8) :: zy(3) = [(2d0, -1d0), (1d0, 1d0), (4d0, 3d0)]
  complex(4) :: cx(3), cy(3)
  real(4) :: sx(3) = [3.0, 4.0, 12.0], work(3)
  logical :: bad = .false.
  cx = cmplx(zx, kind=4)
  cy = cmplx(zy, kind=4)
  call same('zdotu', zdotu(3, zx, 1, zy, 1), sum(zx * zy))
  call same('zdotc', zdotc(3, zx, 1, zy, 1), sum(conjg(zx) * zy))
  call same('cdotu', cmplx(cdotu(3, cx, 1, cy, 1), kind=8), sum(zx * zy))
  call same('cdotc', cmplx(cdotc(3, cx, 1, cy, 1), kind=8), sum(conjg(zx) * zy))
  call same('zladiv', zladiv(zx(1), zy(1)), zx(1) / zy(1))
  call same('cladiv', cmplx(cladiv(cx(1), cy(1)), kind=8), zx(1) / zy(1))
  call same('sdot', cmplx(sdot(3, sx, 1, sx, 1), kind=8), (169d0, 0d0))
  call same('snrm2', cmplx(snrm2(3, sx, 1), kind=8), (13d0, 0d0))
  call same('scnrm2', cmplx(scnrm2(3, cx, 1), kind=8), cmplx(sqrt(20d0), kind=8))
  call same('slamch', cmplx(slamch('E') / (epsilon(1.0) / 2), kind=8), (1d0, 0d0))
  call same('slange', cmplx(slange('M', 3, 1, sx, 3, work), kind=8), (12d0, 0d0))
  if (bad) stop 1
contains
  subroutine same(what, got, wanted)
    character(*), intent(in) :: what
    complex(8), intent(in) :: got, wanted
    if (abs(got - wanted) > 1d-6 * (1 + abs(wanted))) then
      print *, 'WRONG ', what, got, wanted
      bad = .true.
    end if
  end subroutine
end program
