//! Where a draw is, as operators see it.
//!
//! Invariant: a draw is overdue from the instant on at which people should enter, until its line is dealt.

use ::draw::Announced;
use gate::ZoneDraw;
use serde::Serialize;
use utoipa::ToSchema;

use super::{KeptDraw, KnownDraw};

/// What a draw waits for whose event has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// The list is not frozen yet.
    Freeze,
    /// A round of drand.
    Round,
    /// An operator has to state the value.
    Value,
    /// The order is known, and the line is not dealt by it yet.
    Deal,
}

impl WaitsFor {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Freeze, "freeze"), (Self::Round, "round"), (Self::Value, "value"), (Self::Deal, "deal")];
}

/// Where the draw of an event is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DrawProgress)]
pub struct Progress {
    /// The event.
    #[schema(example = "spring-sale")]
    pub event: String,
    /// `announced`, `frozen` once the list is fixed, or `drawn`.
    #[schema(example = "frozen")]
    pub stage: &'static str,
    /// What it waits for: that the list is frozen (`freeze`), a `round` of drand, a `value` that an operator has to state, or that the line
    /// is dealt (`deal`). Null before the event begins, once the line is dealt, and when the event is over.
    #[schema(required)]
    pub waits_for: Option<WaitsFor>,
    /// The round of drand that it waits for.
    #[schema(required)]
    pub round: Option<u64>,
    /// Where the value comes from that an operator has to state.
    #[schema(required)]
    pub source: Option<String>,
    /// For how many seconds people should have been entering by now; 0 while it is in time.
    pub overdue_s: u64,
    /// Why the last step of the server that was asked failed; null if it did not.
    #[schema(required)]
    pub trouble: Option<String>,
}

/// The stage of a draw of which this is kept.
pub(super) fn stage_of(kept: Option<&KeptDraw>) -> &'static str {
    match kept {
        None => "announced",
        Some(kept) if kept.randomness().is_none() => "frozen",
        Some(_) => "drawn",
    }
}

impl Progress {
    /// Where `draw` is, of which the server knows `known`.
    pub(super) fn of(draw: &ZoneDraw, known: Option<&KnownDraw>) -> Self {
        let kept = known.and_then(|known| known.kept.as_ref()).map(|(kept, _)| &**kept);
        let terms = kept.map(|kept| kept.checkpoint().terms());
        let waits_for = draw.is_due.then(|| match (kept, terms) {
            (Some(kept), Some(terms)) if kept.randomness().is_none() => match terms.announced {
                Announced::Drand { .. } => WaitsFor::Round,
                Announced::Stated { .. } => WaitsFor::Value,
            },
            (None, _) => WaitsFor::Freeze,
            _ => WaitsFor::Deal,
        });
        let (round, source) = match terms.map(|terms| &terms.announced) {
            Some(Announced::Drand { round }) if waits_for == Some(WaitsFor::Round) => (Some(*round), None),
            Some(Announced::Stated { source }) if waits_for == Some(WaitsFor::Value) => {
                (None, Some(source.clone()))
            }
            _ => (None, None),
        };
        let enter_s = terms.map_or_else(|| u64::from(draw.event.opens_s()), |terms| terms.start_unix_s);
        let overdue_s = (draw.unix_ms / 1_000).saturating_sub(enter_s);
        Self {
            event: draw.event.id.to_string(),
            stage: stage_of(kept),
            waits_for,
            round,
            source,
            overdue_s: if waits_for.is_some() { overdue_s } else { 0 },
            trouble: known.and_then(|known| known.trouble.clone()).filter(|_| waits_for.is_some()),
        }
    }
}
