//! Ways to break the store in Redis on purpose, one at a time, so that tests can show that they notice.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{memory::Witness, scripts};
use crate::redis::client::Script;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No call says which revision its server has seen, and no script looks whether its process is another one.
    Revision = 1,
    /// Claims of the front are granted without a look at the windows.
    Cap = 2,
    /// What servers remember is forgotten when it is asked for.
    Restore = 3,
}

static BROKEN: AtomicU8 = AtomicU8::new(0);

/// Breaks a rule, for the whole process, or none.
pub fn set(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(0, |rule| rule as u8), Ordering::SeqCst);
}

pub(super) fn on(rule: Rule) -> bool {
    BROKEN.load(Ordering::SeqCst) == rule as u8
}

/// What is told of `witness`.
pub(super) fn forgetful(witness: &Witness) -> Witness {
    let mut told = witness.clone();
    if on(Rule::Restore) {
        told.log.clear();
        told.entries.clear();
        told.segments.clear();
    }
    told
}

/// The script that runs in place of `script`.
pub(super) fn script(script: &'static Script) -> &'static Script {
    if on(Rule::Cap) && script.name == scripts::ENTER.name {
        &scripts::ENTER_UNCAPPED
    } else if on(Rule::Revision) {
        scripts::UNMINDED.iter().find(|unminded| unminded.name == script.name).unwrap_or(script)
    } else {
        script
    }
}
