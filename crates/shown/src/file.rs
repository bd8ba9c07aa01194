//! Files that a command names. Any path may be named, also one that never ends.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read as _, Result},
    path::Path,
};

/// The content of a file of at most `most` bytes. No more than one byte beyond that is read.
///
/// # Errors
/// The system's error, or [`ErrorKind::FileTooLarge`].
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if length as u64 > most {
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("has more than {most} bytes, which are the most"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let length = here.metadata().expect("this crate").len();
        assert_eq!(bytes(&here, length).expect("it fits").len() as u64, length);
        for (path, most) in [(here.as_path(), length - 1), (Path::new("/dev/zero"), 1 << 20)] {
            let fault = bytes(path, most).expect_err("too long");
            assert_eq!(fault.kind(), ErrorKind::FileTooLarge);
            assert_eq!(fault.to_string(), format!("has more than {most} bytes, which are the most"));
        }
        assert_eq!(bytes(Path::new("/dev/null"), 0).expect("empty"), b"");
    }
}
