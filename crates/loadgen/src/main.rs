//! The binary.

/// Starting users allocates many blocks on one thread that another thread frees. The pages that one lets go can be kept for
/// the other, so that all memory of the users is there before they start (`worker::touch_memory`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs before the standard library starts. It takes part in nothing else.
#[used]
#[expect(unsafe_code, reason = "only a function in this section runs before the standard library")]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = loadgen::cli::look_at_start;

fn main() -> std::process::ExitCode {
    loadgen::cli::main(std::env::args_os())
}
