//! What a view says about the tickets of a line, and what its people are told.

use std::collections::BTreeMap;

use admission::{
    EarlierEpoch, Header, Image, LastDeal, Mode, Now, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Verdict,
    Words, Zone,
};
use wait::{Forecast, Lookup};

fn at(ms: u64) -> Now {
    Now { ms, unix_ms: ms }
}

fn policy(n: u32) -> Policy {
    Policy { admit_per_minute: n, ..Policy::default() }
}

const EPOCH: u32 = 3;

/// The report of a server to which the holders of these tickets polled.
fn polls(seqs: impl IntoIterator<Item = u64>) -> Vec<PagePolls> {
    let mut pages = BTreeMap::<u64, Box<Words>>::new();
    for seq in seqs {
        let ticket = usize::try_from(seq).expect("small") % PAGE_TICKETS;
        let words = pages.entry(seq / PAGE_TICKETS as u64).or_insert_with(|| Box::new([0; PAGE_WORDS]));
        words[ticket / 64] |= 1 << (ticket % 64);
    }
    pages.into_iter().map(|(page, words)| PagePolls { page, words }).collect()
}

#[test]
fn whoever_is_behind_a_burst_waits_until_it_has_left_the_window() {
    let mut zone = Zone::new(policy(600), EPOCH, at(0));
    let mut joined = zone.join(601, at(5));
    Forecast::new(&policy(600), 5).estimate(&mut joined.verdicts, &joined.slots, joined.at_ms);
    let Verdict::Waiting(last) = joined.verdicts[600] else { panic!("the minute is used") };
    assert_eq!(last.estimate.expect("auto").wait_ms, 60_001);
}

#[test]
fn a_view_ranks_those_who_wait_and_asks_for_the_front() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(10_000, at(0));
    // Three of four leave, here and there.
    let stays = |seq: &u64| seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 3 == 0;
    let line: Vec<u64> = (10..10_000).filter(stays).collect();
    for second in 1..=75 {
        zone.beat(&polls(line.iter().copied()), at(second * 1_000));
    }
    let snapshot = zone.beat(&[], at(76_000));
    let view = Forecast::new(&policy(10), 76_000).observe(snapshot);
    assert!(view.front_end > line[0] && view.front_end < line[1_000], "some are in the front");
    for (&seq, rank) in line.iter().zip(1..) {
        assert_eq!(view.position(seq, 76_000).expect("waits").rank, rank);
        let answers = matches!(view.lookup(EPOCH, seq, 76_000), Lookup::Waiting(_));
        assert_eq!(answers, seq >= view.front_end, "{seq}");
    }
    assert_eq!(view.lookup(EPOCH + 1, line[1_000], 76_000), Lookup::Ask);
    let gone = (line[1_000]..10_000).find(|seq| !stays(seq)).expect("many");
    assert_eq!(view.position(gone, 76_000), None);
}

/// After a loss everybody who waited has a ticket of an earlier epoch. The view answers them as soon as no ticket needs to prove its
/// place to the store any more; otherwise each poll of a long line would be a call to the store until the line is gone.
#[test]
fn a_ticket_of_an_earlier_epoch_is_answered_once_nothing_more_is_to_be_said() {
    let mut zone = Zone::new(policy(10), EPOCH, at(0));
    zone.join(1_000, at(0));
    let snapshot = zone.beat(&polls(10..1_000), at(1_000));
    let lookup = |earlier: Option<EarlierEpoch>, drawn, epoch, seq| {
        let earlier = earlier.map(|of| [of].into());
        let snapshot = admission::Snapshot { earlier, drawn, ..snapshot.clone() };
        Forecast::new(&policy(10), 1_000).observe(snapshot).lookup(epoch, seq, 1_000)
    };
    let (none, of) = (LastDeal::default(), Some(EarlierEpoch { epoch: 1, from: 500, end: 950 }));
    let own = lookup(None, none, EPOCH, 900);
    assert!(matches!(own, Lookup::Waiting(_)), "{own:?}");
    assert_eq!(lookup(of, none, 1, 900), own);
    for (epoch, seq) in [(1, 499), (1, 950), (2, 900)] {
        assert_eq!(lookup(of, none, epoch, seq), Lookup::Ask, "number {seq} of epoch {epoch}");
    }
    assert_eq!(lookup(None, none, 1, 900), Lookup::Ask, "servers may still say what they remember");
    // A deal that was lost is made again, with the same numbers in another epoch.
    let drawn = LastDeal { draw: 1, from: 900, end: 950 };
    assert_eq!([lookup(of, drawn, 2, 900), lookup(None, drawn, 2, 900)], [own, Lookup::Ask]);
    assert_eq!(lookup(of, drawn, 2, 950), Lookup::Ask);
}

#[test]
fn a_ticket_of_an_earlier_epoch_has_the_rank_that_its_number_gives() {
    let base = 64 * PAGE_TICKETS as u64;
    let header = Header {
        epoch: EPOCH,
        next: base + 6,
        base_page: 64,
        inside: None,
        drawn: Default::default(),
        totals: Default::default(),
    };
    let mut gone = Box::new([0; PAGE_WORDS]);
    gone[0] = 1 << 2;
    let image = Image { header, pages: vec![(64, gone)], entries: vec![], bound: vec![] };
    let held = Policy { mode: Mode::Hold, ..policy(10) };
    let mut zone = Zone::restore(held, image, at(0)).expect("consistent");
    let snapshot = zone.beat(&[], at(1));
    let view = Forecast::new(&held, 1).observe(snapshot);
    assert_eq!(view.position(base + 2, 1), None, "gone, as far as the view knows");
    let rank = |seq| view.position_if_waiting(seq, 1).rank;
    assert_eq!([base - 1, base, base + 1, base + 2, base + 3, base + 5].map(rank), [1, 1, 2, 3, 3, 5]);
    assert_eq!([header.next, header.next + 16_000_000].map(rank), [6, 6], "nobody has the numbers between");
}
