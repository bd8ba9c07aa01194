//! How a checkpoint names its randomness, and its fallback: what happens if the randomness does not come. `crates/server/src/draws.rs` acts
//! on them.
//!
//! Invariant: at the freeze, an announced round of drand lies in the future, and the fallback leaves at most one other way.

use crate::{
    drand::{LATER_MAX_S, QUICKNET, ROUND_MAX},
    spelling::{is_line, number},
};

/// The randomness that a checkpoint names before it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// A round of drand's chain [`QUICKNET`]. Anybody can verify it.
    Drand {
        /// The round.
        round: u64,
    },
    /// A value that the operator will read somewhere else. The verifier cannot check that it is the right one.
    Stated {
        /// Where the value comes from, precise enough that everybody finds the same one: 1 to 1,024 bytes on one line.
        source: String,
    },
}

/// What happens if the announced randomness does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The sale waits until it comes. The only fallback that leaves the operator no choice.
    Wait,
    /// The order of arrival.
    Arrival,
    /// The first round of drand that comes this long after the announced one.
    Later {
        /// 1 to 604,800.
        seconds: u64,
    },
}

impl Announced {
    /// The text after `randomness `.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Drand { round } => format!("drand {} {round}", QUICKNET.hash),
            Self::Stated { source } => format!("stated {source}"),
        }
    }

    /// Reads that text. The error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(source) = text.strip_prefix("stated ") {
            return Ok(Self::Stated { source: source.to_owned() });
        }
        let parts = text.strip_prefix("drand ").and_then(|rest| rest.split_once(' '));
        let (chain, round) = parts.ok_or("it is neither `drand CHAIN ROUND` nor `stated SOURCE`")?;
        if chain != QUICKNET.hash {
            return Err(format!(
                "the chain `{}` is not known; known is quicknet, {}",
                chain.escape_debug(),
                QUICKNET.hash
            ));
        }
        let round = number(round).ok_or("the round is not a number without leading zeros")?;
        Ok(Self::Drand { round })
    }
}

impl Fallback {
    /// The text after `fallback `.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Wait => "wait".to_owned(),
            Self::Arrival => "arrival".to_owned(),
            Self::Later { seconds } => format!("later {seconds}"),
        }
    }

    /// Reads that text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "wait" => Some(Self::Wait),
            "arrival" => Some(Self::Arrival),
            _ => text.strip_prefix("later ").and_then(number).map(|seconds| Self::Later { seconds }),
        }
    }
}

/// What is wrong with an announcement at a freeze, if anything.
pub(crate) fn check(announced: &Announced, fallback: Fallback, frozen_unix_s: u64) -> Result<(), String> {
    match announced {
        Announced::Drand { round } => {
            if !(1..=ROUND_MAX).contains(round) {
                return Err(format!("round {round} is not one of 1 to {ROUND_MAX}"));
            }
            if QUICKNET.round_unix_s(*round) <= frozen_unix_s {
                return Err(format!(
                    "round {round} comes before the freeze, so it could be known when the list was made; the first that is \
                     possible is {}",
                    QUICKNET.first_round_from(frozen_unix_s + 1)
                ));
            }
        }
        Announced::Stated { source } if !is_line(source) => {
            return Err(
                "the source is not 1 to 1,024 bytes on one line, without a space at its ends".to_owned()
            );
        }
        Announced::Stated { .. } => {}
    }
    match (fallback, announced) {
        (Fallback::Later { seconds }, _) if !(1..=LATER_MAX_S).contains(&seconds) => Err(format!(
            "a later round comes 1 to {LATER_MAX_S} seconds after the announced one, not {seconds}"
        )),
        (Fallback::Later { .. }, Announced::Stated { .. }) => {
            Err("the fallback `later` is for drand, and the randomness is of another source".to_owned())
        }
        _ => Ok(()),
    }
}

/// The round that decides if `round` does not come: the first that comes `seconds` after it.
pub(crate) fn later_round(round: u64, seconds: u64) -> u64 {
    round + seconds.div_ceil(QUICKNET.period_s)
}
