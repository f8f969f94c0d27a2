//! Says how the library is linked: no start files, and nothing missing, since there is nobody to bring it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-nostartfiles");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,defs");
}
