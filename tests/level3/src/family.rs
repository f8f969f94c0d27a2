//! What is called: families, precisions, interfaces, and the letters that each family accepts. Only
//! what the reference BLAS accepts; OpenBLAS's extra letters (R, O, U for trans) are not drawn.

use clap::ValueEnum;

/// A family of level-3 routines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// C = alpha op(A) op(B) + beta C.
    Gemm,
    /// The same by three real products (complex only).
    Gemm3m,
    /// One triangle of gemm, MKL's and OpenBLAS's name.
    Gemmt,
    /// One triangle of gemm, the reference's name.
    Gemmtr,
    /// C = alpha A B + beta C or alpha B A + beta C, A symmetric.
    Symm,
    /// The same, A Hermitian.
    Hemm,
    /// C = alpha A A^T + beta C, one triangle.
    Syrk,
    /// C = alpha A A^H + beta C, alpha and beta real.
    Herk,
    /// C = alpha A B^T + alpha B A^T + beta C, one triangle.
    Syr2k,
    /// C = alpha A B^H + conj(alpha) B A^H + beta C, beta real.
    Her2k,
    /// B = alpha op(A) B or alpha B op(A), A triangular.
    Trmm,
    /// op(A) X = alpha B or X op(A) = alpha B, A triangular, X in place of B.
    Trsm,
}

/// Families with one signature and one shape of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// gemm, gemm3m.
    Product,
    /// gemmt, gemmtr.
    TriangleOfProduct,
    /// symm, hemm.
    Symmetric,
    /// syrk, herk.
    RankK,
    /// syr2k, her2k.
    Rank2k,
    /// trmm, trsm: the output is called C here, B in BLAS.
    Triangular,
}

impl Family {
    /// The name without the precision's letter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Gemm3m => "gemm3m",
            Self::Gemmt => "gemmt",
            Self::Gemmtr => "gemmtr",
            Self::Symm => "symm",
            Self::Hemm => "hemm",
            Self::Syrk => "syrk",
            Self::Herk => "herk",
            Self::Syr2k => "syr2k",
            Self::Her2k => "her2k",
            Self::Trmm => "trmm",
            Self::Trsm => "trsm",
        }
    }

    /// Its kind.
    pub fn kind(self) -> Kind {
        match self {
            Self::Gemm | Self::Gemm3m => Kind::Product,
            Self::Gemmt | Self::Gemmtr => Kind::TriangleOfProduct,
            Self::Symm | Self::Hemm => Kind::Symmetric,
            Self::Syrk | Self::Herk => Kind::RankK,
            Self::Syr2k | Self::Her2k => Kind::Rank2k,
            Self::Trmm | Self::Trsm => Kind::Triangular,
        }
    }

    /// Whether a matrix of it is Hermitian.
    pub fn hermitian(self) -> bool {
        matches!(self, Self::Hemm | Self::Herk | Self::Her2k)
    }

    /// Whether it exists in this precision.
    pub fn exists_in(self, precision: Precision) -> bool {
        precision.complex() || !(self.hermitian() || self == Self::Gemm3m)
    }

    /// The values of trans that it accepts in this precision, as capital letters.
    pub fn trans(self, precision: Precision) -> &'static [char] {
        match (self, precision.complex()) {
            (Self::Syrk | Self::Syr2k, true) => &['N', 'T'],
            (Self::Herk | Self::Her2k, _) => &['N', 'C'],
            _ => &['N', 'T', 'C'],
        }
    }
}

/// A precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// `f32`.
    S,
    /// `f64`.
    D,
    /// Complex `f32`.
    C,
    /// Complex `f64`.
    Z,
}

impl Precision {
    /// Whether there are imaginary parts.
    pub fn complex(self) -> bool {
        matches!(self, Self::C | Self::Z)
    }

    /// The letter that begins a routine's name.
    pub fn letter(self) -> char {
        match self {
            Self::S => 's',
            Self::D => 'd',
            Self::C => 'c',
            Self::Z => 'z',
        }
    }
}

/// The names and the order of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// `dgemm_`.
    Fortran,
    /// `cblas_dgemm`, column-major.
    CblasColumns,
    /// `cblas_dgemm`, row-major.
    CblasRows,
}

impl Interface {
    /// The symbol of a routine.
    pub fn symbol(self, precision: Precision, family: Family) -> String {
        let (letter, name) = (precision.letter(), family.name());
        match self {
            Self::Fortran => format!("{letter}{name}_"),
            Self::CblasColumns | Self::CblasRows => format!("cblas_{letter}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_takes_the_names_of_blas() {
        for family in Family::value_variants() {
            let value = family.to_possible_value().expect("no family is hidden");
            assert_eq!(value.get_name(), family.name());
        }
        assert_eq!(
            Interface::Fortran.symbol(Precision::Z, Family::Her2k),
            "zher2k_"
        );
        assert_eq!(
            Interface::CblasRows.symbol(Precision::C, Family::Gemm3m),
            "cblas_cgemm3m"
        );
    }
}
