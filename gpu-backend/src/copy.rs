//! Copying between ordinary memory and pinned chunks: past the cache where that saves traffic, and with
//! a look for NaN and infinity where a routine asks for it.
//!
//! Unsafe lives here because the stores that go past the cache are intrinsics on raw pointers.

use core::mem::MaybeUninit;

/// Runs of at least this many bytes are written past the cache. Shorter ones would leave half-filled lines
/// at both ends of too many runs. Chosen: 64 lines.
const STREAM_MIN_BYTES: usize = 4096;

/// Copies `from` over `to`, which is as long; `streaming` allows stores past the cache.
///
/// # Panics
/// If the lengths differ.
pub fn copy(to: &mut [MaybeUninit<u8>], from: &[u8], streaming: bool) {
    assert_eq!(to.len(), from.len());
    if streaming && from.len() >= STREAM_MIN_BYTES {
        stream(to, from);
    } else {
        to.write_copy_of_slice(from);
    }
}

/// Asks for `from` to be in the cache soon.
pub fn prefetch(from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in from.chunks(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Makes what was streamed visible in order: called once after the last run of a piece.
pub fn fence() {
    // SAFETY: SSE is part of x86-64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
fn stream(to: &mut [MaybeUninit<u8>], from: &[u8]) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let head = to.as_ptr().align_offset(64).min(to.len());
    let (first, to) = to.split_at_mut(head);
    let (first_from, from) = from.split_at(head);
    first.write_copy_of_slice(first_from);
    let lines = to.len() / 64;
    let (body, rest) = to.split_at_mut(lines * 64);
    let (body_from, rest_from) = from.split_at(lines * 64);
    for (to, from) in body.chunks_exact_mut(64).zip(body_from.chunks_exact(64)) {
        let to: *mut __m128i = to.as_mut_ptr().cast();
        let from: *const __m128i = from.as_ptr().cast();
        // SAFETY: both chunks have 64 bytes; `to` is aligned to 64 (the head was split off).
        unsafe {
            let line = [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ];
            for (i, part) in line.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }
    rest.write_copy_of_slice(rest_from);
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(to: &mut [MaybeUninit<u8>], from: &[u8]) {
    to.write_copy_of_slice(from);
}

/// Bytes that are copied before they are looked at: source and target stay in the nearest cache, and the copy is
/// the C library's. One loop that does both reached 0.6 to 0.8 of that rate (H200's Xeon, 2026-12-03, columns of
/// 64 KiB, 16 threads: 4.8 to 6.3 GB/s a thread, in blocks 6.7 to 9.0, without a look 7.8 to 9.8). A multiple of 8.
const LOOK_BYTES: usize = 8192;

/// Copies block by block and tells `look` of each block of the source.
fn copy_looking(to: &mut [MaybeUninit<u8>], from: &[u8], mut look: impl FnMut(&[u8])) {
    assert_eq!(to.len(), from.len());
    for (to, from) in to.chunks_mut(LOOK_BYTES).zip(from.chunks(LOOK_BYTES)) {
        to.write_copy_of_slice(from);
        look(from);
    }
}

/// As [`copy`], and true if every number is finite. `part_bytes` is 4 or 8: the size of a real number, of
/// which `from` holds a whole number.
///
/// # Panics
/// If the lengths differ.
pub fn copy_finite(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> bool {
    let mut finite = true;
    copy_looking(to, from, |block| finite &= all_finite(block, part_bytes));
    finite
}

fn all_finite(numbers: &[u8], part_bytes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { all_finite_avx2(numbers, part_bytes) };
    }
    all_finite_body(numbers, part_bytes)
}

/// The same instructions in wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn all_finite_avx2(numbers: &[u8], part_bytes: usize) -> bool {
    all_finite_body(numbers, part_bytes)
}

/// A number is not finite if all its exponent bits are set. Adding the exponent's last bit carries into the
/// sign's place exactly then; without branches, so that the loop becomes vector instructions.
#[inline(always)]
fn all_finite_body(numbers: &[u8], part_bytes: usize) -> bool {
    if part_bytes == 4 {
        let (numbers, _) = numbers.as_chunks::<4>();
        let carry = |x: &[u8; 4]| (u32::from_ne_bytes(*x) & 0x7f80_0000).wrapping_add(0x0080_0000);
        numbers.iter().fold(0, |seen, x| seen | carry(x)) >> 31 == 0
    } else {
        let (numbers, _) = numbers.as_chunks::<8>();
        let carry = |x: &[u8; 8]| {
            (u64::from_ne_bytes(*x) & 0x7ff0_0000_0000_0000).wrapping_add(0x0010_0000_0000_0000)
        };
        numbers.iter().fold(0, |seen, x| seen | carry(x)) >> 63 == 0
    }
}

/// Bits of infinity in a real type of `part_bytes` bytes; NaN's are larger.
pub fn infinity_bits(part_bytes: usize) -> u64 {
    match part_bytes {
        4 => u64::from(f32::INFINITY.to_bits()),
        _ => f64::INFINITY.to_bits(),
    }
}

/// As [`copy`], and the bits of the largest absolute value of the numbers: their order is that of the values.
/// `part_bytes` as for [`copy_finite`].
///
/// # Panics
/// If the lengths differ.
pub fn copy_largest(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> u64 {
    let mut most = 0;
    copy_looking(to, from, |block| {
        most = most.max(largest(block, part_bytes))
    });
    most
}

fn largest(numbers: &[u8], part_bytes: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { largest_avx2(numbers, part_bytes) };
    }
    largest_body(numbers, part_bytes)
}

/// The same instructions in wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn largest_avx2(numbers: &[u8], part_bytes: usize) -> u64 {
    largest_body(numbers, part_bytes)
}

/// Without the sign all bits are those of a signed integer that is not negative.
#[inline(always)]
fn largest_body(numbers: &[u8], part_bytes: usize) -> u64 {
    if part_bytes == 4 {
        let (numbers, _) = numbers.as_chunks::<4>();
        let size = |x: &[u8; 4]| i32::from_ne_bytes(*x) & i32::MAX;
        let most = numbers.iter().fold(0, |most, x| size(x).max(most));
        u64::from(most.unsigned_abs())
    } else {
        let (numbers, _) = numbers.as_chunks::<8>();
        let size = |x: &[u8; 8]| i64::from_ne_bytes(*x) & i64::MAX;
        numbers
            .iter()
            .fold(0, |most, x| size(x).max(most))
            .unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8 + 1).collect();
        for length in [0, 1, 63, 4095, 4096, 4097, 4200, 8191] {
            for shift in [0, 1, 7, 16, 63] {
                for streaming in [false, true] {
                    let mut target = vec![MaybeUninit::new(0u8); 9000];
                    copy(
                        &mut target[shift..shift + length],
                        &source[3..3 + length],
                        streaming,
                    );
                    fence();
                    // SAFETY: made of initialised bytes.
                    let got: Vec<u8> = target.iter().map(|b| unsafe { b.assume_init() }).collect();
                    assert_eq!(got[shift..shift + length], source[3..3 + length]);
                    let around = got[..shift].iter().chain(&got[shift + length..]);
                    assert!(around.copied().all(|byte| byte == 0));
                }
            }
        }
    }

    fn assert_copied(target: &[MaybeUninit<u8>], bytes: &[u8]) {
        // SAFETY: `copy_finite` has written every byte.
        let got: Vec<u8> = target.iter().map(|b| unsafe { b.assume_init() }).collect();
        assert!(got == bytes);
    }

    fn scan64(values: &[f64]) -> bool {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut target = vec![MaybeUninit::uninit(); bytes.len()];
        let finite = copy_finite(&mut target, &bytes, 8);
        assert_copied(&target, &bytes);
        finite
    }

    fn scan32(values: &[f32]) -> bool {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut target = vec![MaybeUninit::uninit(); bytes.len()];
        let finite = copy_finite(&mut target, &bytes, 4);
        assert_copied(&target, &bytes);
        finite
    }

    #[test]
    fn nan_and_infinity_are_found_wherever_they_are_and_large_numbers_are_not() {
        let calm = [
            f64::MAX,
            -f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            0.0,
            -0.0,
            1.0,
        ];
        let mut many: Vec<f64> = calm.iter().copied().cycle().take(5000).collect();
        assert!(scan64(&many));
        let calm = [
            f32::MAX,
            -f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
            0.0,
            -0.0,
            1.0,
        ];
        // An odd number: the last one stands alone.
        let mut single: Vec<f32> = calm.iter().copied().cycle().take(5001).collect();
        assert!(scan32(&single));
        for bad in [f32::NAN, f32::INFINITY] {
            single[5000] = bad;
            assert!(!scan32(&single));
            single[5000] = 1.0;
        }
        for at in [0, 1, 2047, 2048, 4999] {
            for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let kept = (many[at], single[at]);
                (many[at], single[at]) = (bad, bad as f32);
                assert!(!scan64(&many) && !scan32(&single), "{bad} at {at}");
                (many[at], single[at]) = kept;
            }
        }
    }

    #[test]
    fn the_largest_absolute_value_is_seen_wherever_it_stands() {
        let calm: Vec<f64> = (0..777).map(|i| f64::from(i % 7) * -0.125).collect();
        let look = |values: &[f64], part_bytes: usize| {
            let bytes: Vec<u8> = match part_bytes {
                4 => values
                    .iter()
                    .flat_map(|x| (*x as f32).to_ne_bytes())
                    .collect(),
                _ => values.iter().flat_map(|x| x.to_ne_bytes()).collect(),
            };
            let mut target = vec![MaybeUninit::new(0u8); bytes.len()];
            let largest = copy_largest(&mut target, &bytes, part_bytes);
            assert_copied(&target, &bytes);
            largest
        };
        assert_eq!(look(&[], 8), 0);
        for at in [0, 1, 400, 775, 776] {
            for large in [-3.5, 1e30, f64::INFINITY] {
                let mut values = calm.clone();
                values[at] = large;
                assert_eq!(look(&values, 8), large.abs().to_bits());
                let single = u64::from((large as f32).abs().to_bits());
                assert_eq!(look(&values, 4), single);
            }
            for part_bytes in [4, 8] {
                let mut values = calm.clone();
                values[at] = -f64::NAN;
                assert!(look(&values, part_bytes) > infinity_bits(part_bytes));
            }
        }
    }
}
