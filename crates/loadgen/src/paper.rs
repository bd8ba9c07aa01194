//! What a sample of the users fetches of a draw: the published checkpoint, and the own receipt.
//!
//! Invariant: papers are kept as they came, so whoever has the file of a run can verify them again.

use serde::{Deserialize, Serialize};

use crate::story::Call;

/// What was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The draw as it is published, with its checkpoint.
    Published,
    /// The user's receipt.
    Receipt,
}

/// One reply about a draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paper {
    /// The user: worker and number.
    pub who: (u16, u32),
    /// The call.
    pub call: Call,
    /// What was asked for.
    pub kind: Kind,
    /// The status of the reply.
    pub status: u16,
    /// The body of the reply.
    pub text: String,
}

/// A draw as it is published.
#[derive(Debug, Deserialize)]
pub struct Published {
    /// When the list is frozen, seconds since 1970 by the server's clock.
    pub begins: u64,
    /// When people enter, seconds since 1970 by the server's clock.
    pub opens: u64,
    /// The key that signs, `NAME+ID+KEY`.
    pub key: String,
    /// The checkpoint, once the list is frozen.
    #[serde(default)]
    pub checkpoint: Option<String>,
}
