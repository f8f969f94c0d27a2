//! Programs of calls too large to interpret: cover, disjointness, places and budget by the arithmetic of
//! rectangles.

use super::case::Case;
use super::simulate::elements;
use crate::plan::build::triangle;
use crate::plan::program::{Area, Kernel, Operand, Place, Program, Rectangle, Tuning};
use call::{Diag, Precision, Scalar, Side, Trans, Uplo};

/// The rows and columns of a kernel's operands, as stored on the device.
fn operands(kernel: &Kernel) -> Vec<(Place, usize, usize)> {
    let stored = |trans, rows, cols| {
        if trans == Trans::N {
            (rows, cols)
        } else {
            (cols, rows)
        }
    };
    let at = |place, (rows, cols)| (place, rows, cols);
    match *kernel {
        Kernel::Gemm {
            trans,
            size: (m, n, k),
            a,
            b,
            c,
            ..
        } => vec![
            at(a, stored(trans.0, m, k)),
            at(b, stored(trans.1, k, n)),
            at(c, (m, n)),
        ],
        Kernel::Syrk {
            trans,
            size: (n, k),
            a,
            c,
            ..
        } => {
            vec![at(a, stored(trans, n, k)), at(c, (n, n))]
        }
        Kernel::Syr2k {
            trans,
            size: (n, k),
            a,
            b,
            c,
            ..
        } => {
            vec![
                at(a, stored(trans, n, k)),
                at(b, stored(trans, n, k)),
                at(c, (n, n)),
            ]
        }
        Kernel::Symm {
            side,
            size: (m, n),
            a,
            b,
            c,
            ..
        }
        | Kernel::Trmm {
            side,
            size: (m, n),
            a,
            b,
            c,
            ..
        } => {
            let order = if side == Side::L { m } else { n };
            vec![at(a, (order, order)), at(b, (m, n)), at(c, (m, n))]
        }
        Kernel::Trsm {
            side,
            size: (m, n),
            a,
            b,
            ..
        } => {
            let order = if side == Side::L { m } else { n };
            vec![at(a, (order, order)), at(b, (m, n))]
        }
        Kernel::Solver(_) => unreachable!("not of level 3"),
    }
}

fn overlap(x: &Rectangle, y: &Rectangle) -> bool {
    let apart = |x0: usize, xn: usize, y0: usize, yn: usize| x0 + xn <= y0 || y0 + yn <= x0;
    !(apart(x.row0, x.rows, y.row0, y.rows) || apart(x.col0, x.cols, y.col0, y.cols))
}

/// Everything that can be said of a program without running it.
fn check(case: &Case, program: &Program, budget_bytes: u64) {
    let call = case.call();
    let elem_bytes = case.precision.elem_bytes();
    assert!(
        program.bytes(elem_bytes) <= budget_bytes,
        "{case:?}: over budget"
    );
    let inside = |place: Place, rows: usize, cols: usize| {
        let buffer = program.buffers[place.buffer];
        assert!(rows > 0 && cols > 0, "{case:?}: an empty operand");
        assert!(
            place.row0 + rows <= buffer.rows,
            "{case:?}: {place:?} + {rows} rows"
        );
        assert!(
            place.col0 + cols <= buffer.cols,
            "{case:?}: {place:?} + {cols} columns"
        );
    };
    let mut downloads = Vec::new();
    for (number, step) in program.steps.iter().enumerate() {
        assert!(
            step.after <= number,
            "{case:?}: step {number} waits for itself"
        );
        for upload in &step.uploads {
            let view = crate::plan::program::view(&call, upload.from).expect("an operand");
            let r = upload.rectangle;
            inside(upload.to, r.rows, r.cols);
            assert!(r.row0 + r.rows <= view.rows() && r.col0 + r.cols <= view.cols());
            assert!(
                upload.from != Operand::C || call.reads_result(),
                "{case:?}: C is read"
            );
        }
        step.kernels
            .iter()
            .flat_map(operands)
            .for_each(|(p, rows, cols)| inside(p, rows, cols));
        for download in &step.downloads {
            inside(
                download.from,
                download.rectangle.rows,
                download.rectangle.cols,
            );
            downloads.push((download.rectangle, download.area));
        }
    }
    let (m, n, _) = case.size;
    let mut sum = 0;
    downloads.sort_by_key(|(r, _)| (r.col0, r.row0));
    for (i, (r, area)) in downloads.iter().enumerate() {
        assert!(r.row0 + r.rows <= m && r.col0 + r.cols <= n);
        let later = downloads[i + 1..]
            .iter()
            .take_while(|(s, _)| s.col0 < r.col0 + r.cols);
        for (s, _) in later {
            assert!(!overlap(r, s), "{case:?}: {r:?} and {s:?} come back");
        }
        match call.result_triangle() {
            Some(uplo) => assert_eq!(*area, triangle(uplo, r, false), "{case:?}: {r:?}"),
            None => assert_eq!(*area, Area::Full, "{case:?}: {r:?}"),
        }
        sum += elements(r, *area);
    }
    let (m, n) = (m as u128, n as u128);
    let expected = if call.result_triangle().is_some() {
        n * (n + 1) / 2
    } else {
        m * n
    };
    assert_eq!(sum, expected, "{case:?}: elements that come back");
}

#[test]
fn large_programs_cover_their_result_once_and_stay_in_their_budget() {
    let sizes = [
        (16384, 16384, 16384),
        (100_000, 100_000, 20_000),
        (1 << 20, 512, 512),
        (300, 1 << 20, 40),
        (512, 640, 1 << 24),
        (46_342, 46_343, 1000),
        (70_001, 3, 70_001),
        (129, 127, 5000),
    ];
    let mut programs = 0;
    for op in call::Op::LEVEL3 {
        for size in sizes {
            for (number, budget_bytes) in [130u64 << 30, 4 << 30, 600 << 20].into_iter().enumerate()
            {
                // Flags vary with the budget: what is checked here depends little on them.
                let odd = number % 2 == 1;
                let case = Case {
                    side: if odd { Side::R } else { Side::L },
                    uplo: if odd { Uplo::U } else { Uplo::L },
                    trans: if odd {
                        (Trans::T, Trans::C)
                    } else {
                        (Trans::N, Trans::N)
                    },
                    diag: if odd { Diag::U } else { Diag::N },
                    beta: if odd { Scalar::ONE } else { Scalar::ZERO },
                    ..Case::new(op, Precision::D, size)
                };
                let case = case.legal();
                // A square operand of the other families' long dimension.
                let (m, n, k) = case.size;
                if m.max(n) > 200_000 && m.min(n).max(k) > 200_000 {
                    continue;
                }
                let tuning = Tuning {
                    sm_count: 132,
                    budget_bytes,
                };
                let program = match crate::plan::plan(&case.call(), &tuning) {
                    Ok(program) => program,
                    Err(failure) => panic!("{case:?} in {budget_bytes}: {failure}"),
                };
                assert!(
                    program.steps.len() < 1_000_000,
                    "{case:?}: {} steps",
                    program.steps.len()
                );
                check(&case, &program, budget_bytes);
                programs += 1;
            }
        }
    }
    println!("{programs} programs");
    assert!(programs > 200);
}
