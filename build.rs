//! Emits the link flags that a Node addon needs.

use std::env::{var, var_os};

fn main() {
    // `napi-build` wants a libnode.dll for mingw. There is nothing to link: `dyn-symbols` looks up the functions of
    // Node-API in the program that loads the addon.
    let is_mingw = var("CARGO_CFG_TARGET_OS").as_deref() == Ok("windows")
        && var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if var_os("CARGO_FEATURE_NODE").is_some() && !is_mingw {
        napi_build::setup();
    }
}
