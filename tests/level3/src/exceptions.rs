//! Where a library is known to differ from the definition, as data with a reason each. A run names the
//! exceptions that it grants; one that no call needed fails the run, so that none outlives its reason.

use clap::ValueEnum;

use crate::check::Trouble;
use crate::family::{Family, Kind};
use crate::plan::Plan;
use crate::reference::Nature;

/// A known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Exception {
    /// OpenBLAS's complex scal takes a factor NaN + i y, y not 0, for i y: c/zsyrk, syr2k and gemmtr
    /// with such a beta lose the NaN (0.3.29, kernels for Haswell and Zen, 2026-12-01; those for Nehalem
    /// and Sandybridge lose real ones instead)
    OpenblasNanBeta,
}

impl Exception {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenblasNanBeta => "openblas-nan-beta",
        }
    }

    /// Whether it explains this trouble of this call.
    pub fn covers(self, plan: &Plan, trouble: &Trouble) -> bool {
        match self {
            Self::OpenblasNanBeta => {
                let scales_a_triangle = plan.family.kind() == Kind::TriangleOfProduct
                    || matches!(plan.family, Family::Syrk | Family::Syr2k);
                let lost = matches!(
                    trouble,
                    Trouble::Nature {
                        expected: Nature::NotANumber,
                        ..
                    }
                );
                scales_a_triangle && plan.beta.re.is_nan() && plan.beta.im != 0.0 && lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Precision;
    use crate::plan::Choice;
    use num_complex::Complex64;

    #[test]
    fn an_exception_covers_its_own_trouble_only() {
        let choice = Choice {
            families: vec![Family::Gemmtr, Family::Gemm],
            precisions: vec![Precision::Z],
            most: 9,
            seed: 1,
        };
        let lost = Trouble::Nature {
            i: 0,
            j: 0,
            got: Complex64::ONE,
            expected: Nature::NotANumber,
        };
        let changed = Trouble::Changed {
            place: "B(0, 0)".into(),
            before: Complex64::ONE,
            after: Complex64::I,
        };
        let nan_beta = Exception::OpenblasNanBeta;
        for index in 0..50 {
            let (mut plan, _) = Plan::draw(&choice, index);
            plan.beta = Complex64::new(f64::NAN, 2.0);
            assert_eq!(nan_beta.covers(&plan, &lost), plan.family != Family::Gemm);
            assert!(!nan_beta.covers(&plan, &changed));
            plan.beta.im = 0.0;
            assert!(!nan_beta.covers(&plan, &lost));
        }
    }

    #[test]
    fn the_option_takes_their_names() {
        for exception in Exception::value_variants() {
            let value = exception.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), exception.name());
        }
    }
}
