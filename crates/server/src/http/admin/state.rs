//! What the handlers of the admin listener share.

use std::{future::Future, ops::Deref, sync::Arc};

use arc_swap::ArcSwap;
use audit::Recorder;
use axum::extract::FromRef;
use events::Bus;
use gate::{
    AnyStore, Gate,
    cells::Health,
    definitions::{DefineError, ZoneEditor},
};
use tokio::sync::Semaphore;

use super::{guard::Guard, refusals::Refusals};
use crate::{
    change_log::ChangeLog,
    draws::Draws,
    http::{
        context::Requests,
        health::{Lifecycle, Readiness},
        routes_in_force::ServedRoutes,
        stream::Streams,
    },
    past_events::PastEvents,
    servers::Servers,
    stats::Stats,
    stock::Stocks,
};

/// What the handlers of the admin listener share.
#[derive(Clone)]
pub struct AdminState(Arc<AdminParts>);

/// The parts of an [`AdminState`].
pub struct AdminParts {
    /// The zones.
    pub gate: Arc<Gate<AnyStore>>,
    /// Changes the definitions of zones.
    pub editor: Arc<ZoneEditor<AnyStore>>,
    /// The cells that keep the zones. Empty for a store in this process.
    pub cells: Arc<[Arc<Health>]>,
    /// The draws of the zones.
    pub draws: Arc<Draws>,
    /// The events that operators may follow.
    pub bus: Arc<Bus>,
    /// Ends the streams of operators when the server stops.
    pub streams: Arc<Streams>,
    /// One permit for each stream of an operator that may be open at the same time.
    pub stream_permits: Arc<Semaphore>,
    /// One permit for each report of an event that may be made at the same time. Others wait.
    pub report_permits: Semaphore,
    /// Who may use the admin API. A reload replaces it.
    pub guard: ArcSwap<Guard>,
    /// What the log says about requests that were refused.
    pub refusals: Refusals,
    /// The last hours of the zones.
    pub stats: Arc<Stats>,
    /// The last changes of the zones.
    pub changes: Arc<ChangeLog>,
    /// The last rare events.
    pub past: Arc<PastEvents>,
    /// The routes of proxies' requests.
    pub routes: Arc<ServedRoutes>,
    /// What is left in the zones.
    pub stock: Arc<Stocks>,
    /// Records what operators do. The editor records the changes of the zones by it, too.
    pub recorder: Recorder,
    /// This server and the others.
    pub servers: Arc<Servers>,
    /// Begins and finishes requests.
    pub requests: Arc<Requests>,
    /// Whether the server takes new work.
    pub lifecycle: Arc<Lifecycle>,
}

impl From<AdminParts> for AdminState {
    fn from(parts: AdminParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AdminState {
    type Target = AdminParts;

    fn deref(&self) -> &AdminParts {
        &self.0
    }
}

impl FromRef<AdminState> for Readiness {
    fn from_ref(state: &AdminState) -> Self {
        let (gate, cells, lifecycle) =
            (Arc::clone(&state.gate), Arc::clone(&state.cells), Arc::clone(&state.lifecycle));
        Self { gate, cells, lifecycle }
    }
}

impl FromRef<AdminState> for Arc<Servers> {
    fn from_ref(state: &AdminState) -> Self {
        Self::clone(&state.servers)
    }
}

/// Makes a change that is finished and recorded even if the client gives up.
///
/// # Errors
/// Those of the change, and [`DefineError::Away`] if it broke off.
pub(super) async fn to_the_end<T, E>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<DefineError> + Send + 'static,
{
    let made = tokio::spawn(change).await;
    made.unwrap_or_else(|_| Err(DefineError::Away("the change broke off".to_owned()).into()))
}

/// What the log says of a change that failed.
pub(super) fn outcome(error: &DefineError) -> &'static str {
    match error {
        DefineError::Away(_) => "may have been made",
        _ => "was not made",
    }
}
