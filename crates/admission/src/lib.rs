//! The rules of a waiting room.
//!
//! Every function depends on its arguments only. `now` is passed in; nothing reads a clock, a file or a socket, and nothing
//! logs. The embedded store runs these rules. A store that runs them in another language is tested against them.
//!
//! Words: a *ticket* is a number in a zone's line. It is *live* until its holder enters, gives it up or is evicted, and *present* while
//! its holder polls as asked. The *front* is the first few present tickets; the store decides each of their claims. A
//! [`View`] answers everybody behind the front.

mod arrivals;
mod bypass;
mod crowd;
mod definition;
mod estimate;
mod first_told;
mod forecast;
mod hindsight;
mod inside;
mod learned;
mod notice;
mod outlook;
mod patience;
mod policy;
#[cfg(feature = "sabotage")]
pub mod sabotage;
mod seal;
mod segment;
mod ticket;
mod told;
mod turnover;
mod view;
mod visit;
mod window;
mod zone;

pub use bypass::BypassToken;
pub use definition::Definition;
pub use estimate::{Estimate, Plan};
pub use first_told::FirstTold;
pub use forecast::Forecast;
pub use inside::{DumpInside, DumpVisit, Unseen};
pub use learned::{Learned, NotLearned};
pub use notice::{Notice, NoticeFault};
pub use outlook::Outlook;
pub use policy::{
    FIELDS, FIELDS_LEN, FIRST_FIELDS, Field, FieldKind, FieldUsedBy, Mode, OnStoreFailure, Policy,
    PolicyFault, RULE_FIELDS, SECOND_FIELDS, ZoneId, ZoneIdFault,
};
pub use seal::{BadSeal, BypassSealer, KeyId, SEALED_LEN, SealKey, Sealer, Seals, VISIT_LEN, VisitSealer};
pub use segment::{PAGE_TICKETS, PAGE_WORDS, Words};
pub use ticket::Ticket;
pub use told::Told;
pub use turnover::Occupancy;
pub use view::{Lookup, PagePolls, Position, Snapshot, SnapshotPage, Tally, View, ViewPage};
pub use visit::{Visit, VisitState};
pub use window::Window;
pub use zone::{
    Claim, Decided, Delta, Departure, Dump, DumpSegment, DumpTicket, Entry, Header, Image, Inconsistent,
    Joined, Leaver, MOST_NUMBERS, Proof, Verdict, Zone,
};

/// An instant on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back and is not stepped. Its origin does not matter: a zone only compares
    /// such instants with each other.
    pub ms: u64,
    /// Seconds since 1970-01-01 UTC by the wall clock, for the dates in passes. May step; no rule reads it.
    pub unix_s: u64,
}

/// Nine of ten values of a normal distribution are within so many standard deviations.
pub(crate) const NINE_OF_TEN: f64 = 1.645;

/// A count as a number for calculations.
pub(crate) fn number(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
    let number = n as f64;
    number
}
