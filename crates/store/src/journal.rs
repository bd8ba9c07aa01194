//! The journal: the state that must outlive the process.
//!
//! It holds state and not a log of calls: a [`Batch`] has the new values.
//!
//! Invariant of every journal: after a successful `commit`, each later `load` returns the batch. After a failed one, `load`
//! returns all of it or nothing.

mod disk;
mod in_memory;

use std::{collections::BTreeMap, io, ops::Range, path::PathBuf};

use admission::{Delta, Image, ZoneId};

pub use self::{disk::DiskJournal, in_memory::MemoryJournal};
use crate::minutes::MINUTES_KEPT;

/// A draw of a zone.
pub type DrawKey = (ZoneId, u32);

/// A minute of a zone: minutes since 1970. Older ones are less, whichever zone they are of.
pub type MinuteKey = (u32, ZoneId);

/// The most minutes that a journal keeps, of all zones together: 400 days and nights of one zone that is always in use are 576,000. When
/// there are more, the oldest ones go.
pub const MINUTES_MAX: u64 = 600_000;

/// The most old minutes that go with one commit, so that a commit is short, and a clock that is wrong for a moment costs few of them.
const MINUTES_SWEPT: usize = 64;

/// The changes of one group of calls.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The store's clock when the group was decided, in milliseconds. It never decreases from batch to batch.
    pub at_ms: u64,
    /// The changes, each zone at most once. The first changes of a zone create it in the journal. Apply `pages` before
    /// `dropped`, and `entered` before `forgotten`.
    pub zones: Vec<(ZoneId, Delta)>,
    /// What servers learnt about the people of some zones. It replaces what was kept before.
    pub learned: Vec<(ZoneId, Vec<u8>)>,
    /// The records of some draws. They replace what was kept before.
    pub draws: Vec<(DrawKey, Vec<u8>)>,
    /// What servers counted in some minutes. It replaces what was kept before.
    pub minutes: Vec<(MinuteKey, Vec<u8>)>,
}

/// What a journal holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// `at_ms` of the last batch. The store's clock must not go back before it.
    pub last_ms: u64,
    /// The zones.
    pub images: BTreeMap<ZoneId, Image>,
    /// What servers learnt about their people.
    pub learned: BTreeMap<ZoneId, Vec<u8>>,
    /// The records of their draws.
    pub draws: BTreeMap<DrawKey, Vec<u8>>,
}

/// Stores zones. Called by one thread; calls may block.
pub trait Journal {
    /// Opens the journal, or opens it again, and reads all of it.
    ///
    /// # Errors
    /// [`JournalError`]. May be tried again.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Makes a batch durable, all or nothing.
    ///
    /// # Errors
    /// [`JournalError`]: it is not known whether the batch is durable. The next call must be [`Journal::load`].
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError>;

    /// What is kept of some minutes of a zone, in their order. A load does not return them, because there are many.
    ///
    /// # Errors
    /// [`JournalError`].
    fn minutes(&mut self, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, JournalError>;
}

/// The minutes before this one go with a batch that has minutes.
fn swept_before(batch: &Batch) -> u32 {
    let newest = batch.minutes.iter().map(|((minute, _), _)| *minute).max().unwrap_or(0);
    newest.saturating_sub(u32::try_from(MINUTES_KEPT.as_secs() / 60).unwrap_or(u32::MAX))
}

/// Why a journal can't be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has the directory.
    #[error("{} is in use by another weir; stop that one, or give this one a directory of its own", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// The file can't be trusted.
    #[error(
        "{} is damaged or not a journal of weir: {why}; put back a good copy, or move the file and the weir.mark \
         beside it away to start with empty lines", file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of the format.
    #[error(
        "{} has format {found}, and this weir reads format {known}; use the version of weir that wrote it, or move \
         the file and the weir.mark beside it away to start with empty lines", file.display()
    )]
    OtherFormat {
        /// The file.
        file: PathBuf,
        /// The format it says it has.
        found: u32,
        /// The one known here.
        known: u32,
    },
    /// The file lacks changes that were answered.
    #[error(
        "{} ends at change {found}, but change {promised} was answered for: it is an old copy, or its end was lost; \
         put back the newest copy, or accept the loss (people may enter twice, places may be given out twice) by \
         removing the weir.mark beside it", file.display()
    )]
    Behind {
        /// The file.
        file: PathBuf,
        /// The last change in it.
        found: u64,
        /// The last one that was answered for.
        promised: u64,
    },
    /// The system refused.
    #[error("can't {doing} {}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What was tried: "open", "write", …
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
