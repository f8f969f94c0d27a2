//! Link arguments of `libgpu_offload.so.0`.

fn main() {
    // One name for all versions of one ABI; never unloaded, because its threads and the driver's
    // outlive any dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgpu_offload.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
