//! The event that a run with a pre-queue is made for: when it begins, and how its order is made.
//!
//! Before the run, one place is taken and given up again, because only the reply to a join says when the zone opens. If the order is to be
//! drawn, the published rule of the zone names the event; if no event is ahead, the rule says why. Invariant: the start of the run is chosen so that the pre-queue ends, in whole
//! seconds from the start, when the event begins.

use jiff::Timestamp;
use thiserror::Error;

use crate::{
    clock::{self, unix_ms},
    paper::Published,
    pool::{Pool, Reply},
    report::{Draw, Opening},
    rules::{self, Event, Rule, Rules},
    run::Setup,
    wire::{self, Answer},
};

/// The least pre-queue that is rehearsed, seconds.
const LEAST_S: u64 = 10;
/// The time in which the workers get ready: at least, and one second more for each so many users.
const READY_S: u64 = 3;
const READY_USERS: u64 = 20_000;
/// A pre-queue is that much longer than the profile's in the event that an error proposes, seconds.
const MARGIN_S: u64 = 60;
/// The modes with which the events of a zone open nothing.
const STOPPING: [&str; 3] = ["hold", "open", "closed"];
/// How the order of an event by lot begins in the published rule.
const BY_LOT: &str = "draw";

/// The event ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// When people enter, milliseconds of this machine's Unix clock.
    opens_unix_ms: u64,
    /// The draw of the order.
    draw: Option<Draw>,
}

/// Why there is no event to rehearse.
#[derive(Debug, Error)]
pub(crate) enum SaleError {
    /// People enter now.
    #[error(
        "--profile {profile}: zone {zone} has no event ahead: nothing says when it opens. Make one and start again, such as: \
         weir zones set {zone} event.rehearsal.prequeue_from={from} event.rehearsal.begins={begins} event.rehearsal.ends={ends}"
    )]
    NoEvent { profile: String, zone: String, from: Timestamp, begins: Timestamp, ends: Timestamp },
    /// An operator stopped the events.
    #[error(
        "--profile {profile}: zone {zone} has mode = {mode}, and its events open nothing until that is auto again: weir zones set {zone} \
         mode=auto"
    )]
    Stopped { profile: String, zone: String, mode: String },
    /// People enter, because an event runs.
    #[error("{0}")]
    Runs(String),
    /// Nobody gets a place now.
    #[error(
        "--profile {profile}: zone {zone} gives no places now ({code}): start again once the pre-queue of its event has begun, or move it: \
         weir zones set {zone} event.EVENT.prequeue_from={from}"
    )]
    NoPlaces { profile: String, zone: String, code: String, from: Timestamp },
    /// A draw is ahead, but which one is not said.
    #[error(
        "zone {zone} draws its order by lot, but neither {rules} nor the draws that it names say when: {why}; loadgen needs them to judge the draw"
    )]
    UnknownDraw { zone: String, rules: String, why: String },
    /// It begins too soon, or too late for the start that was given.
    #[error("{0}")]
    Time(String),
    /// No reply, or another one than expected.
    #[error("asking zone {zone} when it opens: {why}")]
    Call { zone: String, why: String },
}

/// Asks the zone when it opens.
///
/// # Errors
/// If it has no event ahead, gives no places, or does not say how the order is drawn.
pub(crate) async fn find(setup: &Setup) -> Result<Ahead, SaleError> {
    let zone = || setup.zone.clone();
    let failed = |why: String| SaleError::Call { zone: zone(), why };
    let pool =
        Pool::new(&setup.target, 1, setup.sources.iter().copied().take(1).collect()).map_err(failed)?;
    let sent_ms = unix_ms();
    let reply = post(setup, &pool, wire::WAIT, None).await.map_err(failed)?;
    let heard_ms = unix_ms();
    let answer = wire::read(reply.status, reply.retry_after.as_deref(), &reply.body);
    if let Some(code) = answer.no_place() {
        return Err(no_places(setup, code.to_owned(), rules::read(setup, &pool).await));
    }
    let (token, waiting) = match answer {
        Answer::NotYet { token, waiting } => (Some(token), Some(waiting)),
        Answer::Enter { token, .. } => (token, None),
        Answer::Refused { status, code, .. } => return Err(failed(format!("it answered {status} {code}"))),
        Answer::Gone => return Err(failed("it answered 410".to_owned())),
        Answer::Invalid(why) => return Err(failed(why)),
    };
    // The place is not one of the rehearsal.
    if let Some(token) = &token {
        post(setup, &pool, wire::LEAVE, Some(token)).await.map_err(failed)?;
    }
    let Some((waiting, in_ms)) = waiting.and_then(|waiting| Some((waiting, waiting.opens_in_ms?))) else {
        return Err(none_ahead(setup, rules::read(setup, &pool).await));
    };
    // The server counted from an instant between the call and its reply.
    let opens_unix_ms = sent_ms.midpoint(heard_ms) + u64::from(in_ms);
    let draw = match waiting.is_undrawn() {
        true => Some(draw(setup, &pool, opens_unix_ms).await?),
        false => None,
    };
    Ok(Ahead { opens_unix_ms, draw })
}

/// The error that an operator's mode stops the events, if it does.
fn stopped(setup: &Setup, rule: Option<&Rule>) -> Option<SaleError> {
    let mode = &rule?.mode;
    let (profile, zone) = (setup.profile.name.clone(), setup.zone.clone());
    STOPPING.contains(&&**mode).then(|| SaleError::Stopped { profile, zone, mode: mode.clone() })
}

/// Why nobody gets a place now: the code of the refusal, or the mode that causes it.
fn no_places(setup: &Setup, code: String, rule: Option<Rule>) -> SaleError {
    let (profile, zone) = (setup.profile.name.clone(), setup.zone.clone());
    let from = instant(unix_ms() / 1_000);
    stopped(setup, rule.as_ref()).unwrap_or(SaleError::NoPlaces { profile, zone, code, from })
}

/// Why no event is ahead, as far as the published rule of the zone says it.
fn none_ahead(setup: &Setup, rule: Option<Rule>) -> SaleError {
    let now_s = unix_ms() / 1_000;
    let whole_s = u64::from(setup.profile.lasts_ms() / 1_000);
    let prequeue_s = u64::from(setup.profile.prequeue_s.unwrap_or(0));
    let (profile, zone) = (setup.profile.name.clone(), setup.zone.clone());
    let [from, begins, ends] =
        [0, prequeue_s + MARGIN_S, whole_s + 2 * MARGIN_S].map(|after_s| instant(now_s + after_s));
    if let Some(stopped) = stopped(setup, rule.as_ref()) {
        return stopped;
    }
    let events = rule.map_or_else(Vec::new, |rule| rule.events);
    match events.into_iter().find(|event| event.runs(from, from)) {
        Some(Event { id: event, begins: began, ends: until, .. }) => SaleError::Runs(format!(
            "--profile {profile}: the event {event} of zone {zone} began at {began} and runs until {until}, so its pre-queue is over. Rehearse \
             another one that begins later, behind its end or in its place: weir zones set {zone} event.{event}= \
             event.rehearsal.prequeue_from={from} event.rehearsal.begins={begins} event.rehearsal.ends={ends}"
        )),
        None => SaleError::NoEvent { profile, zone, from, begins, ends },
    }
}

fn instant(unix_s: u64) -> Timestamp {
    clock::instant(unix_s.saturating_mul(1_000))
}

/// The draw of the zone whose opening is nearest to this one: the clocks may differ by less than two events do.
async fn draw(setup: &Setup, pool: &Pool, opens_unix_ms: u64) -> Result<Draw, SaleError> {
    let rules = wire::rules(&setup.zone);
    let unknown =
        |why: String| SaleError::UnknownDraw { zone: setup.zone.clone(), rules: rules.clone(), why };
    let published: Rules = rules::get(setup, pool, &rules).await.map_err(unknown)?;
    let mut nearest: Option<(u64, Draw)> = None;
    for event in published.rule.events.into_iter().filter(|event| event.order.starts_with(BY_LOT)) {
        let path = wire::draw(&setup.zone, &event.id);
        let Published { begins, opens, .. } = rules::get(setup, pool, &path).await.map_err(unknown)?;
        let apart_ms = opens.saturating_mul(1_000).abs_diff(opens_unix_ms);
        if nearest.as_ref().is_none_or(|(least_ms, _)| apart_ms < *least_ms) {
            nearest = Some((apart_ms, Draw { event: event.id, begins_unix_s: begins, opens_unix_s: opens }));
        }
    }
    nearest.map(|(_, draw)| draw).ok_or_else(|| unknown("no event by lot is there".to_owned()))
}

/// Places the run of `setup` before the event: sets its start, its opening, and the length of its pre-queue. Returns what to say about it.
///
/// # Errors
/// If the event begins too soon, or too late for the start that was given.
pub(crate) fn place(setup: &mut Setup, ahead: &Ahead, now_ms: u64) -> Result<String, SaleError> {
    let frozen_before_ms = ahead.draw.as_ref().map_or(0, Draw::frozen_before_ms);
    let begins_ms = ahead.opens_unix_ms.saturating_sub(u64::from(frozen_before_ms));
    let whole_s = u64::from(setup.profile.prequeue_s.unwrap_or(0));
    let ready_s = READY_S + u64::from(setup.profile.users) / READY_USERS;
    let earliest_ms = setup.start_unix_ms.unwrap_or(now_ms + ready_s * 1_000);
    // Both instants of a given start are whole seconds, and the server's clock is known to some milliseconds.
    let rounded_ms = if setup.start_unix_ms.is_some() { 500 } else { 0 };
    let left_s = (begins_ms + rounded_ms).saturating_sub(earliest_ms) / 1_000;
    if let Some(start_ms) = setup.start_unix_ms.filter(|_| left_s < LEAST_S) {
        let late_s = i128::from(start_ms).saturating_sub(i128::from(begins_ms)) / 1_000;
        let when = if late_s > 0 { format!("{late_s} s after") } else { format!("{} s before", -late_s) };
        return Err(SaleError::Time(format!(
            "--start-at: the run would start {when} the event begins, and its pre-queue has at least {LEAST_S} s; start at {} or earlier, or \
             let the event begin later (weir zones set {} event.EVENT.begins=…)",
            instant((begins_ms / 1_000).saturating_sub(LEAST_S)),
            setup.zone
        )));
    }
    if left_s < LEAST_S {
        let begins_s = begins_ms.saturating_sub(now_ms) / 1_000;
        return Err(SaleError::Time(format!(
            "the event begins in {begins_s} s, too soon: the run needs {ready_s} s to get ready, and a pre-queue of at least {LEAST_S} s. Let \
             the event begin later (weir zones set {} event.EVENT.begins=…)",
            setup.zone
        )));
    }
    let prequeue_s = match setup.start_unix_ms {
        Some(_) if left_s > whole_s => {
            return Err(SaleError::Time(format!(
                "--start-at: the event begins {left_s} s later, and the profile's pre-queue has {whole_s} s; start later, or leave \
                 --start-at out"
            )));
        }
        _ => left_s.min(whole_s),
    };
    let start_ms = begins_ms - prequeue_s * 1_000;
    setup.start_unix_ms = Some(setup.start_unix_ms.unwrap_or(start_ms));
    setup.profile.shorten_prequeue(u32::try_from(prequeue_s).unwrap_or(u32::MAX));
    let at_ms = ahead.opens_unix_ms.saturating_sub(setup.start_unix_ms.unwrap_or(start_ms));
    let at_ms = u32::try_from(at_ms).unwrap_or(u32::MAX);
    setup.opening = Some(Opening { at_ms, draw: ahead.draw.clone() });
    let order = match &ahead.draw {
        Some(draw) => format!("by lot (event {})", draw.event),
        None => "in the order of arrival".to_owned(),
    };
    let begins = instant((begins_ms + 500) / 1_000);
    let in_s = setup.start_unix_ms.unwrap_or(start_ms).saturating_sub(now_ms) / 1_000;
    Ok(format!(
        "the event begins at {begins}, and people enter {order}; the run starts in {in_s} s with a pre-queue of {prequeue_s} s"
    ))
}

async fn post(setup: &Setup, pool: &Pool, path: &str, token: Option<&str>) -> Result<Reply, String> {
    pool.call(setup.target.post(path, wire::body(&setup.zone, token))?, || {}).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup::of_test("http://127.0.0.1:1", "sale")
    }

    const NOW_MS: u64 = 1_790_000_000_000;

    fn ahead(opens_in_ms: u64, by_lot: bool) -> Ahead {
        let draw = || Draw { event: "sale".to_owned(), begins_unix_s: 1_000, opens_unix_s: 1_030 };
        Ahead { opens_unix_ms: NOW_MS + opens_in_ms, draw: by_lot.then(draw) }
    }

    #[test]
    fn a_run_is_placed_so_that_its_pre_queue_ends_when_the_event_begins() {
        // Two hours ahead: the run waits.
        let mut far = setup();
        let said = place(&mut far, &ahead(7_200_250, false), NOW_MS).expect("placed");
        assert_eq!(far.start_unix_ms, Some(NOW_MS + 5_400_250));
        assert_eq!(
            (far.opening, far.profile.prequeue_s),
            (Some(Opening { at_ms: 1_800_000, draw: None }), Some(1_800))
        );
        assert!(said.contains("starts in 5400 s") && said.contains("in the order of arrival"), "{said}");
        // A minute ahead, of which 18 s are needed to get ready. The list of a draw is frozen 30 s before people enter.
        let mut near = setup();
        let said = place(&mut near, &ahead(90_250, true), NOW_MS).expect("placed");
        assert_eq!(near.start_unix_ms, Some(NOW_MS + 18_250));
        assert_eq!(near.profile.prequeue_s, Some(42));
        assert_eq!(near.opening.map(|opening| opening.at_ms), Some(72_000));
        assert!(said.contains("by lot (event sale)") && said.contains("a pre-queue of 42 s"), "{said}");
        // Machines that agreed on a start, and know the server's clock to some milliseconds.
        for opens_in_ms in [89_997, 90_004] {
            let mut agreed = setup();
            agreed.start_unix_ms = Some(NOW_MS + 30_000);
            place(&mut agreed, &ahead(opens_in_ms, false), NOW_MS).expect("placed");
            assert_eq!((agreed.start_unix_ms, agreed.profile.prequeue_s), (Some(NOW_MS + 30_000), Some(60)));
            assert_eq!(agreed.opening.map(|opening| u64::from(opening.at_ms)), Some(opens_in_ms - 30_000));
        }
    }

    #[test]
    fn an_event_too_soon_or_too_late_is_named() {
        let refused = |ahead: Ahead, start_ms: Option<u64>| {
            let mut setup = setup();
            setup.start_unix_ms = start_ms;
            place(&mut setup, &ahead, NOW_MS).expect_err("refused").to_string()
        };
        let said = refused(ahead(27_000, false), None);
        assert!(said.contains("begins in 27 s, too soon") && said.contains("18 s to get ready"), "{said}");
        assert!(refused(ahead(57_000, true), None).contains("begins in 27 s, too soon"));
        let said = refused(ahead(60_000, false), Some(NOW_MS + 95_000));
        assert!(said.contains("--start-at: the run would start 35 s after the event begins"), "{said}");
        assert!(said.contains(&format!("start at {} or earlier", instant(NOW_MS / 1_000 + 50))), "{said}");
        let said = refused(ahead(60_000, true), Some(NOW_MS + 25_000));
        assert!(said.contains("would start 5 s before"), "{said}");
        let said = refused(ahead(7_200_000, false), Some(NOW_MS));
        assert!(said.contains("--start-at") && said.contains("7200 s later"), "{said}");
    }

    #[test]
    fn a_zone_whose_event_does_not_come_says_why() {
        let rule = |json: serde_json::Value| serde_json::from_value::<Rules>(json).expect("a rule").rule;
        let event = |begins: &str, ends: &str| serde_json::json!({ "id": "spring", "order": "arrival", "begins": begins, "ends": ends });
        let of = |mode: &str, event: serde_json::Value| {
            none_ahead(
                &setup(),
                Some(rule(serde_json::json!({ "rule": { "mode": mode, "events": [event] } }))),
            )
            .to_string()
        };
        let (past, future) = ("2001-12-01T09:00[Europe/Berlin]", "2101-12-01T09:00:00+01:00");
        for mode in ["hold", "open", "closed"] {
            let stopped = of(mode, event(past, future));
            assert!(stopped.contains(&format!("has mode = {mode}")), "{stopped}");
            assert!(stopped.ends_with("weir zones set Z mode=auto"), "{stopped}");
        }
        let runs = of("auto", event(past, future));
        assert!(
            runs.contains(
                "the event spring of zone Z began at 2001-12-01T09:00[Europe/Berlin] and runs until 2101"
            ),
            "{runs}"
        );
        assert!(runs.contains("weir zones set Z event.spring= event.rehearsal.prequeue_from=20"), "{runs}");
        // One that is over, and one that nobody here can read.
        for event in [event(past, "2001-12-02T09:00:00Z"), event("soon", future)] {
            assert!(of("auto", event).contains("has no event ahead"));
        }
    }

    #[test]
    fn a_zone_that_gives_no_places_says_why() {
        let of = |code: &str, rule: Option<serde_json::Value>| {
            let rule = rule.map(|rule| serde_json::from_value(rule).expect("a rule"));
            no_places(&setup(), code.to_owned(), rule).to_string()
        };
        // The event's own `before` closes the zone, it is full, or the rule cannot be had.
        for (code, mode) in
            [("zone_closed", Some("auto")), ("zone_full", Some("auto")), ("zone_closed", None)]
        {
            let said = of(code, mode.map(|mode| serde_json::json!({ "mode": mode })));
            assert!(said.contains(&format!("gives no places now ({code})")), "{said}");
            assert!(said.contains("event.EVENT.prequeue_from=20"), "{said}");
        }
        for (code, mode) in [("zone_closed", "closed"), ("zone_full", "hold")] {
            let said = of(code, Some(serde_json::json!({ "mode": mode })));
            assert!(said.contains(&format!("has mode = {mode}")), "{said}");
            assert!(said.ends_with("weir zones set Z mode=auto"), "{said}");
        }
    }

    #[test]
    fn a_zone_without_an_event_gets_the_command_that_makes_one() {
        let said = none_ahead(&setup(), None).to_string();
        for part in [
            "zone Z has no event ahead",
            "weir zones set Z event.rehearsal.prequeue_from=20",
            ".begins=20",
            ".ends=20",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains('\n'));
    }
}
