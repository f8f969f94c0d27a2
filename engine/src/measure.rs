//! Timings of matrix products on either side, for `gpu-offload calibrate` and `status`.
//!
//! Unsafe lives here because the CPU library is reached by dlopen and both sides take raw operands.
//! Not used while a program's calls are routed.

use crate::os;
use call::{Backend, Call, Failure, Level3Call, MatMut, MatRef, Scalar, Timing, Trans};
use core::ffi::{c_char, c_int, c_void};
use routines::Precision;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// `?gemm_` with hidden string lengths; the scalars are read by type through their pointers.
type Gemm = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_void,
    *const c_void,
    *const c_int,
    *const c_void,
    *const c_int,
    *const c_void,
    *mut c_void,
    *const c_int,
    usize,
    usize,
);

/// Our libblas.so.3, loaded to be measured. It stays loaded.
pub struct CpuLibrary {
    gemm: [Gemm; 4],
    threads: unsafe extern "C" fn() -> c_int,
    config: unsafe extern "C" fn() -> *const c_char,
}

impl CpuLibrary {
    /// Loads a BLAS library with OpenBLAS's control functions.
    ///
    /// # Errors
    /// One line if it is not there or lacks a function.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{shown}: is not a file name"))?;
        // SAFETY: a NUL-terminated path; the library's constructors are OpenBLAS's own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror gives null or a NUL-terminated text of this thread's last error.
            let why = unsafe { os::text(libc::dlerror()) };
            return Err(format!("{why}; accepted: gpu-offload's libblas.so.3"));
        }
        let symbol = |name: String| -> Result<*mut c_void, String> {
            let c_name = CString::new(name.clone()).map_err(|e| e.to_string())?;
            // SAFETY: a live handle and a NUL-terminated name.
            let symbol = unsafe { libc::dlsym(handle, c_name.as_ptr()) };
            if symbol.is_null() {
                return Err(format!(
                    "{shown}: lacks {name}; accepted: gpu-offload's libblas.so.3"
                ));
            }
            Ok(symbol)
        };
        let gemm = |p: Precision| -> Result<Gemm, String> {
            let symbol = symbol(format!("{}gemm_", p.letter()))?;
            // SAFETY: this is the signature of the reference BLAS for all four precisions.
            Ok(unsafe { core::mem::transmute::<*mut c_void, Gemm>(symbol) })
        };
        let [s, d, c, z] = Precision::ALL.map(gemm);
        let threads = symbol("openblas_get_num_threads".to_owned())?;
        let config = symbol("openblas_get_config".to_owned())?;
        // SAFETY: the signatures of OpenBLAS's control functions (cblas.h of OpenBLAS 0.3).
        unsafe {
            Ok(Self {
                gemm: [s?, d?, c?, z?],
                threads: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(
                    threads,
                ),
                config: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(
                    config,
                ),
            })
        }
    }

    /// Threads that it uses.
    pub fn threads(&self) -> u32 {
        // SAFETY: no preconditions.
        u32::try_from(unsafe { (self.threads)() })
            .unwrap_or(1)
            .max(1)
    }

    /// Its configuration string, as the engine puts it into fingerprints.
    pub fn config(&self) -> String {
        // SAFETY: OpenBLAS's static string.
        unsafe { os::text((self.config)()) }
    }

    /// Best time of C := A B, m x k by k x n, repeated until `budget` is used (at least twice).
    /// `None` if a dimension does not fit Fortran's INTEGER.
    pub fn time_gemm(
        &self,
        precision: Precision,
        m: usize,
        n: usize,
        k: usize,
        budget: Duration,
    ) -> Option<f64> {
        let [m_, n_, k_] = [m, n, k].map(|v| c_int::try_from(v).ok());
        let (m_, n_, k_) = (m_?, n_?, k_?);
        let mut operands = Operands::new(precision, m, n, k);
        let index = Precision::ALL.iter().position(|p| *p == precision)?;
        let letter: c_char = b'N' as c_char;
        let (one, zero) = (scalar(precision, 1.0), [0u64; 2]);
        let began = Instant::now();
        let mut best_s = f64::INFINITY;
        let mut runs = 0;
        while runs < 2 || began.elapsed() < budget {
            let run = Instant::now();
            // SAFETY: the operands have the dimensions given, with leading dimension = rows; the
            // scalars are of the precision's size at least; nothing is kept after the return.
            unsafe {
                (self.gemm[index])(
                    &raw const letter,
                    &raw const letter,
                    &raw const m_,
                    &raw const n_,
                    &raw const k_,
                    one.as_ptr().cast(),
                    operands.a.as_ptr().cast(),
                    &raw const m_,
                    operands.b.as_ptr().cast(),
                    &raw const k_,
                    zero.as_ptr().cast(),
                    operands.c.as_mut_ptr().cast(),
                    &raw const m_,
                    1,
                    1,
                );
            }
            best_s = best_s.min(run.elapsed().as_secs_f64());
            runs += 1;
        }
        Some(best_s)
    }
}

/// The median (by whole time) of `runs` products C := A B on a device after one that does not count,
/// from and to ordinary memory that was touched before: the device's own figures and the whole time.
/// The median and not the best: threads that wake late belong to a call.
///
/// # Errors
/// The first failure.
pub fn time_device_gemm(
    backend: &dyn Backend,
    precision: Precision,
    m: usize,
    n: usize,
    k: usize,
    runs: usize,
) -> Result<(Timing, f64), Failure> {
    let mut operands = Operands::new(precision, m, n, k);
    let elem_bytes = precision.elem_bytes();
    let mut times: Vec<(Timing, f64)> = Vec::new();
    for run in 0..=runs.max(1) {
        // SAFETY: the vectors hold m x k, k x n and m x n elements and outlive the views.
        let views = unsafe {
            (
                MatRef::new(operands.a.as_ptr().cast(), m, k, m, elem_bytes),
                MatRef::new(operands.b.as_ptr().cast(), k, n, k, elem_bytes),
                MatMut::new(operands.c.as_mut_ptr().cast(), m, n, m, elem_bytes),
            )
        };
        let (Some(a), Some(b), Some(c)) = views else {
            return Err(Failure::Unsupported("a product of that size"));
        };
        let (transa, transb) = (Trans::N, Trans::N);
        let (alpha, beta) = (Scalar::ONE, Scalar::ZERO);
        let mut call = Call::Level3(Level3Call::gemm(
            precision,
            (transa, a),
            (transb, b),
            (alpha, beta),
            c,
        ));
        let began = Instant::now();
        let timing = backend.run(&mut call)?;
        if run > 0 {
            times.push((timing, began.elapsed().as_secs_f64()));
        }
    }
    times.sort_by(|x, y| x.1.total_cmp(&y.1));
    Ok(times[times.len() / 2])
}

/// Three matrices of small numbers, every page touched, 8-byte aligned.
struct Operands {
    a: Vec<u64>,
    b: Vec<u64>,
    c: Vec<u64>,
}

impl Operands {
    fn new(precision: Precision, m: usize, n: usize, k: usize) -> Self {
        let matrix = |rows: usize, cols: usize| -> Vec<u64> {
            let words = (rows * cols * precision.elem_bytes()).div_ceil(8);
            // Numbers between 1 and 2 that differ: zeros would flatter a GPU's power limit.
            let single = matches!(precision, Precision::S | Precision::C);
            (0..words as u64)
                .map(|i| {
                    let noise = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    if single {
                        let one = u64::from(1.0_f32.to_bits());
                        (one | one << 32) | (noise & 0x007F_FFFF_007F_FFFF)
                    } else {
                        1.0_f64.to_bits() | (noise >> 12)
                    }
                })
                .collect()
        };
        Self {
            a: matrix(m, k),
            b: matrix(k, n),
            c: matrix(m, n),
        }
    }
}

/// A real number as a scalar of `precision`.
fn scalar(precision: Precision, value: f32) -> [u64; 2] {
    match precision {
        Precision::S | Precision::C => [u64::from(value.to_bits()), 0],
        Precision::D | Precision::Z => [f64::from(value).to_bits(), 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_numbers_between_one_and_two() {
        let o = Operands::new(Precision::D, 3, 5, 7);
        assert_eq!((o.a.len(), o.b.len(), o.c.len()), (21, 35, 15));
        assert!(o.a.iter().all(|w| (1.0..2.0).contains(&f64::from_bits(*w))));
        let o = Operands::new(Precision::S, 3, 3, 3);
        assert_eq!(o.a.len(), 5);
        for w in o.a {
            for half in [w as u32, (w >> 32) as u32] {
                assert!((1.0..2.0).contains(&f32::from_bits(half)));
            }
        }
    }

    #[test]
    fn a_library_that_is_no_blas_is_refused_in_one_line() {
        for path in ["/nonexistent/libblas.so.3", "libc.so.6"] {
            let line = CpuLibrary::open(Path::new(path)).err().expect("refused");
            assert!(line.contains("accepted") && !line.contains('\n'), "{line}");
        }
    }
}
