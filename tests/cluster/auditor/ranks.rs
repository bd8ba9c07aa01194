//! Whether people are told a rank that counts everybody who waits in front of them.
//!
//! Invariant: somebody counts as certainly in front only if the order of the two is known, and only while nothing was wrong for so long
//! that every server had the time to hear of it. Who counts besides is not judged: tickets whose holders never heard of them wait, too.

use super::{Auditor, Call, Promise, RECOVERY_MS, Seen, VIEW_MS};

impl Auditor {
    /// A holder is told this rank.
    pub(super) fn check_rank(&mut self, call: &Call, rank: u64) {
        let Some(least) = self.least_ahead(call) else { return };
        let is_drawn = self.position(&self.users[call.user]).is_some();
        self.judged.ranks += 1;
        self.judged.drawn_ranks += u64::from(is_drawn);
        if rank < 1 + least {
            let how = format!("{call:?}: told rank {rank}, and {least} people wait in front");
            self.breaks(Promise::RankTooLow, how);
        }
    }

    /// How many people certainly wait in front of a holder while a call is under way; `None` where that cannot be known.
    fn least_ahead(&self, call: &Call) -> Option<u64> {
        let &Call { asked, now, user, ticket, .. } = call;
        // The people in front may have been silent for an idle time, and are there unless a fault of that time took them.
        let lately = asked.saturating_sub(self.longest_idle_ms + RECOVERY_MS);
        let was_dealt_lately =
            || self.undealt.iter().any(|&(_, until)| until.saturating_add(VIEW_MS) > asked);
        if self.is_disturbed(lately, now) || was_dealt_lately() {
            return None;
        }
        let own = &self.users[user];
        let (line, _) = ticket?;
        let waits = |seen: &&Seen| {
            let Some(ticket) = seen.ticket else { return false };
            let may_have_ended = self.decided.contains_key(&ticket) || self.given_up.contains_key(&ticket);
            let heard = seen.last_held(self.idle_ms).unwrap_or(seen.joined.0);
            ticket.0 == line
                && !may_have_ended
                && seen.joined.1 + VIEW_MS < asked
                && heard + self.idle_ms > now
        };
        let ahead = self.users.iter().filter(waits).filter(|seen| self.is_ahead(seen, own));
        Some(ahead.count() as u64)
    }
}
