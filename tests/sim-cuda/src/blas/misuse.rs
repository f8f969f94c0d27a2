//! What the simulated cuBLAS refuses or notices: illegal arguments, scalars that real cuBLAS crashes on,
//! operands outside of their memory; and that it takes what is legal to the last byte.

use super::job::Precision;
use super::level3::*;
use super::testing::*;
use super::{BAD_VALUE, cublasSetPointerMode_v2, cublasSetWorkspace_v2};
use crate::driver::{cuMemFree_v2, cuStreamSynchronize};
use crate::testing::{Device, ok};
use core::ffi::c_void;

/// Arguments of dsyrk with n = k = 3, legal until a test changes one.
struct Syrk {
    uplo: u32,
    trans: u32,
    n: i64,
    k: i64,
    alpha: *const c_void,
    a: u64,
    lda: i64,
    beta: *const c_void,
    c: u64,
    ldc: i64,
}

const SIDE: u64 = 9 * 8;

impl Syrk {
    fn call(&self, handle: usize) -> u32 {
        // SAFETY: the scalars are null or live; everything else is the simulation's to check.
        unsafe {
            cublasDsyrk_v2_64(
                handle, self.uplo, self.trans, self.n, self.k, self.alpha, self.a, self.lda,
                self.beta, self.c, self.ldc,
            )
        }
    }
}

fn legal(device: &Device, scalar: &Scalar) -> Syrk {
    Syrk {
        uplo: 0,
        trans: 0,
        n: 3,
        k: 3,
        alpha: scalar.ptr(),
        a: device.upload(&[0; SIDE as usize]),
        lda: 3,
        beta: scalar.ptr(),
        c: device.upload(&[0; SIDE as usize]),
        ldc: 3,
    }
}

#[test]
fn illegal_arguments_are_refused_with_a_complaint() {
    let device = Device::new();
    let handle = handle(&device);
    let scalar = Scalar::new(Precision::D, ONE);
    let mut count = 0;
    let mut refused = |change: fn(&mut Syrk)| {
        let mut call = legal(&device, &scalar);
        change(&mut call);
        assert_eq!(call.call(handle), BAD_VALUE);
        count += 1;
        let complaints = device.complaints();
        assert_eq!(complaints.len(), count);
        let last = complaints.last().expect("one");
        assert!(
            last.starts_with(&format!("cublasDsyrk_v2_64 call {count}: ")),
            "{last}"
        );
    };
    refused(|call| call.uplo = 2); // full
    refused(|call| call.trans = 3);
    refused(|call| call.n = -1);
    refused(|call| call.k = -1);
    refused(|call| call.lda = 2);
    refused(|call| (call.k, call.lda, call.trans) = (4, 3, 1));
    refused(|call| call.ldc = 2);
    refused(|call| call.alpha = core::ptr::null());
    refused(|call| call.beta = core::ptr::null());
    refused(|call| call.alpha = call.alpha.wrapping_byte_add(4));
}

#[test]
fn complex_scalars_must_be_aligned_and_real_ones_may_be_less() {
    let device = Device::new();
    let handle = handle(&device);
    let pair = [1.0f64; 4];
    // Aligned for a double, not for a complex number, whatever the array's address is.
    let first = pair.as_ptr();
    let odd = if first.addr() % 16 == 0 {
        first.wrapping_add(1)
    } else {
        first
    };
    let scalar: *const c_void = odd.cast();
    let memory = device.upload(&[0; 64]);
    let other = device.upload(&[0; 64]);
    // SAFETY: the scalars live.
    unsafe {
        let syrk =
            |alpha, beta| cublasZsyrk_v2_64(handle, 0, 0, 1, 1, alpha, memory, 1, beta, other, 1);
        let aligned = Scalar::new(Precision::Z, ONE);
        ok(syrk(aligned.ptr(), aligned.ptr()));
        assert_eq!(syrk(scalar, aligned.ptr()), BAD_VALUE);
        assert_eq!(syrk(aligned.ptr(), scalar), BAD_VALUE);
        // herk's are real; her2k's beta is.
        ok(cublasZherk_v2_64(
            handle, 0, 0, 1, 1, scalar, memory, 1, scalar, other, 1,
        ));
        let her2k = |alpha| {
            cublasZher2k_v2_64(
                handle, 0, 0, 1, 1, alpha, memory, 1, memory, 1, scalar, other, 1,
            )
        };
        ok(her2k(aligned.ptr()));
        assert_eq!(her2k(scalar), BAD_VALUE);
    }
}

#[test]
fn symmetric_products_do_not_conjugate_and_hermitian_ones_do() {
    let device = Device::new();
    let handle = handle(&device);
    let one = Scalar::new(Precision::Z, ONE);
    let (a, c) = (device.upload(&[0; 64]), device.upload(&[0; 64]));
    // SAFETY: the scalars live.
    unsafe {
        for (trans, syrk, herk) in [(0, 0, 0), (1, 0, BAD_VALUE), (2, BAD_VALUE, 0)] {
            let found = cublasZsyrk_v2_64(handle, 0, trans, 1, 1, one.ptr(), a, 1, one.ptr(), c, 1);
            assert_eq!(found, syrk);
            let found = cublasZherk_v2_64(handle, 0, trans, 1, 1, one.ptr(), a, 1, one.ptr(), c, 1);
            assert_eq!(found, herk);
        }
    }
}

#[test]
fn scalars_in_device_memory_are_read_when_the_work_runs() {
    let device = Device::new();
    let handle = handle(&device);
    let two = 2f64.to_ne_bytes();
    let (a, c) = (device.upload(&two), device.upload(&two));
    let factor = device.upload(&3f64.to_ne_bytes());
    // SAFETY: the pointer mode names the device.
    unsafe {
        ok(cublasSetPointerMode_v2(handle, 1));
        let scalar = core::ptr::without_provenance(factor as usize);
        ok(cublasDsyrk_v2_64(
            handle, 0, 0, 1, 1, scalar, a, 1, scalar, c, 1,
        ));
        assert_eq!(
            device.download(c, 8),
            (3.0f64 * 4.0 + 3.0 * 2.0).to_ne_bytes()
        );
        // A host address in its place is not followed.
        let wrong = Scalar::new(Precision::D, ONE);
        ok(cublasDsyrk_v2_64(
            handle,
            0,
            0,
            1,
            1,
            wrong.ptr(),
            a,
            1,
            wrong.ptr(),
            c,
            1,
        ));
        assert_eq!(cuStreamSynchronize(device.stream), 700);
    }
    assert_eq!(
        device.complaints(),
        ["cublasDsyrk_v2_64 met a scalar outside of live memory"]
    );
}

/// dtrsm with A of order 3 and ld 4 at `a`; answers what the device says in the end.
fn trsm(device: &Device, a: u64, uplo: u32, diag: u32) -> u32 {
    let (handle, one) = (handle(device), Scalar::new(Precision::D, ONE));
    let b = device.upload(&[0; 24]);
    // SAFETY: the scalar lives.
    unsafe {
        ok(cublasDtrsm_v2_64(
            handle,
            0,
            uplo,
            0,
            diag,
            3,
            1,
            one.ptr(),
            a,
            4,
            b,
            3,
        ));
        cuStreamSynchronize(device.stream)
    }
}

#[test]
fn only_what_is_read_must_be_there() {
    // Columns 4 apart, so the last element of a triangle of order 3 is element 10; without its diagonal
    // it is 9 (upper) and 6 (lower), and the first is 4 (upper) and 1 (lower).
    for (uplo, diag, first, last) in [(0, 0, 0, 10), (1, 0, 0, 10), (0, 1, 1, 6), (1, 1, 4, 9)] {
        let device = Device::new();
        let elems = last + 1 - first;
        let fits = device.upload(&vec![0; elems as usize * 8]);
        // The diagonal of zeros gives NaN, which nobody looks at.
        assert_eq!(
            trsm(&device, fits - first * 8, uplo, diag),
            0,
            "{uplo}{diag}"
        );
        assert_eq!(device.complaints(), Vec::<String>::new());
        let short = device.alloc(elems as usize * 8 - 1);
        assert_eq!(
            trsm(&device, short - first * 8, uplo, diag),
            700,
            "{uplo}{diag}"
        );
        assert_eq!(
            device.complaints(),
            ["cublasDtrsm_v2_64 met A outside of live memory"]
        );
    }
}

#[test]
fn a_result_that_overlaps_an_operand_is_refused_unless_it_is_trmms_own() {
    let device = Device::new();
    let (handle, one) = (handle(&device), Scalar::new(Precision::D, ONE));
    let matrix = device.upload(&[0; 8 * 64]);
    let a = device.upload(&[0; 8 * 16]);
    let at = |row: u64, col: u64| matrix + 8 * (col * 8 + row);
    let trmm = |b: u64, ldb, c: u64, ldc| {
        // SAFETY: the scalar lives.
        unsafe { cublasDtrmm_v2_64(handle, 0, 0, 0, 0, 4, 2, one.ptr(), a, 4, b, ldb, c, ldc) }
    };
    ok(trmm(at(0, 0), 8, at(0, 0), 8));
    ok(trmm(at(0, 0), 8, at(4, 0), 8)); // other rows
    ok(trmm(at(4, 0), 8, at(0, 1), 8)); // other rows, beginning in the next column
    ok(trmm(at(0, 0), 8, at(0, 2), 8)); // other columns
    assert_eq!(trmm(at(0, 0), 8, at(3, 0), 8), BAD_VALUE);
    assert_eq!(trmm(at(0, 0), 8, at(0, 1), 8), BAD_VALUE);
    assert_eq!(trmm(at(6, 0), 8, at(1, 1), 8), BAD_VALUE); // around the end of a column
    assert_eq!(trmm(at(0, 0), 8, at(0, 0), 16), BAD_VALUE);
    assert_eq!(trmm(at(0, 0), 8, at(4, 0), 4), BAD_VALUE);
}

#[test]
fn a_workspace_that_was_freed_loses_the_device() {
    let device = Device::new();
    let (handle, one) = (handle(&device), Scalar::new(Precision::D, ONE));
    let call = legal(&device, &one);
    let workspace = device.alloc(512);
    // SAFETY: functions without pointers to the host's memory.
    unsafe {
        ok(cublasSetWorkspace_v2(handle, workspace, 512));
        ok(call.call(handle));
        ok(cuStreamSynchronize(device.stream));
        ok(cuMemFree_v2(workspace));
        ok(call.call(handle));
        assert_eq!(cuStreamSynchronize(device.stream), 700);
    }
}
