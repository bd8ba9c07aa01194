//! Watches a run from outside and checks it against the promises.
//!
//! The auditor knows the true time, what each user asked and was answered, and (read on the wire) at which instant the
//! call was decided that let somebody in. It knows nothing of epochs, revisions, witnesses or rules. An entry counts
//! only if its holder received the pass. Invariant: it shares no code with the rules.

mod draw;
mod ending;
mod excuses;
mod ranks;
mod tickets;

use std::{collections::BTreeMap, sync::Arc};

use admission::{Departure, Lots, Mode, Policy};
use bytes::Bytes;
use gate::{PassClaims, Refusal, Reply, WaitStatus};

pub(crate) use self::tickets::Exchange;
use self::tickets::Tickets;
use crate::{
    cluster::START_UNIX_MS,
    inside::Visitors,
    judged::judged,
    plan::{Fault, Kind, NODE_TIMEOUT_MS, Plan},
};

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// More than N people entered within 60 s.
    TooMany,
    /// More people than a sub-window allows entered from the line within a sub-window.
    TooManyInASubWindow,
    /// Somebody entered before the zone opened.
    TooEarly,
    /// Somebody entered while as many people as may were inside.
    TooManyInside,
    /// A holder was told a rank that leaves out people who wait in front.
    RankTooLow,
    /// Somebody entered long before a person who joined earlier and polled all the time.
    OutOfOrder,
    /// A holder who polled lost the place.
    PlaceLost,
    /// A repeated call returned another pass, or none.
    PassDiffers,
    /// One ticket was let in under two names.
    EnteredTwice,
    /// People waited and polled, nothing was wrong, and slots stayed unused.
    Stalled,
    /// A waiting holder got an error because the store was in trouble.
    StoreTroubleShown,
    /// A ticket counted again whose holder had given up the place or the visit.
    LeftAndBack,
    /// The state in Redis contradicts itself.
    Unsound,
    /// A server took a ticket that none of its keys sealed.
    ForeignTaken,
    /// A server refused a ticket that one of its keys sealed, or sealed one with a key that it does not seal with.
    SealRefused,
    /// A ticket was exchanged for a visit after its visit had ended, or for one that begins anew.
    VisitAgain,
    /// Whoever repeated a join with its key got another place.
    TwoPlaces,
    /// Two servers read tickets by two draws of one event.
    DrawnTwice,
    /// A ticket got a number that the draw gave to another one, or to nobody.
    OtherNumber,
}

/// A ticket's name.
pub(crate) type Ticket = (u32, u64);

/// A decision to let somebody in.
#[derive(Clone, Copy, Debug)]
struct Decision {
    ms: u64,
    /// When it was by the zone's clock.
    at_ms: u64,
    unix_s: u64,
    by_join: bool,
    /// The primary started while it was cut off from the majority, and held the line; others hold it for less time than it serves calls.
    by_cut_off: bool,
    /// The server that made the call, unless it was not told what was decided.
    server: Option<usize>,
}

/// A call that was answered, as far as it can be seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) asked: u64,
    /// For how long it lay at a server's process that stood still.
    pub(crate) stood_ms: u64,
    pub(crate) now: u64,
    /// The user who took the ticket.
    pub(crate) user: usize,
    /// The server, and the number of its process.
    pub(crate) at: (usize, u64),
    /// That of the token or, for a join, of the answer.
    pub(crate) ticket: Option<Ticket>,
    /// The key that sealed the token that was shown; nothing for a join.
    pub(crate) key: Option<usize>,
    /// The key that sealed the token of the answer.
    pub(crate) sealed: Option<usize>,
    pub(crate) is_join: bool,
    /// It came from a copy of the ticket: another device, or another person.
    pub(crate) by_copy: bool,
}

/// A place that its holder took another one for, because a server refused the ticket.
#[derive(Clone, Debug)]
struct Earlier {
    ticket: Ticket,
    pass: Option<(u64, PassClaims)>,
    told: Vec<(usize, u64)>,
}

/// A poll that was answered with a place.
#[derive(Clone, Copy, Debug)]
struct Poll {
    /// When it was sent.
    sent: u64,
    /// How long the answer said to wait.
    told: u64,
    /// Whether a state was lost lately, so that everybody is told to wait.
    in_recovery: bool,
}

/// One user as the auditor knows it.
#[derive(Clone, Debug)]
struct Seen {
    kind: Kind,
    earlier: Vec<Earlier>,
    ticket: Option<Ticket>,
    /// When the join was sent, and when its answer came.
    joined: (u64, u64),
    /// When the first call was sent that may have taken this place: the reply of a join may be lost, and its key finds the place again.
    tried: u64,
    /// The same of a place that no answer has told of yet.
    trying: Option<u64>,
    /// The polls that were answered with a place.
    polls: Vec<Poll>,
    /// The first pass, and when it came.
    pass: Option<(u64, PassClaims)>,
    /// Which server returned the pass, and when, for each time.
    told: Vec<(usize, u64)>,
    /// The server's process that answered last has answered this user before.
    known_by: Vec<(usize, u64)>,
}

impl Seen {
    /// When the last poll was sent by whose answer the place was held. The first one after a silence of more than the idle time
    /// does not say so: the server answers from its view, and the place may end before it reports the poll. Nor does one in a recovery after
    /// that: everybody is told to wait.
    fn last_held(&self, idle_ms: u64) -> Option<u64> {
        // A join may be answered long after the one that took the place, whose key found it again.
        let (mut held, mut last, mut is_sure) = (None, self.tried, true);
        for &Poll { sent, in_recovery, .. } in &self.polls {
            is_sure &= sent <= last + idle_ms;
            if is_sure {
                held = Some(sent);
            }
            is_sure |= !in_recovery;
            last = sent;
        }
        held
    }
}

/// The life of a server's process.
#[derive(Clone, Copy, Debug)]
struct Life {
    server: usize,
    from: u64,
    until: u64,
}

/// What a policy says about who may enter.
#[derive(Clone, Copy, Debug)]
struct InForce {
    /// When it may be in force at the earliest and at the latest.
    from: u64,
    until: u64,
    /// Nobody enters, because an operator holds or closes the zone, or has deleted it.
    keeps_out: bool,
    is_deleted: bool,
    /// The most entries in a minute; no limit while everybody enters.
    n: u32,
    sub_windows: u32,
    /// The most people who may be inside; 0 for no limit.
    max_active: u32,
    /// When the zone opens by a clock that is right; 0 if it does not open later.
    opens_ms: i64,
}

impl InForce {
    /// A policy that may be in force from `from` on. `draws_ms` is when people enter after a draw, if there is one.
    fn of(policy: &Policy, from: u64, draws_ms: i64) -> Self {
        let everybody = policy.mode == Mode::Open;
        let opens_ms = match policy.opens_at.unix_s {
            _ if everybody => 0,
            _ if draws_ms != 0 => draws_ms,
            0 => 0,
            unix_s => i64::from(unix_s) * 1_000 - START_UNIX_MS,
        };
        Self {
            from,
            until: u64::MAX,
            keeps_out: policy.mode.keeps_out(),
            is_deleted: false,
            n: if everybody { u32::MAX } else { policy.admit_per_minute },
            sub_windows: policy.sub_windows,
            max_active: if everybody { 0 } else { policy.max_active },
            opens_ms,
        }
    }
}

/// The auditor.
pub(crate) struct Auditor {
    /// The policies of a run, in the order in which they were sent.
    policies: Vec<InForce>,
    /// The shortest and the longest idle time of the run: who holds a place by the one, and may hold it by the other.
    idle_ms: u64,
    longest_idle_ms: u64,
    period_ms: u64,
    /// The shortest life of a pass so far.
    pass_ms: u64,
    /// A configuration file defines the zone.
    from_file: bool,
    /// Nobody is told what no replica has, and each primary is followed by that replica.
    keeps_told: bool,
    visit_idle_ms: u64,
    pub(crate) visitors: Visitors,
    decided: BTreeMap<Ticket, Vec<Decision>>,
    users: Vec<Seen>,
    /// When something was wrong.
    disturbed: Vec<(u64, u64)>,
    /// When nobody has to enter because an operator holds the line, or the zone opens later.
    held: Vec<(u64, u64)>,
    /// When people enter after the draw of an event, by a clock that is right; 0 without a draw.
    draws_ms: i64,
    /// When a node began a line, and when that line opens: by the clock that the node had then.
    openings: Vec<(u64, u64)>,
    /// By how much a node's clock may be ahead or behind at most.
    clocks_ms: (i64, i64),
    /// When the clock of a node that ran was set ahead.
    set_ahead: Vec<u64>,
    /// When a store without any data came into use.
    wiped: Vec<u64>,
    /// When a node's clock was set.
    clock_set: Vec<u64>,
    /// When the zone's slot was half moved.
    pub(crate) half_moved: Vec<(u64, u64)>,
    /// When a demoted primary answered as a replica.
    pub(crate) demoted: Vec<(u64, u64)>,
    /// When the network was in two parts, each with servers and people.
    divided: Vec<(u64, u64)>,
    /// When which server could not tell the store anything.
    silent: Vec<(u64, u64, usize)>,
    /// The keys of joins: when the last new ticket was given out for one, and the ticket that a repeated join got.
    keys: BTreeMap<Bytes, (u64, Option<Ticket>)>,
    /// When each server read the register last.
    read_register: BTreeMap<usize, u64>,
    lives: Vec<Life>,
    /// When each server answered people.
    answers: Vec<Vec<u64>>,
    /// On which side of a division each server is.
    server_sides: Vec<usize>,
    /// The lines that nodes began: first epoch and first number.
    begun: Vec<Ticket>,
    /// The line of each epoch.
    lines: BTreeMap<u32, u32>,
    /// The tickets whose holders said that they give up the place or the visit, and when that was answered.
    given_up: BTreeMap<Ticket, Option<u64>>,
    /// When copies of tickets asked whose holders had replaced them or were gone, and were told to wait.
    lone_polls: Vec<u64>,
    tickets: Tickets,
    /// What the draw of an event gave to whom.
    lots: Option<Arc<Lots>>,
    /// When the first server read tickets by them.
    drawn_ms: u64,
    /// The draw was held again, with another order. Nothing can be judged from then on.
    is_drawn_anew: bool,
    /// When the order was to be drawn, and the line was not dealt by it.
    undealt: Vec<(u64, u64)>,
    /// The slots of another line that servers gave back without the tickets of those who took them: by the line and the instant, when that
    /// was last, and how many.
    slots_of_nobody: BTreeMap<(u64, u64), (u64, u64)>,
    /// When the entries of a segment were deleted.
    entries_lost: Vec<u64>,
    /// When servers read the draw, so that they know who has which number.
    draw_read: Vec<(usize, u64)>,
    /// When a primary was killed last. What no replica had is lost.
    fell_ms: Option<u64>,
    /// When a server of one line gave back what it remembered to the state of another one.
    lines_met: Option<u64>,
    judged: Judged,
    pub(crate) broken: Vec<(Promise, String)>,
    pub(crate) calls: u64,
}

judged! {
    /// Windows of a minute, and sub-windows, each of which ends with an entry.
    windows = "windows";
    /// Of those, windows in which nothing was wrong, so that no tolerance applies.
    exact_windows = "windows without a fault";
    /// Pairs of people of whom one may not enter before the other.
    pairs = "pairs in order";
    /// Minutes in which the slots must be used.
    minutes = "minutes of slots";
    /// Answers to people who hold a place.
    places = "places followed";
    /// Of those, while the zone's slot was half moved.
    half_moved_places = "places while the slot was half moved";
    /// Of those, while a demoted primary was up that refused writes.
    demoted_places = "places at a demoted primary";
    /// Ranks of which it is known how many people wait in front at least.
    ranks = "ranks";
    /// Of those, ranks of people whose place was drawn.
    drawn_ranks = "ranks after a draw";
    /// Passes that were asked for again.
    passes = "passes repeated";
    /// Entries while the people inside are limited.
    insides = "entries with people inside";
    /// Openings of a zone, with people who waited for them.
    openings = "openings";
    /// Tickets that were tried again after their holders had left.
    replays = "tickets tried after leaving";
    /// Tickets that were tried again after their holders had left and the store had been in trouble.
    lost_replays = "tickets tried after leaving and a fault";
    /// Joins that were repeated with their key, and found the place.
    repeated_joins = "joins repeated with their key";
    /// States of the zone in Redis, each after a script, in runs in which no key vanishes.
    states = "states in Redis";
    /// Of those, states in which slots count twice, because a server gave back slots of another line without their tickets.
    twice = "states with slots of two lines";
    /// Tickets that a server refused because none of its keys had sealed them.
    refused = "tickets refused by other keys";
    /// Of those, tickets that another server, or the same one later, then took: the place or the pass was still there.
    kept = "tickets taken after a refusal";
    /// Answers while servers go from one key to the next.
    rotated = "answers in a change of keys";
    /// Answers to copies of a ticket.
    copies = "answers to copied tickets";
    /// Of those, passes.
    copied_passes = "passes for copied tickets";
    /// Places of which there were copies and that entered, once.
    entered_once = "copied places that entered once";
    /// Exchanges of a ticket for a visit, by copies, of which it is known how they must end.
    exchanges = "tickets exchanged again";
    /// Tokens with a number that a draw gave.
    drawn = "numbers of a draw";
    /// Of the pairs in order, those of which one at least was drawn.
    drawn_pairs = "pairs in the order of a draw";
    /// Draws that were held again, because the store and all servers that knew of them were gone.
    drawn_anew = "draws held again";
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) users: u64,
    pub(crate) entries: u64,
    pub(crate) calls: u64,
    pub(crate) judged: Judged,
}

/// How long a store remembers the key of a join at least.
const KEY_MS: u64 = 119_000;

/// A slot counts for so long at most: its minute, and as long again for what the zone's clock lost in a failover.
const SLOT_MS: u64 = 120_000;

/// How long after a fault a cluster may need: node timeout, election, the way back of a node, and the hold.
const RECOVERY_MS: u64 = 30_000;

/// A server that is silent for longer than this part of the idle time may come too late to tell what it knows: a state is rebuilt for as long
/// as that.
const SILENCE: u64 = 3;

/// By how much a zone may open early, or a window, for each time that the clock of a node that runs is set ahead: the 250 ms of a
/// server's bounds, and 50 ms for the way of a call.
const CLOCK_MS: u64 = 300;

/// By how much a window may open early for each fault within it: the way of a call. Seeds 31 and 94 of the operators' zones need 1 ms and
/// 6 ms of it.
const WAY_MS: u64 = 50;

/// Every server hears of a decision within so long, if nothing is wrong: a view each second, and the ways of calls.
const VIEW_MS: u64 = 3_000;

/// Every server has the entries that others decided within so long, if nothing is wrong: it learns with a view who does not come back, and
/// with the next one who of them entered.
const HEARD_MS: u64 = 5_000;

/// People enter so long after an event by lot begins, in seconds.
const DRAW_S: i64 = 30;

/// How many numbers one epoch has to itself.
const SEGMENT: u64 = 65_536;

/// Two lines whose numbers are nearer than this may have a segment in common.
const CROWDED: u64 = 3 * SEGMENT;

/// By how much a node's clock may be ahead or behind at most: as it was at the start, and by all that it is set.
fn clocks_ms(plan: &Plan) -> (i64, i64) {
    let jumps = plan.faults.iter().filter_map(|(_, fault)| match fault {
        Fault::ClockJump { by_ms, .. } => Some(*by_ms),
        _ => None,
    });
    let (on, back) = jumps.fold((0, 0), |(on, back), by_ms| (on + by_ms.max(0), back + by_ms.min(0)));
    let offsets = || plan.clock_offsets_ms.iter().copied();
    (offsets().max().unwrap_or(0) + on, offsets().min().unwrap_or(0) + back)
}

impl Auditor {
    pub(crate) fn new(plan: &Plan) -> Self {
        let user = |user: &crate::plan::User| Seen {
            kind: user.kind,
            earlier: Vec::new(),
            ticket: None,
            joined: (0, 0),
            tried: 0,
            trying: None,
            polls: Vec::new(),
            pass: None,
            told: Vec::new(),
            known_by: Vec::new(),
        };
        let draws_ms = match plan.draw_s {
            0 => 0,
            draw_s => (i64::try_from(draw_s).expect("short") + DRAW_S) * 1_000,
        };
        let mut auditor = Self {
            policies: vec![InForce::of(&plan.policy, 0, draws_ms)],
            idle_ms: u64::from(plan.shortest_idle_s()) * 1_000,
            longest_idle_ms: u64::from(plan.longest_idle_s()) * 1_000,
            period_ms: u64::from(plan.policy.polling_period_ms),
            pass_ms: u64::from(plan.policy.pass_ttl_s) * 1_000,
            from_file: plan.from_file,
            keeps_told: plan.replicated && plan.data_nodes == 2,
            visit_idle_ms: u64::from(plan.policy.visit_idle_s) * 1_000,
            visitors: Visitors::default(),
            decided: BTreeMap::new(),
            users: plan.users.iter().map(user).collect(),
            disturbed: Vec::new(),
            held: Vec::new(),
            draws_ms,
            openings: Vec::new(),
            clocks_ms: clocks_ms(plan),
            set_ahead: Vec::new(),
            wiped: Vec::new(),
            clock_set: Vec::new(),
            half_moved: Vec::new(),
            demoted: Vec::new(),
            divided: Vec::new(),
            silent: Vec::new(),
            keys: BTreeMap::new(),
            read_register: BTreeMap::new(),
            lives: Vec::new(),
            answers: vec![Vec::new(); plan.servers],
            server_sides: plan.server_sides.clone(),
            begun: Vec::new(),
            lines: BTreeMap::new(),
            given_up: BTreeMap::new(),
            lone_polls: Vec::new(),
            tickets: Tickets::new(plan.servers),
            lots: None,
            drawn_ms: 0,
            is_drawn_anew: false,
            undealt: if plan.draw_s > 0 { vec![(0, u64::MAX)] } else { Vec::new() },
            slots_of_nobody: BTreeMap::new(),
            entries_lost: Vec::new(),
            draw_read: Vec::new(),
            fell_ms: None,
            lines_met: None,
            judged: Judged::default(),
            broken: Vec::new(),
            calls: 0,
        };
        auditor.hold(0, auditor.policies[0]);
        auditor
    }

    /// Nobody has to enter from `from` on if this policy says so. The clock that says that the zone opens may be behind all others.
    fn hold(&mut self, from: u64, by: InForce) {
        let opens_ms = u64::try_from(by.opens_ms - self.clocks_ms.1).unwrap_or(0);
        match by {
            InForce { keeps_out: true, .. } => self.held.push((from, u64::MAX)),
            InForce { opens_ms: 1.., .. } => self.held.push((from, opens_ms)),
            _ => {}
        }
    }

    fn breaks(&mut self, promise: Promise, how: String) {
        if self.broken.len() < 20 && !self.is_drawn_anew {
            self.broken.push((promise, how));
        }
    }

    /// What is wrong with the state after a script, if anything, and how many slots it says that people took in its minute: nobody counts
    /// twice, however often servers give back what they remember.
    pub(crate) fn state_after(&mut self, now: u64, script: &str, fault: Option<String>, taken: u64) {
        self.judged.states += 1;
        if let Some(fault) = fault {
            self.breaks(Promise::Unsound, format!("at {now}, after {script}: {fault}"));
        }
        let all = self.decided.values().map(|decisions| decisions.len() as u64).sum::<u64>();
        let recent = self.slots_of_nobody.values().filter(|(at, _)| now < at + SLOT_MS);
        let twice = recent.map(|(_, count)| count).sum::<u64>();
        if taken > all && twice > 0 {
            self.judged.twice += 1;
        }
        if taken > all + twice {
            let how =
                format!("at {now}, after {script}: {taken} slots count as taken, and {all} people entered");
            self.breaks(Promise::Unsound, how);
        }
    }

    /// A server of this line gives slots back to the state of `line_before`, which people took at these instants, and does not know who: those
    /// that the state has already count twice, however many servers give them back. Within one line the instants are the same, unless another
    /// line was met within the minute: its clock is not comparable, and servers of both tell the slot of one person.
    pub(crate) fn merges_slots_of_nobody(
        &mut self,
        now: u64,
        (line, line_before): (u64, u64),
        slots: BTreeMap<u64, u64>,
    ) {
        if line != line_before {
            self.lines_met = Some(now);
        } else if self.lines_met.is_none_or(|at| now >= at + SLOT_MS) {
            return;
        }
        for (instant, count) in slots.into_iter().filter(|(_, count)| *count > 0) {
            let (at, most) = self.slots_of_nobody.entry((line, instant)).or_default();
            (*at, *most) = (now, count.max(*most));
        }
    }

    /// Somebody joins with this key, and gets the ticket that it has; nothing if the store gives out a new one.
    pub(crate) fn joins_with(&mut self, now: u64, key: &Bytes, earlier: Option<Ticket>) {
        let before = self.keys.get(key).copied();
        match earlier {
            Some(ticket) => {
                self.judged.repeated_joins += 1;
                if before.is_some_and(|(_, of)| of.is_some_and(|of| of != ticket)) {
                    self.breaks(
                        Promise::TwoPlaces,
                        format!("at {now}, a key has {ticket:?} after {before:?}"),
                    );
                }
                let at = before.map_or(now, |(at, _)| at);
                self.keys.insert(key.clone(), (at, Some(ticket)));
            }
            None => {
                if let Some((at, _)) = before
                    && now < at + KEY_MS
                    && !self.is_disturbed(at.saturating_sub(RECOVERY_MS), now)
                {
                    self.breaks(Promise::TwoPlaces, format!("at {now}, a key of {at} ms gets a new ticket"));
                }
                self.keys.insert(key.clone(), (now, None));
            }
        }
    }

    /// Something is wrong during this time.
    pub(crate) fn disturb(&mut self, from: u64, until: u64) {
        self.disturbed.push((from, until + RECOVERY_MS));
    }

    /// A store without any data came into use.
    pub(crate) fn wipe(&mut self, now: u64) {
        self.wiped.push(now);
        // An operator's last change is lost with it if no server runs that has read of it.
        if !self.lives.iter().any(|life| life.until == u64::MAX && self.has_read_of_change(life)) {
            self.keep_policy_before();
        }
    }

    /// The entries of a segment were deleted.
    pub(crate) fn lose_entries(&mut self, now: u64) {
        self.entries_lost.push(now);
    }

    /// The primary is killed.
    pub(crate) fn primary_falls(&mut self, now: u64) {
        self.fell_ms = Some(now);
    }

    /// When an operator's last change was sent.
    fn last_change_ms(&self) -> u64 {
        self.policies.last().map_or(0, |of| of.from)
    }

    /// When a server read the register last.
    fn read_register_ms(&self, server: usize) -> u64 {
        self.read_register.get(&server).copied().unwrap_or(0)
    }

    /// Whether a process has read the register since an operator's last change.
    fn has_read_of_change(&self, life: &Life) -> bool {
        self.read_register_ms(life.server) >= self.last_change_ms().max(life.from)
    }

    /// An operator changes how long passes are valid.
    pub(crate) fn change_pass(&mut self, ttl_s: u32) {
        self.pass_ms = self.pass_ms.min(u64::from(ttl_s) * 1_000);
    }

    /// A node's clock was set. `ahead` says that the node runs, and the clock shows more than before.
    pub(crate) fn set_clock(&mut self, now: u64, ahead: bool) {
        self.clock_set.push(now);
        if ahead {
            self.set_ahead.push(now);
        }
    }

    /// The network is in two parts during this time.
    pub(crate) fn divide(&mut self, from: u64, until: u64) {
        self.divided.push((from, until));
    }

    /// A server can't reach the store, or does not run, during this time.
    pub(crate) fn silence(&mut self, from: u64, until: u64, server: usize) {
        self.silent.push((from, until, server));
    }

    pub(crate) fn server_starts(&mut self, now: u64, server: usize) {
        self.lives.push(Life { server, from: now, until: u64::MAX });
    }

    pub(crate) fn server_ends(&mut self, now: u64, server: usize) {
        if let Some(life) = self.lives.iter_mut().rev().find(|life| life.server == server) {
            life.until = now;
        }
        // If nobody else was told of an operator's last change, it may be lost with the primary: also if both were divided from the others
        // since then, or the server reached nobody, or if the store was emptied, or its primary fell, and nobody who had read of the change
        // has written it back.
        let since = self.last_change_ms();
        let is_apart = self.divided.iter().any(|&(from, until)| from <= since + 1_000 && until >= now);
        let sides = &self.server_sides;
        let hears = |life: &Life| !is_apart || sides[life.server] == sides[server];
        let runs = |life: &Life| life.until == u64::MAX && life.from + 1_000 < now && hears(life);
        let has_read = |life: &Life| runs(life) && self.has_read_of_change(life);
        let is_lost = || {
            let of_store = self.wiped.iter().copied().chain(self.fell_ms).max();
            of_store.is_some_and(|at| at >= since.max(self.read_register_ms(server)))
        };
        let nobody = |knows: &dyn Fn(&Life) -> bool| !self.lives.iter().any(knows);
        let reached_nobody = self
            .silent
            .iter()
            .any(|&(from, until, of)| of == server && from <= since + 1_000 && until >= now);
        if nobody(&runs) && (now < since + 5_000 || is_apart || reached_nobody)
            || nobody(&has_read) && is_lost()
        {
            self.keep_policy_before();
        }
    }

    /// An operator's change was sent at `from`.
    pub(crate) fn change(&mut self, from: u64, policy: &Policy) {
        self.send(from, InForce::of(policy, from, self.draws_ms));
    }

    /// An operator's wish to delete the zone was sent at `from`. The line stays, and so do the windows and the places.
    pub(crate) fn deletes(&mut self, from: u64) {
        let last = *self.policies.last().expect("that of the start");
        self.send(from, InForce { from, until: u64::MAX, keeps_out: true, is_deleted: true, ..last });
    }

    /// An operator sent this policy at `from`. The one before may stay in force until every server and every node heard of the change.
    fn send(&mut self, from: u64, policy: InForce) {
        let last = self.policies.last_mut().expect("that of the start");
        last.until = from + RECOVERY_MS + 60_000;
        let is_counted = last.max_active > 0 || policy.max_active == 0;
        self.policies.push(policy);
        if let Some(last) = self.held.last_mut() {
            last.1 = last.1.min(from);
        }
        self.hold(from, policy);
        // Nobody enters a zone whose visitors nobody has counted, until those who are active have shown themselves.
        self.disturb(from, if is_counted { from } else { from + 60_000 });
    }

    /// Whether an operator had deleted the zone, or has just defined it again, so that this server may not serve it at `at`. It hears of that
    /// once it reaches the store.
    fn may_be_unserved(&self, server: usize, at: u64) -> bool {
        let is_cut_since = |from: u64| {
            let silent =
                self.silent.iter().filter(|(.., of)| *of == server).map(|&(cut, until, _)| (cut, until));
            let mut cuts = self.divided.iter().copied().chain(silent);
            cuts.any(|(cut, until)| cut <= from + 1_000 && at <= until + VIEW_MS)
        };
        let again = |from: u64| self.policies.iter().find(|of| of.from > from && !of.is_deleted);
        let not_yet = |of: &InForce| at < of.from + RECOVERY_MS || is_cut_since(of.from);
        let mut deleted = self.policies.iter().filter(|of| of.is_deleted && of.from <= at);
        deleted.any(|of| again(of.from).is_none_or(not_yet))
    }

    /// A call decided to let a ticket's holder in.
    pub(crate) fn decided(
        &mut self,
        ms: u64,
        server: usize,
        ticket: Ticket,
        (at_ms, unix_s): (u64, u64),
        (by_join, cut_off_since): (bool, Option<u64>),
    ) {
        let before = self.decided.get(&ticket).and_then(|decisions| decisions.last()).copied();
        // While the zone's clock stands still, a repeated claim returns an entry of the same instant.
        if before.is_some_and(|before| before.ms < ms && (before.at_ms, before.unix_s) == (at_ms, unix_s)) {
            return;
        }
        // Several claims of one call get the verdict of the first one.
        if let Some(before) = before
            && before.ms < ms
            && self.knows_that_entered(before, ms)
        {
            let how = format!("at {ms}: {ticket:?} enters, and had entered at {}", before.ms);
            self.breaks(Promise::EnteredTwice, how);
        }
        let held_ms = self.period_ms + 1_000;
        self.decided.entry(ticket).or_default().push(Decision {
            ms,
            at_ms,
            unix_s,
            by_join,
            by_cut_off: cut_off_since.is_some_and(|since| held_ms < NODE_TIMEOUT_MS && ms >= since + held_ms),
            server: Some(server),
        });
    }

    /// A server was not told what its call decided at `ms`: no replica confirmed it, or the answer was lost.
    pub(crate) fn untold(&mut self, ms: u64, server: usize) {
        let of_call = |decision: &&mut Decision| decision.ms == ms && decision.server == Some(server);
        for decision in self.decided.values_mut().flatten().filter(of_call) {
            decision.server = None;
        }
    }

    /// A holder says that the place or the visit is given up.
    pub(crate) fn gives_up(&mut self, ticket: Ticket) {
        self.given_up.entry(ticket).or_default();
    }

    /// A server answered that.
    pub(crate) fn gave_up(&mut self, now: u64, ticket: Ticket, answer: &Result<Departure, Refusal>) {
        if matches!(answer, Ok(Departure::Place | Departure::Visit | Departure::Gone)) {
            self.given_up.entry(ticket).or_default().get_or_insert(now);
        }
    }

    /// When the place or the visit was left, so that each server knows of it and nothing was wrong until `now`. The other servers hear
    /// of it with their next view. A decision may be lost as any other if something is wrong.
    fn left_before(&self, ticket: Ticket, asked: u64, now: u64) -> Option<u64> {
        let at = self.given_up.get(&ticket).copied().flatten().filter(|at| at + VIEW_MS < asked)?;
        (!self.is_disturbed(at, now)).then_some(at)
    }

    /// Whether something was wrong at some time from `from` to `until`.
    fn is_disturbed(&self, from: u64, until: u64) -> bool {
        self.disturbed.iter().any(|&(begins, ends)| begins <= until && from <= ends)
    }

    /// A ticket was tried again after its holder had left.
    fn check_replay(&mut self, call: &Call, answer: &Result<Reply, Refusal>) {
        let (now, user) = (call.now, call.user);
        let Some(ticket) = call.ticket else { return };
        let is_back = if self.left_before(ticket, call.asked, now).is_some() {
            self.judged.replays += 1;
            answer.is_ok() && !self.is_without_number(call, answer)
        } else if let Some(&Some(at)) = self.given_up.get(&ticket)
            && self.knows_that_left(ticket, at, now)
        {
            // Until all servers have told the store what they know, nobody is told that a ticket has ended.
            self.judged.lost_replays += 1;
            matches!(answer, Ok(Reply::Entered { .. }))
        } else {
            false
        };
        if is_back {
            let how = format!("{now} ms: user {user} had left, {:?}: {answer:?}", self.given_up[&ticket]);
            self.breaks(Promise::LeftAndBack, how);
        }
    }

    /// A user's join, sent at `asked`, reaches a server.
    pub(crate) fn tries(&mut self, user: usize, asked: u64) {
        self.users[user].trying.get_or_insert(asked);
    }

    /// Whether a server's process runs that ran at `at`.
    fn runs_since(&self, server: usize, at: u64) -> bool {
        let is_it = |life: &Life| life.server == server && life.from < at && life.until == u64::MAX;
        self.lives.iter().any(is_it)
    }

    /// A server answered a call.
    pub(crate) fn answered(&mut self, call: &Call, answer: &Result<Reply, Refusal>) {
        let &Call { asked, stood_ms, now, user, at: (server, number), ticket, is_join, by_copy, .. } = call;
        self.calls += 1;
        self.answers[server].push(now);
        if self.check_seal(call, answer).is_break() {
            return;
        }
        if !is_join {
            self.check_replay(call, answer);
        }
        if by_copy {
            self.count_copy(call, answer);
        }
        if !is_join && self.users[user].ticket != ticket {
            self.answered_earlier(call, answer);
            return;
        }
        let idle_ms = self.idle_ms;
        let said = ticket.is_some_and(|ticket| self.given_up.contains_key(&ticket));
        let seen = &mut self.users[user];
        // Of a call that lies at a process nobody knows.
        let heard = asked + stood_ms;
        let known = seen.known_by.contains(&(server, number));
        if answer.is_ok() && !known {
            seen.known_by.push((server, number));
        }
        if is_join && answer.is_ok() {
            let before = (seen.ticket.replace(ticket.expect("of the answer")), seen.pass.take());
            let told = std::mem::take(&mut seen.told);
            if let (Some(ticket), pass) = before {
                seen.earlier.push(Earlier { ticket, pass, told });
            }
            seen.joined = (asked, now);
            seen.tried = seen.trying.take().unwrap_or(asked);
            seen.polls.clear();
        }
        match answer {
            Ok(Reply::Waiting { status: WaitStatus { polling_period_ms, rank, .. }, .. }) => {
                let during = |times: &[(u64, u64)]| {
                    u64::from(!is_join && times.iter().any(|&(from, until)| from <= asked && now <= until))
                };
                self.judged.places += u64::from(!is_join);
                self.judged.half_moved_places += during(&self.half_moved);
                self.judged.demoted_places += during(&self.demoted);
                let asked_again = seen.pass;
                // After a loss a holder is told to wait until the servers have said what they remember.
                // While a server is missing, this takes the idle time. The holder of a pass that has ended, or who has left, may wait so long.
                let more_ms = if said { idle_ms } else { 0 };
                let is_recovering =
                    self.disturbed.iter().any(|&(from, until)| (from..=until + more_ms).contains(&now));
                let is_valid = |at: u64, pass: &PassClaims| now < at + u64::from(pass.ttl_s) * 1_000;
                if !by_copy {
                    let told = u64::from(*polling_period_ms);
                    self.users[user].polls.push(Poll { sent: asked, told, in_recovery: is_recovering });
                }
                let seen = &self.users[user];
                // A server that told of the pass itself knows it, whatever the store lost.
                let told_it =
                    |&(by, at): &(usize, u64)| by == server && at < asked && self.runs_since(server, at);
                let told_it = seen.told.iter().any(told_it);
                // A call that was under way when the pass was told may have been answered before the entry, and a server that has not heard of
                // the entry answers from its view.
                if let Some((at, pass)) = asked_again
                    && let decided = self.decision_of(&pass).map_or(at, |decision| decision.ms)
                    && at.max(decided + VIEW_MS) <= asked
                    && (told_it || !is_recovering)
                    && is_valid(decided, &pass)
                {
                    let told = self.users[user].told.clone();
                    self.pass_lost((now, at), user, &told, &pass, "the holder waits again");
                }
                self.check_rank(call, *rank);
            }
            Ok(Reply::Entered { pass, .. }) => {
                let before = seen.pass;
                self.judged.passes += u64::from(before.is_some());
                if before.is_none_or(|(_, before)| before == *pass) {
                    seen.told.push((server, now));
                }
                match before {
                    None => seen.pass = Some((now, *pass)),
                    Some((at, before)) if before != *pass => {
                        let (epoch, seq) = (before.epoch, before.seq);
                        if (pass.epoch, pass.seq) != (epoch, seq) {
                            self.breaks(
                                Promise::EnteredTwice,
                                format!("{now} ms: user {user} has {before:?} and {pass:?}"),
                            );
                        } else {
                            let told = seen.told.clone();
                            self.pass_lost((now, at), user, &told, &before, &format!("now it is {pass:?}"));
                        }
                    }
                    Some(_) => {}
                }
            }
            Err(Refusal::Gone) => {
                let (pass, last, first) = (seen.pass, seen.last_held(idle_ms), seen.joined.1);
                match (pass, last) {
                    _ if said => {}
                    // A node's clock may be wrong, and with it what the pass says. It is valid for as long as it says,
                    // from the decision on, which may be long before the holder hears of it.
                    (Some((at, pass)), _)
                        if now + 2_000
                            < self.decision_of(&pass).map_or(at, |decision| decision.ms)
                                + u64::from(pass.ttl_s) * 1_000
                            && ticket == Some((pass.epoch, pass.seq)) =>
                    {
                        let told = self.users[user].told.clone();
                        self.pass_lost((now, at), user, &told, &pass, "it is gone");
                    }
                    (None, Some(last))
                        if heard <= last + idle_ms
                            && !self.nobody_knows(first, now)
                            && !self.is_crowded(ticket)
                            && !self.is_displaced(ticket, first, now)
                            && !self.is_of_lost_deal(first, now)
                            && !self.ended_untold(ticket, now) =>
                    {
                        let how = format!(
                            "{now} ms: user {user}'s ticket {ticket:?} is gone; it was last answered a poll sent at {last} ms"
                        );
                        self.breaks(Promise::PlaceLost, how);
                    }
                    _ => {}
                }
            }
            Err(Refusal::UnknownZone) if self.in_force(asked, now).any(|of| of.is_deleted) => {}
            // A server that does not serve the zone asks the store whether it is there, and says so if it may be.
            Err(Refusal::StoreAway { .. }) if self.may_be_unserved(server, now) => {}
            Err(refusal) => {
                // A server that started later may not know the ticket. A holder who was let in meanwhile waits for the pass.
                let seen = &self.users[user];
                let knows = self.runs_since(server, seen.joined.1);
                let is_in = ticket.is_some_and(|ticket| self.decided.contains_key(&ticket));
                // Whoever gave up the place, or was silent for too long, holds none.
                let holds = !said && heard <= seen.last_held(idle_ms).unwrap_or(seen.joined.0) + idle_ms;
                if known && knows && !is_in && !is_join && seen.pass.is_none() && holds {
                    self.breaks(
                        Promise::StoreTroubleShown,
                        format!("{now} ms: user {user}, ticket {ticket:?}, server {server}: {refusal:?}"),
                    );
                }
            }
        }
    }
}
