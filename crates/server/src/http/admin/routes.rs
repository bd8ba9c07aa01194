//! The routes of proxies' requests: listing them with their counts, replacing those of the API, and asking which one decides.
//!
//! The routes of the API come before those of the configuration file. Invariants: the list is replaced as a whole, by a
//! compare-and-set by `If-Match`. A dry run makes the same checks, and stops before the editor. No reply, log or audit record has a
//! secret: a route shows `{"secret": true}` where it has one, and a list that sends this back keeps it.

use std::sync::Arc;

use audit::Order;
use axum::extract::State;
use check::{Route, RouteAction, question::Question, written};
use gate::definitions::{DefineError, ROUTES_MAX_LEN};
use hyper::HeaderMap;
use serde::Serialize;
use serde_json::{Map, Value};
use store::RoutesDefined;
use utoipa::ToSchema;

use super::{
    Json,
    body::object,
    precondition::Wanted,
    query::{DryRun, NoQuery, Operator},
    state::{AdminState, outcome, to_the_end},
};
use crate::{
    fields::{missing, rest, wrong},
    http::{
        body::Whole,
        problem::{BAD_ROUTE, CHANGED_MEANWHILE, NO_CELL, Problem},
        routes_in_force::{self, CheckResult, Source},
    },
    past_events::Act,
};

/// How often a change with `If-Match: *` is tried again because another change came first.
const TRIES: usize = 8;

/// How often each was said about the requests that fit a route, since this server started.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Checks {
    /// Let through without a zone: by the route, or since it is a static file or the like.
    through: u64,
    /// Let through, because the visit is open.
    visit: u64,
    /// Let through, because the visitor has just entered.
    entered: u64,
    waits: u64,
    denied: u64,
    /// Refused by the zone, by a limit or for want of the store.
    refused: u64,
}

/// A route, as in the configuration file. A secret is shown as `{"secret": true}`.
#[derive(ToSchema)]
#[schema(as = Route, example = json!({"name": "abuse", "deny": true, "address": ["198.51.100.0/24"]}))]
#[expect(dead_code, reason = "a shape for the document: `written` reads and writes it")]
pub(in crate::http) struct RouteShape {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Its requests wait in this zone. A route has exactly one of `zone`, `bypass` and `deny`.
    #[schema(nullable = false)]
    zone: Option<String>,
    /// Its requests are let through.
    #[schema(nullable = false)]
    bypass: Option<bool>,
    /// Its requests are refused.
    #[schema(nullable = false)]
    deny: Option<bool>,
    /// Files, health checks and preflights wait, too.
    #[schema(nullable = false)]
    everything: Option<bool>,
    /// A visit counts only for the address that began it.
    #[schema(nullable = false)]
    bind_address: Option<bool>,
    #[schema(nullable = false, value_type = Option<Value>)]
    host: Option<Value>,
    #[schema(nullable = false, value_type = Option<Value>)]
    path: Option<Value>,
    #[schema(nullable = false, value_type = Option<Value>)]
    method: Option<Value>,
    /// By name: a pattern, a list of patterns, `{"secret": "…"}` or `{"sha256": "…"}`.
    #[schema(nullable = false, value_type = Option<Value>)]
    header: Option<Value>,
    /// By name: a pattern, a list of patterns, `{"secret": "…"}` or `{"sha256": "…"}`.
    #[schema(nullable = false, value_type = Option<Value>)]
    cookie: Option<Value>,
    #[schema(nullable = false, value_type = Option<Value>)]
    address: Option<Value>,
    /// Names of bypass tokens, as `weir route token` makes them.
    #[schema(nullable = false, value_type = Option<Value>)]
    token: Option<Value>,
}

/// A route in force.
#[derive(Serialize, ToSchema)]
#[schema(as = ServedRoute)]
pub(in crate::http) struct ServedRouteShape {
    /// `api`: set here. `file`: of the configuration file of the server that answers.
    source: String,
    checks: Checks,
    #[schema(value_type = RouteShape)]
    route: Value,
}

/// All routes in force, in the order in which they decide.
#[derive(Serialize, ToSchema)]
#[schema(as = Routes)]
pub(in crate::http) struct RoutesShape {
    /// The value of `If-Match` for a change of the routes of the API.
    etag: String,
    routes: Vec<ServedRouteShape>,
    /// Requests that no route fits: they are let through.
    unmatched: u64,
}

/// A change that was made, or that would be made.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RoutesChange {
    /// Nothing was changed; this is what would change.
    dry_run: bool,
    /// The routes of the API before the change.
    #[schema(value_type = Vec<RouteShape>)]
    before: Vec<Value>,
    /// The routes of the API after it.
    #[schema(value_type = Vec<RouteShape>)]
    after: Vec<Value>,
}

/// The routes of the API, in their order.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `read` reads it")]
pub(in crate::http) struct NewRoutes {
    routes: Vec<RouteShape>,
}

/// A request that a visitor could make.
#[derive(ToSchema)]
#[schema(as = RouteQuestion)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `question` reads it")]
pub(in crate::http) struct QuestionShape {
    /// As in `https://shop.example/checkout`.
    url: String,
    /// `GET` if it is not given.
    #[schema(nullable = false)]
    method: Option<String>,
    /// As in `User-Agent: curl`.
    #[schema(nullable = false)]
    headers: Option<Vec<String>>,
    #[schema(nullable = false)]
    address: Option<String>,
    /// Names of the valid bypass tokens that it carries.
    #[schema(nullable = false)]
    tokens: Option<Vec<String>>,
}

/// Which route decides.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Decides {
    name: String,
    /// `api` or `file`.
    source: String,
    /// `zone`, `bypass` or `deny`.
    outcome: String,
}

/// What the routes do with a request.
#[derive(Serialize, ToSchema)]
#[schema(as = RouteExplanation)]
pub(in crate::http) struct ExplanationShape {
    /// The path as routes see it, if it was written in another way, and all servers read it so.
    #[schema(required)]
    path: Option<String>,
    /// Null if no route decides: the last line says what happens then.
    #[schema(required)]
    decides: Option<Decides>,
    /// What each route says, up to the one that decides. If servers could read several paths in the address, each line says with which one.
    lines: Vec<String>,
}

/// The routes in force, in the order in which they decide, each with its counts.
#[utoipa::path(
    get,
    path = "/admin/v1/routes",
    operation_id = "list_routes",
    tag = "routes",
    responses((status = 200, body = RoutesShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn list(State(state): State<AdminState>, NoQuery: NoQuery) -> Json<RoutesShape> {
    let tag = tag(state.editor.routes().as_deref());
    let now = state.routes.load();
    let served = |(index, route): (usize, &Route)| {
        let count = |said: CheckResult| now.counts(index)[said as usize].get();
        ServedRouteShape {
            source: now.source(index).to_string(),
            checks: Checks {
                through: count(CheckResult::Through),
                visit: count(CheckResult::Visit),
                entered: count(CheckResult::Entered),
                waits: count(CheckResult::Waits),
                denied: count(CheckResult::Denied),
                refused: count(CheckResult::Refused),
            },
            route: written::shown(route),
        }
    };
    let routes = now.routes.all().iter().enumerate().map(served).collect();
    let shape = RoutesShape { etag: tag.clone(), routes, unmatched: state.routes.none.get() };
    Json { etag: Some(format!("\"{tag}\"")), ..Json::ok(shape) }
}

/// Replaces the routes of the API, which come before those of the configuration file. An empty list removes them all.
#[utoipa::path(
    put,
    path = "/admin/v1/routes",
    operation_id = "replace_routes",
    tag = "routes",
    params(
        ("If-Match" = Option<String>, Header, description = "The ETag of the routes, or * for any state; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would change"),
    ),
    request_body = NewRoutes,
    responses((status = 200, body = RoutesChange, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn replace(
    State(state): State<AdminState>,
    operator: Operator,
    DryRun(dry_run): DryRun,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Result<Json<RoutesChange>, Problem> {
    let wanted = Wanted::read(&headers)?;
    let new = given(&body)?;
    if dry_run {
        let Checked { before, after, .. } = state.checked(&wanted, new)?;
        return Ok(Json::ok(RoutesChange::new(true, &before, &after)));
    }
    to_the_end(async move { state.set_routes(&operator, &wanted, new).await }).await
}

/// Which route decides about a request, and why. The same as `weir route explain`.
#[utoipa::path(
    post,
    path = "/admin/v1/routes/explain",
    operation_id = "explain_route",
    tag = "routes",
    request_body = QuestionShape,
    responses((status = 200, body = ExplanationShape)),
)]
pub(super) async fn explain(
    State(state): State<AdminState>,
    NoQuery: NoQuery,
    Whole(body): Whole,
) -> Result<Json<ExplanationShape>, Problem> {
    let now = state.routes.load();
    let explained = question(&body)?.ask(&now.routes);
    let explained = explained.map_err(|what| Problem::new(crate::http::problem::WRONG_TYPE, what))?;
    let decides = explained.index.map(|index| {
        let route = &now.routes.all()[index];
        let outcome = match route.action {
            RouteAction::Zone(_) => "zone",
            RouteAction::Bypass => "bypass",
            RouteAction::Deny => "deny",
        };
        Decides {
            name: route.name.clone(),
            source: now.source(index).to_string(),
            outcome: outcome.to_owned(),
        }
    });
    Ok(Json::ok(ExplanationShape { path: explained.path, decides, lines: explained.lines }))
}

/// The tag of a list: a digest of what its keeper has. No list and an empty one are the same.
fn tag(text: Option<&str>) -> String {
    blake3::hash(text.unwrap_or("[]").as_bytes()).to_hex()[..16].to_owned()
}

impl RoutesChange {
    fn new(dry_run: bool, before: &[Route], after: &[Route]) -> Self {
        let [before, after] = [before, after].map(|routes| routes.iter().map(written::shown).collect());
        Self { dry_run, before, after }
    }
}

/// A change that may be made.
struct Checked {
    /// The list before, as its keeper has it.
    kept: Option<Arc<str>>,
    before: Vec<Route>,
    after: Vec<Route>,
}

impl AdminState {
    /// Checks a change against the list as it is now.
    fn checked(&self, wanted: &Wanted, mut new: Vec<Map<String, Value>>) -> Result<Checked, Problem> {
        let kept = self.editor.routes();
        let tag = tag(kept.as_deref());
        if !wanted.fits(&tag) {
            return Err(changed_meanwhile(&tag));
        }
        // What another version wrote may be replaced, and none of its secrets can be kept.
        let before =
            kept.as_deref().and_then(|text| routes_in_force::read_list(text).ok()).unwrap_or_default();
        for fields in &mut new {
            written::keep_secrets(fields, &before);
        }
        let after = self.read(&new)?;
        Ok(Checked { kept, before, after })
    }

    /// Reads a list of routes.
    fn read(&self, list: &[Map<String, Value>]) -> Result<Vec<Route>, Problem> {
        let (mut routes, now) = (Vec::with_capacity(list.len()), self.routes.load());
        for (index, fields) in list.iter().enumerate() {
            if !fields.contains_key("name") {
                return Err(bad(index, "name", "is missing; counts and the audit log need it"));
            }
            let route = written::read(fields, index + 1);
            let route: Route = route.map_err(|fault| bad(index, &fault.field, &fault.what))?;
            if let RouteAction::Zone(gated) = &route.action
                && self.editor.get(gated.zone.as_str()).is_none()
            {
                let what = format!("there is no zone `{}`; create it first, or correct it", gated.zone);
                return Err(bad(index, "zone", &what));
            }
            let mut others = now.routes.all().iter().enumerate();
            if others.any(|(at, other)| now.source(at) == Source::File && other.name == route.name) {
                let what =
                    format!("`{}` is a route of the configuration file; choose another name", route.name);
                return Err(bad(index, "name", &what));
            }
            routes.push(route);
        }
        if let Some((index, what)) = written::fault_of_list(&routes) {
            return Err(bad(index, "", &what));
        }
        if !routes.is_empty() && self.requests.trusted_proxies.is_empty() {
            let what = "no proxy may ask about its visitors; name the proxies' addresses in trusted_proxies";
            return Err(bad(0, "", what));
        }
        let length = routes_in_force::list_text(&routes).len();
        if length > ROUTES_MAX_LEN {
            let what = format!(
                "the routes have {length} bytes as JSON, and {ROUTES_MAX_LEN} are the most; put long lists into the \
                 configuration file"
            );
            return Err(Problem::new(BAD_ROUTE, what));
        }
        Ok(routes)
    }

    async fn set_routes(
        &self,
        operator: &Operator,
        wanted: &Wanted,
        new: Vec<Map<String, Value>>,
    ) -> Result<Json<RoutesChange>, Problem> {
        for _ in 0..TRIES {
            let Checked { kept, before, after } = self.checked(wanted, new.clone())?;
            let text: Arc<str> = routes_in_force::list_text(&after).into();
            match self.editor.set_routes(kept.clone(), Arc::clone(&text)).await {
                Ok(RoutesDefined::Done) => {
                    let change = RoutesChange::new(false, &before, &after);
                    // A list that another version wrote may not be readable, and is another one then.
                    if kept.as_deref().unwrap_or("[]") != &*text {
                        self.recorder.write_routes(&operator.author, &change.before, &change.after);
                        self.past.note_act(Act::RoutesChanged, operator.caller.clone());
                    }
                    // This list was checked. A later one of another server may not be readable, and is logged elsewhere.
                    let _ = self.routes.take_in(self.gate.routes());
                    return Ok(Json { etag: Some(format!("\"{}\"", tag(Some(&text)))), ..Json::ok(change) });
                }
                // This server did not know the change of another one yet.
                Ok(RoutesDefined::Otherwise(other)) if *wanted == Wanted::Any => {
                    self.gate.routes().send_replace(other);
                }
                Ok(RoutesDefined::Otherwise(other)) => {
                    return Err(changed_meanwhile(&tag(other.as_deref())));
                }
                Err(DefineError::NoCell) => {
                    let what = "routes are kept where zones without a tenant are, and no cell is for those; give one `\"*\"` \
                                among its `tenants`";
                    return Err(Problem::new(NO_CELL, what));
                }
                Err(error) => {
                    if let DefineError::Away(_) = error {
                        let wanted = RoutesChange::new(false, &before, &after).after;
                        let wanted = Value::from(wanted).to_string();
                        self.recorder.write_unanswered(&operator.author, Order::Routes, None, wanted);
                    }
                    let outcome = outcome(&error);
                    tracing::warn!(%error, "an operator's change of the routes {outcome}");
                    return Err(error.into());
                }
            }
        }
        Err(DefineError::Busy.into())
    }
}

/// The list is another one than the change expects: its tag is this.
fn changed_meanwhile(tag: &str) -> Problem {
    let what = "read the routes again, and make the change to what is there now";
    Problem::new(CHANGED_MEANWHILE, what).with([("etag", tag.into())])
}

fn bad(index: usize, field: &str, what: &str) -> Problem {
    let dot = if field.is_empty() { "" } else { "." };
    let detail = format!("`routes[{index}]{dot}{field}`: {what}");
    Problem::new(BAD_ROUTE, detail).with([("route", index.into()), ("field", field.into())])
}

/// Reads the body of a change.
fn given(body: &[u8]) -> Result<Vec<Map<String, Value>>, Problem> {
    let mut fields = object(body)?;
    let routes = match fields.remove("routes") {
        Some(Value::Array(routes)) => routes,
        Some(_) => return Err(wrong("routes", "a list of routes")),
        None => return Err(missing("routes")),
    };
    rest(&fields, "")?;
    let route = |(index, route): (usize, Value)| match route {
        Value::Object(fields) => Ok(fields),
        _ => Err(wrong(&format!("routes[{index}]"), "an object")),
    };
    routes.into_iter().enumerate().map(route).collect()
}

/// Reads the body of a question.
fn question(body: &[u8]) -> Result<Question, Problem> {
    let mut fields = object(body)?;
    let text = |name: &str, value: Value| match value {
        Value::String(text) => Ok(text),
        _ => Err(wrong(name, "a string")),
    };
    let texts = |name: &str, value: Option<Value>| match value {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => all
            .into_iter()
            .map(|one| text(name, one).map_err(|_| wrong(name, "a list of strings")))
            .collect::<Result<Vec<_>, Problem>>(),
        Some(_) => Err(wrong(name, "a list of strings")),
    };
    let url = text("url", fields.remove("url").ok_or_else(|| missing("url"))?)?;
    let method = fields.remove("method").map_or(Ok("GET".to_owned()), |value| text("method", value))?;
    let address = match fields.remove("address") {
        None => Question::ANY_ADDRESS,
        Some(value) => {
            text("address", value)?.parse().map_err(|_| wrong("address", "an address, as in 203.0.113.7"))?
        }
    };
    let (headers, tokens) =
        (texts("headers", fields.remove("headers"))?, texts("tokens", fields.remove("tokens"))?);
    rest(&fields, "")?;
    Ok(Question { url, method, headers, address, tokens })
}
