//! Estimates when each place enters, and a range. What a person is told of it is in `crates/gate/src/room/wait_status.rs`.
//!
//! A [`Forecast`] watches the snapshots of a store and makes a [`View`] of each, which answers everybody behind the front. Every
//! function depends on its arguments only, as in the crate `admission`, whose rules decide who enters. Invariant: nothing here
//! decides anything. A lost forecast is learnt again within minutes.

mod arrivals;
mod calibration;
mod comparison;
mod crowd;
mod forecast;
mod learned;
mod offered;
mod outlook;
mod patience;
mod plan;
mod turnover;
mod view;

pub use comparison::Comparison;
pub use forecast::Forecast;
pub use learned::{Learned, NotLearned};
pub use outlook::Outlook;
pub use plan::Plan;
pub use view::{Lookup, View};

/// Nine of ten values of a normal distribution are within so many standard deviations.
pub(crate) const NINE_OF_TEN: f64 = 1.645;

/// A count as a number for calculations.
pub(crate) fn number(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
    let number = n as f64;
    number
}
