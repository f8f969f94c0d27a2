//! The calls themselves: names looked up in a library that is loaded at run time, arguments in the
//! order of Fortran and of CBLAS. The only file that knows the signatures.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;

use crate::family::{Interface, Kind};
use crate::plan::Plan;
use crate::scalar::Scalar;

/// Where the operands are.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<T> {
    /// A.
    pub a: *const T,
    /// B of the families with two inputs; not used by the others.
    pub b: *const T,
    /// The output.
    pub c: *mut T,
}

/// The address of the plan's routine, or `None` if the library lacks it.
pub fn find(library: &Library, plan: &Plan) -> Option<*mut c_void> {
    let name = plan.interface.symbol(plan.precision, plan.family);
    // SAFETY: the type asked for is an untyped address; it is called by `call` alone, which knows the
    // signature that the name stands for.
    let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    // SAFETY: the library is never closed, so that the address outlives the borrow.
    unsafe { symbol.into_raw() }.as_raw_ptr().into()
}

type Letter = *const c_char;
type Size = *const c_int;
/// The length of a CHARACTER argument, hidden behind the visible ones.
type Length = usize;

fn size(value: usize) -> c_int {
    c_int::try_from(value).expect("dimensions are drawn far below 2^31")
}

/// The value of the CBLAS enumerations for a letter.
fn cblas(letter: char, meanings: [(char, c_int); 3]) -> c_int {
    let letter = letter.to_ascii_uppercase();
    let meaning = meanings.iter().find(|(name, _)| *name == letter);
    meaning.expect("the plan draws accepted letters only").1
}

const TRANS: [(char, c_int); 3] = [('N', 111), ('T', 112), ('C', 113)];
const UPLO: [(char, c_int); 3] = [('U', 121), ('L', 122), (' ', 0)];
const DIAG: [(char, c_int); 3] = [('N', 131), ('U', 132), (' ', 0)];
const SIDE: [(char, c_int); 3] = [('L', 141), ('R', 142), (' ', 0)];

/// Casts an address to the type of a foreign function and calls it.
macro_rules! foreign {
    ($routine:expr, $($value:expr => $type:ty),+ $(,)?) => {{
        // SAFETY: the type is the published signature of the name that the address was looked up by
        // (netlib's cblas.h and BLAS sources); a data pointer has a function pointer's size on Linux.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),+)>($routine)
        };
        // SAFETY: the caller of `call` guarantees memory for operands of the plan's shapes; letters and
        // scalars live until the call returns.
        unsafe { function($($value),+) }
    }};
}

/// Calls the routine at `routine`.
///
/// # Safety
/// `routine` comes from `find` with the same plan, and `at` points to memory that holds the operands as
/// the plan lays them out; nobody else uses that memory.
pub unsafe fn call<T: Scalar>(routine: *mut c_void, plan: &Plan, at: Addresses<T>) {
    // herk's scalars and her2k's beta are real.
    let real_alpha = T::Real::rounded(plan.alpha);
    let real_beta = T::Real::rounded(plan.beta);
    let (alpha, beta) = (T::rounded(plan.alpha), T::rounded(plan.beta));
    // SAFETY: as this function's; the scalar types are those of the family.
    unsafe {
        match (plan.family.kind(), plan.family.hermitian()) {
            (Kind::RankK, true) => dispatch(routine, plan, at, &real_alpha, &real_beta),
            (Kind::Rank2k, true) => dispatch(routine, plan, at, &alpha, &real_beta),
            _ => dispatch(routine, plan, at, &alpha, &beta),
        }
    }
}

/// # Safety
/// As `call`; `A` and `B` are the types of the family's alpha and beta.
unsafe fn dispatch<T: Scalar, A: Scalar, B: Scalar>(
    routine: *mut c_void,
    plan: &Plan,
    at: Addresses<T>,
    alpha: &A,
    beta: &B,
) {
    // SAFETY: as this function's.
    unsafe {
        if plan.interface == Interface::Fortran {
            fortran(routine, plan, at, alpha, beta);
        } else {
            c(routine, plan, at, alpha, beta);
        }
    }
}

/// # Safety
/// As `dispatch`, for a Fortran name.
#[rustfmt::skip] // one line an operand: the signatures are read against netlib's
unsafe fn fortran<T: Scalar, A: Scalar, B: Scalar>(
    routine: *mut c_void, plan: &Plan, at: Addresses<T>, alpha: &A, beta: &B,
) {
    let letters = [plan.trans_a, plan.trans_b, plan.uplo, plan.side, plan.diag].map(|l| l as c_char);
    let [trans_a, trans_b, uplo, side, diag]: [Letter; 5] = letters.each_ref().map(std::ptr::from_ref);
    let sizes = [plan.m, plan.n, plan.k, plan.a.ld, plan.b.map_or(1, |b| b.ld), plan.c.ld].map(size);
    let [m, n, k, lda, ldb, ldc]: [Size; 6] = sizes.each_ref().map(std::ptr::from_ref);
    let (alpha, beta): (*const A, *const B) = (alpha, beta);
    match plan.family.kind() {
        Kind::Product => foreign!(routine,
            trans_a => Letter, trans_b => Letter, m => Size, n => Size, k => Size,
            alpha => *const A, at.a => *const T, lda => Size, at.b => *const T, ldb => Size,
            beta => *const B, at.c => *mut T, ldc => Size, 1 => Length, 1 => Length),
        Kind::TriangleOfProduct => foreign!(routine,
            uplo => Letter, trans_a => Letter, trans_b => Letter, n => Size, k => Size,
            alpha => *const A, at.a => *const T, lda => Size, at.b => *const T, ldb => Size,
            beta => *const B, at.c => *mut T, ldc => Size, 1 => Length, 1 => Length, 1 => Length),
        Kind::Symmetric => foreign!(routine,
            side => Letter, uplo => Letter, m => Size, n => Size,
            alpha => *const A, at.a => *const T, lda => Size, at.b => *const T, ldb => Size,
            beta => *const B, at.c => *mut T, ldc => Size, 1 => Length, 1 => Length),
        Kind::RankK => foreign!(routine,
            uplo => Letter, trans_a => Letter, n => Size, k => Size,
            alpha => *const A, at.a => *const T, lda => Size,
            beta => *const B, at.c => *mut T, ldc => Size, 1 => Length, 1 => Length),
        Kind::Rank2k => foreign!(routine,
            uplo => Letter, trans_a => Letter, n => Size, k => Size,
            alpha => *const A, at.a => *const T, lda => Size, at.b => *const T, ldb => Size,
            beta => *const B, at.c => *mut T, ldc => Size, 1 => Length, 1 => Length),
        Kind::Triangular => foreign!(routine,
            side => Letter, uplo => Letter, trans_a => Letter, diag => Letter, m => Size, n => Size,
            alpha => *const A, at.a => *const T, lda => Size, at.c => *mut T, ldc => Size,
            1 => Length, 1 => Length, 1 => Length, 1 => Length),
    }
}

/// # Safety
/// As `dispatch`, for a CBLAS name.
#[rustfmt::skip] // one line an operand: the signatures are read against netlib's
unsafe fn c<T: Scalar, A: Scalar, B: Scalar>(
    routine: *mut c_void, plan: &Plan, at: Addresses<T>, alpha: &A, beta: &B,
) {
    let order: c_int = if plan.interface == Interface::CblasRows { 101 } else { 102 };
    let (trans_a, trans_b) = (cblas(plan.trans_a, TRANS), cblas(plan.trans_b, TRANS));
    let (uplo, side, diag) = (cblas(plan.uplo, UPLO), cblas(plan.side, SIDE), cblas(plan.diag, DIAG));
    let [m, n, k, lda, ldb, ldc] = [plan.m, plan.n, plan.k, plan.a.ld, plan.b.map_or(1, |b| b.ld), plan.c.ld].map(size);
    let (alpha, beta) = (A::passed(alpha), B::passed(beta));
    match plan.family.kind() {
        Kind::Product => foreign!(routine,
            order => c_int, trans_a => c_int, trans_b => c_int, m => c_int, n => c_int, k => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int, at.b => *const T, ldb => c_int,
            beta => B::Passed, at.c => *mut T, ldc => c_int),
        Kind::TriangleOfProduct => foreign!(routine,
            order => c_int, uplo => c_int, trans_a => c_int, trans_b => c_int, n => c_int, k => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int, at.b => *const T, ldb => c_int,
            beta => B::Passed, at.c => *mut T, ldc => c_int),
        Kind::Symmetric => foreign!(routine,
            order => c_int, side => c_int, uplo => c_int, m => c_int, n => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int, at.b => *const T, ldb => c_int,
            beta => B::Passed, at.c => *mut T, ldc => c_int),
        Kind::RankK => foreign!(routine,
            order => c_int, uplo => c_int, trans_a => c_int, n => c_int, k => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int,
            beta => B::Passed, at.c => *mut T, ldc => c_int),
        Kind::Rank2k => foreign!(routine,
            order => c_int, uplo => c_int, trans_a => c_int, n => c_int, k => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int, at.b => *const T, ldb => c_int,
            beta => B::Passed, at.c => *mut T, ldc => c_int),
        Kind::Triangular => foreign!(routine,
            order => c_int, side => c_int, uplo => c_int, trans_a => c_int, diag => c_int, m => c_int, n => c_int,
            alpha => A::Passed, at.a => *const T, lda => c_int, at.c => *mut T, ldc => c_int),
    }
}

/// Which file of the process holds an address, for the report.
pub fn file_of(address: *const c_void) -> Option<String> {
    // SAFETY: an all-zero Dl_info is a valid value (null pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr takes any address and fills the structure that we own.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's names are C strings that live as long as the library, which stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(name.to_string_lossy().into_owned())
}
