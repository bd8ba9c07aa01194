//! Breaks one rule of the store in Redis on purpose, so that tests can show that they notice it.
//!
//! Invariant: at most one rule is broken at a time, for the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{memory::Witness, scripts};
use crate::redis::client::Script;

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Calls carry no revision, and scripts do not check whether another process holds the state.
    Revision = 1,
    /// Claims of the front are granted without a check of the windows.
    Cap = 2,
    /// Servers give back an empty memory.
    Restore = 3,
}

static BROKEN: AtomicU8 = AtomicU8::new(0);

/// Breaks a rule for the whole process; `None` breaks no rule.
pub fn set(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(0, |rule| rule as u8), Ordering::SeqCst);
}

pub(super) fn on(rule: Rule) -> bool {
    BROKEN.load(Ordering::SeqCst) == rule as u8
}

/// The part of `witness` that is given to Redis.
pub(super) fn emptied(witness: &Witness) -> Witness {
    let mut given = witness.clone();
    if on(Rule::Restore) {
        given.log.clear();
        given.entries.clear();
        given.segments.clear();
    }
    given
}

/// The script that runs in place of `script`.
pub(super) fn script(script: &'static Script) -> &'static Script {
    if on(Rule::Cap) && script.name == scripts::ENTER.name {
        &scripts::ENTER_UNCAPPED
    } else if on(Rule::Revision) {
        scripts::WITHOUT_PROCESS_CHECK.iter().find(|other| other.name == script.name).unwrap_or(script)
    } else {
        script
    }
}
