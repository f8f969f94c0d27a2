//! Says what is missing before the linker does.

fn main() {
    let pc = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../.openblas/lib/pkgconfig/openblas.pc"
    );
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={pc}");
    if !std::path::Path::new(pc).is_file() {
        println!("cargo::error=the prepared OpenBLAS is missing: run `cargo xtask openblas`");
    }
}
