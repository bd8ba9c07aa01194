//! What a server says of an event besides its minutes: the time of the report, the sums, the changes, and what is not known.
//!
//! Invariants: the sums are those of the minutes of the report, and are computed here only; what is not known is in `missing`, with the
//! reason; a report has at most [`DAYS_MAX`] days.

use std::path::Path;

use admission::Event;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Bilingual, bilingual, changes::Changes};
use crate::stats::{Minute, PastMinute};

/// How long behind the end of the event a report goes, in seconds: people who waited then still enter.
const BEHIND_S: u64 = 3_600;

const DAY_S: u64 = 86_400;

/// The most days that a report has.
const DAYS_MAX: u64 = 31;

/// The version of the layout.
const VERSION: u32 = 1;

/// The time of a report, in seconds since 1970: whole minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first minute.
    pub from_s: u64,
    /// The end.
    pub to_s: u64,
    /// What lies outside of it, and why.
    missing: Vec<Bilingual>,
}

impl Span {
    /// From the beginning of the pre-queue to an hour behind the end, as far as that is over at `now_s` (seconds since 1970). `None` if
    /// the pre-queue has not begun.
    #[must_use]
    pub fn of(event: &Event, now_s: u64) -> Option<Self> {
        let (from_s, ends_s) = (u64::from(event.prequeue_from.unix_s()), u64::from(event.ends.unix_s()));
        let from_s = from_s / 60 * 60;
        let mut to_s = (ends_s + BEHIND_S).min(now_s + 60) / 60 * 60;
        let mut missing = Vec::new();
        if now_s < ends_s {
            missing.push(bilingual!(
                "The event is not over. What happens from now on is missing.",
                "이벤트가 아직 끝나지 않았습니다. 이후의 내용은 없습니다."
            ));
        }
        // Servers offer a minute to the store within the next one.
        if (ends_s..ends_s.div_ceil(60) * 60 + 60).contains(&now_s) {
            missing.push(bilingual!(
                "The event ended a moment ago. Its last minutes may be missing: servers need up to two minutes to report them. Ask again then.",
                "이벤트가 방금 끝났습니다. 서버가 보고하는 데 최대 2분이 걸리므로 마지막 몇 분이 빠져 있을 수 있습니다. 그 뒤에 다시 요청하십시오."
            ));
        }
        if to_s.saturating_sub(from_s) > DAYS_MAX * DAY_S {
            to_s = from_s + DAYS_MAX * DAY_S;
            missing.push(bilingual!(
                "The event is longer than {DAYS_MAX} days. The report has the first {DAYS_MAX}.",
                "이벤트가 {DAYS_MAX}일보다 깁니다. 처음 {DAYS_MAX}일만 있습니다."
            ));
        }
        (from_s < to_s).then_some(Self { from_s, to_s, missing })
    }
}

/// What a server says of an event besides its minutes.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Outline {
    /// The version of this layout.
    pub version: u32,
    /// The zone.
    pub zone: String,
    /// The first minute, in seconds since 1970.
    pub from: u64,
    /// The end, in seconds since 1970.
    pub to: u64,
    /// When the report was made, in seconds since 1970.
    pub made: u64,
    /// Sums over the minutes.
    pub sums: Sums,
    /// The changes of the zone until the end.
    pub changes: Changes,
    /// What is not in the report, and why.
    pub missing: Vec<Bilingual>,
}

impl Outline {
    /// Sums up the minutes of a time.
    #[must_use]
    pub fn new(zone: String, span: Span, made_s: u64, minutes: &[PastMinute], changes: Changes) -> Self {
        let Span { from_s, to_s, mut missing } = span;
        let sums = Sums::of(minutes);
        if minutes.is_empty() {
            missing.push(bilingual!(
                "No minute of this time is kept: nobody came, the event is longer ago than 400 days, no server ran, or the store lost its state.",
                "이 시간의 통계가 없습니다. 아무도 오지 않았거나, 400일보다 오래되었거나, 서버가 실행되지 않았거나, 저장소가 상태를 잃었습니다."
            ));
        }
        // Whoever is in line at the beginning came before it: before the event, or in a minute that is not kept.
        let known = sums.joined + minutes.first().map_or(0, |past| u64::from(past.minute.waiting));
        let begins_with_a_line = minutes.first().is_some_and(|PastMinute { minute, .. }| {
            let Minute { joined, entered, evicted, waiting, .. } = *minute;
            let [joined, entered, evicted, waiting] = [joined, entered, evicted, waiting].map(u64::from);
            minute.at_s > from_s && waiting + entered + evicted > joined
        });
        if begins_with_a_line || sums.entered + sums.left > known {
            missing.push(bilingual!(
                "Minutes are missing, or parts of them: more people waited, entered and left than came. A store that loses its state loses its \
                 statistics.",
                "일부 통계가 없습니다. 온 사람보다 기다리거나 입장하거나 떠난 사람이 많습니다. 저장소가 상태를 잃으면 통계도 사라집니다."
            ));
        }
        if sums.waits_known < sums.entered {
            let (known, entered) = (sums.waits_known, sums.entered);
            missing.push(bilingual!(
                "The waits of {known} of {entered} people who entered are known. A server that is killed, or that cannot reach the store \
                 for long, loses those of its last minutes.",
                "입장한 {entered}명 가운데 {known}명의 대기 시간만 알려져 있습니다. 서버가 강제 종료되거나 저장소에 오래 연결하지 못하면 마지막 몇 분의 대기 시간을 잃습니다."
            ));
        }
        Self { version: VERSION, zone, from: from_s, to: to_s, made: made_s, sums, changes, missing }
    }

    /// The event was deleted, or moved to another beginning.
    pub fn note_deleted(&mut self) {
        let deleted = bilingual!(
            "The event was deleted from the zone, or moved to another beginning. It is shown as it was before that.",
            "이벤트가 구역에서 삭제되었거나 시작 시각이 바뀌었습니다. 그 전의 내용을 보여 줍니다."
        );
        self.missing.insert(0, deleted);
    }

    /// The draw of the event is not known any more.
    pub fn note_no_draw(&mut self) {
        self.missing.push(bilingual!(
            "The draw: a server does not show that of an event that was deleted or moved. Its record is with those who kept it.",
            "추첨: 서버는 삭제되었거나 시작 시각이 바뀐 이벤트의 추첨을 보여 주지 않습니다. 기록은 보관한 사람에게 있습니다."
        ));
    }

    /// Replaces the changes by those of the audit log in `dir`, or says why they are not from there.
    pub(super) fn take_changes_of(&mut self, dir: Option<&Path>) {
        match dir.map(|dir| Changes::of_audit(dir, &self.zone, self.to * 1_000)) {
            Some(Ok(changes)) => self.changes = changes,
            Some(Err(why)) => self.missing.push(bilingual!(
                "The audit log cannot be read here: {why}. The changes are those that the server remembers.",
                "여기서는 감사 로그를 읽을 수 없습니다: {why}. 서버가 기억하는 변경만 보여 줍니다."
            )),
            None => self.missing.push(bilingual!(
                "The audit log was not named (--audit-dir, or --config with audit.dir). The changes are those that the server remembers.",
                "감사 로그를 지정하지 않았습니다(--audit-dir 또는 audit.dir가 있는 --config). 서버가 기억하는 변경만 보여 줍니다."
            )),
        }
    }
}

/// Sums over the minutes of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[schema(as = EventSums)]
pub struct Sums {
    /// How many came.
    pub joined: u64,
    /// How many entered.
    pub entered: u64,
    /// Those who left the line, or were silent for too long.
    pub left: u64,
    /// The most who waited at the end of a minute.
    pub most_waiting: u64,
    /// Of how many people who entered the waits are known.
    pub waits_known: u64,
    /// Their mean wait, in seconds; 0 if none is known.
    pub mean_wait_s: f64,
    /// Their longest wait, in seconds; 0 if none is known.
    pub longest_wait_s: f64,
    /// How many were told a wait.
    pub told: u64,
    /// How many of these waited within the range that they were told.
    pub told_in_range: u64,
}

impl Sums {
    fn of(minutes: &[PastMinute]) -> Self {
        let mut sums = Self::default();
        let (mut waited_ms, mut longest_ms) = (0, 0);
        for PastMinute { minute, waits, .. } in minutes {
            sums.joined += u64::from(minute.joined);
            sums.entered += u64::from(minute.entered);
            sums.left += u64::from(minute.evicted);
            sums.most_waiting = sums.most_waiting.max(minute.waiting.into());
            sums.waits_known += u64::from(waits.people);
            waited_ms += waits.waited_ms;
            longest_ms = longest_ms.max(waits.longest_ms);
            sums.told += u64::from(waits.told);
            sums.told_in_range += u64::from(waits.in_range);
        }
        #[expect(clippy::cast_precision_loss, reason = "sums below 2^52")]
        let (waited_s, people) = (waited_ms as f64 / 1_000.0, sums.waits_known.max(1) as f64);
        sums.mean_wait_s = waited_s / people;
        sums.longest_wait_s = f64::from(longest_ms) / 1_000.0;
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, stats::MinuteWaits};

    fn minute(joined: u32, people: u32, waited_ms: u64, longest_ms: u32) -> PastMinute {
        let minute = Minute { joined, entered: 2, evicted: 1, waiting: 5, ..Minute::default() };
        let waits = MinuteWaits { people, waited_ms, longest_ms, ..MinuteWaits::default() };
        PastMinute { minute, waits, left: Vec::new() }
    }

    fn event(from: &str, ends: &str) -> Event {
        sample::event(
            serde_json::json!({ "id": "sale", "prequeue_from": from, "begins": ends, "ends": ends }),
        )
    }

    #[test]
    fn sums_are_those_of_the_minutes() {
        let sums = Sums::of(&[minute(3, 1, 10_000, 10_000), minute(4, 0, 0, 0), minute(0, 3, 6_000, 5_000)]);
        assert_eq!((sums.joined, sums.entered, sums.left, sums.most_waiting), (7, 6, 3, 5));
        assert_eq!((sums.waits_known, sums.mean_wait_s, sums.longest_wait_s), (4, 4.0, 10.0));
        assert_eq!(Sums::of(&[]), Sums::default());
        let span = Span { from_s: 0, to_s: 60, missing: Vec::new() };
        let outline =
            Outline::new("Z".to_owned(), span, 60, &[minute(3, 1, 10_000, 10_000)], Changes::default());
        assert!(outline.missing[0].en.contains("1 of 2 people"), "{:?}", outline.missing);
        let span = Span { from_s: 0, to_s: 120, missing: Vec::new() };
        let lost = [minute(0, 2, 0, 0), minute(0, 2, 0, 0)]
            .map(|past| PastMinute { minute: Minute { waiting: 0, ..past.minute }, ..past });
        let outline = Outline::new("Z".to_owned(), span, 120, &lost, Changes::default());
        assert!(
            outline.missing[0].en.contains("more people waited, entered and left than came"),
            "{:?}",
            outline.missing
        );
    }

    /// A store that lost its state in the pre-queue keeps minutes from then on, in the first of which nobody comes.
    #[test]
    fn a_line_that_nobody_joined_shows_that_minutes_are_missing() {
        let missing = |first_s: u64| {
            let of = |at_s, entered, waiting| PastMinute {
                minute: Minute { at_s, entered, waiting, ..Minute::default() },
                waits: MinuteWaits { people: entered, ..MinuteWaits::default() },
                left: Vec::new(),
            };
            let minutes = [of(first_s, 0, 30), of(first_s + 60, 30, 0)];
            let span = Span { from_s: 0, to_s: 360, missing: Vec::new() };
            Outline::new("Z".to_owned(), span, 360, &minutes, Changes::default()).missing
        };
        assert!(missing(60)[0].en.starts_with("Minutes are missing"), "{:?}", missing(60));
        assert!(missing(0).is_empty(), "they waited before the pre-queue");
    }

    #[test]
    fn a_report_has_whole_minutes_and_an_end() {
        let short = event("2026-12-01T08:30:30Z", "2026-12-01T12:00:00Z");
        let from_s = u64::from(short.prequeue_from.unix_s());
        assert_eq!(Span::of(&short, from_s - 91), None, "its pre-queue has not begun");
        let now = Span::of(&short, from_s + 60).expect("it has begun");
        assert_eq!((now.from_s % 60, now.to_s - now.from_s, now.missing.len()), (0, 120, 1));
        let ends_s = u64::from(short.ends.unix_s());
        let missing = |now_s| Span::of(&short, now_s).expect("it has begun").missing;
        assert!(missing(ends_s - 1)[0].en.starts_with("The event is not over"));
        for now_s in [ends_s, ends_s + 59] {
            assert!(missing(now_s)[0].en.starts_with("The event ended a moment ago"), "{now_s}");
        }
        assert!(missing(ends_s + 60).is_empty());
        let over = Span::of(&short, from_s + 90_000).expect("it is over");
        assert_eq!((over.to_s - over.from_s, over.missing.len()), (4 * 3_600 + 1_800, 0));
        let long = Span::of(&event("2026-01-01T00:00:00Z", "2026-12-01T00:00:00Z"), 2_000_000_000);
        let long = long.expect("it is over");
        assert_eq!((long.to_s - long.from_s, long.missing.len()), (31 * 86_400, 1));
    }
}
