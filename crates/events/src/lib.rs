//! The in-process event bus: what happened, told once.
//!
//! Whatever wants to know what the waiting room does subscribes here: metrics, the audit, operators, other servers,
//! waiting browsers. The request path publishes plain values and pays next to nothing for it.
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
//! # What always holds
//!
//! - **Publishing** takes no lock, allocates nothing, and waits for nobody, whatever subscribers do. A thread's first
//!   event makes its rings (with a lock and an allocation); [`Bus::enlist`] does so beforehand. When a
//!   subscriber sleeps that wants the event, one publisher makes one system call to have it woken, and none makes
//!   another for the next [`INTERVAL`].
//! - **Each subscriber** has each event of its kinds at most once, those of one thread in the order in which it published
//!   them. Between threads there is no order: what depends on it carries an instant or a revision of its own.
//! - **A slow subscriber** loses its own oldest events, kind by kind, once a publishing thread is a ring ahead of it
//!   ([`Kind::ring_len`]). The loss is counted, told with its next batch, and shown by [`Bus::subscribers`]; nobody else
//!   loses anything. Who must not lose has a [`Spill`].
//! - **Nobody hears what is above its right**: [`Bus::subscribe`] refuses. A kind's [`Scope`] is part of its definition,
//!   and publishing takes none, so nothing can be published more widely.
//! - **An idle bus** burns no processor time: everybody sleeps until somebody publishes.
//!
//! # Why a ring of its own
//!
//! Measured with 20 subscribers on two cores (`benches/README.md`); the promises above decide, where figures don't.
//!
//! - [tokio's broadcast](https://docs.rs/tokio/latest/tokio/sync/broadcast/) loses the oldest and counts it, but all
//!   publishers of a channel share a lock, with those who wait in a list under it, and each wake-up is the publisher's.
//! - Queues ([crossbeam](https://docs.rs/crossbeam-channel), [rtrb](https://docs.rs/rtrb)) are pushed into once for each
//!   subscriber, and a full one can only make the publisher wait or lose the *newest*: the oldest are the reader's.
//! - The [disruptor](https://docs.rs/disruptor) hands out references into its ring, and no copies: nothing here is
//!   faster. For that, publishers wait for the slowest subscriber, nobody can subscribe later, and those with nothing to
//!   do spin, or wake up every so often.
//!
//! So there is one ring that overwrites for each thread and kind, of atomic words, for this crate has no unsafe code. What
//! knows the thread is [thread_local](https://docs.rs/thread_local).
//!
//! Everything is bounded: 256 publishing threads (the events of others are counted as unheard), 256 subscribers, 65,536
//! names of zones.

mod bell;
mod bus;
mod event;
mod ring;
mod scope;
mod slot;
mod spill;
mod subscription;
mod sync;
mod zones;

pub use bus::{Bus, INTERVAL, OfName, PUBLISHERS_MAX, SUBSCRIBERS_MAX, SubscribeError, Subscriber};
pub use event::{
    Admitted, AdmittedUnseen, Entered, Event, Evicted, Joined, Kind, Kinds, Limited, LimitedCall,
    ModeChanged, NoticeChanged, PolicyChanged, Refused, Reloaded, StoreBack, StoreCall, StoreCalled,
    StoreLost, Tallied, ViewShown, Why, ZoneAdded, ZoneRemoved,
};
pub use scope::Scope;
pub use spill::Spill;
pub use subscription::{Batch, Subscription};
pub use zones::{Zone, ZoneNames};
