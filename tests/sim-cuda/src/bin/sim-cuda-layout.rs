//! `sim-cuda-layout DIR`: lays the simulated CUDA libraries out in DIR, as links to the one library that
//! was built beside this program.

use std::path::{Path, PathBuf};

/// The names under which the library is looked for.
const NAMES: [&str; 4] = [
    "libcuda.so.1",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcusolver.so.12",
];

fn main() {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sim-cuda-layout DIR");
        std::process::exit(2);
    };
    if let Err(message) = lay_out(&dir) {
        eprintln!("sim-cuda-layout: {message}");
        std::process::exit(1);
    }
}

fn lay_out(dir: &Path) -> Result<(), String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let library = exe.with_file_name("libsim_cuda.so");
    if !library.is_file() {
        return Err(format!(
            "{} is missing (cargo build -p sim-cuda makes it)",
            library.display()
        ));
    }
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for name in NAMES {
        let link = dir.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&library, &link)
            .map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(())
}
