//! Servers over stores that keep the zones: cells, watchers, open zones, the editor and `weir zones apply`, in virtual
//! time over a store in memory that several servers share and that can be made to fail.

mod apply;
mod editor;
mod fail_open;
mod lines;
mod reasons;
#[allow(dead_code, reason = "a test of `weir` uses the rest")]
mod world;
