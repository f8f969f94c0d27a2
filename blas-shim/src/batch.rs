//! cblas_?gemm_batch: groups of products, each product one cblas_?gemm.
//!
//! OpenBLAS 0.3.29's own ends in a segmentation fault where m n k is at most 100^3: built for several
//! processors it calls an offset into its table of kernels as if that were the kernel (its pull request 5980).
//! Batches with such a group are done here, and those with a product that may be worth the GPU, which then
//! passes the door. OpenBLAS keeps the others, whose products it spreads over its threads, and everything that
//! is illegal: it checks all groups before it computes anything.
//!
//! Nothing is computed, reported or allocated here.
//!
//! Unsafe lives here because arguments are raw words and pointers; the door's frame vouches for them.

use crate::SHIM;
use crate::generated::{self, THRESHOLDS};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use door::{Entry, Frame, Threshold, routed_symbol};
use engine_abi::RoutedCall;

/// The largest m n k of OpenBLAS's kernels for small matrices in a batch (interface/gemm_batch.c).
const SMALL_WORK: u64 = 100 * 100 * 100;

/// A batch as a whole is never offered to the engine.
unsafe fn never(_: &Frame, _: &Threshold) -> Option<(RoutedCall, u64)> {
    None
}

/// What the stubs compare with and never use.
static UNUSED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn gpu_offload_cpu_cblas_sgemm_batch();
    fn gpu_offload_cpu_cblas_dgemm_batch();
    fn gpu_offload_cpu_cblas_cgemm_batch();
    fn gpu_offload_cpu_cblas_zgemm_batch();
}

routed_symbol!(
    cblas_sgemm_batch => gpu_offload_cpu_cblas_sgemm_batch, SGEMM_BATCH(&SHIM, &THRESHOLDS[0], 10, never, Some(mend)),
    UNUSED, always
);
routed_symbol!(
    cblas_dgemm_batch => gpu_offload_cpu_cblas_dgemm_batch, DGEMM_BATCH(&SHIM, &THRESHOLDS[1], 10, never, Some(mend)),
    UNUSED, always
);
routed_symbol!(
    cblas_cgemm_batch => gpu_offload_cpu_cblas_cgemm_batch, CGEMM_BATCH(&SHIM, &THRESHOLDS[2], 10, never, Some(mend)),
    UNUSED, always
);
routed_symbol!(
    cblas_zgemm_batch => gpu_offload_cpu_cblas_zgemm_batch, ZGEMM_BATCH(&SHIM, &THRESHOLDS[3], 10, never, Some(mend)),
    UNUSED, always
);

/// Does a batch that OpenBLAS would accept and should not have.
///
/// # Safety
/// The frame holds the arguments of a call of `cblas_?gemm_batch` in the threshold's precision.
unsafe fn mend(entry: &Entry, f: &mut Frame) -> bool {
    // SAFETY: sixteen arguments of the integer class; the frame's contract is our caller's, and the arrays
    // have one element a group, those of matrices one a product.
    unsafe {
        let batch = Batch {
            order: f.int32(0),
            transa: f.pointer(1),
            transb: f.pointer(2),
            m: f.pointer(3),
            n: f.pointer(4),
            k: f.pointer(5),
            alpha: f.pointer(6),
            a: f.pointer(7),
            lda: f.pointer(8),
            b: f.pointer(9),
            ldb: f.pointer(10),
            beta: f.pointer(11),
            c: f.pointer(12),
            ldc: f.pointer(13),
            groups: usize::try_from(f.int32(14)).unwrap_or(0),
            sizes: f.pointer(15),
        };
        let threshold_work = entry.threshold.word.load(Ordering::Relaxed);
        if !batch.is_legal() || batch.is_for_openblas(threshold_work) {
            return false;
        }
        let product: Product = match entry.threshold.precision {
            b'S' => real::<f32>,
            b'D' => real::<f64>,
            b'C' => complex::<f32>,
            _ => complex::<f64>,
        };
        batch.run(product);
    }
    true
}

/// The arguments of a batch.
struct Batch {
    order: i32,
    transa: *const i32,
    transb: *const i32,
    m: *const i32,
    n: *const i32,
    k: *const i32,
    alpha: *const c_void,
    a: *const *const c_void,
    lda: *const i32,
    b: *const *const c_void,
    ldb: *const i32,
    beta: *const c_void,
    c: *const *mut c_void,
    ldc: *const i32,
    groups: usize,
    sizes: *const i32,
}

/// What the products of one group share.
struct Group {
    order: i32,
    transa: i32,
    transb: i32,
    m: i32,
    n: i32,
    k: i32,
    lda: i32,
    ldb: i32,
    ldc: i32,
    /// How many products; none where it is negative.
    size: i32,
}

impl Batch {
    /// # Safety
    /// `index` is less than the number of groups, and the arrays have that many elements.
    unsafe fn group(&self, index: usize) -> Group {
        // SAFETY: forwarded; alignment is not assumed.
        let at = |array: *const i32| unsafe { array.add(index).read_unaligned() };
        Group {
            order: self.order,
            transa: at(self.transa),
            transb: at(self.transb),
            m: at(self.m),
            n: at(self.n),
            k: at(self.k),
            lda: at(self.lda),
            ldb: at(self.ldb),
            ldc: at(self.ldc),
            size: at(self.sizes),
        }
    }

    /// Whether `cblas_?gemm` would accept every group's arguments.
    ///
    /// # Safety
    /// The arrays have an element for each group.
    unsafe fn is_legal(&self) -> bool {
        // SAFETY: forwarded.
        (0..self.groups).all(|index| unsafe { self.group(index) }.is_legal())
    }

    /// Whether no group's products are small, or worth a look at the GPU.
    ///
    /// # Safety
    /// As for [`Batch::is_legal`], and the batch is legal.
    unsafe fn is_for_openblas(&self, threshold_work: u64) -> bool {
        (0..self.groups).all(|index| {
            // SAFETY: forwarded.
            let group = unsafe { self.group(index) };
            let work = group.work();
            group.size >= 0 && (group.is_empty() || work > SMALL_WORK && work <= threshold_work)
        })
    }

    /// Computes one product after the other.
    ///
    /// # Safety
    /// The batch is legal; its arrays of matrices have an element for each product of a group that is not
    /// empty, and the matrices are as large as their group says.
    unsafe fn run(&self, product: Product) {
        let mut first = 0;
        for index in 0..self.groups {
            // SAFETY: forwarded.
            let group = unsafe { self.group(index) };
            let size = usize::try_from(group.size).unwrap_or(0);
            if !group.is_empty() {
                for i in first..first + size {
                    // SAFETY: forwarded; alignment is not assumed.
                    unsafe {
                        let matrices = (
                            self.a.add(i).read_unaligned(),
                            self.b.add(i).read_unaligned(),
                            self.c.add(i).read_unaligned(),
                        );
                        product(&group, index, self.alpha, self.beta, matrices);
                    }
                }
            }
            first += size;
        }
    }
}

impl Group {
    /// What `cblas_?gemm` requires, as OpenBLAS checks it: leading dimensions may be 0 where nothing is.
    fn is_legal(&self) -> bool {
        let is_plain = |trans| matches!(trans, 111 | 114);
        let row_major = self.order == 101;
        // The other dimension of a matrix, along which its leading dimension steps.
        let least = |first, second, plain: bool| if plain == row_major { second } else { first };
        matches!(self.order, 101 | 102)
            && [self.transa, self.transb]
                .iter()
                .all(|trans| matches!(trans, 111..=114))
            && self.m >= 0
            && self.n >= 0
            && self.k >= 0
            && self.lda >= least(self.m, self.k, is_plain(self.transa))
            && self.ldb >= least(self.k, self.n, is_plain(self.transb))
            && self.ldc >= least(self.m, self.n, true)
    }

    fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0
    }

    /// m n k of a legal group.
    fn work(&self) -> u64 {
        [self.m, self.n, self.k].iter().fold(1, |work: u64, size| {
            work.saturating_mul(u64::from(size.unsigned_abs()))
        })
    }
}

/// One product of a group: its group with that group's index, both arrays of scalars, and a, b and c.
///
/// Safety: the call is legal, the scalars have an element of the type for this group, and the matrices are as
/// large as it says.
type Product = unsafe fn(
    &Group,
    usize,
    *const c_void,
    *const c_void,
    (*const c_void, *const c_void, *mut c_void),
);

/// `cblas_sgemm` or `cblas_dgemm`, whose scalars are values; those of the complex ones are pointers.
type Gemm<S> = unsafe extern "C" fn(
    i32,
    i32,
    i32,
    i32,
    i32,
    i32,
    S,
    *const c_void,
    i32,
    *const c_void,
    i32,
    S,
    *mut c_void,
    i32,
);

/// The routed symbol, which the generated stubs declare without its signature.
const fn gemm<S>(symbol: unsafe extern "C" fn()) -> Gemm<S> {
    // SAFETY: a function pointer's type does not change its address; `Real` names the routine of its type.
    unsafe { core::mem::transmute::<unsafe extern "C" fn(), Gemm<S>>(symbol) }
}

trait Real: Copy {
    const GEMM: Gemm<Self>;
    const COMPLEX_GEMM: Gemm<*const [Self; 2]>;
}

impl Real for f32 {
    const GEMM: Gemm<Self> = gemm(generated::cblas_sgemm);
    const COMPLEX_GEMM: Gemm<*const [Self; 2]> = gemm(generated::cblas_cgemm);
}

impl Real for f64 {
    const GEMM: Gemm<Self> = gemm(generated::cblas_dgemm);
    const COMPLEX_GEMM: Gemm<*const [Self; 2]> = gemm(generated::cblas_zgemm);
}

/// # Safety
/// As for [`Product`], with real elements.
unsafe fn real<T: Real>(
    group: &Group,
    index: usize,
    alpha: *const c_void,
    beta: *const c_void,
    matrices: (*const c_void, *const c_void, *mut c_void),
) {
    // SAFETY: forwarded; alignment is not assumed.
    unsafe {
        let at = |scalars: *const c_void| scalars.cast::<T>().add(index).read_unaligned();
        call(T::GEMM, group, at(alpha), at(beta), matrices);
    }
}

/// # Safety
/// As for [`Product`], with complex elements.
unsafe fn complex<T: Real>(
    group: &Group,
    index: usize,
    alpha: *const c_void,
    beta: *const c_void,
    matrices: (*const c_void, *const c_void, *mut c_void),
) {
    // SAFETY: forwarded.
    unsafe {
        let at = |scalars: *const c_void| scalars.cast::<[T; 2]>().add(index);
        call(T::COMPLEX_GEMM, group, at(alpha), at(beta), matrices);
    }
}

/// # Safety
/// As for [`Product`]; the scalars are of the routine's type.
unsafe fn call<S>(
    gemm: Gemm<S>,
    g: &Group,
    alpha: S,
    beta: S,
    (a, b, c): (*const c_void, *const c_void, *mut c_void),
) {
    // SAFETY: forwarded.
    unsafe {
        gemm(
            g.order, g.transa, g.transb, g.m, g.n, g.k, alpha, a, g.lda, b, g.ldb, beta, c, g.ldc,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Group;

    #[test]
    fn a_group_is_judged_by_its_layout() {
        let columns = Group {
            order: 102,
            transa: 111,
            transb: 112,
            m: 4,
            n: 5,
            k: 6,
            lda: 4,
            ldb: 5,
            ldc: 4,
            size: 1,
        };
        assert!(columns.is_legal());
        assert_eq!(columns.work(), 120);
        let rows = Group {
            order: 101,
            ..columns
        };
        assert!(!rows.is_legal());
        let rows = Group {
            lda: 6,
            ldb: 6,
            ldc: 5,
            ..rows
        };
        assert!(rows.is_legal());
        assert!(!Group { k: -1, ..rows }.is_legal());
    }
}
