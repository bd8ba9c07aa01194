//! What a line taught is still known after a restart, and only then.

use admission::{Claim, Now, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Verdict, ZoneId};
use redb::{Database, TableDefinition};
use store::{DiskJournal, Engine, Journal, MemoryJournal};
use wait::{Comparison, Forecast, Learned};

const PEOPLE: u64 = 1_500;

fn zone() -> ZoneId {
    ZoneId::parse("Z").expect("a name")
}

/// What a server learns beside a store, as a room holds it.
struct Server {
    forecast: Forecast,
    comparison: Comparison,
}

impl Server {
    fn start<J: Journal>(engine: &mut Engine<J>, now_ms: u64) -> Self {
        let mut server =
            Self { forecast: Forecast::new(&policy(), now_ms), comparison: Comparison::default() };
        engine.put_zone(&zone(), policy(), 7, at(now_ms)).expect("put");
        server.exchange(engine, now_ms);
        server
    }

    fn beat<J: Journal>(&mut self, engine: &mut Engine<J>, pages: &[PagePolls], now_ms: u64) {
        self.forecast.observe(engine.beat(&zone(), pages, 0, at(now_ms)).expect("beats"));
        self.exchange(engine, now_ms);
    }

    fn exchange<J: Journal>(&mut self, engine: &mut Engine<J>, now_ms: u64) {
        let Some(known) = self.comparison.due(&self.forecast, now_ms) else { return };
        let mut exchange = |new| engine.exchange_learned(&zone(), new, at(now_ms)).expect("exchanges");
        let kept = exchange(None).and_then(|bytes| Learned::from_bytes(&bytes).ok());
        if self.comparison.compare(&mut self.forecast, &known, kept) {
            exchange(Some(known.to_bytes().to_vec()));
            self.comparison.note(known);
        }
    }
}

fn at(ms: u64) -> Now {
    Now { ms, unix_ms: ms }
}

fn policy() -> Policy {
    Policy { admit_per_minute: 300, ..Policy::default() }
}

/// Plays a line of which two fifths leave within a minute. Returns the wait that the last one was told, and the one that was had, both
/// in seconds. `now_ms` goes on.
fn play<J: Journal>(server: &mut Server, engine: &mut Engine<J>, now_ms: &mut u64) -> (f64, f64) {
    let (zone, mut told_s) = (zone(), 0.0);
    let begin_ms = *now_ms;
    let mut joined = engine.join(&zone, u32::try_from(PEOPLE).expect("few"), at(begin_ms)).expect("joins");
    server.forecast.estimate(&mut joined.verdicts, &joined.slots, begin_ms);
    if let Some(Verdict::Waiting(position)) = joined.verdicts.last() {
        told_s = position.estimate.map_or(0.0, |estimate| estimate.wait_ms as f64 / 1_000.0);
    }
    // When a person leaves, in seconds after the join; the last one stays.
    let leaves_s = |i: u64| if i % 5 < 2 && i + 1 < PEOPLE { 5 + (i * 37) % 50 } else { u64::MAX };
    let waits = |verdict: &Verdict| matches!(verdict, Verdict::Waiting(_));
    let mut waiting: Vec<u64> =
        (0..).zip(&joined.verdicts).filter(|(_, verdict)| waits(verdict)).map(|(i, _)| i).collect();
    let mut had_s = 0.0;
    let mut second = 0;
    while !waiting.is_empty() {
        second += 1;
        *now_ms = begin_ms + second * 1_000;
        waiting.retain(|&i| leaves_s(i) > second);
        let mut pages: Vec<PagePolls> = Vec::new();
        for &i in &waiting {
            let seq = joined.first + i;
            let page = seq / PAGE_TICKETS as u64;
            let ticket = usize::try_from(seq % PAGE_TICKETS as u64).expect("small");
            if pages.last().is_none_or(|last| last.page != page) {
                pages.push(PagePolls { page, words: Box::new([0; PAGE_WORDS]) });
            }
            pages.last_mut().expect("pushed").words[ticket / 64] |= 1 << (ticket % 64);
        }
        server.beat(engine, &pages, *now_ms);
        let claims: Vec<Claim> =
            waiting.iter().map(|i| Claim { seq: joined.first + i, epoch: joined.epoch }).collect();
        let decided = engine.enter(&zone, &claims, at(*now_ms)).expect("decides");
        engine.commit(at(*now_ms)).expect("commits");
        let mut verdicts = decided.verdicts.iter();
        waiting.retain(|_| verdicts.next().is_some_and(waits));
        had_s = second as f64;
    }
    // Those who left are evicted, and the minute of the last entries passes.
    for _ in 0..100 {
        *now_ms += 1_000;
        server.beat(engine, &[], *now_ms);
        engine.commit(at(*now_ms)).expect("commits");
    }
    (told_s, had_s)
}

/// The error of a told wait, as a share of the wait.
fn error((told_s, had_s): (f64, f64)) -> f64 {
    assert!(had_s > 120.0, "a short line: {had_s} s");
    told_s / had_s - 1.0
}

fn is_cold(found: (f64, f64)) {
    assert!(error(found) > 0.3, "nobody can know of the first line who leaves: {found:?}");
}

fn is_warm(found: (f64, f64)) {
    assert!(error(found).abs() < 0.08, "the line before taught it: {found:?}");
}

#[test]
fn the_second_line_after_a_restart_is_told_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = || DiskJournal::open(dir.path()).expect("opens");
    let mut now_ms = 2_000_000_000_000;
    let mut engine = Engine::new(journal()).expect("reads");
    is_cold(play(&mut Server::start(&mut engine, now_ms), &mut engine, &mut now_ms));
    drop(engine);
    let mut engine = Engine::new(journal()).expect("reads");
    is_warm(play(&mut Server::start(&mut engine, now_ms), &mut engine, &mut now_ms));
    drop(engine);

    // Bytes that no version wrote cost the memory and nothing else.
    let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("learned");
    let change = |bytes: &[u8]| {
        let db = Database::open(dir.path().join("weir.redb")).expect("opens");
        let write = db.begin_write().expect("begins");
        write.open_table(table).expect("is there").insert("Z", bytes).expect("inserts");
        write.open_table(table).expect("is there").insert("no name!", &[1; 321][..]).expect("inserts");
        write.commit().expect("commits");
    };
    change(&[0xFF; 321]);
    let mut engine = Engine::new(journal()).expect("reads it all the same");
    is_cold(play(&mut Server::start(&mut engine, now_ms), &mut engine, &mut now_ms));
    drop(engine);

    // A journal of a version that kept nothing has no such table.
    let db = Database::open(dir.path().join("weir.redb")).expect("opens");
    let write = db.begin_write().expect("begins");
    assert!(write.delete_table(table).expect("deletes"));
    write.commit().expect("commits");
    drop(db);
    let mut engine = Engine::new(journal()).expect("reads it all the same");
    let mut server = Server::start(&mut engine, now_ms);
    is_cold(play(&mut server, &mut engine, &mut now_ms));
    is_warm(play(&mut server, &mut engine, &mut now_ms));
}

#[test]
fn an_idle_zone_writes_nothing() {
    struct Counted(MemoryJournal, usize);
    impl Journal for Counted {
        fn load(&mut self) -> Result<store::Loaded, store::JournalError> {
            self.0.load()
        }

        fn commit(&mut self, batch: &store::Batch) -> Result<(), store::JournalError> {
            self.1 += batch.learned.len();
            self.0.commit(batch)
        }

        fn minutes(
            &mut self,
            zone: &ZoneId,
            minutes: std::ops::Range<u32>,
        ) -> Result<Vec<(u32, Vec<u8>)>, store::JournalError> {
            self.0.minutes(zone, minutes)
        }
    }
    let mut now_ms = 1_000_000;
    let mut engine = Engine::new(Counted(MemoryJournal::default(), 0)).expect("reads");
    let mut server = Server::start(&mut engine, now_ms);
    play(&mut server, &mut engine, &mut now_ms);
    let written = engine.journal().1;
    assert!((3..=10).contains(&written), "once a minute and at the end: {written}");
    for _ in 0..1_000 {
        now_ms += 1_000;
        server.beat(&mut engine, &[], now_ms);
        engine.commit(at(now_ms)).expect("commits");
    }
    assert_eq!(engine.journal().1, written);
}
