//! `loadgen find`: searches for the largest load that a waiting room carries within the objectives.
//!
//! It doubles the number of users until something gives way, and then halves the gap. Invariant: each try begins when the
//! room has forgotten the users of the one before, because a rehearsal knows only its own users.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::{
    format::{grouped, milliseconds},
    gather::Gathered,
    progress::Progress,
    promise_checks::NO_PLACES,
    report::{Check, Judgement, Report},
    run::{Interrupted, Interrupts},
};

/// The search ends when the load that gave way is at most this much larger than the one that held: a tenth.
const GAP: u32 = 10;
/// An entry counts for 60 s.
const MINUTE_S: u32 = 60;
/// What a pause is longer than what the room must forget, seconds.
const MARGIN_S: u32 = 5;

/// What is known of the loads that hold.
#[derive(Clone, Copy, Debug)]
struct Search {
    from: u32,
    to: u32,
    held: Option<u32>,
    gave_way: Option<u32>,
}

impl Search {
    /// The next number of users to try; none when the search is over.
    fn next(&self) -> Option<u32> {
        match (self.held, self.gave_way) {
            (None, None) => Some(self.from),
            // The smallest load does not hold, so the search goes down.
            (None, Some(gave_way)) => (gave_way > 1).then_some(gave_way / 2),
            (Some(held), None) => (held < self.to).then(|| held.saturating_mul(2).min(self.to)),
            (Some(held), Some(gave_way)) => {
                let gap = gave_way - held;
                (gap > (held / GAP).max(1)).then(|| held + gap / 2)
            }
        }
    }

    fn note(&mut self, users: u32, holds: bool) {
        *(if holds { &mut self.held } else { &mut self.gave_way }) = Some(users);
    }
}

/// Whether a rehearsal showed that the load holds, and what gave way if not.
fn what_gave_way(report: &Report) -> Option<String> {
    // A small load leaves some checks open, because nobody has to wait. An objective must be shown, and each user must get a place.
    let is_missed = |check: &&Check| match check.judgement {
        Judgement::Good => false,
        Judgement::Bad => true,
        Judgement::Open => check.is_objective() || check.count > 0,
    };
    let missed = report.checks.iter().find(is_missed);
    let missed = missed.map(|Check { name, note, .. }| format!("{name}: {note}"));
    // A slow generator calls late, so that nothing is known about the room.
    let generator = report.bottleneck.as_ref();
    let generator = generator.map(|late| format!("the generator, in second {}: {}", late.from_s, late.why));
    generator.or(missed)
}

/// What a load that held showed.
fn held(report: &Report) -> String {
    match report.checks.iter().filter(|check| check.leaves_open()).count() {
        0 => "good".to_owned(),
        1 => "held; 1 check is open".to_owned(),
        open => format!("held; {open} checks are open"),
    }
}

/// The largest number of calls that were answered in one second.
fn peak(report: &Report) -> u32 {
    report.seconds.iter().map(|second| second.wait_calls + second.entry_calls).max().unwrap_or(0)
}

/// Searches between `from` and `to` users. `rehearse` makes a run with so many users. `idle_s` is the zone's idle time.
/// Returns the rehearsal with the largest load that held, if there is one, and what is to be printed.
///
/// # Errors
/// If a run failed or was interrupted.
pub(crate) async fn search(
    (from, to): (u32, u32),
    idle_s: u32,
    rehearse: impl AsyncFn(u32) -> Result<(Report, Gathered)>,
) -> Result<(Option<(Report, Gathered)>, String)> {
    let mut search = Search { from, to, held: None, gave_way: None };
    let (mut best, mut limit): (_, Option<String>) = (None, None);
    let mut lines = vec![format!("{:>10}  {:>8}  {:>10}  result", "users", "calls/s", "p95")];
    let mut interrupts = Interrupts::new()?;
    while let Some(users) = search.next() {
        if lines.len() > 1 {
            pause(idle_s.max(MINUTE_S) + MARGIN_S, &mut interrupts).await?;
        }
        Progress::new(0).message(&format!("trying {} users", grouped(users.into())));
        let (report, gathered) = rehearse(users).await?;
        if !gathered.broken.is_empty() {
            bail!("the rehearsal with {users} users failed: {}", gathered.broken.join("; "));
        }
        if report.interrupted {
            return Err(
                Interrupted(format!("the search was stopped; it had tried:\n{}", lines.join("\n"))).into()
            );
        }
        if report.gave_no_places {
            bail!("the rehearsal with {}: {}", counted(users), NO_PLACES.en);
        }
        let gave_way = what_gave_way(&report);
        lines.push(format!(
            "{:>10}  {:>8}  {:>10}  {}",
            grouped(users.into()),
            grouped(peak(&report).into()),
            milliseconds(report.all.percentiles_us[2]),
            gave_way.clone().unwrap_or_else(|| held(&report))
        ));
        search.note(users, gave_way.is_none());
        match gave_way {
            None => best = Some((report, gathered)),
            some => limit = some,
        }
    }
    lines.push(conclusion(&search, limit.as_deref()));
    Ok((best, lines.join("\n") + "\n"))
}

fn conclusion(search: &Search, limit: Option<&str>) -> String {
    match (search.held, search.gave_way.zip(limit)) {
        (Some(held), Some((at, what))) => {
            format!("the largest load found: {}; with {} gave way: {what}", counted(held), counted(at))
        }
        (Some(held), None) => format!("nothing gave way up to {}", counted(held)),
        (None, Some((at, what))) => format!("no load holds: with {} gave way: {what}", counted(at)),
        (None, None) => "nothing was tried".to_owned(),
    }
}

/// Such as `1 user` and `2,000 users`.
fn counted(users: u32) -> String {
    format!("{} user{}", grouped(users.into()), if users == 1 { "" } else { "s" })
}

/// Waits until the room has forgotten the last users.
async fn pause(seconds: u32, interrupts: &mut Interrupts) -> Result<()> {
    Progress::new(0).message(&format!("waiting {seconds} s, so that the room forgets these users"));
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds.into())) => Ok(()),
        _ = interrupts.next() => Err(Interrupted("the search was stopped".to_owned()).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::{
        report::{Bottleneck, Plan},
        story::{Call, End, Story},
    };

    /// All loads up to `limit` hold. Returns the loads that were tried, and the search.
    fn tried(from: u32, to: u32, limit: u32) -> (Vec<u32>, Search) {
        let mut search = Search { from, to, held: None, gave_way: None };
        let mut tried = Vec::new();
        while let Some(users) = search.next() {
            tried.push(users);
            search.note(users, users <= limit);
        }
        (tried, search)
    }

    #[test]
    fn the_search_ends_within_a_tenth() {
        for limit in 1..3_000 {
            let (tried, search) = tried(100, 2_000, limit);
            let held = search.held.expect("one user holds");
            assert!(held <= limit && tried.len() <= 14, "{limit}: {tried:?}");
            match search.gave_way {
                Some(gave_way) => {
                    assert!(gave_way > limit && gave_way - held <= (held / 10).max(1), "{limit}: {tried:?}");
                }
                None => assert_eq!(held, 2_000),
            }
        }
        assert_eq!(tried(100, 2_000, 450).0, [100, 200, 400, 800, 600, 500, 450, 475]);
        let (downwards, search) = tried(100, 2_000, 0);
        assert_eq!((downwards, search.held), (vec![100, 50, 25, 12, 6, 3, 1], None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_room_has_forgotten_one_try_before_the_next() {
        let began = tokio::time::Instant::now();
        let tries = RefCell::new(Vec::new());
        let rehearse = async |users: u32| {
            tries.borrow_mut().push((users, began.elapsed().as_secs()));
            let gathered = Gathered::default();
            let mut report = gathered.report(plan(users), &[]);
            if users > 1_900 {
                let note = "p95 must be at most 36ms.".to_owned();
                report.checks.push(Check {
                    name: "slo:p95".into(),
                    judgement: Judgement::Bad,
                    note,
                    ..Check::default()
                });
            }
            Ok((report, gathered))
        };
        let (best, said) = search((1_000, 9_000), 90, rehearse).await.expect("searched");
        assert_eq!(best.expect("found").0.plan.users, 1_875);
        let expected = [(1_000, 0), (2_000, 95), (1_500, 190), (1_750, 285), (1_875, 380)];
        assert_eq!(tries.into_inner(), expected);
        assert!(said.contains("with 2,000 users gave way: slo:p95: p95 must be at most 36ms."), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_generator_is_named_and_a_broken_run_ends_the_search() {
        let late = async |users: u32| {
            let gathered = Gathered::default();
            let mut report = gathered.report(plan(users), &[]);
            report.bottleneck = Some(Bottleneck { from_s: 7, why: "late".into(), why_ko: String::new() });
            Ok((report, gathered))
        };
        let (best, said) = search((1, 9), 60, late).await.expect("searched");
        assert!(
            best.is_none() && said.ends_with("with 1 user gave way: the generator, in second 7: late\n"),
            "{said}"
        );
        let broken = async |users: u32| {
            let gathered = Gathered { broken: vec!["worker 0 died".into()], ..Gathered::default() };
            Ok((gathered.report(plan(users), &[]), gathered))
        };
        let error = search((1, 9), 60, broken).await.expect_err("broken").to_string();
        assert!(error.contains("worker 0 died"), "{error}");
    }

    /// A line that is full for some users does not carry the load. A zone without any place says nothing of loads.
    #[tokio::test(start_paused = true)]
    async fn a_zone_without_places_ends_the_search_and_a_full_line_gives_way() {
        let room_for = async |users: u32, room: u32| {
            let mut gathered = Gathered::default();
            for number in 0..users {
                let mut story = Story { end: End::NoPlace, ..Story::new((0, number)) };
                if number < room {
                    (story.end, story.arrived) = (End::Waiting, Some(Call { sent_ms: 0, heard_ms: 1 }));
                }
                gathered.stories.push(story);
            }
            Ok((gathered.report(plan(users), &[]), gathered))
        };
        let error = search((1, 9), 60, async |users| room_for(users, 0).await).await.expect_err("no places");
        assert!(error.to_string().contains("with 1 user: Nothing was rehearsed"), "{error}");
        let (best, said) =
            search((1, 9), 60, async |users| room_for(users, 4).await).await.expect("searched");
        assert_eq!(best.expect("found").0.plan.users, 4);
        assert!(said.contains("with 5 users gave way: errors: Of 5 users, 1 got no place"), "{said}");
    }

    fn plan(users: u32) -> Plan {
        Plan {
            target: "http://127.0.0.1".into(),
            zone: "Z".into(),
            profile: "spike".into(),
            users,
            planned_ms: 1_000,
            abandon: 0.0,
            streams: 0,
            start_unix_ms: 0,
            is_part: false,
            admit_per_minute: None,
            sub_windows: 10,
            idle_s: 60,
            inside_at_most: None,
            opening: None,
        }
    }

    #[test]
    fn the_conclusion_names_what_gave_way() {
        let search = |held, gave_way| Search { from: 1, to: 9_999, held, gave_way };
        let said = conclusion(&search(Some(1_000), Some(1_100)), Some("slo:p95: too long."));
        assert_eq!(
            said,
            "the largest load found: 1,000 users; with 1,100 users gave way: slo:p95: too long."
        );
        assert_eq!(conclusion(&search(Some(9_999), None), None), "nothing gave way up to 9,999 users");
        assert_eq!(conclusion(&search(None, Some(1)), Some("x")), "no load holds: with 1 user gave way: x");
    }
}
