//! Transfers between host and device, linear and of rectangles. Pinned memory is read or written when
//! the transfer's turn comes; a transfer of other memory is over when the call returns, as in CUDA.

use crate::arena::POISON;
use crate::delay::Load;
use crate::driver::{find_stream, queued};
use crate::state::{self, INVALID_VALUE, Pass, State};
use crate::stream::{StreamState, Task, Work};
use crate::watch::Watched;
use core::ffi::{c_uint, c_void};
use core::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub direction: Direction,
    pub device: u64,
    pub host: usize,
    pub width: usize,
    pub height: usize,
    /// Bytes between the starts of rows.
    pub device_pitch: usize,
    pub host_pitch: usize,
}

/// CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device so far.
const MAX_PITCH_BYTES: usize = i32::MAX as usize;

/// `CUDA_MEMCPY2D`.
///
/// # Source
/// CUDA driver API, cuda.h 12.0.
#[repr(C)]
pub struct Memcpy2d {
    pub src_x_bytes: usize,
    pub src_y: usize,
    pub src_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: u64,
    pub src_array: usize,
    pub src_pitch: usize,
    pub dst_x_bytes: usize,
    pub dst_y: usize,
    pub dst_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: u64,
    pub dst_array: usize,
    pub dst_pitch: usize,
    pub width_bytes: usize,
    pub height: usize,
}

/// CU_MEMORYTYPE_HOST and CU_MEMORYTYPE_DEVICE; arrays, unified addresses and transfers that stay on one
/// side are not simulated.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

impl Memcpy2d {
    /// The transfer that it describes.
    pub fn decode(&self) -> Result<Transfer, u32> {
        let corner = |base: u64, x: usize, y: usize, pitch: usize| -> Result<u64, u32> {
            let row = (y as u64).checked_mul(pitch as u64);
            let offset = row.and_then(|row| row.checked_add(x as u64));
            offset
                .and_then(|offset| base.checked_add(offset))
                .ok_or(INVALID_VALUE)
        };
        // A row must end before the next one starts.
        let fits = |x: usize, pitch: usize| {
            x.checked_add(self.width_bytes)
                .is_some_and(|end| end <= pitch)
                && pitch <= MAX_PITCH_BYTES
        };
        if !fits(self.src_x_bytes, self.src_pitch) || !fits(self.dst_x_bytes, self.dst_pitch) {
            return Err(INVALID_VALUE);
        }
        let src_host = self.src_host.expose_provenance() as u64;
        let dst_host = self.dst_host.expose_provenance() as u64;
        let (direction, src, dst) = match (self.src_type, self.dst_type) {
            (HOST, DEVICE) => (Direction::In, src_host, self.dst_device),
            (DEVICE, HOST) => (Direction::Out, self.src_device, dst_host),
            _ => return Err(INVALID_VALUE),
        };
        if src == 0 || dst == 0 {
            return Err(INVALID_VALUE);
        }
        let src = corner(src, self.src_x_bytes, self.src_y, self.src_pitch)?;
        let dst = corner(dst, self.dst_x_bytes, self.dst_y, self.dst_pitch)?;
        let (device, host, device_pitch, host_pitch) = match direction {
            Direction::In => (dst, src, self.dst_pitch, self.src_pitch),
            Direction::Out => (src, dst, self.src_pitch, self.dst_pitch),
        };
        Ok(Transfer {
            direction,
            device,
            host: host as usize,
            width: self.width_bytes,
            height: self.height,
            device_pitch,
            host_pitch,
        })
    }
}

impl Transfer {
    pub fn linear(direction: Direction, device: u64, host: usize, bytes: usize) -> Self {
        Self {
            direction,
            device,
            host,
            width: bytes,
            height: 1,
            device_pitch: bytes,
            host_pitch: bytes,
        }
    }

    /// Bytes from the first to the last that is touched with this distance of rows.
    fn span(&self, pitch: usize) -> Option<usize> {
        (self.height - 1)
            .checked_mul(pitch)?
            .checked_add(self.width)
    }

    /// Where the simulation finds the device's side.
    fn resolve(&self, state: &State) -> Option<*mut u8> {
        let bytes = self.span(self.device_pitch)?;
        state.arena.resolve(self.device, bytes as u64)
    }

    fn is_pinned(&self, state: &State) -> bool {
        let bytes = self.span(self.host_pitch);
        bytes.is_some_and(|bytes| state.is_pinned(self.host, bytes))
    }

    /// The host's side with the gaps between its rows; the transfer is pinned, so it fits.
    pub fn host_range(&self) -> Range<usize> {
        let bytes = self.span(self.host_pitch).unwrap_or(0);
        self.host..self.host + bytes
    }

    fn load(&self) -> Load {
        let bytes = (self.width * self.height) as u64;
        match self.direction {
            Direction::In => Load::In(bytes),
            Direction::Out => Load::Out(bytes),
        }
    }

    /// The host's side of row `row`.
    pub fn host_row(&self, row: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.host + row * self.host_pitch)
    }

    /// # Safety
    /// `device` is where `resolve` found the device's side, still live; the host's side may be read
    /// (In) or written (Out).
    unsafe fn run(&self, device: *mut u8) {
        for row in 0..self.height {
            // SAFETY: the caller's promise; both rows lie inside their sides.
            unsafe {
                let device = device.add(row * self.device_pitch);
                match self.direction {
                    Direction::In => {
                        core::ptr::copy_nonoverlapping(self.host_row(row), device, self.width);
                    }
                    Direction::Out => {
                        core::ptr::copy_nonoverlapping(device, self.host_row(row), self.width);
                    }
                }
            }
        }
    }
}

/// Queues a transfer.
pub fn submit(mut pass: Pass, transfer: Transfer, stream: usize) -> Result<(), u32> {
    let stream = find_stream(&mut pass, stream)?;
    if transfer.width == 0 || transfer.height == 0 {
        return Ok(());
    }
    if transfer.host == 0 || pass.state.arena.is_device(transfer.host as u64) {
        return Err(INVALID_VALUE);
    }
    let name = format!("{} call {}", pass.function, pass.nth);
    if transfer.resolve(&pass.state).is_none() {
        let Transfer {
            device,
            width,
            height,
            ..
        } = transfer;
        let what =
            format!("{name}: {height} x {width} bytes at {device:#x} are not live device memory");
        pass.state.complain(what);
        return Err(INVALID_VALUE);
    }
    if transfer.is_pinned(&pass.state) {
        queue_pinned(pass, transfer, &stream, name);
        return Ok(());
    }
    pass.state.pageable_copies += 1;
    // SAFETY: the caller's own memory, for the length of its call.
    let work = move || unsafe { run(&state::lock(), &transfer) };
    stream.push(queued(pass.fault, task(transfer, Box::new(work))));
    drop(pass);
    // CUDA returns from a transfer of pageable memory when it has been read or written.
    stream.drain();
    Ok(())
}

fn queue_pinned(mut pass: Pass, transfer: Transfer, stream: &StreamState, name: String) {
    // SAFETY: pinned memory that is live, under the lock.
    let watched = unsafe { Watched::queue(&mut pass.state, &transfer, name) };
    let work = move || {
        // Held during the copy, so that nothing can be freed under it.
        let mut state = state::lock();
        if !transfer.is_pinned(&state) {
            return Err("a copy met pinned memory that was freed".into());
        }
        // SAFETY: pinned memory that is live (just checked), under the lock.
        unsafe {
            watched.run(&mut state, &transfer);
            run(&state, &transfer)
        }
    };
    stream.push(queued(pass.fault, task(transfer, Box::new(work))));
}

/// `rows` runs of `words` words of 32 bits, all alike.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub to: u64,
    /// Bytes between the starts of runs.
    pub pitch: usize,
    pub word: u32,
    pub words: usize,
    pub rows: usize,
}

impl Fill {
    fn resolve(&self, state: &State) -> Option<*mut u8> {
        let span = (self.rows - 1).checked_mul(self.pitch)?;
        let bytes = span.checked_add(self.words.checked_mul(size_of::<u32>())?)?;
        state.arena.resolve(self.to, bytes as u64)
    }
}

/// Queues the filling of device memory.
pub fn fill(mut pass: Pass, fill: Fill, stream: usize) -> Result<(), u32> {
    let stream = find_stream(&mut pass, stream)?;
    if fill.words == 0 || fill.rows == 0 {
        return Ok(());
    }
    let aligned = |bytes: u64| bytes.is_multiple_of(size_of::<u32>() as u64);
    let Fill { to, pitch, .. } = fill;
    let fits =
        fill.rows == 1 || (pitch / size_of::<u32>() >= fill.words && pitch <= MAX_PITCH_BYTES);
    if !fits || !aligned(to) || !aligned(pitch as u64) {
        return Err(INVALID_VALUE);
    }
    if fill.resolve(&pass.state).is_none() {
        let what = format!(
            "{} call {}: not live device memory",
            pass.function, pass.nth
        );
        pass.state.complain(what);
        return Err(INVALID_VALUE);
    }
    let work = move || {
        let state = state::lock();
        let at = fill.resolve(&state);
        let at = at.ok_or("a fill met device memory that was freed")?;
        for row in 0..fill.rows {
            for word in 0..fill.words {
                // SAFETY: inside live device memory (just found, under the lock); its alignment was checked, and the
                // arena's is a page's.
                unsafe {
                    let to = at.add(row * fill.pitch).cast::<u32>().add(word);
                    to.write(fill.word);
                }
            }
        }
        Ok(())
    };
    stream.push(queued(pass.fault, Task::Run(Load::Kernel, Box::new(work))));
    Ok(())
}

/// From its turn until it is over, the target of an upload holds nothing: NaN, so that who still or
/// already reads it then is found.
fn task(transfer: Transfer, work: Work) -> Task {
    let load = transfer.load();
    if transfer.direction == Direction::Out {
        return Task::Run(load, work);
    }
    let begin = move || {
        let state = state::lock();
        // If it is not live any more, the work says so.
        let Some(device) = transfer.resolve(&state) else {
            return;
        };
        for row in 0..transfer.height {
            // SAFETY: the row lies inside live device memory (just found, under the lock).
            unsafe {
                let row = device.add(row * transfer.device_pitch);
                row.write_bytes(POISON, transfer.width);
            }
        }
    };
    Task::Split(load, Box::new(begin), work)
}

/// # Safety
/// The host's side may be read (In) or written (Out).
unsafe fn run(state: &State, transfer: &Transfer) -> Result<(), String> {
    let device = transfer.resolve(state);
    let device = device.ok_or("a copy met device memory that was freed")?;
    // SAFETY: the device side is live (just found, under the lock); the caller's promise.
    unsafe { transfer.run(device) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{cuMemcpy2DAsync_v2, cuMemsetD2D32Async};
    use crate::testing::{Device, ok};

    /// Three rows of four bytes: pitch 6 on the host, 8 on the device, corners one row and one byte in.
    fn rectangle(direction: Direction, host: *mut c_void, device: u64) -> Memcpy2d {
        let (src_type, dst_type) = match direction {
            Direction::In => (HOST, DEVICE),
            Direction::Out => (DEVICE, HOST),
        };
        let (src_pitch, dst_pitch) = match direction {
            Direction::In => (6, 8),
            Direction::Out => (8, 6),
        };
        Memcpy2d {
            src_x_bytes: 1,
            src_y: 1,
            src_type,
            src_host: host,
            src_device: device,
            src_array: 0,
            src_pitch,
            dst_x_bytes: 1,
            dst_y: 1,
            dst_type,
            dst_host: host,
            dst_device: device,
            dst_array: 0,
            dst_pitch,
            width_bytes: 4,
            height: 3,
        }
    }

    /// Where byte `x` of row `y` of the rectangle lies.
    fn place(y: usize, x: usize, pitch: usize) -> usize {
        (y + 1) * pitch + 1 + x
    }

    #[test]
    fn a_rectangle_goes_there_and_back_and_touches_nothing_else() {
        let device = Device::new();
        let host = device.pinned(24);
        host.write(0, &core::array::from_fn::<u8, 24, _>(|i| i as u8));
        let memory = device.upload(&[0xee; 32]);
        let copy = |what: &Memcpy2d| {
            // SAFETY: the struct lives; pinned memory outlives the device's work.
            ok(unsafe { cuMemcpy2DAsync_v2(what, device.stream) });
        };
        copy(&rectangle(Direction::In, host.ptr(), memory));
        let mut expected = [0xee; 32];
        for (y, x) in (0..3).flat_map(|y| (0..4).map(move |x| (y, x))) {
            expected[place(y, x, 8)] = place(y, x, 6) as u8;
        }
        assert_eq!(device.download(memory, 32), expected);

        host.write(0, &[0x55; 24]);
        copy(&rectangle(Direction::Out, host.ptr(), memory));
        // Waits for the stream.
        device.download(memory, 32);
        let mut expected = [0x55; 24];
        for (y, x) in (0..3).flat_map(|y| (0..4).map(move |x| (y, x))) {
            expected[place(y, x, 6)] = place(y, x, 6) as u8;
        }
        assert_eq!(host.read(), expected);
        assert_eq!(device.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_fill_writes_its_runs_and_nothing_else() {
        let device = Device::new();
        let memory = device.upload(&[0xee; 32]);
        let fill = |to: u64, pitch, words, rows| {
            // SAFETY: no pointers.
            unsafe { cuMemsetD2D32Async(to, pitch, 0x0403_0201, words, rows, device.stream) }
        };
        ok(fill(memory + 4, 12, 2, 2));
        let mut expected = [0xee; 32];
        for start in [4, 8, 16, 20] {
            expected[start..start + 4].copy_from_slice(&[1, 2, 3, 4]);
        }
        assert_eq!(device.download(memory, 32), expected);
        assert_eq!(device.complaints(), Vec::<String>::new());
        for (to, pitch, words) in [(memory + 2, 12, 2), (memory, 10, 2), (memory, 12, 4)] {
            assert_eq!(fill(to, pitch, words, 2), INVALID_VALUE);
        }
        assert_eq!(fill(memory, 12, 2, 1 << 20), INVALID_VALUE);
        assert_eq!(device.complaints().len(), 1);
    }

    #[test]
    fn rectangles_that_do_not_fit_are_refused() {
        let device = Device::new();
        let host = device.pinned(24);
        let memory = device.alloc(512);
        let refused = |change: fn(&mut Memcpy2d), direction| {
            let mut what = rectangle(direction, host.ptr(), memory);
            change(&mut what);
            // SAFETY: as above.
            let code = unsafe { cuMemcpy2DAsync_v2(&raw const what, device.stream) };
            assert_eq!(code, INVALID_VALUE);
        };
        for direction in [Direction::In, Direction::Out] {
            refused(|what| what.src_pitch = 4, direction);
            refused(|what| what.dst_pitch = 4, direction);
            refused(|what| what.src_pitch = MAX_PITCH_BYTES + 1, direction);
            refused(|what| what.src_type = 4, direction);
            refused(|what| what.dst_type = 0, direction);
            refused(|what| what.height = 1 << 20, direction);
            refused(|what| what.height = usize::MAX, direction);
            refused(|what| what.src_y = usize::MAX, direction);
        }
        refused(|what| what.src_host = core::ptr::null(), Direction::In);
        refused(|what| what.dst_device += 1 << 20, Direction::In);
        // A device address on the host's side.
        refused(
            |what| what.dst_host = core::ptr::without_provenance_mut(what.src_device as usize),
            Direction::Out,
        );
    }
}
