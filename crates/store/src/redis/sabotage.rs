//! Breaks one rule of the store in Redis on purpose, so that tests can show that they notice it.
//!
//! Invariant: at most one rule is broken at a time, for the whole process.

use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use super::zone_memory::Witness;
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
    /// What a lost process may have decided counts as not done.
    Presumption = 4,
    /// The presumption ends when the first server has spoken.
    Owed = 5,
    /// A server that does not know the zone's clock advances it by any time.
    Clock = 6,
    /// A state that was lost twice forgets the first epoch.
    Past = 7,
    /// A ticket that only lost states knew is gone.
    Unknown = 8,
    /// All lines begin with the same number.
    Apart = 9,
    /// People enter however many are inside.
    Inside = 10,
    /// After a loss, nobody is inside who has not shown themselves.
    Unseen = 11,
    /// Nobody looks whether the entries of freed segments are missing.
    Kept = 12,
    /// A zone opens at once, whatever its policy says.
    Opening = 13,
    /// A state that lost a deal knows nothing of its numbers.
    Dealt = 14,
    /// People enter before the line is dealt by its draw.
    Undrawn = 15,
    /// Each server of a line tells its entries by its own idea of the line's clock.
    Once = 16,
    /// What a lost state presumed counts as done.
    Anew = 17,
    /// Servers learn nothing of who ended by calls of other servers.
    Ended = 18,
    /// The bounds of an earlier epoch do not keep the zone's clock from running ahead.
    Earlier = 19,
    /// A mark of another process counts, which a full copy of its data brought.
    Mark = 20,
    /// Nobody looks whether what says who does not come back is missing.
    Gone = 21,
}

impl Rule {
    /// The text of the scripts that keeps the rule, and what is there instead while the rule is broken.
    fn edits(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Revision => &[("if is_other then\n      begin_epoch", "if false then\n      begin_epoch")],
            Self::Cap => &[("slots_free = min(free(true), room())", "slots_free = 1000000")],
            Self::Restore => &[],
            Self::Presumption => &[
                ("  if since then presume(since) end\n", ""),
                ("      presume(blind_since)\n", ""),
                (
                    "z.presumed_at, z.presumed = z.now, max(z.n - used, 0)",
                    "z.presumed_at, z.presumed = z.now, 0",
                ),
            ],
            Self::Owed => &[("have_all_spoken = false", "have_all_spoken = true")],
            Self::Clock => &[
                ("  elseif is_other then\n    now = z.now\n", ""),
                ("if leap_ms > 0 then note_leap(before) end", ""),
            ],
            Self::Past => &[("if epoch ~= z.epoch and not find_past(epoch) then", "if false then")],
            Self::Unknown => &[("or unknown and not is_lost", "")],
            Self::Apart => &[("z.floor = AFTER_LOSS + spot", "z.floor = AFTER_LOSS")],
            Self::Inside => {
                &[("return max(z.max_active - most_inside() - presumed_slots(), 0)", "return 1000000")]
            }
            Self::Unseen => {
                &[("z.unseen, z.unseen_told = max(most - z.inside, 0), 1", "z.unseen, z.unseen_told = 0, 1")]
            }
            Self::Opening => &[("z.now < max(z.hold_until, z.opens) or", "z.now < z.hold_until or")],
            Self::Dealt => &[
                (
                    "if not of_line and (z.now < z.recover_until or may_be_dealt()) then",
                    "if of_line == nil and z.now < z.recover_until then",
                ),
                ("if taken == 1 and w.drawn_end > z.drawn_end then", "if false then"),
            ],
            Self::Undrawn => &[("return z.draw > 0 and z.draw ~= z.drawn end", "return false end")],
            Self::Once => &[("drift, is_first = tonumber(first), false", "is_first = true")],
            Self::Anew => &[("    z.earlier_at, z.earlier = z.presumed_at, z.presumed\n", "")],
            Self::Ended => &[("if is_left_behind or s.ended > has then", "if false then")],
            Self::Earlier => &[("local is_ahead = hi >= z.now and shown > hi", "local is_ahead = false")],
            Self::Mark => &[("string.sub(text, 1, #own_mark) == own_mark", "true")],
            Self::Gone => {
                &[("if s.ended > 0 and s.index >= z.base and s.live + s.stamped > 0 then", "if false then")]
            }
            Self::Kept => &[("  if next(freed) then add_kept(freed, parts) end\n", "")],
        }
    }
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
    static BROKEN_SCRIPTS: LazyLock<Mutex<HashMap<(u8, &str), &'static Script>>> =
        LazyLock::new(Mutex::default);
    let Some(rule) = RULES.into_iter().find(|rule| on(*rule)) else { return script };
    let mut scripts = BROKEN_SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
    scripts.entry((rule as u8, script.name)).or_insert_with(|| {
        let edited = rule
            .edits()
            .iter()
            .fold(script.text.to_string(), |text, (kept, broken)| text.replace(kept, broken));
        Box::leak(Box::new(Script::new(script.name, &edited)))
    })
}

/// All rules.
pub const RULES: [Rule; 21] = [
    Rule::Revision,
    Rule::Cap,
    Rule::Restore,
    Rule::Presumption,
    Rule::Owed,
    Rule::Clock,
    Rule::Past,
    Rule::Unknown,
    Rule::Apart,
    Rule::Inside,
    Rule::Unseen,
    Rule::Kept,
    Rule::Opening,
    Rule::Dealt,
    Rule::Undrawn,
    Rule::Once,
    Rule::Anew,
    Rule::Ended,
    Rule::Earlier,
    Rule::Mark,
    Rule::Gone,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::scripts;

    #[test]
    fn each_edit_changes_a_script() {
        let scripts = [&scripts::JOIN, &scripts::ENTER, &scripts::BEAT, &scripts::POLICY, &scripts::RESTORE];
        for rule in RULES {
            for (kept, _) in rule.edits() {
                assert!(scripts.iter().any(|script| script.text.contains(kept)), "{rule:?}: {kept}");
            }
        }
    }
}
