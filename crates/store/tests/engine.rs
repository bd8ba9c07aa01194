//! The engine with a journal that fails on demand.

use std::sync::Arc;

use admission::{
    Claim, Decided, Delta, Header, Joined, MOST_NUMBERS, Mode, Now, PAGE_TICKETS, PAGE_WORDS, Policy,
    Verdict, ZoneId,
};
use store::{Batch, Engine, Journal, JournalError, Loaded, MemoryJournal, RELOAD_AFTER_MS, StoreError};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    No,
    /// The batch is lost.
    Commit,
    /// The batch is stored, but an error is returned.
    Reply,
    /// Nothing works.
    All,
}

struct Faulty {
    inner: MemoryJournal,
    fails: Fails,
    loads: u32,
    commits: u32,
}

fn broken() -> JournalError {
    JournalError::Io { file: "disk".into(), doing: "write", source: std::io::Error::other("on purpose") }
}

impl Journal for Faulty {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.loads += 1;
        if self.fails == Fails::All { Err(broken()) } else { self.inner.load() }
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.commits += 1;
        if matches!(self.fails, Fails::No | Fails::Reply) {
            self.inner.commit(batch)?;
        }
        if self.fails == Fails::No { Ok(()) } else { Err(broken()) }
    }

    fn minutes(
        &mut self,
        zone: &ZoneId,
        minutes: std::ops::Range<u32>,
    ) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        if self.fails == Fails::All { Err(broken()) } else { self.inner.minutes(zone, minutes) }
    }
}

fn engine(inner: MemoryJournal) -> Engine<Faulty> {
    Engine::new(Faulty { inner, fails: Fails::No, loads: 0, commits: 0 }).expect("an empty journal")
}

fn at(ms: u64) -> Now {
    Now { ms: 1_000_000 + ms, unix_ms: 1_700_000_000_000 + ms }
}

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

/// A policy under which few people enter.
fn narrow() -> Policy {
    Policy { admit_per_minute: 5, sub_windows: 1, ..Policy::default() }
}

fn put(engine: &mut Engine<Faulty>, id: &ZoneId, policy: Policy, ms: u64) {
    engine.put_zone(id, policy, 7, at(ms)).expect("put");
    engine.commit(at(ms)).expect("kept");
}

fn join(engine: &mut Engine<Faulty>, id: &ZoneId, count: u32, ms: u64) -> Result<Joined, StoreError> {
    let joined = engine.join(id, count, at(ms));
    engine.commit(at(ms)).and(joined)
}

fn enter(
    engine: &mut Engine<Faulty>,
    id: &ZoneId,
    seqs: std::ops::Range<u64>,
    ms: u64,
) -> Result<Decided, StoreError> {
    let claims: Vec<_> = seqs.map(|seq| Claim { epoch: 7, seq }).collect();
    let decided = engine.enter(id, &claims, at(ms));
    engine.commit(at(ms)).and(decided)
}

fn entered(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Entered(_))).count()
}

#[test]
fn a_restart_keeps_places_and_entries() {
    let z = zone("Z");
    let mut first = engine(MemoryJournal::default());
    put(&mut first, &z, narrow(), 0);
    let joined = join(&mut first, &z, 8, 10).expect("joins");
    assert_eq!((joined.epoch, joined.first, entered(&joined.verdicts)), (7, 0, 5));

    let mut second = engine(first.journal().inner.clone());
    assert_eq!(join(&mut second, &z, 1, 20), Err(StoreError::UnknownZone), "not active until it is put");
    second.put_zone(&z, narrow(), 99, at(20)).expect("put");
    second.commit(at(20)).expect("kept");
    let again = enter(&mut second, &z, 0..8, 30).expect("asks");
    assert_eq!(again.verdicts[..5], joined.verdicts[..5], "the same entries");
    assert!(again.verdicts[5..].iter().all(|verdict| matches!(verdict, Verdict::Waiting(_))));
    let more = join(&mut second, &z, 1, 30).expect("joins");
    assert_eq!((more.epoch, more.first), (7, 8));
}

#[test]
fn a_failed_commit_refuses_the_group_and_rolls_it_back() {
    let z = zone("Z");
    for (fails, next) in [(Fails::Commit, 3), (Fails::Reply, 5)] {
        let mut engine = engine(MemoryJournal::default());
        put(&mut engine, &z, Policy { admit_per_minute: 4, ..narrow() }, 0);
        assert_eq!(entered(&join(&mut engine, &z, 3, 10).expect("joins").verdicts), 3);
        engine.journal_mut().fails = fails;
        let refused = join(&mut engine, &z, 2, 20);
        assert!(matches!(&refused, Err(StoreError::Away(why)) if why.contains("on purpose")), "{refused:?}");
        engine.journal_mut().fails = Fails::No;
        let joined = join(&mut engine, &z, 3, 30).expect("is back at the next call, with its policy");
        assert_eq!(joined.first, next);
        assert_eq!(entered(&joined.verdicts), usize::from(fails == Fails::Commit), "the fourth slot, once");
        let all = enter(&mut engine, &z, 0..joined.first + 3, 40).expect("asks");
        assert_eq!(entered(&all.verdicts), 4);
    }
}

#[test]
fn a_journal_that_is_away_is_tried_now_and_then() {
    let z = zone("Z");
    let mut engine = engine(MemoryJournal::default());
    put(&mut engine, &z, narrow(), 0);
    engine.journal_mut().fails = Fails::All;
    for ms in 1_000..3_000 {
        assert!(matches!(join(&mut engine, &z, 1, ms), Err(StoreError::Away(_))));
    }
    assert_eq!(u64::from(engine.journal().loads), 1 + 2_000 / RELOAD_AFTER_MS);
    // A journal that loads but does not write is not loaded more often.
    engine.journal_mut().fails = Fails::Commit;
    let before = engine.journal().loads;
    for ms in 3_000..5_000 {
        assert!(matches!(join(&mut engine, &z, 1, ms), Err(StoreError::Away(_))));
    }
    assert!(u64::from(engine.journal().loads - before) <= 2_000 / RELOAD_AFTER_MS);
    engine.journal_mut().fails = Fails::No;
    assert_eq!(join(&mut engine, &z, 1, 5_000 + RELOAD_AFTER_MS).expect("back").first, 0);
}

/// A disk that is full can be read. As long as nothing can be written, no call says that the store works.
#[test]
fn a_journal_that_does_not_write_is_away_for_calls_that_change_nothing() {
    let z = zone("Z");
    let mut engine = engine(MemoryJournal::default());
    put(&mut engine, &z, narrow(), 0);
    let beat = |engine: &mut Engine<Faulty>, ms| {
        let beaten = engine.beat(&z, &[], 0, at(ms));
        engine.commit(at(ms)).and(beaten)
    };
    beat(&mut engine, 10).expect("beats");
    engine.journal_mut().fails = Fails::Commit;
    assert!(join(&mut engine, &z, 1, 20).is_err());
    for ms in (1_000..5_000).step_by(50) {
        assert!(matches!(beat(&mut engine, ms), Err(StoreError::Away(_))), "{ms}");
    }
    engine.journal_mut().fails = Fails::No;
    beat(&mut engine, 6_000).expect("it is back");
    let commits = engine.journal().commits;
    beat(&mut engine, 6_001).expect("beats");
    assert_eq!(engine.journal().commits, commits, "nothing is written for nothing");
}

#[test]
fn a_put_that_was_refused_is_no_put() {
    let (old, new) = (zone("OLD"), zone("NEW"));
    let mut engine = engine(MemoryJournal::default());
    put(&mut engine, &old, narrow(), 0);
    engine.journal_mut().fails = Fails::Commit;
    engine.put_zone(&old, Policy { mode: Mode::Hold, ..narrow() }, 1, at(10)).expect("applied");
    engine.put_zone(&new, narrow(), 9, at(10)).expect("applied");
    assert!(engine.commit(at(10)).is_err());
    engine.journal_mut().fails = Fails::No;
    assert_eq!(join(&mut engine, &new, 1, 20), Err(StoreError::UnknownZone));
    assert_eq!(entered(&join(&mut engine, &old, 1, 20).expect("joins").verdicts), 1, "under the old policy");
    put(&mut engine, &new, narrow(), 30);
    assert_eq!(join(&mut engine, &new, 1, 30).expect("joins").first, 0);
}

#[test]
fn a_group_is_kept_together_and_nothing_is_written_for_nothing() {
    let (a, b) = (zone("A"), zone("B"));
    let mut engine = engine(MemoryJournal::default());
    put(&mut engine, &a, narrow(), 0);
    put(&mut engine, &b, narrow(), 0);
    let before = engine.journal().commits;
    engine.join(&a, 1, at(10)).expect("applied");
    engine.join(&b, 1, at(10)).expect("applied");
    engine.join(&a, 9, at(10)).expect("applied");
    engine.commit(at(10)).expect("kept");
    assert_eq!(engine.journal().commits, before + 1);
    for ms in 11..20 {
        engine.beat(&a, &[], 0, at(ms)).expect("applied");
        engine.enter(&a, &[Claim { epoch: 7, seq: 9 }], at(ms)).expect("applied");
        engine.commit(at(ms)).expect("kept");
    }
    assert_eq!(engine.journal().commits, before + 1, "nobody entered");
}

#[test]
fn the_clock_does_not_go_back() {
    let z = zone("Z");
    let mut first = engine(MemoryJournal::default());
    put(&mut first, &z, narrow(), 0);
    join(&mut first, &z, 5, 10_000).expect("joins");
    let mut second = engine(first.journal().inner.clone());
    put(&mut second, &z, narrow(), 3);
    assert_eq!(join(&mut second, &z, 1, 5).expect("joins").at_ms, at(10_000).ms);
    let early = enter(&mut second, &z, 5..6, 9_000).expect("asks");
    assert_eq!((early.at_ms, entered(&early.verdicts)), (at(10_000).ms, 0));
}

/// A journal with a line that spans `numbers`. Only its first ticket waits, which keeps all the others from being dropped.
fn pinned(id: &ZoneId, numbers: u64) -> MemoryJournal {
    let all = Arc::new([u64::MAX; PAGE_WORDS]);
    let mut first = *all;
    first[0] = !1;
    let mut pages: Vec<_> = (0..numbers / PAGE_TICKETS as u64).map(|page| (page, Arc::clone(&all))).collect();
    pages[0].1 = Arc::new(first);
    let mut last = [0; PAGE_WORDS];
    for ticket in 0..numbers % PAGE_TICKETS as u64 {
        last[usize::try_from(ticket / 64).expect("small")] |= 1 << (ticket % 64);
    }
    pages.push((numbers / PAGE_TICKETS as u64, Arc::new(last)));
    let header = Header {
        epoch: 7,
        next: numbers,
        base_page: 0,
        inside: None,
        drawn: Default::default(),
        totals: Default::default(),
    };
    let line =
        Delta { header, pages, dropped: 0..0, entered: Vec::new(), bound: Vec::new(), forgotten: Vec::new() };
    let mut journal = MemoryJournal::default();
    journal
        .commit(&Batch { at_ms: at(0).ms, zones: vec![(id.clone(), line)], ..Batch::default() })
        .expect("in memory");
    journal
}

#[test]
fn a_line_never_spans_more_numbers_than_can_be_read_again() {
    let z = zone("Z");
    let mut line = engine(pinned(&z, MOST_NUMBERS - 5));
    put(&mut line, &z, Policy { mode: Mode::Hold, ..narrow() }, 0);
    assert_eq!(join(&mut line, &z, 6, 10), Err(StoreError::Full));
    assert_eq!(join(&mut line, &z, 5, 10).expect("the last numbers").first, MOST_NUMBERS - 5);
    assert_eq!(join(&mut line, &z, 1, 20), Err(StoreError::Full));

    let mut again = engine(line.journal().inner.clone());
    put(&mut again, &z, narrow(), 30);
    assert_eq!(join(&mut again, &z, 1, 30), Err(StoreError::Full));
    let decided = enter(&mut again, &z, 0..1, 40).expect("the first one kept the place");
    assert_eq!(entered(&decided.verdicts), 1);
    again.beat(&z, &[], 0, at(50)).expect("beats");
    again.commit(at(50)).expect("kept");
    assert_eq!(join(&mut again, &z, 6, 60).expect("there is room").first, MOST_NUMBERS);
}

/// Adds a state to a journal that is not the state of any zone: its line ends before its page.
fn spoil(journal: &mut MemoryJournal, id: &ZoneId) {
    let header = Header {
        epoch: 7,
        next: 1,
        base_page: 0,
        inside: None,
        drawn: Default::default(),
        totals: Default::default(),
    };
    let pages = vec![(9, Arc::new([0; PAGE_WORDS]))];
    let line =
        Delta { header, pages, dropped: 0..0, entered: Vec::new(), bound: Vec::new(), forgotten: Vec::new() };
    journal
        .commit(&Batch { at_ms: at(0).ms, zones: vec![(id.clone(), line)], ..Batch::default() })
        .expect("in memory");
}

fn is_unreadable<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unreadable(why)) if why.contains("page 9 is outside the line"))
}

#[test]
fn a_zone_that_cannot_be_read_is_refused_alone() {
    let (bad, good) = (zone("BAD"), zone("GOOD"));
    let mut engine = engine(MemoryJournal::default());
    for id in [&bad, &good] {
        put(&mut engine, id, narrow(), 0);
        join(&mut engine, id, 8, 10).expect("joins");
    }
    spoil(&mut engine.journal_mut().inner, &bad);
    // The journal fails once, so both zones are read again.
    engine.journal_mut().fails = Fails::Commit;
    assert!(join(&mut engine, &good, 1, 20).is_err());
    engine.journal_mut().fails = Fails::No;
    for restarts in 0..2 {
        let ms = 1_000 + 10 * restarts;
        if restarts == 1 {
            engine = self::engine(engine.journal().inner.clone());
            put(&mut engine, &good, narrow(), ms);
        }
        assert_eq!(join(&mut engine, &good, 1, ms).expect("works").first, 8 + restarts);
        assert_eq!(join(&mut engine, &bad, 1, ms), Err(StoreError::UnknownZone));
        for _ in 0..2 {
            let refused = engine.put_zone(&bad, narrow(), 99, at(ms));
            assert!(is_unreadable(&refused), "{refused:?}");
        }
        engine.commit(at(ms)).expect("the others are kept");
    }
    assert_eq!(engine.journal_mut().load().expect("loads").images[&bad].header.next, 1, "left as it was");
}
