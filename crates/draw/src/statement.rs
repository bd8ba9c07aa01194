//! What the operator states about the randomness after the freeze, as a signed note.
//!
//! ```text
//! shop.example/weir/opening-night/SALE      the checkpoint's origin
//! checkpoint <SHA-256 of the checkpoint's text, base64>
//! value 3 1 6 6 2 5                         or: missing
//! ```
//!
//! Invariant: a statement belongs to exactly one checkpoint. It is no checkpoint, because its second line is no number.

use sha2::{Digest as _, Sha256};

use crate::{
    checkpoint::Checkpoint,
    fault::Fault,
    note::{Note, VerifierKey},
    spelling::{is_line, to_base64},
};

/// What the operator states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// The source gave this value: 1 to 1,024 bytes on one line. They go into the seed as they are.
    Value(String),
    /// The announced randomness did not come.
    Missing,
}

impl Statement {
    /// The text to sign.
    ///
    /// # Errors
    /// [`Fault::Format`] if the value is not 1 to 1,024 bytes on one line, without a space at its ends.
    pub fn text(&self, checkpoint: &Checkpoint) -> Result<String, Fault> {
        let about = about(checkpoint);
        match self {
            Self::Value(value) if is_line(value) => Ok(format!("{about}value {value}\n")),
            Self::Value(_) => Err(Fault::format(
                "the stated value",
                "it is not 1 to 1,024 bytes on one line, without a space at its ends",
            )),
            Self::Missing => Ok(format!("{about}missing\n")),
        }
    }

    /// Reads a statement about `checkpoint` that `key` has signed.
    pub(crate) fn read(note: &str, checkpoint: &Checkpoint, key: &VerifierKey) -> Result<Self, Fault> {
        let what = "the operator's statement about the randomness";
        let note = Note::parse(what, note)?;
        note.verify(key)?;
        let Some(line) = note.text().strip_prefix(&about(checkpoint)) else {
            return Err(Fault::format(what, "it is about another checkpoint"));
        };
        if line == "missing\n" {
            return Ok(Self::Missing);
        }
        let value = line.strip_prefix("value ").and_then(|rest| rest.strip_suffix('\n'));
        match value.filter(|value| is_line(value)) {
            Some(value) => Ok(Self::Value(value.to_owned())),
            None => Err(Fault::format(what, "its last line is neither `missing` nor `value VALUE`")),
        }
    }
}

/// The first two lines.
fn about(checkpoint: &Checkpoint) -> String {
    let hash = to_base64(Sha256::digest(checkpoint.text()));
    format!("{}\ncheckpoint {hash}\n", checkpoint.origin())
}
