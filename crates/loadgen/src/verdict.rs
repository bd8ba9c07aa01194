//! Judges a run from what its users saw, and from nothing else.
//!
//! Invariant: a server that keeps its promises is accused of nothing, however slow the network is. What the server
//! decided it decided between a call's `sent` and `heard`, so each rule takes of the two the one that speaks for the
//! server, and speaks up only where no order of events inside those stretches would be right. The price is that a fault
//! smaller than the network's delay is not seen.
//!
//! What the rules take for granted: nobody but the rehearsal uses the zone, its policy stays as it is, and the clocks
//! of machines whose runs are merged agree to [`CLOCKS_MS`].

mod eta;
mod line;
mod order;
mod users;
mod windows;

#[cfg(test)]
mod tests;

use crate::{
    bilingual::{Bilingual, bilingual},
    report::{Check, Eta, Judgement, Plan},
    story::Story,
};

/// How far clocks may be apart, milliseconds: those of machines kept by NTP, and what two clocks drift in a minute (at
/// 500 parts in a million: 30 ms). Windows are held to their length less this.
pub const CLOCKS_MS: u32 = 100;

/// What the users' stories say about the waiting room's promises.
///
/// `lasted_ms` is how long the run was. Checks come in a fixed order, each once; those of SLOs are not among them.
#[must_use]
pub fn judge(plan: &Plan, lasted_ms: u32, stories: &[Story]) -> (Vec<Check>, Eta) {
    let line = line::Line::certain(stories);
    let (eta, eta_check) = eta::judge(stories);
    let mut checks = vec![
        windows::minute(plan, stories),
        windows::sub_window(plan, stories, &line),
        order::judge(stories),
        users::rank_rises(stories),
        users::entered_once(stories),
        users::evictions(plan, stories),
        line::slot_use(plan, stories),
        eta_check,
        users::errors(lasted_ms, stories),
    ];
    // Where nobody got a place or a pass, there is nothing that could have been wrong.
    if stories.iter().all(|story| story.arrived.is_none()) {
        for check in checks.iter_mut().filter(|check| check.name != "errors" || stories.is_empty()) {
            check.judgement = Judgement::Open;
            let nothing =
                bilingual!("Nobody got a place or a pass.", "자리나 입장권을 받은 사용자가 없습니다.");
            (check.note, check.note_ko) = (nothing.en.into_owned(), nothing.ko.into_owned());
        }
    }
    (checks, eta)
}

fn check(
    name: &str,
    judgement: Judgement,
    count: u64,
    figure: Option<f64>,
    note: Bilingual,
    worst: Option<Bilingual>,
) -> Check {
    let worst = worst.unwrap_or_default();
    Check {
        name: name.to_owned(),
        judgement,
        count,
        figure,
        note: note.en.into_owned(),
        worst: worst.en.into_owned(),
        note_ko: note.ko.into_owned(),
        worst_ko: worst.ko.into_owned(),
    }
}

fn judged(good: bool) -> Judgement {
    if good { Judgement::Good } else { Judgement::Bad }
}

/// A user, as it is named in examples: worker and number.
fn name(story: &Story) -> String {
    format!("{}/{}", story.who.0, story.who.1)
}

/// Milliseconds since the start, as seconds.
fn at(ms: u32) -> String {
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

/// Counts how many of the positions added so far lie below another: a Fenwick tree.
struct Ranks {
    tree: Vec<u32>,
}

impl Ranks {
    fn new(positions: usize) -> Self {
        Self { tree: vec![0; positions + 1] }
    }

    /// Adds one at a position below that given to `new`.
    fn add(&mut self, position: usize) {
        let mut i = position + 1;
        while i < self.tree.len() {
            self.tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }

    /// How many were added at positions below this one.
    fn below(&self, position: usize) -> u32 {
        let (mut i, mut sum) = (position.min(self.tree.len() - 1), 0);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }
}
