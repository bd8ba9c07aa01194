//! Breaks one rule at a time, so that the tests can see their auditor notice. Compiled for tests only.
//!
//! The broken rule is this thread's own: simulations that run side by side do not disturb one another.

use std::cell::Cell;

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The 60 s window is not looked at.
    Cap,
    /// The sub-window is not looked at.
    SubWindow,
    /// Absent tickets hold slots like present ones.
    Presence,
    /// A claim is granted whoever waits ahead.
    Order,
    /// A newcomer enters although people wait.
    Newcomer,
    /// The entries of a ticket are forgotten: it enters again.
    Twice,
    /// The sweep comes after half the idle time.
    EarlySweep,
    /// There is no sweep.
    NoSweep,
    /// Every seal is accepted.
    AnySeal,
    /// The base moves over people who still wait.
    Base,
    /// A restart forgets who entered.
    Restore,
    /// The estimate is rank x 60 / N.
    NaiveEta,
    /// The gate keeps the polls it answered to itself.
    Silence,
    /// The store believes the wall clock (broken by the simulated store).
    WallClock,
    /// The told wait is the estimate, whatever was told before.
    Growth,
}

thread_local! {
    static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Breaks `rule` on this thread, or none.
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}

/// Whether `rule` is broken on this thread.
#[must_use]
pub fn on(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}
