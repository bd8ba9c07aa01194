//! What is left in a zone: reading it, replacing the tiers, and setting only their numbers.
//!
//! A change names no state in `If-Match`: a shop sets the numbers each second, and the last word counts. Invariants: a change of numbers
//! is based on the tiers as they are then. A dry run makes the same checks and changes nothing. The audit log has a record where anything
//! besides numbers changed, or a tier was sold out or came back, so that it does not grow by a line with each piece that is sold.

use admission::{Stock, ZoneId};
use audit::Order;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Json,
    body::object,
    query::{DryRun, NoQuery, Operator, ZoneInPath},
    state::{AdminState, to_the_end},
};
use crate::{
    http::{
        body::Whole,
        problem::{Problem, STORE_AWAY},
        stock_shape::StockTier,
    },
    stock::{StockChange, json},
};

/// What is left in a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = ZoneStock)]
pub(in crate::http) struct StockShape {
    /// Nothing was changed; this is what it would be.
    dry_run: bool,
    #[schema(value_type = Vec<StockTier>)]
    tiers: Vec<Value>,
    /// How many pieces are left of everything; null if that is not known of some tier, or there is none.
    #[schema(required)]
    remaining: Option<u64>,
    /// How many people who wait are told that everything may be sold out before their turn: nobody before a draw. Null if nobody is,
    /// because the number of pieces is not known.
    #[schema(required)]
    beyond: Option<u64>,
}

/// All tiers of a zone, in the order in which people are told. An empty list: nothing is told.
#[derive(ToSchema)]
#[schema(as = NewStock)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `json` reads it")]
pub(in crate::http) struct NewStock {
    #[schema(max_items = 16)]
    tiers: Vec<StockTier>,
}

/// The numbers to change, by the ids of tiers.
#[derive(ToSchema)]
#[schema(as = StockNumbers)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `json` reads it")]
pub(in crate::http) struct Numbers {
    /// Null if nobody knows it.
    #[schema(example = json!({"floor": 12, "gold": null}))]
    remaining: std::collections::BTreeMap<String, Option<u32>>,
}

/// What is left in a zone, as people who wait are told.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/stock",
    operation_id = "show_stock",
    tag = "stock",
    params(("id" = String, Path, description = "The zone's id")),
    responses((status = 200, body = StockShape)),
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    NoQuery: NoQuery,
    ZoneInPath(zone): ZoneInPath,
) -> Result<Json<StockShape>, Problem> {
    state.definition(&zone)?;
    Ok(state.stock_reply(&zone, &state.stock.stock_of(&zone), false))
}

/// Replaces what is left in a zone. The last change counts: it needs no `If-Match`.
#[utoipa::path(
    put,
    path = "/admin/v1/zones/{id}/stock",
    operation_id = "replace_stock",
    tag = "stock",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would be told"),
    ),
    request_body = NewStock,
    responses((status = 200, body = StockShape)),
)]
pub(super) async fn replace(
    State(state): State<AdminState>,
    operator: Operator,
    DryRun(dry_run): DryRun,
    ZoneInPath(zone): ZoneInPath,
    Whole(body): Whole,
) -> Result<Json<StockShape>, Problem> {
    let new = json::stock(object(&body)?.into())?;
    state.change_stock(operator, zone, dry_run, move |_| Ok(new.clone())).await
}

/// Sets how many pieces are left of the tiers that the body names. The other tiers stay as they are.
#[utoipa::path(
    patch,
    path = "/admin/v1/zones/{id}/stock",
    operation_id = "change_stock",
    tag = "stock",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would be told"),
    ),
    request_body = Numbers,
    responses((status = 200, body = StockShape)),
)]
pub(super) async fn change(
    State(state): State<AdminState>,
    operator: Operator,
    DryRun(dry_run): DryRun,
    ZoneInPath(zone): ZoneInPath,
    Whole(body): Whole,
) -> Result<Json<StockShape>, Problem> {
    let numbers = json::remaining(object(&body)?.into())?;
    state.change_stock(operator, zone, dry_run, move |now| json::with_remaining(now, &numbers)).await
}

impl AdminState {
    /// Changes what is left in a zone. Completes the change even if the client gives up.
    async fn change_stock(
        &self,
        Operator { author, .. }: Operator,
        zone: ZoneId,
        dry_run: bool,
        change: impl Fn(&Stock) -> Result<Stock, Problem> + Send + Sync + 'static,
    ) -> Result<Json<StockShape>, Problem> {
        self.definition(&zone)?;
        if dry_run {
            return Ok(self.stock_reply(&zone, &change(&self.stock.stock_of(&zone))?, true));
        }
        let (state, of) = (self.clone(), zone.clone());
        let after = to_the_end(async move {
            let made = state.stock.change(&of, &change).await;
            if let Err(Problem { code: STORE_AWAY, .. }) = made {
                // What is wanted, as far as this server knows what is there.
                let before = state.stock.stock_of(&of);
                if let Some(wanted) = change(&before).ok().filter(|wanted| before.differs_notably(wanted)) {
                    state.recorder.write_unanswered(&author, Order::Stock, Some(&of), json::text(&wanted));
                }
            }
            let StockChange { before, after } = made?;
            if before.differs_notably(&after) {
                let [before, after] = [&before, &after].map(json::text);
                state.recorder.write_stock(&author, &of, before, after);
            }
            Ok::<_, Problem>(after)
        })
        .await?;
        Ok(self.stock_reply(&zone, &after, false))
    }

    /// Ends what is told about a zone that was deleted: a zone that is created with its id later has no stock.
    pub(super) async fn forget_stock(&self, zone: &ZoneId) {
        if let Err(problem) = self.stock.change(zone, |_| Ok(Stock::default())).await {
            let why = problem.detail;
            tracing::warn!(%zone, %why, "what is left in the deleted zone is kept; a zone with its id would tell it again");
        }
    }

    fn stock_reply(&self, zone: &ZoneId, stock: &Stock, dry_run: bool) -> Json<StockShape> {
        let view = self.gate.operator_view(zone.as_str());
        let waiting = view.map(|view| if view.is_undrawn() { 0 } else { view.tally().waiting });
        let remaining = stock.total();
        let beyond = remaining.zip(waiting).map(|(remaining, waiting)| waiting.saturating_sub(remaining));
        Json::ok(StockShape { dry_run, tiers: json::tiers(stock), remaining, beyond })
    }
}
