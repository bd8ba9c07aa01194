//! The gate serves zones: it answers polls from views and sends decisions to the store.
//!
//! Where a change belongs:
//!
//! | module | concern |
//! |---|---|
//! | `reply` | What a holder hears: the reply to a poll or join, or why the call is refused. |
//! | [`pace`] | When people behind the front should ask again, so that this server is not overloaded. |
//! | `gate` | All served zones, and where a call of a client begins. |
//! | `caller` | The calls of one client about one zone: poll, join, leave, and the client's limit. |
//! | `trips` | A call's way to the store and back, for a caller who watches. |
//! | `room` | One served zone: its view, polls, told waits, lane to the store, and fail-open. |
//! | [`limits`] | How often one client address may call. |
//! | [`cells`] | Several Redis deployments, and which zone is in which. |
//! | `any_store` | The store that was chosen: embedded, or cells. |
//! | `zone_forecast` | Makes views of a store's snapshots, and lets the store keep what was learnt. |
//! | `trouble` | Why a store is away, in words for operators. |
//! | `caught` | Keeps a panic of a task from ending it. |
//! | `watcher`, `refresh` | Follow the register of a cell, so that all servers serve the same definitions. |
//! | [`definitions`] | Policies and notices as operators see them, and the code that changes them. |
//!
//! `scripts/check-layers gate` prints the modules in order: each imports only modules before it. The crate knows no HTTP, no
//! configuration file, no command line and no metrics registry: it takes plain values, and reports on the event bus.

// The futures of a call through the gate, a cell and a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod any_store;
mod caller;
mod caught;
pub mod cells;
pub mod definitions;
mod gate;
mod held_draw;
pub mod limits;
pub mod pace;
mod refresh;
mod reply;
mod room;
mod trips;
mod trouble;
mod watcher;
mod zone_forecast;

pub use any_store::{AnyLine, AnyStore};
pub use caller::{Holder, Newcomer};
pub use gate::{DecidingDraw, Gate, Listing, ZoneDraw};
pub use held_draw::is_of_a_held_draw;
pub use refresh::Refresh;
pub use reply::{Eta, PassClaims, Reason, Refusal, Reply, Token, WaitStatus};
pub use room::{FollowerView, OperatorView, SamplePlace, ZoneTotals};
pub use trips::{Sent, Trip, Trips};
pub use trouble::{Trouble, TroubleKind};
pub use watcher::{Watcher, warn_of_differences};
pub use zone_forecast::ZoneForecast;
