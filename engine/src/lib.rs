//! `libgpu_offload.so.0`: decides where a heavy call runs, runs it there, and falls back to the CPU.
//!
//! One engine serves a process, whichever shims are loaded. It exports one function,
//! `gpu_offload_engine_v1`. It keeps no table of a shim beyond the call that names it, never unwinds
//! into a shim, prints nothing unless asked (but for one line of each trouble), and has no destructor.
//! Must not know symbol names of BLAS.

pub mod config;
mod decode;
pub mod device;
mod engine;
pub mod files;
mod gates;
pub mod learn;
pub mod log;
pub mod machine;
pub mod measure;
pub mod os;
mod process;
mod start;
pub mod verify;

pub use engine::{Engine, Setup, Starter};
pub use process::Slot;
pub use start::{Device, StartFailure};

use config::{Mode, Settings};
use engine_abi::{
    ABI_VERSION, EngineTable, HostTable, OUTCOME_UNTOUCHED, RoutedCall, RoutedLapack,
};
use std::panic::catch_unwind;
use std::sync::Arc;

static SLOT: Slot = Slot::new();

static TABLE: EngineTable = EngineTable {
    abi_version: ABI_VERSION,
    struct_bytes: size_of::<EngineTable>() as u32,
    route,
    route_lapack,
};

/// Registers a shim; see `engine_abi::EngineEntry`. Null if the shim is of another ABI version.
///
/// # Safety
/// `host` is null or points to the shim's table, whose first two words exist in every version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpu_offload_engine_v1(host: *const HostTable) -> *const EngineTable {
    // SAFETY: null, or a table alive during this call.
    let Some(host) = (unsafe { host.as_ref() }) else {
        return core::ptr::null();
    };
    if host.abi_version != ABI_VERSION || host.struct_bytes as usize != size_of::<HostTable>() {
        return core::ptr::null();
    }
    let registered = catch_unwind(|| {
        // This library's copy of std is ours alone, so the host's hooks are not affected; a panic
        // becomes the CPU result and must not print.
        std::panic::set_hook(Box::new(|_| {}));
        register(host);
    });
    if registered.is_ok() {
        &raw const TABLE
    } else {
        core::ptr::null()
    }
}

fn register(host: &HostTable) {
    let mut complaints = Vec::new();
    let (engine, made) = SLOT.get_or_make(|| Engine::new(Arc::new(setup(host, &mut complaints))));
    if made {
        os::watch_forks();
        complaints.extend(engine.complaints().iter().cloned());
        complaints.iter().for_each(|line| os::complain(line));
        if engine.finishes() {
            os::at_exit(finish);
        }
    }
    engine.publish(host);
}

/// What the files and the environment say, for this process.
fn setup(host: &HostTable, complaints: &mut Vec<String>) -> Setup {
    // SAFETY: the shim's static configuration string.
    let fingerprint = machine::fingerprint(unsafe { os::text((host.cpu_config)()) });
    let cpu_threads = u32::try_from((host.cpu_threads)()).unwrap_or(1).max(1);
    let starter = Box::new(device::Cuda);
    if os::is_setuid() {
        // No variable and no file is believed.
        let settings = Settings {
            mode: Mode::Off,
            ..Settings::default()
        };
        return Setup {
            settings,
            fingerprint,
            cpu_threads,
            profile: None,
            learned_dir: None,
            starter,
        };
    }
    let (settings, lines) = config::load(&os::variable, &config::config_files(&os::variable));
    complaints.extend(lines);
    let mut profile = None;
    if settings.mode == Mode::Auto || settings.mode == Mode::Deterministic {
        let (found, lines) = machine::find_profile(&os::variable, &settings, &fingerprint);
        complaints.extend(lines);
        profile = found.map(|(profile, path)| (profile, path.display().to_string()));
    }
    Setup {
        settings,
        fingerprint,
        cpu_threads,
        profile,
        learned_dir: learn::store::dir(&os::variable),
        starter,
    }
}

unsafe extern "C" fn route(call: *const RoutedCall) -> u32 {
    // SAFETY: forwarded from the door.
    match unsafe { given(call, |raw| raw.struct_bytes) } {
        // SAFETY: forwarded from the door.
        Some((raw, engine)) => unsafe { engine.route(raw) },
        None => OUTCOME_UNTOUCHED,
    }
}

unsafe extern "C" fn route_lapack(call: *const RoutedLapack) -> u32 {
    // SAFETY: forwarded from the door.
    match unsafe { given(call, |raw| raw.struct_bytes) } {
        // SAFETY: forwarded from the door.
        Some((raw, engine)) => unsafe { engine.route_lapack(raw) },
        None => OUTCOME_UNTOUCHED,
    }
}

/// A call that came, and the engine for it; `None` for a call of another size and where no engine may be used.
///
/// # Safety
/// `call` is null or a call in progress, alive during `'a`.
unsafe fn given<'a, T>(
    call: *const T,
    struct_bytes: fn(&T) -> u32,
) -> Option<(&'a T, &'static Engine)> {
    // SAFETY: the caller's promise.
    let raw = unsafe { call.as_ref() }?;
    if struct_bytes(raw) as usize != size_of::<T>() {
        return None;
    }
    let engine = catch_unwind(|| SLOT.usable()).ok().flatten()?;
    Some((raw, engine))
}

extern "C" fn finish() {
    // A panic must not leave an exit handler either.
    let _ = catch_unwind(|| {
        if let Some(engine) = SLOT.own() {
            engine.finish();
        }
    });
}
