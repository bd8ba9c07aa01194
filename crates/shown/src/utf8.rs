//! Files that people write: their text, or the place at which it is none.

use std::fmt;

/// The place of the first byte that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8 {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
}

impl fmt::Display for NotUtf8 {
    /// Follows the name of the file and a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column } = self;
        write!(f, "{line}: the byte at column {column} is not UTF-8; save the file as UTF-8")
    }
}

/// The text of a file.
///
/// # Errors
/// The place at which it is not UTF-8.
pub fn text(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    String::from_utf8(bytes).map_err(|error| {
        let (valid, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let before = String::from_utf8_lossy(valid);
        let last = before.rsplit('\n').next().unwrap_or_default();
        NotUtf8 { line: 1 + before.matches('\n').count(), column: 1 + last.chars().count() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_bad_byte_is_found_as_an_editor_counts() {
        assert_eq!(text("오 é\n".into()), Ok("오 é\n".to_owned()));
        // A file as Windows writes it in UTF-16, a text in Latin-1, and a file that ends within a letter.
        for (bytes, line, column) in [
            (&b"\xff\xfel\0"[..], 1, 1),
            (b"[[zone]]\nid = \"A\" # \xec\x98\xa4 caf\xe9\n", 2, 17),
            (b"# \xec\x98", 1, 3),
        ] {
            assert_eq!(text(bytes.to_vec()), Err(NotUtf8 { line, column }));
        }
    }
}
