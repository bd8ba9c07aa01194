//! A draw that a path names.
//!
//! Invariant: what no zone can have as a name is not found.

use admission::{Event, ZoneId};
use axum::extract::{FromRequestParts, Path};
use hyper::http::request::Parts;

use super::problem::{NO_DRAW, NOT_FOUND, Problem};
use crate::draws::Draws;

/// The zone and the event.
pub(super) struct DrawInPath {
    pub(super) zone: ZoneId,
    event: String,
}

impl<S: Send + Sync> FromRequestParts<S> for DrawInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let named = path.ok().and_then(|Path((zone, event))| Some((ZoneId::parse(&zone).ok()?, event)));
        named.map(|(zone, event)| Self { zone, event }).ok_or_else(|| NOT_FOUND.into())
    }
}

impl DrawInPath {
    /// The event.
    ///
    /// # Errors
    /// [`NO_DRAW`] if the zone has none of this name whose order is drawn.
    pub(super) fn event(&self, draws: &Draws) -> Result<Event, Problem> {
        let event = draws.event(self.zone.as_str(), &self.event);
        event.ok_or_else(|| Problem::new(NO_DRAW, "the zone has no event of this name whose order is drawn"))
    }
}
