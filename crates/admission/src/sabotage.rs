//! Breaks one rule at a time, so that tests can show that their checks notice it. Compiled for tests only.
//!
//! Invariant: a broken rule affects only the thread that broke it, so that simulations can run side by side.

use std::cell::Cell;

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The 60 s window is ignored.
    Cap,
    /// The sub-window is ignored.
    SubWindow,
    /// A zone opens at once, whatever its policy says.
    Opening,
    /// Absent tickets hold slots as present ones do.
    Presence,
    /// A claim is granted regardless of the people ahead.
    Order,
    /// A newcomer enters although people wait.
    Newcomer,
    /// The entry of a ticket is forgotten, so that it enters again.
    Twice,
    /// Silent tickets are evicted after half the idle time.
    EarlySweep,
    /// Silent tickets are never evicted.
    NoSweep,
    /// Every seal is accepted.
    AnySeal,
    /// The base moves past people who still wait.
    Base,
    /// A restart forgets who entered.
    Restore,
    /// The gate does not report the polls that it answered.
    Silence,
    /// The simulated store uses the wall clock.
    WallClock,
    /// The number of people inside is not limited.
    Inside,
    /// The gate does not report the activity of visitors.
    Activity,
    /// Leaving ignores the epoch of the ticket.
    LeaveEpoch,
    /// A holder who gives up the place keeps it.
    GivingUp,
    /// A ticket whose visit was left enters again.
    Replay,
    /// Each exchange of a ticket begins another visit.
    FreshVisit,
    /// A user is told the newest estimate, even if it grew.
    Growth,
}

thread_local! {
    static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Breaks `rule` on this thread; `None` mends the broken one.
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}

/// Whether any rule is broken on this thread.
#[must_use]
pub fn any() -> bool {
    BROKEN.get().is_some()
}

/// Whether `rule` is broken on this thread.
#[must_use]
pub fn on(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}
