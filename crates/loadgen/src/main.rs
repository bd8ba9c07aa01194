//! The binary.

fn main() -> std::process::ExitCode {
    loadgen::cli::main(std::env::args_os())
}
