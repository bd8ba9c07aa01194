//! The journal on disk: stored state comes back, and a file that can't be trusted is refused. It is never used, and never
//! replaced silently.

use std::{fs, ops::Range, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use admission::{Claim, Delta, Header, LastDeal, MOST_NUMBERS, Mode, Now, Policy, Verdict, ZoneId};
use redb::ReadableDatabase as _;
use store::{
    Batch, Clock, DiskJournal, Embedded, Engine, Journal, JournalError, Line as _, Loaded, MemoryJournal,
    Store as _, StoreError, minutes::OfferedMinute,
};

/// Stores everything on disk and in memory.
struct Both {
    disk: DiskJournal,
    memory: MemoryJournal,
}

impl Journal for Both {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.memory.load()?;
        self.disk.load()
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.memory.commit(batch)?;
        self.disk.commit(batch)
    }

    fn minutes(&mut self, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        let kept = self.memory.minutes(zone, minutes.clone())?;
        assert_eq!(self.disk.minutes(zone, minutes)?, kept, "the disk has what memory has");
        Ok(kept)
    }
}

/// A small repeatable generator: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % end
    }
}

fn policy(mode: Mode) -> Policy {
    Policy { mode, admit_per_minute: 6_000, idle_timeout_s: 10, pass_ttl_s: 60, ..Policy::default() }
}

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

/// Random changes of some zones, of all kinds.
fn live(engine: &mut Engine<Both>, dice: &mut Dice, from_ms: u64, steps: u64) -> u64 {
    let zones = ["A", "LONGER-NAME", "Z"].map(zone);
    let mut now = Now { ms: from_ms, unix_ms: from_ms };
    for (id, mode) in zones.iter().zip([Mode::Auto, Mode::Open, Mode::Hold]) {
        engine
            .put_zone(id, policy(mode), 1 + u32::try_from(dice.below(1 << 30)).expect("small"), now)
            .expect("put");
    }
    for _ in 0..steps {
        for _ in 0..1 + dice.below(4) {
            let id = &zones[usize::try_from(dice.below(3)).expect("small")];
            now.ms += dice.below(900);
            let view = engine.beat(id, &[], 0, now).expect("beats");
            if dice.below(3) == 0 {
                engine.join(id, 1 + u32::try_from(dice.below(1_024)).expect("small"), now).expect("joins");
            } else {
                let seqs = view.base..view.base + 200;
                let claims: Vec<_> = seqs.map(|seq| Claim { epoch: view.epoch, seq }).collect();
                engine.enter(id, &claims, now).expect("asks");
            }
        }
        engine.commit(now).expect("kept");
    }
    now.ms
}

fn text(loaded: &Loaded) -> String {
    format!("{loaded:?}")
}

fn both(dir: &Path, memory: MemoryJournal) -> Engine<Both> {
    Engine::new(Both { disk: DiskJournal::open(dir).expect("opens"), memory }).expect("loads")
}

/// A directory with a journal that was used, and its content.
fn lived_in(steps: u64) -> (tempfile::TempDir, Loaded) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut engine = both(dir.path(), MemoryJournal::default());
    live(&mut engine, &mut Dice(7), 2_000_000_000_000, steps);
    let kept = engine.journal_mut().memory.load().expect("in memory");
    (dir, kept)
}

fn open(dir: &Path) -> Result<(DiskJournal, Loaded), JournalError> {
    let mut journal = DiskJournal::open(dir)?;
    let loaded = journal.load()?;
    Ok((journal, loaded))
}

fn refused(dir: &Path) -> JournalError {
    open(dir).map(|_| ()).expect_err("refused")
}

fn says(error: &JournalError, file: &Path, words: &[&str]) {
    let text = error.to_string();
    for word in words.iter().copied().chain(file.to_str()) {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn the_disk_keeps_what_memory_keeps() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dice = Dice(0x5eed);
    let (mut memory, mut now_ms) = (MemoryJournal::default(), 2_000_000_000_000);
    for round in 0..6 {
        let mut engine = both(dir.path(), memory);
        now_ms = live(&mut engine, &mut dice, now_ms, 40);
        if round == 0 {
            // They enter at once, so the line's base moves past them.
            engine.join(&zone("LONGER-NAME"), 65_536, Now { ms: now_ms, unix_ms: 0 }).expect("joins");
            engine.commit(Now { ms: now_ms, unix_ms: 0 }).expect("kept");
        }
        let kept = engine.journal_mut().memory.load().expect("in memory");
        let on_disk = engine.journal_mut().disk.load().expect("loads again");
        assert_eq!(text(&on_disk), text(&kept), "round {round}");
        if round == 5 {
            let count = |f: fn(&admission::Image) -> u64| kept.images.values().map(f).sum::<u64>();
            assert!(count(|image| image.header.base_page) > 0, "pages were dropped");
            assert!(
                count(|image| image.entries.len() as u64) < count(|image| image.header.next) / 2,
                "forgotten"
            );
        }
        memory = engine.journal().memory.clone();
    }
}

#[tokio::test]
async fn a_restart_keeps_places_entries_and_clock() {
    let dir = tempfile::tempdir().expect("a directory");
    let z = zone("Z");
    let narrow = Policy { admit_per_minute: 3, sub_windows: 1, ..Policy::default() };
    let store = Arc::new(Embedded::open(dir.path()).expect("opens"));
    store.line(&z).put(narrow).await.expect("put");
    let joined = store.line(&z).join(5).await.expect("joins");
    drop(store);
    let store = Arc::new(Embedded::open(dir.path()).expect("opens again"));
    store.line(&z).put(narrow).await.expect("put");
    let claims = (0..5).map(|seq| Claim { epoch: joined.epoch, seq }).collect();
    let again = store.line(&z).enter(claims).await.expect("asks");
    assert_eq!(again.verdicts[..3], joined.verdicts[..3]);
    assert!(matches!(again.verdicts[3], Verdict::Waiting(place) if place.rank == 1));
    assert!(matches!(again.verdicts[4], Verdict::Waiting(place) if place.rank == 2));
    let next = store.line(&z).join(1).await.expect("joins");
    assert_eq!((next.epoch, next.first), (joined.epoch, 5));
    assert!(joined.at_ms <= again.at_ms && again.at_ms <= next.at_ms && next.at_ms < joined.at_ms + 60_000);
}

#[test]
fn the_clock_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = |dir: &Path| -> Clock { open(dir).expect("opens").0.clock() };
    let first = clock(dir.path());
    let before = first.now();
    let (mut journal, _) = open(dir.path()).expect("opens");
    assert!(journal.clock().now().ms + 60_000 > before.ms, "a new journal begins at the wall clock");
    let after = journal.clock();
    journal.commit(&Batch { at_ms: after.now().ms, zones: Vec::new(), ..Batch::default() }).expect("kept");
    drop(journal);
    assert_eq!(clock(dir.path()), after, "the same boot, the same clock");
}

#[test]
fn files_are_the_owners_own() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("a/b");
    drop(open(&dir).expect("opens"));
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let mut names: Vec<_> =
        fs::read_dir(&dir).expect("lists").map(|file| file.expect("a file").path()).collect();
    names.sort();
    assert_eq!(names, [dir.join("weir.mark"), dir.join("weir.redb")]);
    assert!(names.iter().all(|name| mode(name) == 0o600));
}

#[test]
fn a_second_store_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let _first = open(dir.path()).expect("opens");
    let error = refused(dir.path());
    assert!(matches!(error, JournalError::InUse { .. }), "{error}");
    says(&error, dir.path(), &["in use", "directory of its own"]);
}

#[test]
fn a_directory_that_can_not_be_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for dir in [file.path().join("data"), "/proc/weir".into()] {
        let error = refused(&dir);
        assert!(matches!(error, JournalError::Io { .. }), "{error}");
        says(&error, &dir, &["can't"]);
    }
}

/// Damages a journal and checks that it is refused twice: the first refusal must not repair anything.
fn damaged(words: &[&str], damage: impl FnOnce(&Path)) {
    let (dir, _) = lived_in(3);
    let file = dir.path().join("weir.redb");
    damage(&file);
    for _ in 0..2 {
        says(&refused(dir.path()), dir.path(), words);
    }
}

#[test]
fn bad_files_are_refused() {
    damaged(&["damaged or not a journal", "move the file"], |file| {
        fs::write(file, "").expect("writes");
    });
    damaged(&["damaged or not a journal"], |file| {
        fs::write(file, "[[zone]]\nid = \"A\"\n").expect("writes");
    });
    damaged(&["damaged or not a journal"], |file| {
        fs::write(file, vec![0; 1 << 20]).expect("writes");
    });
    damaged(&["it is missing"], |file| fs::remove_file(file).expect("removes"));
    damaged(&["weir.mark", "not a mark"], |file| {
        fs::write(file.with_extension("mark"), "x").expect("writes");
    });
    for part in [2, 3, 100] {
        damaged(&["damaged or not a journal"], |file| {
            let whole = fs::read(file).expect("reads");
            fs::write(file, &whole[..whole.len() - whole.len() / part]).expect("writes");
        });
    }
    damaged(&["damaged or not a journal"], |file| {
        fs::remove_file(file).expect("removes");
        let other = redb::Database::create(file).expect("makes");
        let write = other.begin_write().expect("begins");
        write.open_table(redb::TableDefinition::<u64, u64>::new("prices")).expect("opens");
        write.commit().expect("commits");
    });
    damaged(&["has format 4", "reads format 3"], |file| {
        let newer = redb::Database::open(file).expect("opens");
        let write = newer.begin_write().expect("begins");
        let record = redb::TableDefinition::<(), &[u8]>::new("record");
        write.open_table(record).expect("opens").insert((), [4, 0, 0, 0, 9].as_slice()).expect("inserts");
        write.commit().expect("commits");
    });
}

/// A change of a zone's header alone.
fn with_header(header: Header) -> Delta {
    Delta {
        header,
        pages: Vec::new(),
        dropped: 0..0,
        entered: Vec::new(),
        bound: Vec::new(),
        forgotten: Vec::new(),
    }
}

/// The format that a journal's record says.
fn format_of(file: &Path) -> u32 {
    let db = redb::Database::open(file).expect("opens");
    let read = db.begin_read().expect("begins");
    let table = read.open_table(redb::TableDefinition::<(), &[u8]>::new("record")).expect("opens");
    let record = table.get(()).expect("reads").expect("there is one");
    u32::from_le_bytes(*record.value().first_chunk().expect("a record"))
}

/// A journal has a later format from the first deal on: an earlier version would take the rows of a deal for damage.
#[tokio::test]
async fn a_journal_says_which_format_it_needs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, id) = (dir.path().join("weir.redb"), zone("Z"));
    let store = Arc::new(Embedded::open(dir.path()).expect("opens"));
    store.line(&id).put(policy(Mode::Hold)).await.expect("put");
    store.line(&id).join(3).await.expect("joins");
    drop(store);
    assert_eq!(format_of(&file), 2);
    for _ in 0..2 {
        let (mut journal, loaded) = open(dir.path()).expect("opens");
        let drawn = LastDeal { draw: 7, from: 0, end: 3 };
        let header = Header { drawn, ..loaded.images[&id].header };
        let zones = vec![(id.clone(), with_header(header))];
        journal.commit(&Batch { at_ms: loaded.last_ms, zones, ..Batch::default() }).expect("kept");
        drop(journal);
        assert_eq!(format_of(&file), 3);
        assert_eq!(open(dir.path()).expect("opens").1.images[&id].header.drawn, drawn);
    }
}

#[test]
fn a_row_that_is_not_ours_is_refused() {
    damaged(&["not those that were written"], |file| {
        let db = redb::Database::open(file).expect("opens");
        let write = db.begin_write().expect("begins");
        let entries = redb::TableDefinition::<(u32, u64), (u64, u64, u32)>::new("entries");
        write.open_table(entries).expect("opens").pop_last().expect("pops");
        write.commit().expect("commits");
    });
}

/// Writes a state for a zone that no zone can have, as a fault of the program would: its line spans too many numbers.
fn spoil(dir: &Path, id: &ZoneId) {
    let (mut journal, loaded) = open(dir).expect("opens");
    let header = Header { next: MOST_NUMBERS + 1, ..loaded.images[id].header };
    let zones = vec![(id.clone(), with_header(header))];
    journal.commit(&Batch { at_ms: loaded.last_ms, zones, ..Batch::default() }).expect("kept");
}

#[tokio::test]
async fn one_bad_zone_is_refused_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (bad, good) = (zone("BAD"), zone("GOOD"));
    let store = Arc::new(Embedded::open(dir.path()).expect("opens"));
    for id in [&bad, &good] {
        store.line(id).put(policy(Mode::Hold)).await.expect("put");
        store.line(id).join(3).await.expect("joins");
    }
    drop(store);
    spoil(dir.path(), &bad);
    for round in 0..2 {
        let store = Arc::new(Embedded::open(dir.path()).expect("opens"));
        let refused = store.line(&bad).put(policy(Mode::Hold)).await.expect_err("refused");
        assert!(matches!(refused, StoreError::Unreadable(_)), "{refused}");
        for word in ["268435457 numbers", "good copy", "another id"] {
            assert!(refused.to_string().contains(word), "{refused} does not say {word}");
        }
        let view = store.line(&good).put(policy(Mode::Hold)).await.expect("put");
        assert_eq!(view.tally.waiting, 3 + round, "nobody lost the place");
        assert_eq!(store.line(&good).join(1).await.expect("joins").first, 3 + round);
    }
}

#[test]
fn an_old_copy_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("weir.redb");
    let (mut journal, loaded) = open(dir.path()).expect("opens");
    let batch = |at_ms| Batch { at_ms, zones: Vec::new(), ..Batch::default() };
    journal.commit(&batch(loaded.last_ms + 1)).expect("kept");
    drop(journal);
    let old = fs::read(&file).expect("reads");
    let (mut journal, loaded) = open(dir.path()).expect("opens");
    journal.commit(&batch(loaded.last_ms + 1)).expect("kept");
    drop(journal);
    fs::write(&file, old).expect("writes");
    for _ in 0..2 {
        let error = refused(dir.path());
        assert!(matches!(error, JournalError::Behind { found: 1, promised: 2, .. }), "{error}");
        says(&error, &file, &["old copy", "removing the weir.mark"]);
    }
    fs::remove_file(dir.path().join("weir.mark")).expect("removes");
    open(dir.path()).expect("the loss was accepted");
}

/// Flips bits everywhere in a file. The start is refused, or finds the same state and can continue.
fn flipped(kept: &Loaded, redb: &[u8], mark: &[u8], seed: u64) {
    let mut dice = Dice(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let used: Vec<_> = (0..redb.len()).filter(|&at| redb[at] != 0).collect();
    let (mut same, mut damaged) = (0, 0);
    // Each byte of the file's head, then bytes wherever there is data.
    let rest = (0..500).map(|_| used[usize::try_from(dice.below(used.len() as u64)).expect("small")]);
    let places: Vec<_> = (0..320).chain(rest).collect();
    for at in places {
        let mut bytes = redb.to_vec();
        bytes[at] ^= 1 << dice.below(8);
        fs::write(dir.path().join("weir.redb"), bytes).expect("writes");
        fs::write(dir.path().join("weir.mark"), mark).expect("writes");
        match open(dir.path()) {
            Ok((mut journal, loaded)) => {
                assert_eq!(text(&loaded), text(kept), "seed {seed}, byte {at}: another state was taken");
                let at_ms = loaded.last_ms + 1;
                journal.commit(&Batch { at_ms, zones: Vec::new(), ..Batch::default() }).expect("goes on");
                let later = Loaded { last_ms: at_ms, ..loaded };
                assert_eq!(
                    text(&journal.load().expect("loads again")),
                    text(&later),
                    "seed {seed}, byte {at}"
                );
                same += 1;
            }
            Err(JournalError::Io { source, .. }) => panic!("seed {seed}, byte {at}: {source}"),
            Err(_) => damaged += 1,
        }
    }
    assert!(damaged > 50 && same > 50, "{damaged} refused, {same} the same");
}

#[test]
fn flipped_bits_are_found_in_a_file_that_was_closed() {
    let (dir, kept) = lived_in(30);
    let read = |name| fs::read(dir.path().join(name)).expect("reads");
    flipped(&kept, &read("weir.redb"), &read("weir.mark"), 1);
}

#[test]
fn flipped_bits_are_found_in_a_file_that_a_kill_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut engine = both(dir.path(), MemoryJournal::default());
    live(&mut engine, &mut Dice(8), 2_000_000_000_000, 30);
    let kept = engine.journal_mut().memory.load().expect("in memory");
    let read = |name| fs::read(dir.path().join(name)).expect("reads");
    flipped(&kept, &read("weir.redb"), &read("weir.mark"), 2);
}

fn minute_row(minute: u32, weight: u64) -> OfferedMinute {
    OfferedMinute { minute, counts: weight.to_be_bytes().to_vec(), part: b"part".to_vec() }
}

/// What was counted is there after a restart, also what a process was killed before it offered: the totals go on.
#[test]
fn totals_and_minutes_go_on_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (id, now) = (zone("Z"), Now { ms: 2_000_000_000_000, unix_ms: 0 });
    let mut engine = both(dir.path(), MemoryJournal::default());
    engine
        .put_zone(&id, Policy { admit_per_minute: 3, sub_windows: 1, ..policy(Mode::Auto) }, 1, now)
        .expect("put");
    engine.join(&id, 5, now).expect("joins");
    engine.keep_minutes(&id, 1, &[minute_row(33_333_333, 5)], now).expect("kept");
    let offered = engine.minutes(&id, 33_333_333..33_333_335, now).expect("read");
    assert_eq!(offered.len(), 1, "also before it is committed");
    engine.commit(now).expect("kept");
    let tally = engine.beat(&id, &[], 0, now).expect("beats").tally;
    assert_eq!((tally.joined, tally.entered, tally.slots_used), (5, 3, 0));
    let memory = engine.journal().memory.clone();
    drop(engine);

    let mut engine = both(dir.path(), memory);
    let view = engine.put_zone(&id, policy(Mode::Hold), 1, now).expect("put");
    assert_eq!((view.tally.joined, view.tally.entered, view.tally.waiting), (5, 3, 2));
    assert_eq!(engine.minutes(&id, 33_333_333..33_333_335, now).expect("read"), offered);
    drop(engine);

    // A journal of an older version has neither table.
    let db = redb::Database::open(dir.path().join("weir.redb")).expect("opens");
    let write = db.begin_write().expect("begins");
    let totals = redb::TableDefinition::<&str, (u64, u64, u64, u64)>::new("totals");
    let minutes = redb::TableDefinition::<(u32, &str), &[u8]>::new("minutes");
    assert!(write.delete_table(totals).expect("deletes") && write.delete_table(minutes).expect("deletes"));
    write.commit().expect("commits");
    drop(db);
    let mut engine =
        Engine::new(DiskJournal::open(dir.path()).expect("opens")).expect("reads it all the same");
    let view = engine.put_zone(&id, policy(Mode::Hold), 1, now).expect("put");
    assert_eq!((view.tally.joined, view.tally.entered, view.tally.waiting), (0, 0, 2));
    assert_eq!(engine.minutes(&id, 33_333_333..33_333_335, now).expect("read"), []);
    engine.keep_minutes(&id, 1, &[minute_row(33_333_333, 5)], now).expect("kept");
    engine.commit(now).expect("kept");
    assert_eq!(engine.minutes(&id, 33_333_333..33_333_335, now).expect("read"), offered);
}

/// Minutes go after 400 days, some with each commit. A clock that was wrong for a moment costs few of them.
#[test]
fn old_minutes_go() {
    const MINUTES: u32 = 300;
    let dir = tempfile::tempdir().expect("a directory");
    let (id, now) = (zone("Z"), Now { ms: 2_000_000_000_000, unix_ms: 0 });
    let mut engine = both(dir.path(), MemoryJournal::default());
    let mut keep = |minute: u32| {
        engine.keep_minutes(&id, 1, &[minute_row(minute, 1)], now).expect("kept");
        engine.commit(now).expect("kept");
        engine.minutes(&id, 0..MINUTES, now).expect("read").len()
    };
    for minute in 0..MINUTES {
        keep(minute);
    }
    let days = 400 * 1_440;
    assert_eq!(keep(days), MINUTES as usize, "the oldest one is 400 days old");
    assert_eq!(keep(days + 1), MINUTES as usize - 1);
    assert_eq!(keep(9 * days), MINUTES as usize - 1 - 64, "a wrong clock");
    assert_eq!(keep(days + 2), MINUTES as usize - 1 - 64);
}
