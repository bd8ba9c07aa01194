//! The journal on disk: `weir.redb`, a [redb](https://docs.rs/redb) database, and `weir.mark` beside it.
//!
//! One commit is one synced transaction of redb, which survives a kill or a power loss at any moment. This module adds what
//! redb does not do:
//! - redb checks its checksums only after a crash, and not all of them. So each start checks the whole file, and the
//!   [`Record`] in it has the digest of all rows: changed rows are refused.
//! - After a crash, redb treats a damaged last commit as unfinished and goes back by one. So the mark names the last commit
//!   that was answered, and a file that ends before it is refused. The mark is not synced: after a power loss it may be
//!   older than the file, but never newer.
//! - A damaged file may make redb panic. This is handled as a refusal.
//!
//! Invariant: one process at a time. The mark is locked before the database is opened.

mod mark;
mod record;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use admission::{Delta, Entry, Header, Image, LastDeal, PAGE_WORDS, Totals, Words, ZoneId};
use redb::{
    Builder, Database, Durability, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase as _,
    ReadableTable as _, ReadableTableMetadata as _, TableDefinition, TableError, TableHandle as _,
    WriteTransaction,
};

use self::{mark::Mark, record::Record};
use super::{Batch, DrawKey, Journal, JournalError, Loaded, MINUTES_MAX, MINUTES_SWEPT, swept_before};
use crate::{Clock, clock};

const PAGE_BYTES: usize = PAGE_WORDS * 8;

/// One row: the [`Record`].
const RECORD: TableDefinition<'_, (), &[u8]> = TableDefinition::new("record");
/// Zone name -> number in the other tables, epoch, next, base page.
const ZONES: TableDefinition<'_, &str, (u32, u32, u64, u64)> = TableDefinition::new("zones");
/// Zone, page -> the `gone` bits, little-endian. The table's name in the file is older than the word *page*.
const PAGES: TableDefinition<'_, (u32, u64), &[u8; PAGE_BYTES]> = TableDefinition::new("segments");
/// Zone, ticket -> when it entered (the store's clock in ms, the wall clock in s), and the life of the pass in s.
const ENTRIES: TableDefinition<'_, (u32, u64), (u64, u64, u32)> = TableDefinition::new("entries");

/// Zone name -> what was learnt about its people. Older journals have no such table, and older versions do not read it. The digest does not
/// cover it: a value that can't be read costs the memory and no line.
const LEARNED: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("learned");

/// Zone name -> how many people are inside, for zones that limit them. Older journals have no such table. The digest does not cover
/// it: at a restart, the number only says for how many people who have not shown themselves the zone leaves room.
const INSIDE: TableDefinition<'_, &str, u64> = TableDefinition::new("inside");

/// Zone, ticket -> the address that its entry is bound to. Older journals have no such table, and older versions do not read it. The
/// digest does not cover it: without a row, another address may begin the visit.
const BOUND: TableDefinition<'_, (u32, u64), u64> = TableDefinition::new("bound");

/// Zone name -> the draw by which its line was dealt last, the first number that it dealt, and the first one behind. Older journals have no
/// such table. The digest covers it, and a journal that has a row has another format: earlier versions refuse it.
const DRAWN: TableDefinition<'_, &str, (u32, u64, u64)> = TableDefinition::new("drawn");

/// Zone name, draw -> its record. Older journals have no such table. The digest does not cover it: a record is signed.
const DRAWS: TableDefinition<'_, (&str, u32), &[u8]> = TableDefinition::new("draws");

/// Zone name -> its totals: joined, entered, evicted, entries from the line. Older journals have no such table, and older versions do not
/// read it. The digest does not cover it: no decision depends on a total.
const TOTALS: TableDefinition<'_, &str, (u64, u64, u64, u64)> = TableDefinition::new("totals");

/// Minute, zone name -> what servers counted. Older journals have no such table, and older versions do not read it. The digest does not
/// cover it: a row that can't be read costs that minute's statistics.
const MINUTES: TableDefinition<'_, (u32, &str), &[u8]> = TableDefinition::new("minutes");

/// The size of redb's cache, in bytes. A journal has few hot pages.
const CACHE: usize = 32 << 20;

/// The journal of an embedded store, alone in its directory.
pub struct DiskJournal {
    file: PathBuf,
    mark: Mark,
    /// Set by the first load, and never changed.
    clock: Option<Clock>,
    open: Option<Open>,
}

struct Open {
    db: Database,
    record: Record,
    numbers: HashMap<ZoneId, u32>,
    /// The zones with a row in [`INSIDE`].
    counting: HashSet<ZoneId>,
}

/// Why a file can't be used, without its name.
enum Fault {
    Redb(redb::Error),
    Wrong(String),
    Format(u32),
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Redb(error.into())
    }
}

impl DiskJournal {
    /// Locks the directory for this process. Creates it and an empty journal if they are missing.
    ///
    /// # Errors
    /// [`JournalError`]. If there is a mark but no database, the database was lost, and this is refused.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(io_error(dir, "make the directory"))?;
        let mark = Mark::open(dir)?;
        let file = dir.join("weir.redb");
        let exists = file.try_exists().map_err(io_error(&file, "look for"))?;
        if !exists && mark.promised().is_some() {
            let why = "it is missing, and the mark says that it was there".into();
            return Err(JournalError::Damaged { file, why });
        }
        let journal = Self { file, mark, clock: None, open: None };
        if !exists {
            journal.create(dir)?;
        }
        Ok(journal)
    }

    /// The store's clock, which continues that of the journal's last process. Before the first load, a new clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.unwrap_or_else(|| Clock::resume(Clock { boot: None, offset_ms: 0 }, clock::unix_ms()))
    }

    /// Creates the database. After a kill in here, the next start overwrites the temporary file.
    fn create(&self, dir: &Path) -> Result<(), JournalError> {
        let new = dir.join("weir.redb.new");
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&new);
        let file = opened.map_err(io_error(&new, "make"))?;
        let made = (|| -> Result<(), Fault> {
            let db = Builder::new().create_file(file)?;
            let write = db.begin_write()?;
            write.open_table(ZONES)?;
            write.open_table(PAGES)?;
            write.open_table(ENTRIES)?;
            let record = Record {
                format: record::FORMAT,
                commits: 0,
                clock: Clock { boot: None, offset_ms: 0 },
                last_ms: clock::unix_ms(),
                digest: 0,
            };
            write.open_table(RECORD)?.insert((), record.to_bytes().as_slice())?;
            Ok(write.commit()?)
        })();
        made.map_err(|fault| refusal(&new, "make", fault))?;
        let placed = fs::rename(&new, &self.file).and_then(|()| File::open(dir)?.sync_all());
        placed.map_err(io_error(&self.file, "make"))
    }

    fn load_unchecked(&mut self) -> Result<Loaded, Fault> {
        // The old database holds the lock, so close it first.
        self.open = None;
        let mut db = Builder::new().set_cache_size(CACHE).open(&self.file)?;
        // This also rebuilds the list of free pages. With a wrong list, the next commits would overwrite live rows.
        db.check_integrity()?;
        let (record, numbers, mut images) = read(&db)?;
        let learned = read_learned(&db)?;
        let counting = read_inside(&db, &mut images)?;
        let draws = read_draws(&db)?;
        read_totals(&db, &mut images)?;
        let clock = *self.clock.get_or_insert_with(|| Clock::resume(record.clock, record.last_ms));
        let last_ms = record.last_ms;
        self.open = Some(Open { db, record: Record { clock, ..record }, numbers, counting });
        Ok(Loaded { last_ms, images, learned, draws })
    }
}

impl Journal for DiskJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let loaded = catch_unwind(AssertUnwindSafe(|| self.load_unchecked()))
            .unwrap_or_else(|_| Err(Fault::Wrong("its structure is not valid".into())))
            .map_err(|fault| refusal(&self.file, "open", fault))?;
        let found = self.open.as_ref().map_or(0, |open| open.record.commits);
        let promised = self.mark.promised().unwrap_or(0);
        if found < promised {
            self.open = None;
            return Err(JournalError::Behind { file: self.file.clone(), found, promised });
        }
        // The mark is synced before the first commit and then rewritten in place, so a power loss should not empty it. Still
        // this is no refusal: not every file system keeps to that, the journal may well be the newest one, and removing the
        // mark is how an operator accepts a loss.
        if found > 0 && self.mark.promised().is_none() {
            tracing::warn!(
                file = %self.mark.path().display(),
                "the mark beside the journal is missing or empty, so an older copy of the journal would not be noticed: if the \
                 journal was restored or copied, people may enter twice and places may be given out twice; a new mark is \
                 written now; if nobody removed the mark or replaced the journal, check the disk"
            );
        }
        self.mark.begin(found)?;
        Ok(loaded)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let Some(open) = &mut self.open else {
            return Err(io_error(&self.file, "write")(io::Error::other("it is not open")));
        };
        open.commit(batch).map_err(|fault| refusal(&self.file, "write", fault))?;
        self.mark.promise(open.record.commits)
    }

    fn minutes(&mut self, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        let Some(open) = &self.open else {
            return Err(io_error(&self.file, "read")(io::Error::other("it is not open")));
        };
        read_minutes(&open.db, zone, minutes).map_err(|fault| refusal(&self.file, "read", fault))
    }
}

impl Open {
    fn commit(&mut self, batch: &Batch) -> Result<(), Fault> {
        let mut write = self.db.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        for (id, changes) in &batch.zones {
            let count = self.numbers.len();
            let number = *self.numbers.entry(id.clone()).or_insert(u32::try_from(count).unwrap_or(u32::MAX));
            self.record.digest ^= write_zone(&write, id, number, changes)?;
            if changes.header.drawn.draw != 0 {
                self.record.format = record::DEALT;
            }
            if let Some(inside) = changes.header.inside {
                write.open_table(INSIDE)?.insert(id.as_str(), inside)?;
                self.counting.insert(id.clone());
            } else if self.counting.remove(id) {
                write.open_table(INSIDE)?.remove(id.as_str())?;
            }
            let Totals { joined, entered, evicted, slots_used } = changes.header.totals;
            write.open_table(TOTALS)?.insert(id.as_str(), (joined, entered, evicted, slots_used))?;
        }
        for (id, learned) in &batch.learned {
            write.open_table(LEARNED)?.insert(id.as_str(), learned.as_slice())?;
        }
        for ((id, draw), record) in &batch.draws {
            write.open_table(DRAWS)?.insert((id.as_str(), *draw), record.as_slice())?;
        }
        if !batch.minutes.is_empty() {
            write_minutes(&write, batch)?;
        }
        self.record.commits += 1;
        self.record.last_ms = batch.at_ms;
        write.open_table(RECORD)?.insert((), self.record.to_bytes().as_slice())?;
        Ok(write.commit()?)
    }
}

/// Writes the changes of one zone. Returns how they change the digest of all rows.
fn write_zone(write: &WriteTransaction, id: &ZoneId, number: u32, changes: &Delta) -> Result<u128, Fault> {
    let mut digest = 0;
    let Header { epoch, next, base_page, inside: _, drawn, totals: _ } = changes.header;
    let row = (number, epoch, next, base_page);
    digest ^= zone_digest(id.as_str(), row);
    if let Some(old) = write.open_table(ZONES)?.insert(id.as_str(), row)? {
        digest ^= zone_digest(id.as_str(), old.value());
    }
    if drawn.draw != 0 {
        let row = (drawn.draw, drawn.from, drawn.end);
        digest ^= drawn_digest(id.as_str(), row);
        if let Some(old) = write.open_table(DRAWN)?.insert(id.as_str(), row)? {
            digest ^= drawn_digest(id.as_str(), old.value());
        }
    }

    let mut pages = write.open_table(PAGES)?;
    for (index, words) in &changes.pages {
        let key = (number, *index);
        let bytes = to_bytes(words);
        digest ^= page_digest(key, &bytes);
        if let Some(old) = pages.insert(key, &bytes)? {
            digest ^= page_digest(key, old.value());
        }
    }
    let dropped = (number, changes.dropped.start)..(number, changes.dropped.end);
    if !changes.dropped.is_empty() {
        for row in pages.extract_from_if(dropped, |_, _| true)? {
            let (key, old) = row?;
            digest ^= page_digest(key.value(), old.value());
        }
    }

    let mut entries = write.open_table(ENTRIES)?;
    for &(seq, Entry { at_ms, unix_s, life_s }) in &changes.entered {
        let key = (number, seq);
        digest ^= entry_digest(key, (at_ms, unix_s, life_s));
        if let Some(old) = entries.insert(key, (at_ms, unix_s, life_s))? {
            digest ^= entry_digest(key, old.value());
        }
    }
    for &seq in &changes.forgotten {
        if let Some(old) = entries.remove((number, seq))? {
            digest ^= entry_digest((number, seq), old.value());
        }
    }
    write_bound(write, number, changes)?;
    Ok(digest)
}

/// Writes the addresses that entries of a zone were bound to. A journal of zones that bind none has no such table.
fn write_bound(write: &WriteTransaction, number: u32, changes: &Delta) -> Result<(), Fault> {
    let has_table =
        || -> Result<bool, Fault> { Ok(write.list_tables()?.any(|table| table.name() == BOUND.name())) };
    if changes.bound.is_empty() && (changes.forgotten.is_empty() || !has_table()?) {
        return Ok(());
    }
    let mut bound = write.open_table(BOUND)?;
    for &(seq, address) in &changes.bound {
        bound.insert((number, seq), address)?;
    }
    for &seq in &changes.forgotten {
        bound.remove((number, seq))?;
    }
    Ok(())
}

/// Writes minutes, and lets some go that are too old or too many.
fn write_minutes(write: &WriteTransaction, batch: &Batch) -> Result<(), Fault> {
    let mut table = write.open_table(MINUTES)?;
    for ((minute, id), row) in &batch.minutes {
        table.insert((*minute, id.as_str()), row.as_slice())?;
    }
    let swept_before = swept_before(batch);
    for _ in 0..MINUTES_SWEPT {
        let too_many = table.len()? > MINUTES_MAX;
        let oldest = table.first()?.map(|(key, _)| key.value().0);
        if !too_many && oldest.is_none_or(|minute| minute >= swept_before) {
            break;
        }
        table.pop_first()?;
    }
    Ok(())
}

type Read = (Record, HashMap<ZoneId, u32>, BTreeMap<ZoneId, Image>);

/// Reads the whole database, and checks that its rows are those that were written. Whether they are the state of a zone is
/// checked when that zone is put, so that one bad zone does not refuse all.
fn read(db: &Database) -> Result<Read, Fault> {
    let wrong = |why: &str| Fault::Wrong(why.into());
    let read = db.begin_read()?;
    let kept = read.open_table(RECORD)?.get(())?.ok_or_else(|| wrong("it has no record"))?;
    let record = Record::from_bytes(kept.value())?;

    let mut digest = 0;
    let mut numbers = HashMap::new();
    let mut images: HashMap<u32, (ZoneId, Image)> = HashMap::new();
    for row in read.open_table(ZONES)?.iter()? {
        let (name, row) = row?;
        let (number, epoch, next, base_page) = row.value();
        digest ^= zone_digest(name.value(), row.value());
        let id = ZoneId::parse(name.value()).map_err(|fault| Fault::Wrong(fault.to_string()))?;
        let (drawn, totals) = (LastDeal::default(), Totals::default());
        let header = Header { epoch, next, base_page, inside: None, drawn, totals };
        numbers.insert(id.clone(), number);
        images.insert(
            number,
            (id, Image { header, pages: Vec::new(), entries: Vec::new(), bound: Vec::new() }),
        );
    }
    if let Some(table) = newer_table(&read, DRAWN)? {
        for row in table.iter()? {
            let (name, row) = row?;
            let (draw, from, end) = row.value();
            digest ^= drawn_digest(name.value(), row.value());
            let number = ZoneId::parse(name.value()).ok().and_then(|id| numbers.get(&id).copied());
            let image = number.and_then(|number| images.get_mut(&number));
            let (_, image) = image.ok_or_else(|| wrong("a draw has no zone"))?;
            image.header.drawn = LastDeal { draw, from, end };
        }
    }
    for row in read.open_table(PAGES)?.iter()? {
        let (key, bytes) = row?;
        digest ^= page_digest(key.value(), bytes.value());
        let (number, index) = key.value();
        let (_, image) = images.get_mut(&number).ok_or_else(|| wrong("a page has no zone"))?;
        image.pages.push((index, from_bytes(bytes.value())));
    }
    for row in read.open_table(ENTRIES)?.iter()? {
        let (key, entered) = row?;
        digest ^= entry_digest(key.value(), entered.value());
        let (number, seq) = key.value();
        let (at_ms, unix_s, life_s) = entered.value();
        let (_, image) = images.get_mut(&number).ok_or_else(|| wrong("an entry has no zone"))?;
        image.entries.push((seq, Entry { at_ms, unix_s, life_s }));
    }
    if let Some(table) = newer_table(&read, BOUND)? {
        for row in table.iter()? {
            let (key, address) = row?;
            let (number, seq) = key.value();
            if let Some((_, image)) = images.get_mut(&number) {
                image.bound.push((seq, address.value()));
            }
        }
    }
    if digest != record.digest {
        return Err(wrong("its rows are not those that were written"));
    }
    if numbers.len() != images.len() {
        return Err(wrong("two zones share a number"));
    }
    Ok((record, numbers, images.into_values().collect()))
}

/// A table that older journals do not have.
fn newer_table<K: Key + 'static, V: redb::Value + 'static>(
    read: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, TableError> {
    match read.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => table.map(Some),
    }
}

/// What servers learnt about the zones' people.
fn read_learned(db: &Database) -> Result<BTreeMap<ZoneId, Vec<u8>>, Fault> {
    let Some(table) = newer_table(&db.begin_read()?, LEARNED)? else { return Ok(BTreeMap::new()) };
    let mut learned = BTreeMap::new();
    for row in table.iter()? {
        let (name, bytes) = row?;
        match ZoneId::parse(name.value()) {
            Ok(id) => drop(learned.insert(id, bytes.value().to_vec())),
            Err(fault) => tracing::warn!(zone = name.value(), "{fault}"),
        }
    }
    Ok(learned)
}

/// The records of the zones' draws.
fn read_draws(db: &Database) -> Result<BTreeMap<DrawKey, Vec<u8>>, Fault> {
    let Some(table) = newer_table(&db.begin_read()?, DRAWS)? else { return Ok(BTreeMap::new()) };
    let mut draws = BTreeMap::new();
    for row in table.iter()? {
        let (key, bytes) = row?;
        let (name, draw) = key.value();
        let id = ZoneId::parse(name).map_err(|fault| Fault::Wrong(fault.to_string()))?;
        draws.insert((id, draw), bytes.value().to_vec());
    }
    Ok(draws)
}

/// How many people are inside. Returns the zones of which that is known.
fn read_inside(db: &Database, images: &mut BTreeMap<ZoneId, Image>) -> Result<HashSet<ZoneId>, Fault> {
    let Some(table) = newer_table(&db.begin_read()?, INSIDE)? else { return Ok(HashSet::new()) };
    let mut counting = HashSet::new();
    for row in table.iter()? {
        let (name, inside) = row?;
        if let Some((id, image)) =
            ZoneId::parse(name.value()).ok().and_then(|id| Some((id.clone(), images.get_mut(&id)?)))
        {
            image.header.inside = Some(inside.value());
            counting.insert(id);
        }
    }
    Ok(counting)
}

/// The totals of the zones, which go on.
fn read_totals(db: &Database, images: &mut BTreeMap<ZoneId, Image>) -> Result<(), Fault> {
    let Some(table) = newer_table(&db.begin_read()?, TOTALS)? else { return Ok(()) };
    for row in table.iter()? {
        let (name, row) = row?;
        let (joined, entered, evicted, slots_used) = row.value();
        if let Some(image) = ZoneId::parse(name.value()).ok().and_then(|id| images.get_mut(&id)) {
            image.header.totals = Totals { joined, entered, evicted, slots_used };
        }
    }
    Ok(())
}

/// What is kept of some minutes of a zone.
fn read_minutes(db: &Database, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, Fault> {
    let Some(table) = newer_table(&db.begin_read()?, MINUTES)? else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for minute in minutes {
        if let Some(row) = table.get((minute, zone.as_str()))? {
            rows.push((minute, row.value().to_vec()));
        }
    }
    Ok(rows)
}

fn zone_digest(name: &str, (number, epoch, next, base): (u32, u32, u64, u64)) -> u128 {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&epoch.to_le_bytes());
    bytes[4..12].copy_from_slice(&next.to_le_bytes());
    bytes[12..].copy_from_slice(&base.to_le_bytes());
    record::digest(b'z', (number, 0), &[&bytes, name.as_bytes()])
}

fn drawn_digest(name: &str, (draw, from, end): (u32, u64, u64)) -> u128 {
    record::digest(b'd', (draw, from), &[&end.to_le_bytes(), name.as_bytes()])
}

fn page_digest(key: (u32, u64), bytes: &[u8; PAGE_BYTES]) -> u128 {
    record::digest(b's', key, &[bytes])
}

fn entry_digest(key: (u32, u64), (at_ms, unix_s, life_s): (u64, u64, u32)) -> u128 {
    record::digest(b'e', key, &[&at_ms.to_le_bytes(), &unix_s.to_le_bytes(), &life_s.to_le_bytes()])
}

fn to_bytes(words: &Words) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8; PAGE_BYTES]) -> Box<Words> {
    let mut words = Box::new([0; PAGE_WORDS]);
    let (eights, _) = bytes.as_chunks::<8>();
    for (word, eight) in words.iter_mut().zip(eights) {
        *word = u64::from_le_bytes(*eight);
    }
    words
}

fn io_error(file: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io { file: file.into(), doing, source }
}

/// Converts a fault. A file that can't be reached now must not be reported as damaged: an operator would move it away.
fn refusal(file: &Path, doing: &'static str, fault: Fault) -> JournalError {
    use redb::Error as E;
    let damaged = |why: String| JournalError::Damaged { file: file.into(), why };
    match fault {
        Fault::Wrong(why) => damaged(why),
        Fault::Format(found) => JournalError::OtherFormat { file: file.into(), found, known: record::DEALT },
        Fault::Redb(E::DatabaseAlreadyOpen) => {
            JournalError::InUse { dir: file.parent().unwrap_or(file).into() }
        }
        Fault::Redb(E::Io(source)) => match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => damaged(source.to_string()),
            _ => io_error(file, doing)(source),
        },
        Fault::Redb(error @ (E::PreviousIo | E::LockPoisoned(_) | E::DatabaseClosed)) => {
            io_error(file, doing)(io::Error::other(error.to_string()))
        }
        Fault::Redb(error) => damaged(error.to_string()),
    }
}
