//! Says what is missing before the linker does.

fn main() {
    // Cargo runs this in the package's folder. No path of this checkout is compiled in, since another one
    // may share its target folder.
    let pc = "../.openblas/lib/pkgconfig/openblas.pc";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={pc}");
    if !std::path::Path::new(pc).is_file() {
        println!("cargo::error=the prepared OpenBLAS is missing: run `cargo xtask openblas`");
    }
}
