//! A small waiting room that keeps its promises, or breaks one of them on demand.
//!
//! Invariant: without a fault it is correct for any order and times of calls, as long as `now_ms` never falls. Windows are
//! exact and closed, the first `m` present users hold the `m` free slots, and a rank counts the live tickets ahead.

/// What is wrong with the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Admits 1.5 times the limit in each minute.
    TooManyAMinute,
    /// Keeps the limit of the minute, but admits all of it at once although people wait.
    TooManyASubWindow,
    /// The first user who asks gets the slot.
    Reorders,
    /// Ranks rise and fall.
    RaisesRanks,
    /// One user in ten loses the place while polling.
    LosesUsers,
    /// A user who asks again receives another pass.
    SecondPass,
    /// All users receive the same pass.
    OnePass,
    /// Admits nobody in every other sub-window.
    WastesSlots,
    /// The expected wait is a quarter of the right one.
    WrongEta,
    /// Answers a second late, and for 3 s in every 20 s not at all. The HTTP server does this.
    Stalls,
    /// One user in five asks as told and is never let in, while all others are.
    Forgets(Way),
    /// Streams tell nothing that can be read. The HTTP server does this.
    #[allow(dead_code, reason = "only one of the tests has listeners")]
    Mute(Mute),
}

/// What a user is answered who is never let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To ask again in an hour.
    InAnHour,
    /// The last known place, marked stale.
    Stale,
    /// The right place, so late that the user may have counted as absent. The HTTP server does this.
    #[allow(dead_code, reason = "only one of the tests waits for replies")]
    Late,
}

/// Of so many users one is forgotten.
const FORGOTTEN: usize = 5;

/// What a stream says that tells nothing.
#[allow(dead_code, reason = "only one of the tests has listeners")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mute {
    /// Comments.
    Comments,
    /// One `wait` on the first stream of a user, and then comments.
    OneWait,
    /// Events `wait` whose data is no JSON.
    Unreadable,
    /// Events of a name that nobody knows.
    Unknown,
    /// The end of the stream, in order.
    Reconnect,
}

/// The policy. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) admit_per_minute: u32,
    pub(crate) sub_windows: u32,
    pub(crate) polling_ms: u32,
    pub(crate) idle_ms: u32,
    /// Nobody is admitted before this many users have come, as in a sale that begins with a line.
    pub(crate) opens_at: usize,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Enter { pass: u64 },
    Wait { rank: u64, eta_s: u32, range_s: (u32, u32), period_ms: u32, stale: bool },
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    seen_ms: u32,
    period_ms: u32,
    polls: u32,
    pass: Option<u64>,
    gone: bool,
    forgotten: bool,
}

/// The room.
#[derive(Debug)]
pub(crate) struct Room {
    policy: Policy,
    fault: Fault,
    tickets: Vec<Ticket>,
    /// The times of entries, oldest first.
    log: Vec<u32>,
    passes: u64,
}

impl Room {
    pub(crate) fn new(policy: Policy, fault: Fault) -> Self {
        Self { policy, fault, tickets: Vec::new(), log: Vec::new(), passes: 0 }
    }

    /// Takes a place, or admits at once while nobody waits. Returns the number of the ticket.
    pub(crate) fn wait(&mut self, now_ms: u32) -> (usize, Answer) {
        let nobody = !self.tickets.iter().any(|ticket| self.is_present(ticket, now_ms));
        let id = self.tickets.len();
        let period_ms = self.policy.polling_ms;
        let forgotten = self.forgets(id).is_some();
        self.tickets.push(Ticket {
            seen_ms: now_ms,
            period_ms,
            polls: 0,
            pass: None,
            gone: false,
            forgotten,
        });
        if forgotten {
            return (id, self.place(id, now_ms));
        }
        let jumps = self.fault == Fault::Reorders && id % 2 == 1 && self.free(true, now_ms) > 0;
        if jumps || (nobody && self.free(false, now_ms) > 0) {
            return (id, self.admit(id, now_ms));
        }
        (id, self.place(id, now_ms))
    }

    /// Asks to enter.
    pub(crate) fn entry(&mut self, id: usize, now_ms: u32) -> Answer {
        let Some(&ticket) = self.tickets.get(id) else { return Answer::Gone };
        if let Some(pass) = ticket.pass {
            if self.fault == Fault::SecondPass {
                self.passes += 1;
                return Answer::Enter { pass: self.passes };
            }
            return Answer::Enter { pass };
        }
        let lost = self.fault == Fault::LosesUsers && id % 10 == 3 && ticket.polls == 3;
        if lost || !self.is_live(&ticket, now_ms) {
            self.tickets[id].gone = true;
            return Answer::Gone;
        }
        self.tickets[id].seen_ms = now_ms;
        self.tickets[id].polls += 1;
        if ticket.forgotten {
            return self.place(id, now_ms);
        }
        let before = match self.fault {
            // Every other one stands behind all the others, and so is overtaken for long, however busy the machine is.
            Fault::Reorders if id % 2 == 1 => 0,
            Fault::Reorders => {
                let others = self.tickets.iter().skip(1).step_by(2);
                others.filter(|t| self.is_present(t, now_ms)).count()
            }
            _ => self.tickets[..id].iter().filter(|t| self.is_present(t, now_ms)).count(),
        };
        if before < self.free(true, now_ms) { self.admit(id, now_ms) } else { self.place(id, now_ms) }
    }

    /// How a user with this number is forgotten, if so.
    pub(crate) fn forgets(&self, id: usize) -> Option<Way> {
        match self.fault {
            Fault::Forgets(way) if id % FORGOTTEN == FORGOTTEN - 1 => Some(way),
            _ => None,
        }
    }

    fn is_live(&self, ticket: &Ticket, now_ms: u32) -> bool {
        ticket.pass.is_none() && !ticket.gone && now_ms - ticket.seen_ms < self.policy.idle_ms
    }

    fn is_present(&self, ticket: &Ticket, now_ms: u32) -> bool {
        self.is_live(ticket, now_ms)
            && !ticket.forgotten
            && now_ms - ticket.seen_ms <= 2 * ticket.period_ms + 500
    }

    fn admit(&mut self, id: usize, now_ms: u32) -> Answer {
        if self.fault != Fault::OnePass || self.passes == 0 {
            self.passes += 1;
        }
        self.log.push(now_ms);
        self.tickets[id].pass = Some(self.passes);
        Answer::Enter { pass: self.passes }
    }

    /// The limits of a minute and of a sub-window, and the length of a sub-window.
    fn caps(&self) -> (usize, usize, u32) {
        let n = self.policy.admit_per_minute;
        let cap = match self.fault {
            Fault::TooManyAMinute => n + n.div_ceil(2),
            _ => n,
        };
        let sub = match self.fault {
            Fault::TooManyASubWindow => cap,
            _ => cap.div_ceil(self.policy.sub_windows),
        };
        (cap as usize, sub as usize, 60_000 / self.policy.sub_windows)
    }

    fn free(&self, strict: bool, now_ms: u32) -> usize {
        if self.tickets.len() < self.policy.opens_at {
            return 0;
        }
        let (cap, sub, sub_ms) = self.caps();
        if self.fault == Fault::WastesSlots && (now_ms / sub_ms) % 2 == 1 {
            return 0;
        }
        let within = |ms: u32| self.log.iter().rev().take_while(|&&at| at + ms >= now_ms).count();
        let minute = cap.saturating_sub(within(60_000));
        if strict { minute.min(sub.saturating_sub(within(sub_ms))) } else { minute }
    }

    fn place(&mut self, id: usize, now_ms: u32) -> Answer {
        let (mut rank, mut present) = (1, 0);
        for ticket in &self.tickets[..id] {
            rank += u64::from(self.is_live(ticket, now_ms));
            present += usize::from(self.is_present(ticket, now_ms));
        }
        if self.fault == Fault::RaisesRanks {
            // More than the users who enter between two polls, so that nobody's entry hides the rise.
            rank += u64::from(now_ms / 5_000 % 2) * 40;
        }
        let slot_ms = self.slot(present, now_ms) - now_ms;
        let period_ms = match self.forgets(id) {
            Some(Way::InAnHour) => 3_600_000,
            Some(_) => self.policy.polling_ms,
            None => slot_ms.clamp(100, self.policy.polling_ms),
        };
        let stale = self.forgets(id) == Some(Way::Stale);
        self.tickets[id].period_ms = period_ms;
        let part = if self.fault == Fault::WrongEta { 4 } else { 1 };
        let eta_s = slot_ms.div_ceil(1_000) / part;
        Answer::Wait { rank, eta_s, range_s: (eta_s * 4 / 5, eta_s * 5 / 4 + 3), period_ms, stale }
    }

    /// When the slot of a user with this many present users ahead becomes free.
    fn slot(&self, ahead: usize, now_ms: u32) -> u32 {
        let (cap, sub, sub_ms) = self.caps();
        let kept = &self.log[self.log.len().saturating_sub(cap.max(sub))..];
        let mut log = kept.to_vec();
        for _ in 0..=ahead {
            let after = |many: usize, ms: u32| {
                log.len().checked_sub(many).map_or(now_ms, |i| now_ms.max(log[i] + ms + 1))
            };
            let at = after(cap, 60_000).max(after(sub, sub_ms));
            log.push(at);
        }
        log[log.len() - 1]
    }
}
