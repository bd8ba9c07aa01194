//! Random bytes against [`checks::draw`].
#![no_main]

#[path = "../checks.rs"]
#[expect(dead_code, reason = "each target runs one of the checks")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::draw(data));
