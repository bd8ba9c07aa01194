//! Where a zone's state lives.
//!
//! [`Store`] is the port: whole decisions, each atomic on the store's own clock, for a store that may be a
//! millisecond away and may fail. [`Embedded`] is the store inside the process: the rules of `admission` on a
//! thread of their own, over a [`Journal`] that has every decision on disk before anybody hears of it.
//!
//! # What is synced when, and why that is enough
//!
//! Calls that wait together are decided together, their changes are written in one transaction, synced, and only
//! then answered. No timer: an idle store syncs the single call at once, a busy one a whole group.
//!
//! - **A ticket number** (`next`) is durable before its token is shown: no number is given out twice.
//! - **An entry** is durable before its pass is shown, with its instant: nobody enters twice, an entry asked for
//!   again is the same one, and the windows are rebuilt from the entries, so the cap holds through a kill.
//! - **An eviction** is durable before anybody hears `Gone`, and with what was decided after it: a line never moves
//!   up for people who are back in it after a restart.
//! - **A poll is never written.** Who was present is not known after a restart, so every live ticket gets the full
//!   idle time to show up: nobody loses a place to a restart, and those who had left are swept a little later.
//! - **The clock** is written with each change. An instant on which nothing was decided needs no record.
//! - **Policies are not kept here** but in the configuration; a zone is asleep until it is put.
//!
//! A group without changes (polls of the front that find no free slot, beats of an idle zone) writes nothing.

mod clock;
mod embedded;
mod engine;
mod journal;
mod port;
pub mod redis;

/// The most places or claims one call carries.
pub const MAX_BATCH: usize = 1_024;

pub use clock::Clock;
pub use embedded::Embedded;
pub use engine::{Engine, RELOAD_AFTER_MS};
pub use journal::{Batch, DiskJournal, Journal, JournalError, Loaded, MemoryJournal};
pub use port::{Defined, Expected, Kept, Store, StoreError};
