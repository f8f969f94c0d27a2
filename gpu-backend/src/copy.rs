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

/// As [`copy`], and true if every number is finite. `part_bytes` is 4 or 8: the size of a real number, of
/// which `from` holds a whole number.
///
/// # Panics
/// If the lengths differ.
pub fn copy_finite(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> bool {
    assert_eq!(to.len(), from.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { copy_finite_avx2(to, from, part_bytes) };
    }
    copy_finite_body(to, from, part_bytes)
}

/// The same instructions in wider registers: one pass over memory at the speed of a copy.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_finite_avx2(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> bool {
    copy_finite_body(to, from, part_bytes)
}

/// A number is not finite if all its exponent bits are set. Adding the exponent's last bit carries into the
/// sign's place exactly then; without branches, so that the loop becomes vector instructions.
#[inline(always)]
fn copy_finite_body(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> bool {
    let (to_words, _) = to.as_chunks_mut::<8>();
    let (from_words, from_rest) = from.as_chunks::<8>();
    let seen = if part_bytes == 4 {
        let mut seen = [0u32; 2];
        for (to, from) in to_words.iter_mut().zip(from_words) {
            let x = u64::from_ne_bytes(*from);
            for (half, seen) in [x as u32, (x >> 32) as u32].into_iter().zip(&mut seen) {
                *seen |= (half & 0x7f80_0000).wrapping_add(0x0080_0000);
            }
            *to = from.map(MaybeUninit::new);
        }
        u64::from(seen[0] | seen[1]) << 32
    } else {
        let mut seen = 0u64;
        for (to, from) in to_words.iter_mut().zip(from_words) {
            let x = u64::from_ne_bytes(*from);
            seen |= (x & 0x7ff0_0000_0000_0000).wrapping_add(0x0010_0000_0000_0000);
            *to = from.map(MaybeUninit::new);
        }
        seen
    };
    // One float32 may be left.
    let mut finite = seen >> 63 == 0;
    let rest = from.len() - from_rest.len();
    to[rest..].write_copy_of_slice(from_rest);
    if let [a, b, c, d] = *from_rest {
        let x = u32::from_ne_bytes([a, b, c, d]);
        finite &= x & 0x7f80_0000 != 0x7f80_0000;
    }
    finite
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
    assert_eq!(to.len(), from.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { copy_largest_avx2(to, from, part_bytes) };
    }
    copy_largest_body(to, from, part_bytes)
}

/// The same instructions in wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_largest_avx2(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> u64 {
    copy_largest_body(to, from, part_bytes)
}

/// Without the sign all bits are those of a signed integer that is not negative.
#[inline(always)]
fn copy_largest_body(to: &mut [MaybeUninit<u8>], from: &[u8], part_bytes: usize) -> u64 {
    let (to_words, _) = to.as_chunks_mut::<8>();
    let (from_words, from_rest) = from.as_chunks::<8>();
    let mut largest = 0u64;
    if part_bytes == 4 {
        let mut halves = [0i32; 2];
        for (to, from) in to_words.iter_mut().zip(from_words) {
            let x = u64::from_ne_bytes(*from);
            for (half, largest) in [x as i32, (x >> 32) as i32].into_iter().zip(&mut halves) {
                *largest = (*largest).max(half & i32::MAX);
            }
            *to = from.map(MaybeUninit::new);
        }
        // One float32 may be left.
        let rest = match *from_rest {
            [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]) & i32::MAX,
            _ => 0,
        };
        largest = u64::from(halves[0].max(halves[1]).max(rest).unsigned_abs());
    } else {
        let mut most = 0i64;
        for (to, from) in to_words.iter_mut().zip(from_words) {
            let x = i64::from_ne_bytes(*from);
            most = most.max(x & i64::MAX);
            *to = from.map(MaybeUninit::new);
        }
        largest = largest.max(most.unsigned_abs());
    }
    let rest = from.len() - from_rest.len();
    to[rest..].write_copy_of_slice(from_rest);
    largest
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
