//! Where the state of a zone lives.
//!
//! [`Store`] and its [`Line`]s are the port: whole decisions, each atomic on the store's clock. A store may be a millisecond away and may
//! fail. [`Embedded`] is the store inside the process: it runs the rules of `admission` on one thread, over a [`Journal`]
//! that has each decision on disk before it is answered. [`redis`] is the store in Redis.
//!
//! # What is synced when, and why that is enough
//!
//! The embedded store decides all waiting calls together, writes their changes in one transaction, syncs it, and then
//! answers. There is no timer: an idle store syncs a single call at once, a busy one a whole group.
//!
//! - **A ticket number** (`next`) is durable before its token is shown, so no number is given out twice.
//! - **An entry** is durable, with its instant, before its pass is shown. So nobody enters twice, a repeated claim gets the
//!   same entry, and the windows are rebuilt from the entries: the cap holds through a kill.
//! - **An eviction** is durable before a holder gets `Gone`, together with the decisions after it. So the line never moves
//!   up past people who are back in it after a restart.
//! - **A poll is never written.** After a restart it is not known who was present, so each live ticket gets the full idle
//!   time to poll: a restart costs no place, and people who had left are evicted a little later.
//! - **The clock** is written with each change. An instant without a decision needs no record.
//! - **Policies** are in the configuration and not here. A zone is not active until it is put.
//!
//! A group without changes writes nothing, for example polls of the front without a free slot, or beats of an idle zone.

mod clock;
mod embedded;
mod engine;
mod journal;
pub mod minutes;
mod port;
mod recent_joins;
pub mod redis;

/// The largest number of tickets or claims of one call.
pub const MAX_BATCH: usize = 1_024;

pub use clock::{Clock, unix_ms};
pub use embedded::{Embedded, EmbeddedLine};
pub use engine::{Engine, RELOAD_AFTER_MS};
pub use journal::{
    Batch, DiskJournal, DrawKey, Journal, JournalError, Loaded, MINUTES_MAX, MemoryJournal, MinuteKey,
};
pub use port::{
    Defined, Expected, JoinedOnce, LeftVisits, Line, MayKeep, RegisterContents, RememberedEntry,
    RoutesDefined, Store, StoreError,
};
