//! The arguments of a command, in one buffer that is used again for the next command.
//!
//! Invariant: numbers are written and read as Redis writes and reads them.

use std::{fmt, ops::Index};

use super::commands::Refusal;

/// A command's name and arguments.
#[derive(Clone, Default)]
pub(super) struct Arguments {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arguments {
    /// Arguments that are known at once.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut arguments = Self::default();
        for part in parts {
            arguments.push(part);
        }
        arguments
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn push(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
        self.ends.push(self.bytes.len());
    }

    /// Adds a number as decimal digits.
    pub(super) fn push_int(&mut self, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).expect("one digit");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.push(&digits[at..]);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The arguments from number `first` on.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        (first..self.len()).map(|i| &self[i])
    }

    /// The argument as a number.
    pub(super) fn int(&self, i: usize) -> Result<i64, Refusal> {
        parse_int(&self[i]).ok_or(Refusal::NOT_AN_INTEGER)
    }

    /// Whether the argument is this word, in any case.
    pub(super) fn is(&self, i: usize, word: &str) -> bool {
        self[i].eq_ignore_ascii_case(word.as_bytes())
    }
}

impl Index<usize> for Arguments {
    type Output = [u8];

    fn index(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.from(0).enumerate() {
            let gap = if i == 0 { "" } else { " " };
            let shown = &part[..part.len().min(60)];
            write!(f, "{gap}{}", shown.escape_ascii())?;
            if shown.len() < part.len() {
                write!(f, "...({} bytes)", part.len())?;
            }
        }
        Ok(())
    }
}

/// A number as Redis accepts it: no spaces, no plus, no leading zeros.
pub(super) fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    let mut number: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let next = number.checked_mul(10)?;
        number = if negative { next.checked_sub(digit)? } else { next.checked_add(digit)? };
    }
    Some(number)
}
