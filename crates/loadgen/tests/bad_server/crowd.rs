//! A crowd in virtual time: users come, poll at the given period, leave, pause and ask again, over a network with a
//! random delay in each direction. The same seed gives the same stories.

use std::{cmp::Reverse, collections::BinaryHeap};

use loadgen::story::{Call, End, Excused, LAPSE_MS, Rise, Story, ToldWait};

use super::room::{Answer, Room};

/// The properties of the crowd. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) users: u32,
    /// The users come within this time.
    pub(crate) come_within_ms: u32,
    /// The largest delay in each direction.
    pub(crate) delay_ms: u32,
    /// One in this many users leaves after some time; none with 0.
    pub(crate) leaves: u32,
    /// One in this many users pauses once for 8 to 50 s; none with 0.
    pub(crate) naps: u32,
    /// From when to when no call reaches the room, and no reply a user.
    pub(crate) away_ms: (u32, u32),
    /// The end of the run.
    pub(crate) until_ms: u32,
    pub(crate) seed: u64,
}

/// The time until a retry of a call that was lost.
const RETRY_MS: u32 = 3_000;
/// After calls were lost for this long, the user was cut off.
const CUT_OFF_MS: u32 = 10_000;

/// SplitMix64, which gives the same numbers on every machine.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        u32::try_from((z ^ (z >> 31)) % u64::from(most.saturating_add(1))).expect("below a u32")
    }
}

struct User {
    story: Story,
    ticket: Option<usize>,
    pass: u64,
    rank: Option<u64>,
    /// The last call: when it was sent, and the polling period in its reply.
    before: Option<(u32, u32)>,
    /// When the first of the calls was sent that were lost since the last reply.
    lost_ms: Option<u32>,
    /// When the last call was sent by which the user was certainly present.
    asks_since_ms: u32,
    /// The user did not ask as told before the next reply.
    paused: bool,
    leaves_ms: Option<u32>,
    naps_ms: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A call arrives at the server.
    Decide {
        sent_ms: u32,
    },
    Send,
}

/// Runs the crowd against the room.
pub(crate) fn run(crowd: Crowd, room: &mut Room) -> Vec<Story> {
    let mut random = Random(crowd.seed);
    let mut users = Vec::new();
    let mut steps = BinaryHeap::new();
    for id in 0..crowd.users {
        let comes_ms = random.up_to(crowd.come_within_ms);
        let one_in = |many: u32| many > 0 && id % many == many - 1;
        let leaves_ms = one_in(crowd.leaves).then(|| comes_ms + random.up_to(crowd.until_ms));
        let naps_ms = one_in(crowd.naps).then(|| 8_000 + random.up_to(42_000));
        users.push(User {
            story: Story {
                arrived: None,
                last_waiting: None,
                entered: None,
                first_told: None,
                opens: None,
                undrawn_ms: None,
                placed: None,
                longest_silence_ms: 0,
                lapses: 0,
                silences: Vec::new(),
                excused: None,
                told_period_ms: None,
                rises: 0,
                worst_rise: None,
                pass: None,
                second_pass: false,
                asked_again: false,
                unanswered_since_ms: None,
                who: (0, id),
                end: End::Waiting,
                ended_ms: crowd.until_ms,
            },
            ticket: None,
            pass: 0,
            rank: None,
            before: None,
            lost_ms: None,
            asks_since_ms: 0,
            paused: false,
            leaves_ms,
            naps_ms,
        });
        steps.push(Reverse((comes_ms, Step::Send, id)));
    }
    while let Some(Reverse((now_ms, step, id))) = steps.pop() {
        if now_ms > crowd.until_ms {
            break;
        }
        let user = &mut users[id as usize];
        let Step::Decide { sent_ms } = step else {
            if user.leaves_ms.is_some_and(|at| at <= now_ms) && user.story.entered.is_none() {
                (user.story.end, user.story.ended_ms) = (End::Left, now_ms);
            } else {
                steps.push(Reverse((
                    now_ms + random.up_to(crowd.delay_ms),
                    Step::Decide { sent_ms: now_ms },
                    id,
                )));
            }
            continue;
        };
        let call = Call { sent_ms, heard_ms: now_ms + random.up_to(crowd.delay_ms) };
        let is_away = |ms: u32| crowd.away_ms.0 <= ms && ms < crowd.away_ms.1;
        if is_away(now_ms) {
            steps.push(Reverse((user.lose(call), Step::Send, id)));
            continue;
        }
        let (ticket, answer) = match user.ticket {
            Some(ticket) => (ticket, room.entry(ticket, now_ms)),
            None => room.wait(now_ms),
        };
        if is_away(call.heard_ms) {
            steps.push(Reverse((user.lose(call), Step::Send, id)));
            continue;
        }
        user.ticket = Some(ticket);
        if let Some(mut pause_ms) = user.hear(call, answer) {
            if user.story.entered.is_none()
                && random.up_to(3) == 0
                && let Some(nap_ms) = user.naps_ms.take()
            {
                pause_ms = nap_ms;
                user.paused = true;
            }
            steps.push(Reverse((call.heard_ms + pause_ms, Step::Send, id)));
        }
    }
    users.into_iter().map(|user| user.story).collect()
}

impl User {
    /// The call or its reply is lost. Returns when the next call follows.
    fn lose(&mut self, call: Call) -> u32 {
        self.lost_ms.get_or_insert(call.sent_ms);
        call.heard_ms + RETRY_MS
    }

    /// Handles an answer. Returns the time until the next call, if there is one.
    fn hear(&mut self, heard: Call, answer: Answer) -> Option<u32> {
        // The room may have decided a call that was lost.
        let call = Call { sent_ms: self.lost_ms.take().unwrap_or(heard.sent_ms), ..heard };
        self.paused |= heard.sent_ms - call.sent_ms >= CUT_OFF_MS;
        let stale = matches!(answer, Answer::Wait { stale: true, .. });
        let mut is_certain = !stale;
        let story = &mut self.story;
        story.arrived.get_or_insert(if matches!(answer, Answer::Enter { .. }) { call } else { heard });
        if let Some((sent_ms, period_ms)) = self.before
            && story.entered.is_none()
            && !stale
        {
            let silence_ms = call.heard_ms - sent_ms;
            story.longest_silence_ms = story.longest_silence_ms.max(silence_ms);
            if silence_ms > 2 * period_ms + LAPSE_MS {
                story.lapse(call);
                is_certain = false;
            }
        }
        if std::mem::take(&mut self.paused) || is_certain || self.before.is_none() {
            self.asks_since_ms = heard.sent_ms;
        } else {
            story.excuse(Excused { from_ms: self.asks_since_ms, to_ms: heard.sent_ms });
        }
        match answer {
            Answer::Enter { pass } if story.entered.is_none() => {
                story.entered = Some(call);
                story.pass = std::num::NonZeroU64::new(pass);
                (story.end, story.ended_ms) = (End::Entered, call.heard_ms);
                self.pass = pass;
                story.who.1.is_multiple_of(3).then_some(1_000)
            }
            Answer::Enter { pass } => {
                story.asked_again = true;
                story.second_pass |= pass != self.pass;
                None
            }
            Answer::Gone => {
                (story.end, story.ended_ms) = (End::Gone, call.heard_ms);
                None
            }
            Answer::Wait { rank, eta_s, range_s, period_ms, .. } => {
                story.told_period(period_ms);
                if stale {
                    self.before.get_or_insert((heard.sent_ms, period_ms));
                    return Some(period_ms);
                }
                story.last_waiting = Some(heard);
                story.first_told.get_or_insert(ToldWait { eta_s, range_s, rank, at_ms: call.heard_ms });
                if let Some(from) = self.rank.filter(|&from| from < rank) {
                    story.rises += 1;
                    let rise = Rise { from, to: rank, at_ms: call.heard_ms };
                    if story.worst_rise.is_none_or(|worst| rise.to - rise.from > worst.to - worst.from) {
                        story.worst_rise = Some(rise);
                    }
                }
                self.rank = Some(rank);
                self.before = Some((heard.sent_ms, period_ms));
                Some(period_ms)
            }
        }
    }
}
