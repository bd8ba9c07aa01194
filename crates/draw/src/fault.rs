//! What is wrong with a record, a receipt or a checkpoint.
//!
//! Invariant: each fault names what was read, what is wrong with it, and, where the reader can do something, what to do.

/// The first thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Something is not in its format.
    #[error("{what}: {why}")]
    Format {
        /// The part, and the line or field in it.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The key in the file is not the key that the caller knows.
    #[error(
        "the key in the {of} is {found}, but the key that you gave is {known}: this is the draw of another operator, or somebody \
         signed it with a key of their own"
    )]
    OtherKey {
        /// Record or receipt.
        of: &'static str,
        /// The key in it.
        found: String,
        /// The key that the caller gave.
        known: String,
    },
    /// A note has no signature by the key.
    #[error("{what} is not signed by {key}: its signature was removed, or it is of another key")]
    Unsigned {
        /// The note.
        what: &'static str,
        /// The key that was looked for.
        key: String,
    },
    /// The signature does not fit the note, or is there twice.
    #[error(
        "the signature of {key} does not fit {what}: one of them was changed, or the signature is there twice"
    )]
    Forged {
        /// The note.
        what: &'static str,
        /// The key.
        key: String,
    },
    /// The list of places is not the list of the checkpoint.
    #[error("the list of places is not the list that was frozen: {0}")]
    OtherList(String),
    /// The randomness is not what the checkpoint announces.
    #[error("the randomness is not what the checkpoint announces: {0}")]
    Randomness(String),
    /// A receipt is not part of the draw, or was changed.
    #[error("the receipt does not belong to this draw: {0}")]
    Receipt(String),
}

impl Fault {
    /// A fault of a format.
    pub(crate) fn format(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Format { what: what.into(), why: why.into() }
    }
}
