//! The checks of the promises: judges a run only from what its users saw. `conclusion.rs` makes one verdict of all checks.
//!
//! Invariant: a server that keeps its promises passes every check, however slow the network is. The server decided each
//! call between `sent` and `heard`. Each rule uses the one of the two times that favours the server, so it reports a
//! fault only if no order of events within these intervals would be correct. The price is that a fault smaller than the
//! network delay is not seen.
//!
//! A check is good only if the run could have shown the fault. Otherwise it is open, and its sentence says what is missing
//! and how long or how large a run must be. If the zone gave no places at all, nothing was rehearsed, and every check is open.
//!
//! Assumptions: only the rehearsal uses the zone, its policy does not change, and the clocks of machines whose runs are
//! merged differ by at most [`CLOCKS_MS`].

mod draw;
mod eta;
mod hindrance;
mod least_eta_error;
mod line;
mod opening;
mod order;
mod ranks;
mod slot_use;
mod span;
mod users;
mod windows;

#[cfg(test)]
mod tests;

use crate::{
    bilingual::{Bilingual, bilingual},
    paper::Paper,
    report::{Check, Eta, Judgement, Plan},
    story::{End, Story},
};

/// The largest difference between clocks, milliseconds: that of machines with NTP, and the drift of two clocks within a
/// minute (30 ms at 500 parts in a million). The checks shorten each window by this time.
pub const CLOCKS_MS: u32 = 100;

/// Checks the promises of the waiting room against the stories of the users.
///
/// `lasted_ms` is the duration of the run. Each check comes once, in a fixed order; objectives are not included. The check of the
/// opening is there if users were told one or the run was made for one. Those of a draw are there if the run was made for one, and users
/// were told when the zone opens.
#[must_use]
pub fn judge(plan: &Plan, lasted_ms: u32, stories: &[Story], papers: &[Paper]) -> (Vec<Check>, Eta) {
    let line = line::Line::certain(stories, line::AGAIN_MS);
    let slots_from_ms = opening::slots_from_ms(stories);
    let drawn = draw::Drawn::of(plan, stories, papers);
    let (eta, eta_check) = eta::judge(stories);
    let mut checks = vec![
        windows::minute(plan, stories, slots_from_ms),
        windows::sub_window(plan, stories, &line, slots_from_ms),
        order::judge(stories, drawn.as_ref().map(draw::Drawn::frozen_by_ms)),
        users::rank_rises(stories),
        users::entered_once(stories),
        users::polling_period(plan, stories),
        users::evictions(plan, stories),
        slot_use::judge(plan, stories, &line::Line::certain(stories, slot_use::AGAIN_MS), slots_from_ms),
        eta_check,
        users::errors(lasted_ms, stories),
    ];
    checks.extend(opening::judge(plan, stories));
    checks.extend(drawn.iter().flat_map(|drawn| drawn.judge(stories)));
    if plan.is_part {
        checks.iter_mut().for_each(leave_to_merge);
    }
    // If no user received a place or a pass, there is nothing to judge.
    if stories.iter().all(|story| story.arrived.is_none()) {
        let nothing = match gave_no_places(stories) {
            true => NO_PLACES,
            false => {
                bilingual!("No user received a place or a pass.", "자리나 입장권을 받은 사용자가 없습니다.")
            }
        };
        // Users without an answer are a fault of the server all the same.
        for check in
            checks.iter_mut().filter(|check| check.name != "errors" || check.judgement != Judgement::Bad)
        {
            check.judgement = Judgement::Open;
            (check.note, check.note_ko) = (nothing.en.to_string(), nothing.ko.to_string());
        }
    }
    (checks, eta)
}

/// Leaves open what takes the users of all machines: theirs use slots, enter within the same windows, and overtake or may have come back
/// to places ahead. Too many entries are too many all the same.
fn leave_to_merge(check: &mut Check) {
    let is_open = match check.name.as_str() {
        "over_admission_60s" | "over_admission_sub_window" => check.judgement == Judgement::Good,
        "order" | "draw_order" | "slot_use" => check.judgement != Judgement::Open,
        _ => false,
    };
    if !is_open {
        return;
    }
    check.judgement = Judgement::Open;
    (check.count, check.figure) = (0, None);
    let note = bilingual!(
        "The run is a part of a larger one (--start-at), and this takes the users of all machines: `loadgen merge` judges it, with the files \
         of all machines.",
        "여러 기기가 함께 하는 실행의 일부입니다(--start-at). 모든 기기의 사용자가 있어야 판정할 수 있으므로, 모든 기기의 파일을 \
         `loadgen merge`로 합쳐 판정해야 합니다."
    );
    (check.note, check.note_ko) = (note.en.into_owned(), note.ko.into_owned());
    (check.worst, check.worst_ko) = Default::default();
}

/// What a run shows of a zone that gave no places.
pub(crate) const NO_PLACES: Bilingual = Bilingual::fixed(
    "Nothing was rehearsed: no user got a place, because the zone was closed or its line was full.",
    "구역이 닫혀 있거나 대기 줄이 가득 차 아무도 자리를 받지 못했으므로, 리허설이 이루어지지 않았습니다.",
);

/// Whether nobody got a place or a pass, and the zone said that it gives none: it was closed, or its line was full.
pub(crate) fn gave_no_places(stories: &[Story]) -> bool {
    stories.iter().any(|story| story.end == End::NoPlace)
        && stories.iter().all(|story| story.arrived.is_none())
}

/// The least duration of a run that shows the limit of a minute, seconds.
pub(crate) fn least_run_s() -> u32 {
    span::must_last_s(&[], 0, 0)
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
        limit: None,
        note: note.en.into_owned(),
        worst: worst.en.into_owned(),
        note_ko: note.ko.into_owned(),
        worst_ko: worst.ko.into_owned(),
    }
}

fn judged(good: bool) -> Judgement {
    if good { Judgement::Good } else { Judgement::Bad }
}

/// The name of a user in examples: worker and number.
fn name(story: &Story) -> String {
    format!("{}/{}", story.who.0, story.who.1)
}

/// Milliseconds since the start, as seconds.
fn at(ms: u32) -> String {
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}
