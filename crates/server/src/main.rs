//! The admission server.

/// Many short-lived small blocks, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    weir::serve::main(std::env::args_os())
}
