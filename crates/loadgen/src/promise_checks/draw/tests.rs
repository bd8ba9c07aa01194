//! A draw of 120 people, 30 who come later, and each fault.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::{
    promise_checks::judge,
    report::Opening as PlannedOpening,
    story::{Placed, ToldOpening},
};

type Hash = [u8; 32];

/// The list is frozen 70 s after the start, and people enter 30 s later.
const FROZEN_MS: u32 = 70_000;
const OPENS_MS: u32 = 100_000;
const BEGINS_UNIX_S: u64 = 1_000_000_000;
const LISTED: u32 = 120;
const USERS: u32 = 150;

fn plan() -> Plan {
    let draw = Draw { event: "sale".into(), begins_unix_s: BEGINS_UNIX_S, opens_unix_s: BEGINS_UNIX_S + 30 };
    Plan {
        target: "http://127.0.0.1:1".into(),
        zone: "Z".into(),
        profile: "sale".into(),
        users: USERS,
        planned_ms: 180_000,
        abandon: 0.0,
        streams: 0,
        start_unix_ms: 0,
        is_part: false,
        admit_per_minute: Some(60),
        sub_windows: 10,
        idle_s: 60,
        inside_at_most: None,
        opening: Some(PlannedOpening { at_ms: OPENS_MS, draw: Some(draw) }),
    }
}

/// The list of a draw and its signed checkpoint, made as published.
struct List {
    leaves: Vec<Hash>,
    in_line: Vec<bool>,
    checkpoint: String,
    key: String,
    secret: SigningKey,
}

fn node(left: Hash, right: Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [one] => *one,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node(root(left), root(right))
        }
    }
}

fn path(leaves: &[Hash], at: usize) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    let (mut path, other) = match at.checked_sub(left.len()) {
        None => (path(left, at), root(right)),
        Some(at) => (path(right, at), root(left)),
    };
    path.push(other);
    path
}

impl List {
    fn new(in_line: Vec<bool>, frozen: &str, fallback: &str) -> Self {
        let leaf = |(place, is): (u32, &bool)| -> Hash {
            let digest = Sha256::new().chain_update([0]).chain_update(place.to_be_bytes());
            digest.chain_update([u8::from(*is)]).finalize().into()
        };
        let leaves: Vec<Hash> = (0..).zip(&in_line).map(leaf).collect();
        let secret = SigningKey::from_bytes(&[7; 32]);
        let public = [&[1], secret.verifying_key().as_bytes().as_slice()].concat();
        let id = Sha256::new().chain_update("shop\n").chain_update(&public).finalize();
        let hex: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let key = format!("shop+{hex}+{}", STANDARD.encode(public));
        let text = format!(
            "shop/sale/Z\n{}\n{}\nevent sale\nzone Z\nfrozen {frozen}\nstart 2001-09-09T01:47:10Z\nalgorithm weir-draw-1\nin-line {}\n\
             randomness stated dice\nfallback {fallback}\n",
            leaves.len(),
            STANDARD.encode(root(&leaves)),
            in_line.iter().filter(|is| **is).count(),
        );
        let mut list = Self { leaves, in_line, checkpoint: String::new(), key, secret };
        list.checkpoint = list.sign(&text);
        list
    }

    fn sign(&self, text: &str) -> String {
        let public = [&[1], self.secret.verifying_key().as_bytes().as_slice()].concat();
        let id = Sha256::new().chain_update("shop\n").chain_update(public).finalize();
        let signature = [&id[..4], &self.secret.sign(text.as_bytes()).to_bytes()].concat();
        format!("{text}\n\u{2014} shop {}\n", STANDARD.encode(signature))
    }

    fn receipt(&self, place: u32, position: u32) -> Value {
        let at = place as usize;
        let text = self.checkpoint.split("\n\n").next().expect("a text").to_owned() + "\n";
        let about = STANDARD.encode(Sha256::digest(text));
        let path: Vec<_> = path(&self.leaves, at).iter().map(|hash| STANDARD.encode(hash)).collect();
        json!({
            "format": "weir-draw-receipt-1", "event": "sale", "zone": "Z", "place": place, "inLine": self.in_line[at],
            "position": self.in_line[at].then_some(position), "path": path, "key": self.key, "checkpoint": self.checkpoint,
            "randomness": {
                "kind": "stated", "statement": self.sign(&format!("shop/sale/Z\ncheckpoint {about}\nvalue 3 1 6\n")),
            },
        })
    }
}

fn call(sent_ms: u32) -> Call {
    Call { sent_ms, heard_ms: sent_ms + 10 }
}

/// The rank that each of those on the list drew.
fn drawn() -> Vec<u32> {
    let mut people: Vec<u32> = (0..LISTED).collect();
    people.sort_by_key(|person| Sha256::digest(person.to_be_bytes()));
    let mut ranks = vec![0; LISTED as usize];
    people.iter().zip(1..).for_each(|(person, rank)| ranks[*person as usize] = rank);
    ranks
}

/// A good run with these ranks: 120 users come before the freeze, 30 later. Six enter every 6 s from the opening on, by rank.
fn stories(ranks: &[u32]) -> Vec<Story> {
    let user = |number: u32| {
        let is_listed = number < LISTED;
        let came_ms = if is_listed { number * 500 } else { FROZEN_MS + 1_000 + (number - LISTED) * 300 };
        let rank = if is_listed { ranks[number as usize] } else { number + 1 };
        let mut story = Story::new((0, number));
        story.arrived = Some(call(came_ms));
        story.opens = Some(ToldOpening { told: call(OPENS_MS - 1_010), in_ms: 1_005 });
        story.undrawn_ms = Some(FROZEN_MS + 12_000);
        story.placed = Some(Placed { rank, told: call(FROZEN_MS + 15_000) });
        let in_ms = OPENS_MS + 20 + (rank - 1) / 6 * 6_001;
        (story.end, story.ended_ms, story.last_waiting) = (End::Waiting, 180_000, Some(call(178_000)));
        if in_ms < 178_000 {
            (story.end, story.ended_ms) = (End::Entered, in_ms + 10);
            (story.last_waiting, story.entered) = (Some(call(in_ms - 500)), Some(call(in_ms)));
        }
        story
    };
    (0..USERS).map(user).collect()
}

fn list() -> List {
    List::new(vec![true; LISTED as usize], "2001-09-09T01:46:40Z", "wait")
}

/// What users 0, 10, 20 … fetch.
fn papers(list: &List, ranks: &[u32]) -> Vec<Paper> {
    let paper = |number: u32, kind, ms, status, text: String| Paper {
        who: (0, number),
        call: call(ms),
        kind,
        status,
        text,
    };
    let mut papers = Vec::new();
    for number in (0..USERS).step_by(10) {
        let published = json!({ "stage": "frozen", "begins": BEGINS_UNIX_S, "opens": BEGINS_UNIX_S + 30, "key": list.key, "checkpoint": list.checkpoint });
        papers.push(paper(number, Kind::Published, FROZEN_MS + 3_000, 200, published.to_string()));
        papers.push(match ranks.get(number as usize) {
            Some(rank) => {
                paper(number, Kind::Receipt, FROZEN_MS + 16_000, 200, list.receipt(number, *rank).to_string())
            }
            None => paper(number, Kind::Receipt, FROZEN_MS + 16_000, 404, r#"{"code":"no_draw"}"#.to_owned()),
        });
    }
    papers
}

fn check(stories: &[Story], papers: &[Paper], name: &str) -> Check {
    let (checks, _) = judge(&plan(), 180_000, stories, papers);
    let found = checks.into_iter().find(|check| check.name == name).expect("each check is made");
    assert!(!found.note_ko.is_empty() && found.worst.is_empty() == found.worst_ko.is_empty(), "{found:?}");
    found
}

const NAMES: [&str; 5] = ["opening", "order", "draw_order", "draw_fairness", "draw_receipts"];

#[test]
fn a_good_draw_passes_every_check() {
    let ranks = drawn();
    let (stories, papers) = (stories(&ranks), papers(&list(), &ranks));
    for name in
        NAMES.into_iter().chain(["slot_use", "over_admission_60s", "over_admission_sub_window", "rank_rises"])
    {
        assert_eq!(
            check(&stories, &papers, name).judgement,
            Judgement::Good,
            "{:?}",
            check(&stories, &papers, name)
        );
    }
    let receipts = check(&stories, &papers, "draw_receipts");
    assert!(
        receipts.note.contains("All 12 receipts") && receipts.note.contains("15 users had saved it"),
        "{receipts:?}"
    );
    // Nobody knows of a draw that the run was not made for.
    let mut unplanned = plan();
    unplanned.opening = None;
    let (checks, _) = judge(&unplanned, 180_000, &stories, &papers);
    let order = checks.iter().find(|check| check.name == "order").expect("made");
    assert!(order.judgement == Judgement::Open && order.note.contains("--profile sale"), "{order:?}");
    assert!(checks.iter().all(|check| !check.name.starts_with("draw_")));
}

#[test]
fn whoever_comes_after_the_freeze_enters_after_those_before() {
    let ranks = drawn();
    let papers = papers(&list(), &ranks);
    let mut late_first = stories(&ranks);
    // The last of the late users enters with the first six.
    let story = &mut late_first[149];
    (story.last_waiting, story.entered, story.end) = (Some(call(99_000)), Some(call(100_030)), End::Entered);
    let found = check(&late_first, &papers, "order");
    assert_eq!(found.judgement, Judgement::Bad, "{found:?}");
    assert!(found.worst.contains("0/149"), "{found:?}");
    assert_eq!(check(&late_first, &papers, "draw_order").judgement, Judgement::Bad);
    // Early arrival has no claim among those on the list, so other orders of theirs are the business of the drawn places.
    let mut swapped = stories(&ranks);
    let of = |rank: u32| ranks.iter().position(|other| *other == rank).expect("drawn");
    let (first, last) = (of(1), of(120));
    let (a, b) = (swapped[first].clone(), swapped[last].clone());
    for (to, from) in [(first, b), (last, a)] {
        let story = &mut swapped[to];
        (story.last_waiting, story.entered, story.end, story.ended_ms) =
            (from.last_waiting, from.entered, from.end, from.ended_ms);
    }
    assert_eq!(check(&swapped, &papers, "order").judgement, Judgement::Good);
    let found = check(&swapped, &papers, "draw_order");
    assert_eq!(found.judgement, Judgement::Bad, "{found:?}");
    assert!(found.worst.contains(&format!("0/{last}")), "{found:?}");
}

/// Ranks fall when people leave, so a rank that was told later may be lower without being ahead.
#[test]
fn people_who_leave_after_the_draw_make_places_uncertain_and_not_wrong() {
    let ranks = drawn();
    let mut stories = stories(&ranks);
    let papers = papers(&list(), &ranks);
    let of = |rank: u32| ranks.iter().position(|other| *other == rank).expect("drawn");
    // Ten in front leave at 90 s, and the one with place 40 is told 30 afterwards, while place 35 was told before.
    for rank in 1..=10 {
        let story = &mut stories[of(rank)];
        (story.entered, story.end, story.ended_ms) = (None, End::Left, 90_000);
        story.last_waiting = Some(call(89_000));
    }
    stories[of(40)].placed = Some(Placed { rank: 30, told: call(95_000) });
    for name in ["draw_order", "draw_receipts"] {
        let found = check(&stories, &papers, name);
        assert_eq!(found.judgement, Judgement::Good, "{found:?}");
    }
}

#[test]
fn early_arrival_must_bring_neither_good_nor_bad_places() {
    let papers = papers(&list(), &drawn());
    let by_arrival: Vec<u32> = (1..=LISTED).collect();
    let found = check(&stories(&by_arrival), &papers, "draw_fairness");
    assert_eq!((found.judgement, found.figure), (Judgement::Bad, Some(1.0)), "{found:?}");
    assert!(found.note.contains("came early had better places"), "{found:?}");
    let backwards: Vec<u32> = (1..=LISTED).rev().collect();
    assert!(check(&stories(&backwards), &papers, "draw_fairness").note.contains("came late"));
    // A weak advantage: every third one is first.
    let mut weak = drawn();
    weak[..40].sort_unstable();
    for (person, rank) in weak.iter_mut().enumerate() {
        *rank = rank.saturating_sub(if person < 60 { 70 } else { 0 }).max(1);
    }
    assert_eq!(check(&stories(&weak), &papers, "draw_fairness").judgement, Judgement::Bad);
    // Ninety are too few.
    let few: Vec<Story> = stories(&drawn()).into_iter().skip(30).collect();
    let found = check(&few, &papers, "draw_fairness");
    assert!(found.judgement == Judgement::Open && found.note.contains("at least 100"), "{found:?}");
    // The correlation of each of many fair draws is as the significance says.
    let fair = |seed: u32| {
        let mut people: Vec<u32> = (0..LISTED).collect();
        people.sort_by_key(|person| Sha256::digest([seed.to_be_bytes(), person.to_be_bytes()].concat()));
        spearman(&people).abs() * f64::from(LISTED - 1).sqrt() > MOST_SIGMA
    };
    let alarms = (0..5_000).filter(|seed| fair(*seed)).count();
    assert!((1..=12).contains(&alarms), "5 of 5,000 are expected: {alarms}");
}

#[test]
fn each_wrong_paper_is_found() {
    let ranks = drawn();
    let (stories, list) = (stories(&ranks), list());
    let good = papers(&list, &ranks);
    let bad = |change: &dyn Fn(&mut Vec<Paper>), says: &str| {
        let mut papers = good.clone();
        change(&mut papers);
        let found = check(&stories, &papers, "draw_receipts");
        assert_eq!(found.judgement, Judgement::Bad, "{says}: {found:?}");
        assert!(found.worst.contains(says), "{says}: {found:?}");
    };
    // The receipt of user 10.
    const MINE: usize = 3;
    assert_eq!((good[MINE].who, good[MINE].kind), ((0, 10), Kind::Receipt));
    let receipt = |value: Value| move |papers: &mut Vec<Paper>| papers[MINE].text = value.to_string();
    let mut wrong = list.receipt(10, ranks[10]);
    wrong["place"] = json!(11);
    bad(&receipt(wrong), "does not verify");
    bad(&receipt(list.receipt(10, ranks[10] % LISTED + 1)), "was told rank");
    bad(&receipt(list.receipt(0, ranks[0])), "the place of another user");
    bad(&|papers| (papers[MINE].status, papers[MINE].text) = (404, String::new()), "was refused a receipt");
    // Another list under the same key.
    let mut gone = vec![true; LISTED as usize];
    gone[10] = false;
    let other = List::new(gone, "2001-09-09T01:46:40Z", "wait");
    bad(&receipt(other.receipt(11, ranks[11])), "another checkpoint");
    bad(
        &|papers| papers[MINE - 1].text = papers[MINE - 1].text.replace("in-line 120", "in-line 119"),
        "does not verify",
    );
    let later = |papers: &mut Vec<Paper>| {
        let late = papers
            .iter()
            .position(|paper| paper.who == (0, 120) && paper.kind == Kind::Receipt)
            .expect("there");
        (papers[late].status, papers[late].text) = (200, list.receipt(5, ranks[5]).to_string());
    };
    bad(&later, "came after the list was frozen");
    // All see the same list, on which somebody who polled is not in line; or that was frozen too early; or of another zone.
    let all = |other: &List| papers(other, &ranks);
    let found = check(&stories, &all(&other), "draw_receipts");
    assert!(found.worst.contains("0/10") && found.worst.contains("says that it had left"), "{found:?}");
    let early = List::new(vec![true; LISTED as usize], "2001-09-09T01:46:39Z", "wait");
    let found = check(&stories, &all(&early), "draw_receipts");
    assert!(found.worst.contains("before the event began"), "{found:?}");
    let mut elsewhere = plan();
    elsewhere.zone = "OTHER".into();
    let (checks, _) = judge(&elsewhere, 180_000, &stories, &good);
    let found = checks.iter().find(|check| check.name == "draw_receipts").expect("made");
    assert!(found.worst.contains("another zone or event"), "{found:?}");
    // Nobody fetched one.
    let found = check(&stories, &good[..2], "draw_receipts");
    assert!(found.judgement == Judgement::Open && found.note.contains("--users"), "{found:?}");
}

/// A list that was frozen late, as after a loss, has those who came until then.
#[test]
fn whoever_came_before_a_late_freeze_is_on_the_list() {
    let ranks = drawn();
    let stories = stories(&ranks);
    let late = List::new(vec![true; LISTED as usize + 1], "2001-09-09T01:46:45Z", "wait");
    let late = papers(&late, &ranks);
    let draw = Drawn::of(&plan(), &stories, &late).expect("a draw");
    // Five seconds after the event began, and what the clocks differ by.
    assert!((75_000..75_200).contains(&draw.frozen_by_ms()), "{}", draw.frozen_by_ms());
    let without = Drawn::of(&plan(), &stories, &[]).expect("a draw");
    assert!((72_000..72_200).contains(&without.frozen_by_ms()), "{}", without.frozen_by_ms());
}
