//! The rules of a waiting room.
//!
//! Every function depends on its arguments only. `now` is passed in; nothing reads a clock, a file or a socket, and nothing
//! logs. The embedded store runs these rules. A store that runs them in another language is tested against them.
//!
//! Words: a *ticket* is a number in a zone's line. It is *live* until its holder enters, gives it up or is evicted, and *present* while
//! its holder polls as asked. The *front* is the first few present tickets; the store decides each of their claims. Everybody behind the
//! front is answered from a view of a [`Snapshot`], which the crate `wait` makes.

mod bypass;
mod deal;
mod definition;
mod estimate;
mod first_told;
mod host;
mod inside;
mod instant;
mod join_key;
mod longest_period;
mod lots;
mod notice;
mod page;
mod policy;
#[cfg(feature = "sabotage")]
pub mod sabotage;
mod schedule;
mod seal;
mod segment;
mod slot_state;
mod snapshot;
mod stock;
mod ticket;
mod visit;
mod window;
mod zone;

pub use bypass::BypassToken;
pub use deal::{Census, CensusSegment, Deal, Dealt, LastDeal};
pub use definition::Definition;
pub use estimate::Estimate;
pub use first_told::FirstTold;
pub use host::{NoAuthority, check_authority, is_asked_for};
pub use inside::{DumpInside, DumpVisit, Unseen};
pub use instant::{InstantFault, instant_text, parse_instant};
pub use join_key::JoinKey;
pub use longest_period::LongestPeriod;
pub use lots::{Lots, LotsFault};
pub use notice::{Notice, NoticeFault};
pub use page::{Page, Pages};
pub use policy::{
    BLIND_MS, FIELDS, FIELDS_LEN, FIRST_FIELDS, Field, FieldKind, FieldUsedBy, Mode, OnStoreFailure, Opening,
    Policy, PolicyFault, RULE_FIELDS, SECOND_FIELDS, TextFault, ZoneId, ZoneIdFault,
};
pub use schedule::{
    DrawFallback, DrawTerms, Event, Moment, NoEvent, NoPageAddress, Outside, PageAddress, Phase,
    RandomnessSource, Schedule, ScheduleFault, Stage,
};
pub use seal::{BadSeal, BypassSealer, KeyId, SEALED_LEN, SealKey, Sealer, Seals, VISIT_LEN, VisitSealer};
pub use segment::{IDLE_AGE, PAGE_TICKETS, PAGE_WORDS, SEGMENT, SEGMENT_WORDS, Words};
pub use slot_state::SlotState;
pub use snapshot::{EarlierEpoch, Occupancy, PagePolls, Position, Snapshot, Tally};
pub use stock::{Amount, Label, Price, Stock, StockFault, Tier, TierId};
pub use ticket::Ticket;
pub use visit::{Visit, VisitState};
pub use window::{MINUTE_MS, Upcoming, Window};
pub use zone::{
    Claim, Decided, Delta, Departure, Dump, DumpSegment, DumpTicket, Entry, Header, Image, Inconsistent,
    Joined, Leaver, MOST_NUMBERS, Proof, Totals, Verdict, Zone,
};

/// An instant on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back and is not stepped. Its origin does not matter: a zone only compares
    /// such instants with each other.
    pub ms: u64,
    /// Milliseconds since 1970-01-01 UTC by the wall clock, for the dates in passes, and for the instant at which a zone opens. May
    /// step.
    pub unix_ms: u64,
}

impl Now {
    /// Whole seconds since 1970-01-01 UTC by the wall clock.
    #[must_use]
    pub fn unix_s(&self) -> u64 {
        self.unix_ms / 1_000
    }
}
