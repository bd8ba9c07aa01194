//! The binary.

/// Starting users allocates many blocks on one thread that another thread frees. The pages that one lets go can be kept for
/// the other, so that all memory of the users is there before they start (`worker::touch_memory`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    loadgen::cli::main(std::env::args_os())
}
