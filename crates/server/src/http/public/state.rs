//! What the handlers of the public listener share.

use std::{ops::Deref, sync::Arc};

use arc_swap::ArcSwap;
use axum::extract::FromRef;
use gate::{AnyStore, Gate, cells::Health, limits::Limits};

use super::unused_visits::UnusedVisits;
use crate::{
    draws::Draws,
    http::{
        context::Requests,
        health::{Lifecycle, Readiness},
        routes_in_force::ServedRoutes,
        rules::SeenRules,
        stream::Streams,
        waiting_page::Pages,
    },
    passes::Passes,
    stock::Stocks,
};

/// What the handlers of the public listener share.
#[derive(Clone)]
pub struct PublicState(Arc<PublicParts>);

/// The parts of a [`PublicState`].
pub struct PublicParts {
    /// The zones.
    pub gate: Arc<Gate<AnyStore>>,
    /// How often one client may call.
    pub limits: Limits,
    /// Signs the passes of holders who entered. A reload replaces it.
    pub passes: Arc<ArcSwap<Passes>>,
    /// The draws of the zones.
    pub draws: Arc<Draws>,
    /// What is left in the zones.
    pub stock: Arc<Stocks>,
    /// The streams of waiting users.
    pub streams: Arc<Streams>,
    /// The waiting pages. A reload replaces them.
    pub pages: ArcSwap<Pages>,
    /// What proxies may ask about. A reload replaces it.
    pub routes: Arc<ServedRoutes>,
    /// When the rules of the zones changed.
    pub rules: Arc<SeenRules>,
    /// The visits of newcomers.
    pub unused_visits: UnusedVisits,
    /// The cells that keep the zones. Empty for a store in this process.
    pub cells: Arc<[Arc<Health>]>,
    /// Begins and finishes requests.
    pub requests: Arc<Requests>,
    /// Whether the server takes new work.
    pub lifecycle: Arc<Lifecycle>,
}

impl From<PublicParts> for PublicState {
    fn from(parts: PublicParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for PublicState {
    type Target = PublicParts;

    fn deref(&self) -> &PublicParts {
        &self.0
    }
}

impl FromRef<PublicState> for Readiness {
    fn from_ref(state: &PublicState) -> Self {
        let (gate, cells, lifecycle) =
            (Arc::clone(&state.gate), Arc::clone(&state.cells), Arc::clone(&state.lifecycle));
        Self { gate, cells, lifecycle }
    }
}
