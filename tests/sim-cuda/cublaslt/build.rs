//! Gives the library the SONAME of the one it stands for.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcublasLt.so.13");
}
