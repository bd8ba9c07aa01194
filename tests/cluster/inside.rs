//! What a run's auditor knows of the people inside, where their number is limited.
//!
//! A visitor is inside from the decision to let them in until they leave, or are not active for the idle time. Invariant: it
//! shares no code with the rules.

use std::collections::BTreeMap;

use crate::auditor::Ticket;

/// One visit.
#[derive(Clone, Debug, Default)]
struct Stay {
    /// When a server that took it in, and lived to report it, saw the visitor: server, process, time.
    active: Vec<(usize, u64, u64)>,
    left: Option<u64>,
}

/// The visitors of a run.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    stays: BTreeMap<Ticket, Stay>,
    /// When processes ended: server, process, time.
    ended: Vec<(usize, u64, u64)>,
}

/// A server reports activity within so long, if it can reach the store.
const REPORT_MS: u64 = 3_000;

impl Visitors {
    pub(crate) fn active(&mut self, now: u64, ticket: Ticket, (server, process): (usize, u64)) {
        self.stays.entry(ticket).or_default().active.push((server, process, now));
    }

    pub(crate) fn leaves(&mut self, now: u64, ticket: Ticket) {
        self.stays.entry(ticket).or_default().left = Some(now);
    }

    pub(crate) fn process_ends(&mut self, now: u64, server: usize, process: u64) {
        self.ended.push((server, process, now));
    }

    /// Whether the holder of a ticket who was let in at `decided` is inside at `at`, if a visit ends `idle_ms` after the last activity.
    pub(crate) fn is_inside(&self, ticket: Ticket, decided: u64, at: u64, idle_ms: u64) -> bool {
        let lately = |seen: u64| seen <= at && at < seen + idle_ms;
        let Some(stay) = self.stays.get(&ticket) else { return lately(decided) };
        let reported = |&&(server, process, seen): &&(usize, u64, u64)| {
            let ends = |&(of, number, end): &(usize, u64, u64)| {
                (of, number) == (server, process) && end < seen + REPORT_MS
            };
            !self.ended.iter().any(ends)
        };
        stay.left.is_none_or(|left| at < left)
            && (lately(decided) || stay.active.iter().filter(reported).any(|&(.., seen)| lately(seen)))
    }
}
