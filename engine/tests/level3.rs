//! Every level-3 family through the engine: the raw call is decoded into views, a mock device computes
//! from the views by the routine's definition, and OpenBLAS computes from the raw call's own meaning.
//!
//! All numbers are small and whole (and diagonals powers of two), so that every result is exact.

mod common;

use call::{Diag, Level3Call, MatMut, MatRef, Scalar, Side, Trans, Uplo};
use common::{HOST, Script, engine, profile, reference, settings};
use core::ffi::c_void;
use engine_abi::{OUTCOME_DONE, OUTCOME_UNTOUCHED, RoutedCall};
use gpu_offload::Engine;
use gpu_offload::config::{LogLevel, Mode, Settings};
use routines::{Arg, Dims, Extent, Family, Gate, Library, Op, Precision, family, routed_in};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const GAP: usize = 2;

/// A matrix in memory with a gap below each column.
struct Memory {
    rows: usize,
    cols: usize,
    bytes: Vec<u8>,
    precision: Precision,
}

impl Memory {
    fn new(
        (rows, cols): (usize, usize),
        precision: Precision,
        number: impl Fn(usize, usize) -> [f64; 2],
    ) -> Self {
        let ld = rows + GAP;
        let at = |i: usize| reference::to_bytes(number(i % ld, i / ld), precision);
        Self {
            rows,
            cols,
            bytes: (0..ld * cols).flat_map(at).collect(),
            precision,
        }
    }

    fn ld(&self) -> i64 {
        (self.rows + GAP) as i64
    }

    fn view(&self) -> MatRef<'_> {
        let (ld, bytes) = (self.rows + GAP, self.precision.elem_bytes());
        // SAFETY: the vector holds ld x cols elements.
        unsafe { MatRef::new(self.bytes.as_ptr().cast(), self.rows, self.cols, ld, bytes) }
            .expect("fits")
    }

    fn view_mut(&mut self) -> MatMut<'_> {
        let (ld, bytes) = (self.rows + GAP, self.precision.elem_bytes());
        // SAFETY: the vector holds ld x cols elements and is borrowed for the view's life.
        unsafe {
            MatMut::new(
                self.bytes.as_mut_ptr().cast(),
                self.rows,
                self.cols,
                ld,
                bytes,
            )
        }
        .expect("fits")
    }

    /// Numbers, gaps included; -0 is 0.
    fn numbers(&self) -> Vec<[u64; 2]> {
        self.bytes
            .chunks(self.precision.elem_bytes())
            .map(|b| reference::from_bytes(b, self.precision).map(|x| (x + 0.0).to_bits()))
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Options {
    side: u8,
    uplo: u8,
    transa: u8,
    transb: u8,
    diag: u8,
}

/// Every combination of the letters that the routine accepts; 0 where it has none.
fn options(family: &Family, precision: Precision) -> Vec<Options> {
    let letters = |names: [&str; 2]| -> Vec<u8> {
        let args = family.args_of(precision);
        let accepted = args.iter().find_map(|arg| match *arg {
            Arg::Letter { name, accepted } if names.contains(&name) => Some(accepted),
            _ => None,
        });
        accepted.map_or(vec![0], |a| a.bytes().collect())
    };
    let mut all = Vec::new();
    for side in letters(["side", ""]) {
        for uplo in letters(["uplo", ""]) {
            for transa in letters(["transa", "trans"]) {
                for transb in letters(["transb", ""]) {
                    for diag in letters(["diag", ""]) {
                        all.push(Options {
                            side,
                            uplo,
                            transa,
                            transb,
                            diag,
                        });
                    }
                }
            }
        }
    }
    all
}

/// One call with its operands.
struct Case {
    op: Op,
    precision: Precision,
    options: Options,
    sizes: (usize, usize, usize),
    alpha: [f64; 2],
    beta: [f64; 2],
    a: Memory,
    b: Option<Memory>,
    c: Memory,
}

impl Case {
    fn new(op: Op, precision: Precision, options: Options, beta_zero: bool) -> Self {
        let row = family(op);
        let (m, n, k) = (5_usize, 3, 4);
        let right = options.side == b'R';
        let (m, k) = match row.gate {
            Some(Gate::Sided) => (m, if right { n } else { m }),
            Some(Gate::Product(["n", ..])) => (n, k),
            _ => (m, k),
        };
        let dims = Dims {
            m: m as u64,
            n: n as u64,
            k: k as u64,
            right,
        };
        let shape = |name: &str| {
            row.args_of(precision).iter().find_map(|arg| match *arg {
                Arg::Matrix {
                    name: found,
                    rows,
                    cols,
                    ..
                } if found == name => {
                    let extent = |e: Extent| match e {
                        Extent::ByTrans("transb", _, other) if options.transb != b'N' => other,
                        Extent::ByTrans("transa" | "trans", _, other) if options.transa != b'N' => {
                            other
                        }
                        e => e.plain(),
                    };
                    Some([rows, cols].map(|e| dims.get(extent(e)) as usize))
                }
                _ => None,
            })
        };
        let complex = precision.is_complex();
        let whole = move |seed: usize, i: usize, j: usize| {
            let part = |step: usize| ((i * 3 + j * 5 + seed + step) % 5) as f64 - 2.0;
            [part(0), if complex { part(3) } else { 0.0 }]
        };
        let in_place = matches!(op, Op::Trmm | Op::Trsm);
        let stored_triangle = row.gate == Some(Gate::Sided);
        let a_shape = shape("a").expect("every family has an A");
        let a = Memory::new((a_shape[0], a_shape[1]), precision, |i, j| {
            let outside = (i < j) != (options.uplo == b'U') && i != j;
            if i >= a_shape[0] || (stored_triangle && outside) {
                [f64::NAN; 2]
            } else if in_place && i == j {
                // Not read where the diagonal is ones.
                [
                    if options.diag == b'U' {
                        f64::NAN
                    } else {
                        [1.0, 2.0, -1.0][i % 3]
                    },
                    0.0,
                ]
            } else {
                whole(1, i, j)
            }
        });
        let b = shape("b").filter(|_| !in_place).map(|s| {
            Memory::new((s[0], s[1]), precision, |i, j| {
                if i >= s[0] {
                    [f64::NAN; 2]
                } else {
                    whole(2, i, j)
                }
            })
        });
        let hermitian = matches!(op, Op::Herk | Op::Her2k);
        let triangle = row.gate == Some(Gate::Product(["n", "n", "k"]));
        let c = Memory::new((m, n), precision, |i, j| {
            let outside = triangle && i != j && (i < j) != (options.uplo == b'U');
            if i < m && !outside && beta_zero && !in_place {
                [f64::NAN; 2]
            } else {
                whole(7, i, j)
            }
        });
        let imaginary = if complex { 1.0 } else { 0.0 };
        let alpha = [-2.0, if op == Op::Herk { 0.0 } else { imaginary }];
        let beta = match (in_place, beta_zero) {
            (true, _) => [1.0, 0.0],
            (_, true) => [0.0; 2],
            _ => [3.0, if hermitian { 0.0 } else { -imaginary }],
        };
        Self {
            op,
            precision,
            options,
            sizes: (m, n, k),
            alpha,
            beta,
            a,
            b,
            c,
        }
    }

    fn raw(&mut self) -> RoutedCall {
        let o = self.options;
        RoutedCall {
            struct_bytes: size_of::<RoutedCall>() as u32,
            op: self.op as u32,
            precision: self.precision as u8,
            side: o.side,
            uplo: o.uplo,
            transa: o.transa,
            transb: o.transb,
            diag: o.diag,
            reserved: [0; 2],
            m: self.sizes.0 as i64,
            n: self.sizes.1 as i64,
            k: self.sizes.2 as i64,
            alpha: self.alpha,
            beta: self.beta,
            a: self.a.bytes.as_ptr().cast(),
            lda: self.a.ld(),
            b: self
                .b
                .as_ref()
                .map_or(core::ptr::null(), |b| b.bytes.as_ptr().cast()),
            ldb: self.b.as_ref().map_or(0, Memory::ld),
            c: self.c.bytes.as_mut_ptr().cast(),
            ldc: self.c.ld(),
            host: &raw const HOST,
            cpu: no_cpu,
            frame: core::ptr::null(),
        }
    }

    fn name(&self) -> String {
        let o = self.options;
        let letters: String = [o.side, o.uplo, o.transa, o.transb, o.diag]
            .into_iter()
            .filter(|l| *l != 0)
            .map(char::from)
            .collect();
        let routine = family(self.op).routine(self.precision).expect("routed");
        format!("{routine} {letters}")
    }

    /// OpenBLAS's answer, from the options themselves.
    fn by_openblas(&mut self) {
        let (m, n, k) = self.sizes;
        let o = self.options;
        let scalar = |[re, im]: [f64; 2]| Scalar { re, im };
        let mut call = Level3Call {
            op: self.op,
            precision: self.precision,
            side: Side::from_letter(o.side).unwrap_or(Side::L),
            uplo: Uplo::from_letter(o.uplo).unwrap_or(Uplo::U),
            transa: Trans::from_letter(o.transa).unwrap_or(Trans::N),
            transb: Trans::from_letter(o.transb).unwrap_or(Trans::N),
            diag: Diag::from_letter(o.diag).unwrap_or(Diag::N),
            m,
            n,
            k,
            alpha: scalar(self.alpha),
            beta: scalar(self.beta),
            a: self.a.view(),
            b: self.b.as_ref().map(Memory::view),
            c: self.c.view_mut(),
        };
        cpu_backend::level3(&mut call).expect("a legal call");
    }
}

unsafe extern "C" fn no_cpu(_: *const c_void) {
    panic!("the CPU routine must not run");
}

fn forced(script: &Arc<Script>, s: Settings) -> &'static Engine {
    engine(s, script, profile(1.0, 1e-3, 1e-3))
}

#[test]
fn every_family_and_flag_reaches_the_device_as_it_was_meant() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let mut calls = 0;
    for (row, precision, _) in routed_in(Library::Blas) {
        for options in options(row, precision) {
            for beta_zero in [false, true] {
                let mut case = Case::new(row.op, precision, options, beta_zero);
                let mut right = Case::new(row.op, precision, options, beta_zero);
                right.by_openblas();
                let raw = case.raw();
                // SAFETY: the operands, the host and the frame outlive the call.
                let outcome = unsafe { engine.route(&raw) };
                assert_eq!(outcome, OUTCOME_DONE, "{}", case.name());
                assert_eq!(case.c.numbers(), right.c.numbers(), "{}", case.name());
                calls += 1;
            }
        }
    }
    assert_eq!(script.committed.load(SeqCst), calls);
    // gemm 9 x 6, gemmtr and gemmt 18 x 4 each, symm 4 x 4, hemm 4 x 2, syrk and syr2k 6 x 2 + 4 x 2,
    // herk and her2k 4 x 2, trmm and trsm 24 x 4; twice for beta.
    assert_eq!(calls, 2 * (54 + 144 + 16 + 8 + 40 + 16 + 192));
}

#[test]
fn sizes_and_letters_that_contradict_the_family_are_left_to_the_shim() {
    let script = Arc::new(Script::default());
    let engine = forced(&script, settings(Mode::Force));
    let plain = |op, precision| {
        let options = options(family(op), precision)[0];
        Case::new(op, precision, options, false)
    };
    let refuse = |op: Op, precision: Precision, change: &dyn Fn(&mut RoutedCall)| {
        let mut case = plain(op, precision);
        let mut raw = case.raw();
        change(&mut raw);
        // SAFETY: nothing of these calls may be touched; that is what is tested.
        let outcome = unsafe { engine.route(&raw) };
        assert_eq!(outcome, OUTCOME_UNTOUCHED, "{}", case.name());
    };
    let (d, z) = (Precision::D, Precision::Z);
    refuse(Op::Syrk, z, &|raw| raw.transa = b'C');
    refuse(Op::Herk, z, &|raw| raw.transa = b'T');
    refuse(Op::Herk, z, &|raw| raw.precision = b'D');
    refuse(Op::Syrk, d, &|raw| raw.m += 1);
    refuse(Op::Trsm, d, &|raw| raw.k += 1);
    refuse(Op::Symm, d, &|raw| raw.side = b'R');
    for op in [Op::Symm, Op::Syrk, Op::Syr2k, Op::Gemmtr, Op::Trmm] {
        refuse(op, d, &|raw| raw.uplo = 0);
        refuse(op, d, &|raw| raw.lda = raw.m - 1);
        refuse(op, d, &|raw| raw.ldc = raw.m - 1);
        refuse(op, d, &|raw| raw.n = 0);
        refuse(op, d, &|raw| raw.a = core::ptr::null());
        refuse(op, d, &|raw| raw.c = core::ptr::null_mut());
        refuse(op, d, &|raw| raw.alpha = [0.0; 2]);
        refuse(op, d, &|raw| (raw.lda, raw.ldc) = (i64::MAX, i64::MAX));
    }
    for op in [Op::Symm, Op::Syr2k, Op::Gemm3m, Op::Gemmt] {
        refuse(op, z, &|raw| raw.b = core::ptr::null());
        refuse(op, z, &|raw| raw.ldb = 1);
    }
    refuse(Op::Trsm, d, &|raw| raw.diag = b'X');
    refuse(Op::Symm, d, &|raw| raw.op = Op::Getrf as u32);
    assert_eq!(script.computed.load(SeqCst), 0);
}

#[test]
fn the_log_names_the_letters_in_the_order_of_the_arguments() {
    let script = Arc::new(Script::default());
    let path = std::env::temp_dir().join(format!("gpu-offload-level3-{}.txt", std::process::id()));
    let engine = forced(
        &script,
        Settings {
            log: Some(LogLevel::Decisions),
            log_file: Some(path.clone()),
            ..settings(Mode::Force)
        },
    );
    for (op, precision) in [(Op::Trsm, Precision::S), (Op::Her2k, Precision::C)] {
        let last = *options(family(op), precision).last().expect("some");
        let mut case = Case::new(op, precision, last, false);
        let raw = case.raw();
        // SAFETY: the operands, the host and the frame outlive the call.
        assert_eq!(unsafe { engine.route(&raw) }, OUTCOME_DONE);
    }
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("removable");
    assert!(
        text.contains("strsm RLCN m=5 n=3 k=3 -> gpu (forced"),
        "{text}"
    );
    assert!(
        text.contains("cher2k LC m=3 n=3 k=4 -> gpu (forced"),
        "{text}"
    );
}
