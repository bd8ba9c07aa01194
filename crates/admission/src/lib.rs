//! The rules of a waiting room, and nothing else.
//!
//! Everything here is a function of its arguments: `now` is passed in, nothing is read from a clock, a file or a
//! socket, and nothing is logged. The embedded store runs these rules; a store that runs them in another language
//! is held against them.
//!
//! The words are those of the field: a *ticket* is a place in a zone's line, *live* until its holder entered or
//! was evicted, *present* while its holder polls as told; the *front* is the first few present tickets, whose
//! claims the store decides one by one; everybody behind is answered from a [`View`].

mod definition;
mod estimate;
mod forecast;
mod notice;
mod policy;
#[cfg(feature = "sabotage")]
pub mod sabotage;
mod seal;
mod segment;
mod ticket;
mod view;
mod window;
mod zone;

pub use definition::Definition;
pub use estimate::{Estimate, Pace, Plan};
pub use forecast::Forecast;
pub use notice::{Notice, NoticeFault};
pub use policy::{Mode, OnStoreFailure, Policy, PolicyFault, ZoneId, ZoneIdFault};
pub use seal::{BadSeal, KeyId, SEALED_LEN, SealKey, Sealer, Seals};
pub use segment::{PAGE_TICKETS, PAGE_WORDS, Words};
pub use ticket::Ticket;
pub use view::{Lookup, PagePolls, Position, Snapshot, SnapshotPage, Tally, View, ViewPage};
pub use window::Window;
pub use zone::{
    Claim, Decided, Delta, Dump, DumpSegment, DumpTicket, Entry, Header, Image, Inconsistent, Joined,
    Verdict, Zone,
};

/// An instant on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back and is not stepped. What it counts from does not matter; a
    /// zone compares such instants with one another only.
    pub ms: u64,
    /// Seconds since 1970-01-01 UTC by the wall clock, for the dates inside passes. May step; no rule reads it.
    pub unix_s: u64,
}
