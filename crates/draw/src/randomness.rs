//! The randomness that came, and what it decides.
//!
//! Invariant: for a checkpoint, only one randomness is accepted, or, if the checkpoint says so, one other way after it did not
//! come. Whatever nobody can verify by mathematics is signed by the operator, so that it cannot be denied later.

use serde::{Deserialize, Serialize};

use crate::{
    announced::{Announced, Fallback, later_round},
    checkpoint::Checkpoint,
    drand::QUICKNET,
    fault::Fault,
    note::VerifierKey,
    spelling::from_hex,
    statement::Statement,
};

/// The randomness that came, as a record carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Randomness {
    /// The announced round of drand's chain [`QUICKNET`].
    Drand {
        /// The round.
        round: u64,
        /// The round's signature, 48 bytes in lower-case hex.
        signature: String,
    },
    /// The round of [`Fallback::Later`], because the announced round did not come.
    Later {
        /// The round.
        round: u64,
        /// The round's signature, 48 bytes in lower-case hex.
        signature: String,
        /// The operator's [`Statement::Missing`], signed.
        statement: String,
    },
    /// A value of another source.
    Stated {
        /// The operator's [`Statement::Value`], signed.
        statement: String,
    },
    /// The order is that of arrival, because the announced randomness did not come.
    Arrival {
        /// The operator's [`Statement::Missing`], signed.
        statement: String,
    },
}

/// What the randomness decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderSource {
    /// The order follows from these bytes.
    Random(Vec<u8>),
    /// The order is that of arrival.
    Arrival,
}

impl Randomness {
    /// Whether this is what happens only if the announced randomness does not come.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        matches!(self, Self::Later { .. } | Self::Arrival { .. })
    }

    /// What this randomness decides in the draw of a checkpoint. `key` is the operator's.
    ///
    /// # Errors
    /// [`Fault::Randomness`] if it is not what the checkpoint announces, or not the signature of its round. The faults of
    /// [`Note::verify`](crate::Note::verify) if a statement is not signed.
    pub fn decide(&self, checkpoint: &Checkpoint, key: &VerifierKey) -> Result<OrderSource, Fault> {
        let terms = checkpoint.terms();
        match (self, &terms.announced, terms.fallback) {
            (Self::Drand { round, signature }, Announced::Drand { round: expected }, _) => {
                if round != expected {
                    return fault(format!("it is round {round}, and announced is round {expected}"));
                }
                of_round(*round, signature)
            }
            (
                Self::Later { round, signature, statement },
                Announced::Drand { round: announced },
                Fallback::Later { seconds },
            ) => {
                let expected = later_round(*announced, seconds);
                if *round != expected {
                    return fault(format!(
                        "it is round {round}, and {seconds} s after round {announced} comes {expected}"
                    ));
                }
                missing(statement, checkpoint, key)?;
                of_round(*round, signature)
            }
            (Self::Stated { statement }, Announced::Stated { .. }, _) => {
                match Statement::read(statement, checkpoint, key)? {
                    Statement::Value(value) => Ok(OrderSource::Random(value.into_bytes())),
                    Statement::Missing => fault("the operator states that no value came".to_owned()),
                }
            }
            (Self::Arrival { statement }, _, Fallback::Arrival) => {
                missing(statement, checkpoint, key)?;
                Ok(OrderSource::Arrival)
            }
            _ => fault(format!(
                "it is {}, and the checkpoint says `randomness {}` and `fallback {}`",
                self.words(),
                terms.announced.text(),
                terms.fallback.text()
            )),
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Drand { .. } => "a round of drand",
            Self::Later { .. } => "a later round of drand",
            Self::Stated { .. } => "a stated value",
            Self::Arrival { .. } => "the order of arrival",
        }
    }
}

fn fault<T>(why: String) -> Result<T, Fault> {
    Err(Fault::Randomness(why))
}

/// What a round decides.
fn of_round(round: u64, signature: &str) -> Result<OrderSource, Fault> {
    let Some(bytes) = from_hex(signature) else {
        return fault("its signature is not 96 digits of lower-case hex".to_owned());
    };
    match QUICKNET.verify(round, &bytes) {
        Some(randomness) => Ok(OrderSource::Random(randomness.to_vec())),
        None => fault(format!(
            "this is not the signature of round {round}; compare it with https://api.drand.sh/{}/public/{round}",
            QUICKNET.hash
        )),
    }
}

/// Checks that the operator states that the announced randomness did not come.
fn missing(statement: &str, checkpoint: &Checkpoint, key: &VerifierKey) -> Result<(), Fault> {
    match Statement::read(statement, checkpoint, key)? {
        Statement::Missing => Ok(()),
        Statement::Value(_) => fault("the operator states that a value came".to_owned()),
    }
}
