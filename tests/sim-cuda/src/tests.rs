//! Order, leaks, misuse: what the simulation must notice. Streams are stopped at gates, so that nothing
//! depends on time.

use crate::delay::sim_cuda_set_delay;
use crate::driver::*;
use crate::state::{
    INVALID_HANDLE, INVALID_VALUE, NOT_READY, lock, sim_cuda_set_fault, sim_cuda_set_ignore,
};
use crate::stream::Task;
use crate::testing::{Device, Pinned, ok};
use core::ffi::CStr;
use std::sync::mpsc::{Sender, channel};

/// Stops a stream until the sender is dropped.
fn close_gate(stream: usize) -> Sender<()> {
    let (gate, closed) = channel::<()>();
    let wait = move || {
        let _ = closed.recv();
        Ok(())
    };
    let task = Task::Run(crate::delay::Load::Mark, Box::new(wait));
    lock().streams[&stream].push(task);
    gate
}

fn ignore(what: &CStr) {
    // SAFETY: a NUL-terminated string.
    assert_eq!(unsafe { sim_cuda_set_ignore(what.as_ptr()) }, 0);
}

fn upload(to: u64, from: &Pinned, bytes: usize, stream: usize) {
    // SAFETY: pinned memory that outlives the stream's work.
    ok(unsafe { cuMemcpyHtoDAsync_v2(to, from.ptr(), bytes, stream) });
}

fn download(to: &Pinned, from: u64, bytes: usize, stream: usize) {
    // SAFETY: as above.
    ok(unsafe { cuMemcpyDtoHAsync_v2(to.ptr(), from, bytes, stream) });
}

fn finish(stream: usize) {
    // SAFETY: a function without pointers.
    ok(unsafe { cuStreamSynchronize(stream) });
}

#[test]
fn the_report_lists_everything_that_lives_and_who_made_it() {
    let device = Device::new();
    let first = device.alloc(1000);
    let second = device.alloc(24);
    let _pinned = device.pinned(4096);
    let event = device.event();
    device.free(first);
    let report = device.report();
    for line in [
        "live device_allocations 1",
        "live device_bytes 24",
        "live pinned 1",
        "live streams 1",
        "live events 1",
        "live blas_handles 0",
        "live contexts 0",
        "live primary_retained 1",
        &format!("alive device memory {second:#x} of 24 bytes, made by cuMemAlloc_v2 call 2"),
        &format!("alive event {event:#x}, made by cuEventCreate call 1"),
        "calls cuMemAlloc_v2 2",
        "calls cuMemFree_v2 1",
    ] {
        assert!(
            report.iter().any(|found| found == line),
            "no '{line}' in {report:#?}"
        );
    }
    assert_eq!(device.complaints(), Vec::<String>::new());
}

#[test]
fn using_or_freeing_what_was_given_back_is_a_complaint() {
    let device = Device::new();
    let (memory, event, stream) = (device.alloc(8), device.event(), device.another_stream());
    let pinned = device.pinned(8);
    let mut handle = 0;
    // SAFETY: the pointers are of this function.
    let codes = unsafe {
        ok(crate::blas::cublasCreate_v2(&raw mut handle));
        ok(crate::blas::cublasDestroy_v2(handle));
        ok(cuMemFree_v2(memory));
        ok(cuMemFreeHost(pinned.ptr()));
        ok(cuEventDestroy_v2(event));
        ok(cuStreamDestroy_v2(stream));
        [
            cuMemFree_v2(memory),
            cuMemFreeHost(pinned.ptr()),
            cuEventDestroy_v2(event),
            cuEventQuery(event),
            cuEventRecord(event, device.stream),
            cuStreamWaitEvent(device.stream, event, 0),
            cuStreamDestroy_v2(stream),
            cuStreamSynchronize(stream),
            crate::blas::cublasSetStream_v2(handle, device.stream),
        ]
    };
    let handle_code = INVALID_HANDLE;
    let mut expected = [handle_code; 9];
    expected[..2].fill(INVALID_VALUE);
    expected[8] = 1;
    assert_eq!(codes, expected);
    let complaints = device.complaints();
    let functions = [
        "cuMemFree_v2 call 2",
        "cuMemFreeHost call 2",
        "cuEventDestroy_v2 call 2",
        "cuEventQuery call 1",
        "cuEventRecord call 1",
        "cuStreamWaitEvent call 1",
        "cuStreamDestroy_v2 call 2",
        "cuStreamSynchronize call 1",
        "cublasSetStream_v2 call 1",
    ];
    assert_eq!(complaints.len(), functions.len(), "{complaints:#?}");
    for (complaint, function) in complaints.iter().zip(functions) {
        assert!(complaint.starts_with(function), "{complaint}");
        assert!(complaint.ends_with("was given back before"), "{complaint}");
    }
}

#[test]
fn an_address_that_is_given_out_again_may_be_freed_again() {
    let device = Device::new();
    let first = device.alloc(8);
    device.free(first);
    assert_eq!(device.alloc(8), first, "first fit");
    device.free(first);
    assert_eq!(device.complaints(), Vec::<String>::new());
}

#[test]
fn pinned_memory_that_changes_under_a_queued_upload_is_a_complaint() {
    let device = Device::new();
    // Small ones are compared whole, large ones at spread words.
    for (bytes, changed) in [(4096, 4095..4096), (3 << 20, 1 << 20..2 << 20)] {
        let pinned = device.pinned(bytes);
        let memory = device.alloc(bytes);
        let before = device.complaints().len();
        let gate = close_gate(device.stream);
        upload(memory, &pinned, bytes, device.stream);
        drop(gate);
        finish(device.stream);
        assert_eq!(device.complaints().len(), before, "nothing has changed");

        let gate = close_gate(device.stream);
        upload(memory, &pinned, bytes, device.stream);
        pinned.write(changed.start, &vec![7; changed.len()]);
        drop(gate);
        finish(device.stream);
        let complaints = device.complaints();
        assert_eq!(complaints.len(), before + 1, "{complaints:#?}");
        let last = complaints.last().expect("one");
        assert!(
            last.starts_with("pinned memory changed while a transfer was queued"),
            "{last}"
        );
    }
}

#[test]
fn the_target_of_a_queued_download_is_nan_until_it_has_run() {
    let device = Device::new();
    let pinned = device.pinned(64);
    let memory = device.upload(&[3; 64]);
    let gate = close_gate(device.stream);
    download(&pinned, memory, 32, device.stream);
    let early = pinned.read();
    assert!(early[..32].iter().all(|&byte| byte == 0xff), "{early:?}");
    assert!(
        early[32..].iter().all(|&byte| byte == 0),
        "what is not written is not poisoned"
    );
    drop(gate);
    finish(device.stream);
    assert_eq!(pinned.read()[..32], [3; 32]);
}

#[test]
fn one_pinned_buffer_may_be_used_again_in_the_order_of_a_stream() {
    let device = Device::new();
    let pinned = device.pinned(16);
    pinned.write(0, &[1; 16]);
    let (to, from) = (device.alloc(16), device.upload(&[2; 16]));
    let gate = close_gate(device.stream);
    upload(to, &pinned, 16, device.stream);
    download(&pinned, from, 16, device.stream);
    upload(from, &pinned, 16, device.stream);
    drop(gate);
    finish(device.stream);
    assert_eq!(device.download(to, 16), [1; 16]);
    assert_eq!(device.download(from, 16), [2; 16]);
    assert_eq!(device.complaints(), Vec::<String>::new());
}

#[test]
fn a_transfer_of_ordinary_memory_is_over_when_the_call_returns() {
    let device = Device::new();
    let memory = device.alloc(8);
    let mut source = [5u8; 8];
    // SAFETY: `source` may be read during the call.
    ok(unsafe { cuMemcpyHtoDAsync_v2(memory, source.as_ptr().cast(), 8, device.stream) });
    source.fill(6);
    assert_eq!(device.download(memory, 8), [5; 8]);
    assert!(
        device
            .report()
            .iter()
            .any(|line| line == "pageable_copies 2")
    );
    assert_eq!(device.complaints(), Vec::<String>::new());
}

#[test]
fn freeing_memory_that_queued_work_uses_is_noticed() {
    let device = Device::new();
    let (pinned, memory) = (device.pinned(8), device.alloc(8));
    let gate = close_gate(device.stream);
    upload(memory, &pinned, 8, device.stream);
    device.free(memory);
    // SAFETY: of this test, not used any more by the host.
    ok(unsafe { cuMemFreeHost(pinned.ptr()) });
    drop(gate);
    // SAFETY: a function without pointers.
    let code = unsafe { cuStreamSynchronize(device.stream) };
    assert_eq!(code, 700, "the device is lost");
    let complaints = device.complaints();
    assert!(
        complaints[0].contains("was freed while a transfer was queued"),
        "{complaints:?}"
    );
    assert_eq!(complaints[1], "a copy met pinned memory that was freed");
}

/// Records on a stopped stream and lets a second one wait for it; answers whether the second one is held
/// up, whether the event says that it has not happened, and whether both streams' ends can be waited for.
fn held_up(device: &Device) -> (bool, bool) {
    let (event, other) = (device.event(), device.another_stream());
    let gate = close_gate(device.stream);
    // SAFETY: functions without pointers.
    let result = unsafe {
        ok(cuEventRecord(event, device.stream));
        ok(cuStreamWaitEvent(other, event, 0));
        // The wait is taken up at once or not at all; without it the stream is idle in the end.
        let mut waits = true;
        for _ in 0..200 {
            waits = cuStreamQuery(other) == NOT_READY;
            if !waits {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        (waits, cuEventQuery(event) == NOT_READY)
    };
    drop(gate);
    finish(device.stream);
    finish(other);
    result
}

#[test]
fn each_ignored_call_succeeds_and_does_nothing() {
    let device = Device::new();
    assert_eq!(held_up(&device), (true, true));
    ignore(c"cuStreamWaitEvent:1");
    assert_eq!(held_up(&device), (false, true));
    assert_eq!(held_up(&device), (true, true), "only the first");
    ignore(c"cuEventRecord:1");
    assert_eq!(held_up(&device), (false, false), "happened at once");
    ignore(c"cuEventQuery:every");
    assert_eq!(held_up(&device), (true, false));
    assert_eq!(held_up(&device), (true, false));
    assert!(
        device
            .report()
            .iter()
            .any(|line| line == "ignored cuEventQuery 2")
    );
    ignore(c"cuStreamQuery:every");
    assert_eq!(held_up(&device), (false, true));

    // An ignored call that makes no difference is not counted.
    ignore(c"cuStreamWaitEvent:every,cuEventRecord:every,cuStreamSynchronize:every");
    let (done, other) = (device.event(), device.another_stream());
    // SAFETY: functions without pointers.
    unsafe {
        ok(cuEventRecord(done, other));
        ok(cuStreamWaitEvent(device.stream, done, 0));
        ok(cuStreamSynchronize(other));
    }
    let counted = |line: &String| line.starts_with("ignored ");
    let report = device.report();
    assert!(!report.iter().any(counted), "{report:#?}");

    let (event, gate) = (device.event(), close_gate(device.stream));
    ignore(c"cuEventSynchronize:1,cuStreamSynchronize:1");
    // SAFETY: functions without pointers.
    unsafe {
        ok(cuEventRecord(event, device.stream));
        ok(cuEventSynchronize(event));
        ok(cuStreamSynchronize(device.stream));
        assert_eq!(cuEventQuery(event), NOT_READY);
        drop(gate);
        ok(cuEventSynchronize(event));
        ok(cuEventQuery(event));
    }
    // An ignored recording counts when somebody believes it, not when it is made.
    let gate = close_gate(device.stream);
    ignore(c"cuEventRecord:every");
    // SAFETY: functions without pointers.
    unsafe { ok(cuEventRecord(event, device.stream)) };
    assert!(!device.report().iter().any(counted), "nobody has asked yet");
    // SAFETY: functions without pointers.
    unsafe { ok(cuEventQuery(event)) };
    assert!(
        device
            .report()
            .iter()
            .any(|line| line == "ignored cuEventRecord 1")
    );
    drop(gate);

    // SAFETY: a NUL-terminated string.
    let code = unsafe { sim_cuda_set_ignore(c"cuMemFree_v2:1".as_ptr()) };
    assert_eq!(code, 1, "not ignorable");
}

#[test]
fn a_lost_device_ends_every_wait() {
    let device = Device::new();
    let event = device.event();
    // SAFETY: a NUL-terminated string, then functions without pointers.
    unsafe {
        assert_eq!(sim_cuda_set_fault(c"cuEventRecord:1:late".as_ptr()), 0);
        ok(cuEventRecord(event, device.stream));
        assert_eq!(cuEventSynchronize(event), 700);
        assert_eq!(cuStreamSynchronize(device.stream), 700);
        assert_eq!(cuEventQuery(event), 700);
    }
}

#[test]
fn the_target_of_an_upload_is_nan_from_its_turn_until_it_is_over() {
    let device = Device::new();
    let memory = device.upload(&[3; 64]);
    // Each upload waits for a second before it is done.
    let delay = c"adversarial:1:100000";
    // SAFETY: a NUL-terminated string.
    assert_eq!(unsafe { sim_cuda_set_delay(delay.as_ptr()) }, 0);
    let (slow, pinned) = (device.another_stream(), device.pinned(64));
    upload(memory, &pinned, 32, slow);
    // Reads on another stream without waiting: first what was there, then NaN.
    let mut found = device.download(memory, 64);
    while found[0] == 3 {
        found = device.download(memory, 64);
    }
    assert_eq!(
        (&found[..32], &found[32..]),
        (&[0xff; 32][..], &[3; 32][..])
    );
    finish(slow);
    assert_eq!(device.download(memory, 32), [0; 32]);
}
