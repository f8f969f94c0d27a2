//! The memory that calls run on: mappings that end at a page border before a page that cannot be
//! touched. Knows bytes and borders only.

use std::io;
use std::ptr;

use crate::fill::Image;
use crate::plan::Region;
use crate::scalar::Scalar;

/// x86-64's page.
const PAGE_BYTES: usize = 4096;

/// An anonymous mapping with an inaccessible page behind it.
struct Mapping {
    start: *mut u8,
    usable_bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Self> {
        let usable_bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                usable_bytes + PAGE_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self {
            start: start.cast(),
            usable_bytes,
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies within the mapping made above.
        if unsafe { libc::mprotect(start, usable_bytes, access) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// Where `length` elements lie that end at the border, or that start at the mapping's start.
    fn elements<T>(&self, length: usize, at_border: bool) -> *mut T {
        let bytes = length * size_of::<T>();
        assert!(bytes <= self.usable_bytes, "the mapping was grown before");
        let skipped_bytes = if at_border {
            self.usable_bytes - bytes
        } else {
            0
        };
        // SAFETY: skipped_bytes + bytes <= usable_bytes (just checked), so the pointer stays inside.
        unsafe { self.start.add(skipped_bytes) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone and nothing refers to it any more: images are copies.
        unsafe { libc::munmap(self.start.cast(), self.usable_bytes + PAGE_BYTES) };
    }
}

/// The mappings of one thread, kept from call to call.
#[derive(Default)]
pub struct Memory {
    mappings: Vec<Mapping>,
}

impl Memory {
    /// Copies an image into memory and says where each region begins.
    pub fn hold<T: Scalar>(
        &mut self,
        regions: &[Region],
        image: &Image<T>,
    ) -> io::Result<Vec<*mut T>> {
        for (at, region) in regions.iter().enumerate() {
            let bytes = region.length * size_of::<T>();
            match self.mappings.get_mut(at) {
                Some(mapping) if mapping.usable_bytes >= bytes => {}
                Some(mapping) => *mapping = Mapping::new(bytes)?,
                None => self.mappings.push(Mapping::new(bytes)?),
            }
        }
        let starts = regions.iter().zip(&self.mappings).zip(image);
        Ok(starts
            .map(|((region, mapping), values)| {
                let start = mapping.elements::<T>(region.length, region.at_border);
                // SAFETY: `elements` checked that the region fits; the vector is apart from the mapping.
                unsafe { ptr::copy_nonoverlapping(values.as_ptr(), start, values.len()) };
                start
            })
            .collect())
    }

    /// Copies the regions back.
    pub fn image<T: Scalar>(&self, regions: &[Region]) -> Image<T> {
        let starts = regions.iter().zip(&self.mappings);
        starts
            .map(|(region, mapping)| {
                let start = mapping.elements::<T>(region.length, region.at_border);
                // SAFETY: the range was filled by `hold`, any bits are a valid number, and no call that
                // could write it is running.
                unsafe { std::slice::from_raw_parts(start, region.length) }.to_vec()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_keep_their_values_and_end_at_the_border() {
        let mut memory = Memory::default();
        for length in [1, 700, 5000] {
            let regions = [true, false].map(|at_border| Region { length, at_border });
            let image: Image<f64> = vec![vec![1.5; length], vec![2.5; length]];
            let starts = memory.hold(&regions, &image).expect("memory");
            assert_eq!(memory.image::<f64>(&regions), image);
            let end = starts[0].wrapping_add(length) as usize;
            assert_eq!(end % PAGE_BYTES, 0, "length {length}");
        }
    }
}
