//! Timings of single calls on either side, for `gpu-offload calibrate` and `status`.
//!
//! Unsafe lives here because the CPU library is reached by dlopen and both sides take raw operands.
//! Not used while a program's calls are routed.

mod operands;

pub use operands::{Operands, Subject};

use crate::decode::{Decoded, decode, decode_lapack};
use crate::os;
use call::{Backend, Failure, Timing};
use core::ffi::{c_char, c_int, c_void};
use operands::MAX_WORDS;
use routines::{Library, family};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Any routine of BLAS or LAPACK: addresses of its arguments, then string lengths. A caller removes what it
/// has passed, so words beyond a routine's own are not noticed (System V ABI of x86-64).
type Fortran = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
);

/// Our libblas.so.3 and the liblapack.so.3 beside it, loaded to be measured. They stay loaded.
pub struct CpuLibrary {
    blas: Handle,
    lapack: Option<Handle>,
    threads: unsafe extern "C" fn() -> c_int,
    config: unsafe extern "C" fn() -> *const c_char,
}

/// A loaded library, and how it is named in messages.
struct Handle {
    handle: *mut c_void,
    shown: String,
}

impl Handle {
    fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{shown}: is not a file name"))?;
        // SAFETY: a NUL-terminated path; the library's constructors are OpenBLAS's own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror gives null or a NUL-terminated text of this thread's last error.
            let why = unsafe { os::text(libc::dlerror()) };
            return Err(format!("{why}; accepted: gpu-offload's libblas.so.3"));
        }
        Ok(Self { handle, shown })
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        let c_name = CString::new(name).map_err(|e| e.to_string())?;
        // SAFETY: a live handle and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(self.handle, c_name.as_ptr()) };
        if symbol.is_null() {
            let shown = &self.shown;
            return Err(format!(
                "{shown}: lacks {name}; accepted: gpu-offload's libraries"
            ));
        }
        Ok(symbol)
    }
}

/// A time from several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// The median.
    pub median_s: f64,
    /// The middle half of the runs, over the median; of fewer than four runs all of them.
    pub spread: f64,
    /// Runs that counted.
    pub runs: u32,
}

impl Timed {
    /// From the runs' times; `None` without any.
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let n = times.len();
        let median_s = *times.get(n / 2)?;
        let (low, high) = if n < 4 {
            (times[0], times[n - 1])
        } else {
            (times[n / 4], times[(3 * n - 1) / 4])
        };
        Some(Self {
            median_s,
            spread: (high - low) / median_s,
            runs: u32::try_from(n).unwrap_or(u32::MAX),
        })
    }
}

/// Runs of which the median counts where there is time for them.
const LEAST_RUNS: usize = 3;

/// Most runs: beyond that nothing is learnt.
const MOST_RUNS: usize = 100;

/// Repeats `run` for about `budget`: a first one that never counts (it warms caches and wakes threads), then at
/// least three that do, or a single one that takes longer than the budget.
fn repeat<E>(budget: Duration, mut run: impl FnMut() -> Result<f64, E>) -> Result<Timed, E> {
    let began = Instant::now();
    run()?;
    let first = run()?;
    let mut times = vec![first];
    while first < budget.as_secs_f64()
        && (times.len() < LEAST_RUNS || began.elapsed() < budget && times.len() < MOST_RUNS)
    {
        times.push(run()?);
    }
    let one = Timed {
        median_s: first,
        spread: 0.0,
        runs: 1,
    };
    Ok(Timed::of(times).unwrap_or(one))
}

impl CpuLibrary {
    /// Loads a BLAS library with OpenBLAS's control functions, and the liblapack.so.3 beside it if there is one.
    ///
    /// # Errors
    /// One line if it is not there or lacks a function.
    pub fn open(path: &Path) -> Result<Self, String> {
        let blas = Handle::open(path)?;
        let lapack = path.with_file_name("liblapack.so.3");
        let lapack = match lapack.exists() {
            true => Some(Handle::open(&lapack)?),
            false => None,
        };
        let threads = blas.symbol("openblas_get_num_threads")?;
        let config = blas.symbol("openblas_get_config")?;
        // SAFETY: the signatures of OpenBLAS's control functions (cblas.h of OpenBLAS 0.3).
        unsafe {
            Ok(Self {
                blas,
                lapack,
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

    /// The time of one call, repeated for about `budget` (see [`Timed`]). Operands that the routine overwrites
    /// are restored outside of the measured time.
    ///
    /// # Errors
    /// One line if the routine is not in the libraries or does not succeed.
    pub fn time(&self, operands: &mut Operands, budget: Duration) -> Result<Timed, String> {
        let subject = *operands.subject();
        let name = subject.routine().ok_or("a routine without a name")?;
        let library = match family(subject.op).library {
            Library::Blas => &self.blas,
            Library::Lapack => self
                .lapack
                .as_ref()
                .ok_or("there is no liblapack.so.3 beside libblas.so.3")?,
        };
        let routine = library.symbol(&format!("{name}_"))?;
        let call = |operands: &mut Operands| -> Result<f64, String> {
            operands.restore();
            let words = operands.words();
            let began = Instant::now();
            // SAFETY: the table's arguments of this routine in their order, each with the room that the table
            // and the routine's own answer give it; nothing is kept after the return.
            unsafe { invoke(routine, &words) };
            let time_s = began.elapsed().as_secs_f64();
            match operands.info() {
                0 => Ok(time_s),
                info => Err(format!("{name} of the CPU library: info = {info}")),
            }
        };
        if operands.must_ask() {
            call(operands)?;
            operands
                .take_answer()
                .ok_or_else(|| format!("{name} of the CPU library: no workspace"))?;
        }
        repeat(budget, || call(operands))
    }
}

/// # Safety
/// The words are those of a call of the routine, which is a function of BLAS or LAPACK.
pub(crate) unsafe fn invoke(routine: *mut c_void, w: &[usize; MAX_WORDS]) {
    // SAFETY: see `Fortran`; forwarded.
    unsafe {
        let routine = core::mem::transmute::<*mut c_void, Fortran>(routine);
        routine(
            w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13],
            w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25],
            w[26], w[27], w[28], w[29], w[30], w[31],
        );
    }
}

/// The median run (by whole time) of a call on a device, from and to ordinary memory that was touched before:
/// the device's own figures, and the whole time. Repeated as [`CpuLibrary::time`] is. The median and not the
/// best: threads that wake late belong to a call.
///
/// # Errors
/// The first failure.
pub fn time_device(
    backend: &dyn Backend,
    operands: &mut Operands,
    budget: Duration,
) -> Result<(Timing, Timed), Failure> {
    let mut timings: Vec<(Timing, f64)> = Vec::new();
    let whole = repeat(budget, || {
        operands.restore();
        let (timing, time_s) = device_run(backend, operands)?;
        timings.push((timing, time_s));
        Ok(time_s)
    })?;
    let found = timings.iter().find(|(_, s)| *s == whole.median_s);
    let timing = found.map_or_else(Timing::default, |(timing, _)| *timing);
    Ok((timing, whole))
}

/// One run.
fn device_run(backend: &dyn Backend, operands: &mut Operands) -> Result<(Timing, f64), Failure> {
    const REFUSED: Failure = Failure::Unsupported("a call that the engine refuses");
    let run = |decoded: Option<Decoded<'_>>| {
        let mut call = decoded.ok_or(REFUSED)?.call?;
        let began = Instant::now();
        let timing = backend.run(&mut call)?;
        Ok((timing, began.elapsed().as_secs_f64()))
    };
    match family(operands.subject().op).library {
        Library::Blas => {
            let raw = operands.level3();
            // SAFETY: the operands have the table's sizes, live as long as the call, and nobody else uses them.
            run(unsafe { decode(&raw) })
        }
        Library::Lapack => {
            let raw = operands.lapack();
            // SAFETY: as above.
            run(unsafe { decode_lapack(&raw) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_blas_is_refused_in_one_line() {
        for path in ["/nonexistent/libblas.so.3", "libc.so.6"] {
            let line = CpuLibrary::open(Path::new(path)).err().expect("refused");
            assert!(line.contains("accepted") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn the_median_of_the_runs_counts_and_outliers_do_not_widen_the_spread() {
        let timed = Timed::of(vec![1.0, 9.0, 1.1, 1.2, 1.3, 1.1, 1.2, 1.2]).expect("runs");
        assert_eq!((timed.median_s, timed.runs), (1.2, 8));
        assert!(timed.spread < 0.2, "{timed:?}");
        let few = Timed::of(vec![2.0, 1.0, 4.0]).expect("runs");
        assert_eq!((few.median_s, few.spread), (2.0, 1.5));
        assert_eq!(Timed::of(vec![]), None);
    }

    /// A device that notes the shapes of its calls.
    #[derive(Default)]
    struct Noting(parking_lot::Mutex<Vec<routines::Shape>>);

    impl Backend for Noting {
        fn run(&self, call: &mut call::Call<'_>) -> Result<Timing, Failure> {
            self.0.lock().push(call.shape());
            Ok(Timing::default())
        }
    }

    /// The letters that a caller uses most: each option's first, but all eigenvalues.
    fn letters(family: &routines::Family, precision: routines::Precision) -> [u8; 4] {
        let options = family
            .args_of(precision)
            .iter()
            .filter_map(|arg| match arg {
                routines::Arg::Letter { accepted, .. } => accepted.bytes().next(),
                _ => None,
            });
        let mut letters = [0; 4];
        letters
            .iter_mut()
            .zip(options)
            .for_each(|(to, from)| *to = from);
        letters
    }

    #[test]
    fn every_routed_routine_reaches_a_device_as_the_call_that_was_meant() {
        let mut count = 0;
        for (family, precision, name) in routines::routed() {
            let letters = letters(family, precision);
            for (m, n, k) in [(6, 6, 6), (9, 6, 5), (5, 6, 4)] {
                let has = |size| family.args.contains(&routines::Arg::Size { name: size });
                let order = match letters[0] {
                    b'R' => n,
                    _ => m,
                };
                let sided = matches!(family.gate, Some(routines::Gate::Sided));
                let m = if has("m") { m } else { n };
                let k = match () {
                    () if has("k") || has("nrhs") => k,
                    () if sided => order,
                    () => n,
                };
                let subject = Subject {
                    op: family.op,
                    precision,
                    letters,
                    m,
                    n,
                    k,
                };
                // orgqr takes no more columns than rows.
                let Some(mut operands) = Operands::new(subject) else {
                    assert!(m < n, "{name}: {subject:?}");
                    continue;
                };
                let device = Noting::default();
                let done = time_device(&device, &mut operands, Duration::ZERO);
                assert!(done.is_ok(), "{name}: {done:?}");
                let shapes = device.0.lock();
                assert!(shapes.iter().all(|s| *s == subject.shape()), "{name}");
                count += shapes.len();
            }
        }
        assert!(count > 200, "{count}");
    }

    #[test]
    fn operands_are_finite_and_restored() {
        for precision in routines::Precision::ALL {
            let mut operands = Operands::new(Subject {
                op: routines::Op::Potrf,
                precision,
                letters: [b'L', 0, 0, 0],
                m: 5,
                n: 5,
                k: 5,
            })
            .expect("operands");
            let elem_bytes = precision.elem_bytes();
            let bytes = |operands: &mut Operands| -> Vec<u8> {
                let data = operands.lapack().matrices[0].data.cast::<u8>();
                // SAFETY: the matrix has 25 elements, and nobody else uses it.
                unsafe { core::slice::from_raw_parts(data, 25 * elem_bytes) }.to_vec()
            };
            let before = bytes(&mut operands);
            let part = precision.real().elem_bytes();
            let reals: Vec<f64> = before
                .chunks_exact(part)
                .map(|b| match *b {
                    [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])),
                    _ => f64::from_ne_bytes(b.try_into().expect("8 bytes")),
                })
                .collect();
            assert!(
                reals.iter().all(|x| x.abs() < 1.0 || *x == 10.0),
                "{reals:?}"
            );
            assert_eq!(
                reals.iter().filter(|x| **x == 10.0).count(),
                5,
                "{precision:?}"
            );
            let data = operands.lapack().matrices[0].data.cast::<u8>();
            // SAFETY: as above.
            unsafe { data.write_bytes(0xff, 25 * elem_bytes) };
            operands.restore();
            assert_eq!(bytes(&mut operands), before);
        }
    }

    #[test]
    fn the_first_run_never_counts_and_a_long_one_counts_alone() {
        let mut times = [9.0, 1.0].into_iter();
        let mut run = || Ok::<f64, ()>(times.next().expect("two runs"));
        let long = repeat(Duration::from_millis(1), &mut run).expect("runs");
        assert_eq!((long.median_s, long.runs), (1.0, 1));
        let mut times = [9.0, 1e-4, 2e-4, 3e-4].into_iter();
        let short = repeat(Duration::from_millis(1), || {
            std::thread::sleep(Duration::from_millis(1));
            Ok::<f64, ()>(times.next().expect("four runs"))
        });
        assert_eq!(short.map(|t| (t.median_s, t.runs)), Ok((2e-4, 3)));
    }
}
