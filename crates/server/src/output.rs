//! Writes to standard output, and makes texts fit for a terminal, for all commands.
//!
//! Invariants: output that could not be written never ends with exit code 0. Where standard output was closed before the start, a command
//! that only shows something ends at once, and one that changes something does it and shows nothing.

use std::io::{self, ErrorKind, Write};

use shown::stdout;

use crate::failure::{self, Failure};

/// Checks, before a command does anything, that what it shows can be seen: a token is shown once.
///
/// # Errors
/// A [`Failure`] if standard output was closed.
pub(crate) fn check_open() -> Result<(), Failure> {
    if stdout::was_closed() {
        let what = "standard output is closed, so nothing was done; leave it open, or send it to a file or /dev/null";
        return Err(Failure::new(failure::IO, what));
    }
    Ok(())
}

/// Prints a text.
///
/// # Errors
/// A [`Failure`] with the exit code for a reader that has gone, or for anything else, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text)
}

fn write(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(failure::UNREAD, "nobody reads the output"),
        _ => Failure::new(failure::IO, format_args!("standard output cannot be written: {error}")),
    })
}

/// Escapes control characters: quoted parts of a file may hold line breaks, and a terminal obeys what a server may have sent.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_full_disk_and_a_reader_that_has_gone_are_told_apart() {
        assert_eq!(write(&mut Vec::new(), "x"), Ok(()));
        let mut full = OpenOptions::new().write(true).open("/dev/full").expect("Linux");
        let refused = write(&mut full, "x").expect_err("it is full");
        assert_eq!(refused.exit, failure::IO);
        assert!(refused.line.contains("No space left on device"), "{refused}");
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(write(&mut writer, "x").expect_err("nobody reads").exit, failure::UNREAD);
    }
}
