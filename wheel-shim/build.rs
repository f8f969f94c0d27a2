//! Says how the ready-made library is linked; the installation replaces its SONAME.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        "-Wl,-soname,gpu-offload-wheel-unfitted.so",
        // DT_RPATH, as the wheels' own libraries have it; it finds the original beside this library.
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN",
        "-Wl,-z,defs",
        // The tool that fits the library rewrites this table.
        "-Wl,--hash-style=gnu",
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
}
