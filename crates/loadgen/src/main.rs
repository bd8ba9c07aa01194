//! The binary: only wires.

fn main() -> std::process::ExitCode {
    loadgen::cli::main(std::env::args_os())
}
