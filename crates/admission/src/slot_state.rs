//! When slots become free: what the waits of a line depend on beside the places of its people.

use std::sync::Arc;

use crate::{Occupancy, Window};

/// The state of a line's slots after a call. A forecast fills in the waits with it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotState {
    /// The entries of the last minute.
    pub window: Arc<Window>,
    /// The people inside; `None` where nobody counts.
    pub occupancy: Option<Occupancy>,
    /// Nobody enters before this instant, because a state was lost that may have admitted people; 0 if none was. In milliseconds on
    /// the store's clock.
    pub held_until_ms: u64,
}
