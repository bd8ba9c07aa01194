//! The in-process event bus: each event is published once and reaches every subscriber of its kind.
//!
//! Metrics, the audit log, operators, other servers and waiting browsers subscribe here. The request path publishes plain
//! values at almost no cost.
//!
//! ```
//! use events::{Bus, Event, Joined, Kind, Kinds, Scope};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bus = Bus::new()?;
//! let mut metrics = bus.subscribe("metrics", Scope::Private, Kinds::of(&[Kind::Joined, Kind::Refused]))?;
//!
//! let zone = bus.zone(&"ZONE".parse_zone());
//! bus.publish(Joined { zone, epoch: 7, first: 1_000, count: 64, entered: 0, at_ms: 5 });
//!
//! let batch = metrics.next_blocking().expect("the bus is there");
//! assert!(matches!(batch.events, [Event::Joined(joined)] if joined.count == 64));
//! assert_eq!(batch.lost, 0);
//! # Ok(())
//! # }
//! # trait Parse { fn parse_zone(&self) -> admission::ZoneId; }
//! # impl Parse for str { fn parse_zone(&self) -> admission::ZoneId { admission::ZoneId::parse(self).expect("a name") } }
//! ```
//!
//! # Promises
//!
//! - **Publishing** takes no lock, does not allocate, and never waits, whatever subscribers do. Exceptions: a thread's first
//!   event makes it a publisher (with a lock; [`Bus::enlist`] does that in advance), and its first one of a kind makes the
//!   ring (with an allocation). If a sleeping subscriber wants the event, one publisher makes one system call to wake it. No
//!   publisher makes another one for the next [`INTERVAL`].
//! - **Each subscriber** receives each event of its kinds at most once. Events of one thread arrive in the order in which it
//!   published them. Events of different threads have no order; where order matters, the event carries an instant or a
//!   revision.
//! - **A slow subscriber** loses its oldest events, kind by kind, once a publishing thread is a ring ahead of it
//!   ([`Kind::ring_len`]). The loss is counted, reported with its next batch, and shown by [`Bus::subscribers`]. Other
//!   subscribers lose nothing. A subscriber that must not lose events uses a [`Spill`].
//! - **No subscriber receives events above its right**: [`Bus::subscribe`] refuses. Each kind defines its [`Scope`], and
//!   publishing takes none, so that no call can publish an event more widely.
//! - **An idle bus** uses no processor time: all threads sleep until an event is published.
//!
//! # Why not an existing channel
//!
//! Figures with 20 subscribers on two cores are in `benches/README.md`. The promises above decide; the figures support them.
//!
//! - [tokio's broadcast](https://docs.rs/tokio/latest/tokio/sync/broadcast/) drops the oldest events and counts them. But
//!   all publishers of a channel share one lock, which also protects the list of waiting subscribers, and each wake-up is
//!   done by the publisher.
//! - Queues ([crossbeam](https://docs.rs/crossbeam-channel), [rtrb](https://docs.rs/rtrb)) need one push per subscriber. A
//!   full queue makes the publisher wait or drops the *newest* event, because only the reader can remove the oldest.
//! - The [disruptor](https://docs.rs/disruptor) hands out references into its ring and makes no copies, so nothing here is
//!   faster. In return, publishers wait for the slowest subscriber, nobody can subscribe later, and idle threads spin or
//!   wake up periodically.
//!
//! Therefore each thread has one overwriting ring per kind. The rings consist of atomic words, because this crate has no
//! unsafe code. [thread_local](https://docs.rs/thread_local) maps threads to rings.
//!
//! Everything is bounded: 256 publishing threads (events of further threads are counted as unheard), 256 subscribers,
//! 65,536 zone names.

mod bell;
mod bus;
mod event;
mod ring;
mod scope;
mod slot;
mod sync;
mod zones;

pub use bus::{
    Batch, Bus, INTERVAL, OfName, PUBLISHERS_MAX, SUBSCRIBERS_MAX, Spill, SubscribeError, Subscriber,
    Subscription,
};
pub use event::{
    Admitted, AdmittedEntry, AdmittedWithoutStore, DefinitionChanged, Entered, Event, Evicted, Joined, Kind,
    Kinds, Limited, LimitedCall, ModeChanged, NoticeChanged, PolicyChanged, RefusalReason, Refused, Reloaded,
    StoreBack, StoreCall, StoreCalled, StoreLost, Tallied, ViewShown, ZoneAdded, ZoneRemoved,
};
pub use scope::Scope;
pub use zones::{ZoneNames, ZoneNumber};
