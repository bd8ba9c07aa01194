//! The check: a proxy asks about each request of its visitors, and Weir says whether it may go on.
//!
//! | file | concern |
//! |---|---|
//! | `asked` | the request of a visitor, as a proxy describes it |
//! | `envoy` | the same over gRPC, and the reply |
//! | `set_cookie` | the cookies that replies give out |
//! | `newcomer` | whether a request may take a new place |
//! | `poll` | what the page's script says with its questions |
//! | `page` | what a visitor sees who may not go on |
//!
//! The crate `check` decides which route a request has to obey. Here its zone is asked, and the reply is worded. A visitor with an
//! open visit is let through from memory: the seal is checked, and no store is asked.
//!
//! Invariants: only trusted proxies are answered. 200 means that the request may go on, and nothing else means that. A reply
//! never leads to another address than the one that was asked for.

mod asked;
pub mod envoy;
mod newcomer;
mod page;
mod poll;
mod set_cookie;

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use admission::{Claim, Departure, Leaver, Policy, Proof, Visit, VisitState, ZoneId};
use arc_swap::Guard;
use check::{
    Decision, Gated, Request,
    cookie::{GIVEN, Held, held},
    path,
    token::{self, Tokens},
};
use gate::{Refusal, Reply, Trips, WaitStatus, limits::LimitAnswer};
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Response, StatusCode, Uri,
    header::{CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER, SET_COOKIE},
};
use tokio::time::Instant;

use super::state::PublicState;
use crate::{
    clock,
    http::{
        Peer, Replied,
        context::{Client, RequestContext, write_limit},
        counted_addresses::address_digest,
        origin,
        problem::{
            ADMITTED, DENIED, LEFT, MISDIRECTED, NO_COOKIE, NO_PLACE, NOT_FOUND, NOTHING_TO_LEAVE,
            ODD_TARGET, OTHER_ADDRESS, Problem, STORE_AWAY, UNTRUSTED_PROXY, WAITING,
        },
        routes_in_force::{CheckResult, InForce},
        waiting_page::language::Language,
    },
};
pub(super) use asked::PATH;
use asked::{Asked, Wanted, accepts_page};
use newcomer::{NoPlace, no_place};
use page::{Blocked, Why};
use poll::Poll;

/// How long a zone and its limits may take to answer a check. A store that hangs counts as away after that, so a proxy never takes a slow
/// store for a Weir that is away, and opens nothing for it. The recipes' proxies wait 3 s for a reply.
const LONGEST_ASK: Duration = Duration::from_millis(900);

/// The most cookies of one zone that a visitor may leave with at once.
const MOST_LEFT: usize = 4;

/// Whether a path is one of the check's.
pub(super) fn is_path(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a proxy over HTTP. `peer` is the proxy; the context has the visitor.
pub(super) async fn answer(
    state: &PublicState,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    peer: IpAddr,
    context: &RequestContext,
) -> Replied {
    let routes = routes_for(state, peer)?;
    let asked = Asked::of(method, uri, headers)?;
    Ok(decide(state, &routes, &asked, headers, (context.client, context)).await)
}

/// Answers a proxy over gRPC, as [`answer`] does.
pub(in crate::http) async fn answer_envoy(
    state: &PublicState,
    request: &envoy::messages::CheckRequest,
    peer: Peer,
    context: &RequestContext,
) -> Replied {
    let routes = routes_for(state, peer.0.ip())?;
    let described = envoy::Described::of(request)?;
    let client = state.requests.client(peer, &described.headers);
    Ok(decide(state, &routes, &described.asked(), &described.headers, (client, context)).await)
}

/// The routes, for a proxy that may ask.
fn routes_for(state: &PublicState, peer: IpAddr) -> Result<Guard<Arc<InForce>>, Problem> {
    if !state.requests.trusts(peer) {
        let what = format!("{peer} is not one of `trusted_proxies`; add the address of the proxy");
        return Err(Problem::new(UNTRUSTED_PROXY, what));
    }
    let routes = state.routes.load();
    if routes.routes.all().is_empty() {
        let what = "there is no route, in the configuration or of the admin API, so no proxy can ask; see \
                    docs/operate/proxies.md";
        return Err(Problem::new(NOT_FOUND, what));
    }
    Ok(routes)
}

/// Decides about a request, and words the reply.
async fn decide(
    state: &PublicState,
    in_force: &InForce,
    asked: &Asked<'_>,
    headers: &HeaderMap,
    (client, context): (Client, &RequestContext),
) -> Response<Full<bytes::Bytes>> {
    let tokens = if in_force.routes.ask_for_tokens() {
        let who = (asked.is_secure, address_digest(client.0), clock::unix_ms() / 1_000);
        Tokens::of(&state.gate.bypass_sealer(), headers, asked.target, who)
    } else {
        Tokens::default()
    };
    let poll = Poll::of(headers);
    let of_page = poll.as_ref().and_then(|_| poll::headers_of_page(headers, &in_force.routes));
    let request = Request {
        method: Cow::Borrowed(poll.as_ref().map_or(&asked.method, |poll| poll.method(&asked.method))),
        host: Cow::Borrowed(&asked.host),
        target: Cow::Borrowed(asked.target),
        is_secure: asked.is_secure,
        headers: of_page.as_ref().unwrap_or(headers),
        address: client.0.to_canonical(),
        tokens: &tokens.names,
    };
    let (index, (counted, reply)) = match in_force.routes.decide(&request) {
        Decision::Leave => {
            state.routes.left.inc();
            if let Err(problem) =
                origin::check_of(&state.requests.cors_origins, headers, &[Some(&asked.host)])
            {
                return asked.finish(problem.into_reply());
            }
            return leave(state, in_force, asked, headers, client).await;
        }
        Decision::Unrouted => {
            state.routes.none.inc();
            return asked.let_in(poll.is_some(), None);
        }
        Decision::LetThrough { index, .. } => {
            let given = tokens.given.filter(|given| in_force.routes.all()[index].takes_token(&given.name));
            let cookie = given.map(|given| {
                let name = token::cookie_name(asked.is_secure);
                set_cookie::of_token(name, &given.text, given.left_s, asked.is_secure)
            });
            use_visits(state, in_force, asked, headers);
            (index, (CheckResult::Through, asked.let_in(poll.is_some(), cookie)))
        }
        Decision::Denied { index } => (index, (CheckResult::Denied, refused(asked, headers, DENIED.into()))),
        Decision::Gated { index, gated, further } => {
            let call = Call {
                state,
                in_force,
                asked,
                headers,
                client,
                gated,
                context,
                poll: poll.as_ref(),
                before: &[],
            };
            let (mut index, mut answer) = (index, call.answer().await);
            let (mut gated, mut given) = (gated, Vec::new());
            // The further zones are asked as long as all before are open. The cookies of those go along with the reply.
            for (next, next_gated) in further {
                if !matches!(answer.0, CheckResult::Visit | CheckResult::Entered) {
                    break;
                }
                if answer.1.headers().contains_key(SET_COOKIE) {
                    given.push(gated);
                }
                gated = next_gated;
                let before =
                    std::mem::replace(&mut answer, Call { gated, before: &given, ..call }.answer().await).1;
                for cookie in before.headers().get_all(SET_COOKIE) {
                    answer.1.headers_mut().append(SET_COOKIE, cookie.clone());
                }
                index = next;
            }
            (index, answer)
        }
        Decision::Misdirected => {
            state.routes.refused.inc();
            let what = "this is no host, or the rules of this site name hosts, and not this one; correct the host, or add it to a route";
            return refused(asked, headers, Problem::new(MISDIRECTED, what));
        }
        Decision::Unreadable => {
            state.routes.refused.inc();
            let what = "write the address in its plain form, without encoded characters that need no code";
            return refused(asked, headers, Problem::new(ODD_TARGET, what));
        }
    };
    in_force.counts(index)[counted as usize].inc();
    reply
}

/// The reply to a request that no zone is asked about. A page that waits shows why: the routes may have changed meanwhile.
fn refused(asked: &Asked<'_>, headers: &HeaderMap, problem: Problem) -> Response<Full<bytes::Bytes>> {
    let Some(poll) = Poll::of(headers) else { return asked.finish(problem.into_reply()) };
    let blocked = Blocked {
        why: Why::Refused(&problem),
        language: Language::choose(None, headers),
        is_safe: is_safe(&asked.method) && !poll.is_of_form,
        idle_timeout_s: None,
        notice: "",
        stock: None,
        given: None,
    };
    let mut response = asked.finish(blocked.document(problem.clone()));
    if asked.wanted == Wanted::Status {
        // At 403 nginx does not ask for the page, and the script would see nothing of Weir.
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response
}

/// Notes that a browser sent the cookies of these visits, with a request that waits for no zone.
fn use_visits(state: &PublicState, in_force: &InForce, asked: &Asked<'_>, headers: &HeaderMap) {
    let unused = &state.unused_visits;
    if unused.is_empty() || headers.contains_key(GIVEN) {
        return;
    }
    let now_s = clock::unix_ms() / 1_000;
    for gated in in_force.routes.gated() {
        for held in held(headers, gated.cookie.get(asked.is_secure)) {
            if let Held::Visit(sealed) = held
                && let Some((visit, _)) = state.gate.visit(&gated.zone, sealed, now_s)
            {
                unused.is_used(&gated.zone, &visit);
            }
        }
    }
}

/// Ends the visits that a visitor has here, and gives up the places.
async fn leave(
    state: &PublicState,
    in_force: &InForce,
    asked: &Asked<'_>,
    headers: &HeaderMap,
    client: Client,
) -> Response<Full<bytes::Bytes>> {
    let (mut has_left, mut trouble, mut removed) = (false, None, Vec::new());
    let now_s = clock::unix_ms() / 1_000;
    let zones: BTreeMap<&ZoneId, &Gated> =
        in_force.routes.gated().map(|gated| (&gated.zone, gated)).collect();
    for (zone, gated) in zones {
        let name = gated.cookie.get(asked.is_secure);
        let (mut is_free, mut is_stuck) = (false, false);
        let valid = held(headers, name).filter(|held| is_of_zone(state, zone, held, now_s));
        for held in valid.take(MOST_LEFT) {
            match leave_zone(state, zone, held, client).await {
                Ok(left) => {
                    has_left |= left;
                    is_free = true;
                }
                Err(problem) => (trouble, is_stuck) = (Some(problem), true),
            }
        }
        // What the zone never gave out is removed, too.
        if is_free || !is_stuck && held(headers, name).next().is_some() {
            removed.push(set_cookie::none(name, asked.is_secure));
        }
    }
    let problem = match trouble {
        _ if has_left => LEFT.into(),
        Some(problem) => problem,
        None => NOTHING_TO_LEAVE.into(),
    };
    let mut response = problem.into_reply();
    for cookie in removed {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    asked.finish(response)
}

/// Whether the zone gave out what a cookie holds. A page of the site may plant others of the same name.
fn is_of_zone(state: &PublicState, zone: &ZoneId, held: &Held<'_>, now_s: u64) -> bool {
    match held {
        Held::Place(token) => state.gate.issued(zone.as_str(), token),
        Held::Visit(sealed) => state.gate.visit(zone, sealed, now_s).is_some(),
    }
}

/// Lets a visitor leave one zone. Returns whether there was anything to leave, now or before.
async fn leave_zone(
    state: &PublicState,
    zone: &ZoneId,
    held: Held<'_>,
    client: Client,
) -> Result<bool, Problem> {
    let address = address_digest(client.0);
    let left = match held {
        Held::Place(token) => match state.gate.holder(zone.as_str(), token).await {
            Ok(holder) => {
                let asked = holder.ask_limits(&state.limits, client.0).await;
                state.requests.obey(asked.as_ref())?;
                holder.leave(address, &mut Trips::unwatched()).await
            }
            Err(refusal) => Err(refusal),
        },
        Held::Visit(sealed) => {
            let now_s = clock::unix_ms() / 1_000;
            let Some((visit, of_visit)) = state.gate.visit(zone, sealed, now_s) else {
                return Ok(false);
            };
            if visit.address != 0 && visit.address != address {
                return Err(OTHER_ADDRESS.into());
            }
            let proof = if of_visit == VisitState::Ended { Proof::Name } else { Proof::Visit };
            let claim = Claim { epoch: visit.epoch, seq: visit.seq };
            state.gate.leave(zone, Leaver { claim, proof, address: 0 }).await
        }
    };
    match left {
        Ok(Departure::Waits) | Err(Refusal::Gone | Refusal::BadToken) => Ok(false),
        Ok(_) => Ok(true),
        Err(refusal) => Err(Problem::of_leaving(refusal)),
    }
}

/// Whether a request only shows something, so that a browser may repeat it.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

impl Asked<'_> {
    /// Lets the request through, or tells the page's script that its page will be let through. `cookie` is what the visitor's browser gets.
    fn let_in(&self, is_poll: bool, cookie: Option<HeaderValue>) -> Response<Full<bytes::Bytes>> {
        if !is_poll {
            return self.through(cookie);
        }
        let mut response = Problem::from(ADMITTED).with([("canEnter", true.into())]).into_reply();
        if let Some(cookie) = cookie {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        self.finish(response)
    }

    /// The request may go on. `cookie` is what the visitor's browser gets.
    fn through(&self, cookie: Option<HeaderValue>) -> Response<Full<bytes::Bytes>> {
        let mut response = Response::new(Full::default());
        if let Some(cookie) = cookie {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        if self.wanted == Wanted::Page {
            // The visitor entered between the two questions. The proxy can only send a reply on: it leads to the same address.
            *response.status_mut() =
                if is_safe(&self.method) { StatusCode::SEE_OTHER } else { StatusCode::TEMPORARY_REDIRECT };
            response.headers_mut().insert(LOCATION, self.same_address());
        }
        response
    }

    /// The address that was asked for, as a path. Two slashes in front would be another host.
    fn same_address(&self) -> HeaderValue {
        let path = path::behind_host(self.target);
        let start = path.iter().position(|b| !b"/\\".contains(b)).unwrap_or(path.len());
        let path = [b"/", &path[start..]].concat();
        HeaderValue::from_bytes(&path).unwrap_or(HeaderValue::from_static("/"))
    }

    /// A reply that is not 200, as the proxy understands it.
    fn finish(&self, mut response: Response<Full<bytes::Bytes>>) -> Response<Full<bytes::Bytes>> {
        if self.wanted == Wanted::Below500 && response.status().is_server_error() {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        if self.wanted == Wanted::Status {
            if response.status() != StatusCode::FORBIDDEN {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            *response.body_mut() = Full::default();
            for name in [CONTENT_TYPE, RETRY_AFTER, CONNECTION] {
                response.headers_mut().remove(name);
            }
        }
        response
    }
}

/// A question about a request that a zone is for.
#[derive(Clone, Copy)]
struct Call<'a> {
    state: &'a PublicState,
    in_force: &'a InForce,
    asked: &'a Asked<'a>,
    headers: &'a HeaderMap,
    client: Client,
    gated: &'a Gated,
    context: &'a RequestContext,
    /// What the page's script says, if it asks.
    poll: Option<&'a Poll<'a>>,
    /// The zones asked before whose cookies go along with this reply.
    before: &'a [&'a Gated],
}

/// What the zone says to a visitor without an open visit.
enum ZoneAnswer {
    Waits { why: Why<'static>, token: gate::Token },
    Entered(Visit),
}

/// The place of a visitor. A browser may send several cookies of one name, and pages can plant some.
#[derive(Default)]
struct Places<'a> {
    /// The first one that the zone gave out, otherwise the first.
    best: Option<&'a [u8]>,
    is_sure: bool,
}

impl<'a> Places<'a> {
    /// `issued` says whether the zone issued a token. Almost always there is one place, and then it is not asked.
    fn add(&mut self, token: &'a [u8], issued: impl Fn(&[u8]) -> bool) {
        match self.best {
            None => self.best = Some(token),
            Some(first) if !self.is_sure => {
                self.is_sure = issued(first);
                if !self.is_sure && issued(token) {
                    (self.best, self.is_sure) = (Some(token), true);
                }
            }
            Some(_) => {}
        }
    }
}

impl<'a> Call<'a> {
    async fn answer(&self) -> (CheckResult, Response<Full<bytes::Bytes>>) {
        let (zone, now_s) = (&self.gated.zone, clock::unix_ms() / 1_000);
        let name = self.gated.cookie.get(self.asked.is_secure);
        let mut places = Places::default();
        for held in held(self.headers, name) {
            let sealed = match held {
                Held::Visit(sealed) => sealed,
                Held::Place(token) => {
                    places.add(token, |token| self.state.gate.issued(zone.as_str(), token));
                    continue;
                }
            };
            if let Some((visit, state)) = self.state.gate.visit(zone, sealed, now_s)
                && (!self.gated.bind_address || visit.address == self.address())
                && state != VisitState::Ended
            {
                self.state.gate.note_visit(zone, &visit);
                // What the proxy was given a moment ago has not been at the browser.
                if !self.headers.contains_key(GIVEN) {
                    self.state.unused_visits.is_used(zone, &visit);
                }
                // Some browsers send only a cookie that they just got with the form that the page is about to send again.
                let is_first = self.poll.is_some_and(|poll| poll.is_first);
                let renewed = state == VisitState::Renew || is_first || self.headers.contains_key(GIVEN);
                let cookie = renewed.then(|| self.visit_cookie(name, visit.seen_at(now_s), now_s));
                return (CheckResult::Visit, self.let_in(cookie));
            }
        }
        let mut limit = None;
        let asked = tokio::time::timeout(LONGEST_ASK, self.ask(places.best, now_s, &mut limit)).await;
        let late = |_| Err(Problem::new(STORE_AWAY, "the store did not answer in time").retry_after(3));
        let (counted, mut response) = match asked.unwrap_or_else(late) {
            Ok(ZoneAnswer::Entered(visit)) => {
                let cookie = self.visit_cookie(name, visit, now_s);
                if self.asked.wanted == Wanted::Page && !self.has_cookie() {
                    // The visitor has just entered, between the proxy's two questions. A redirect to the same address would go round for a
                    // browser that refuses cookies, with a new visit each time; the page asks again by itself.
                    let status = WaitStatus {
                        rank: 1,
                        eta: None,
                        reason: None,
                        stale: false,
                        polling_period_ms: 1_000,
                        opens_in_ms: 0,
                    };
                    let why = Why::Waiting { status, is_drawn: false };
                    let mut response = self.blocked(why, WAITING.into(), true);
                    response.headers_mut().insert(SET_COOKIE, cookie);
                    return (CheckResult::Entered, response);
                }
                (CheckResult::Entered, self.let_in(Some(cookie)))
            }
            Ok(ZoneAnswer::Waits { why, token }) => {
                let mut response = self.blocked(why, WAITING.into(), true);
                let cookie = set_cookie::of_place(name, &token, self.asked.is_secure);
                response.headers_mut().insert(SET_COOKIE, cookie);
                (CheckResult::Waits, response)
            }
            Err(problem) => {
                (CheckResult::Refused, self.blocked(Why::Refused(&problem), problem.clone(), false))
            }
        };
        if let Some(limit) = limit {
            write_limit(&limit, response.headers_mut());
        }
        (counted, response)
    }

    /// Asks the zone for a visitor without an open visit. Whoever lost the place gets a new one, and so does whoever shows the place of a
    /// visit that ended, or that began at another address.
    async fn ask(
        &self,
        token: Option<&[u8]>,
        now_s: u64,
        limit: &mut Option<LimitAnswer>,
    ) -> Result<ZoneAnswer, Problem> {
        let (state, zone) = (self.state, &self.gated.zone);
        if let Some(token) = token {
            let polled = match state.gate.holder(zone.as_str(), token).await {
                Ok(holder) => {
                    let mut watch = self.context.watch("poll", zone.as_str());
                    *limit = watch.limits(holder.ask_limits(&state.limits, self.client.0)).await;
                    state.requests.obey(limit.as_ref())?;
                    holder.poll(&mut watch.trips).await
                }
                Err(refusal) => Err(refusal),
            };
            match polled {
                Err(Refusal::BadToken | Refusal::Gone) => {}
                Err(refusal) => return Err(refusal.into()),
                Ok(reply) => {
                    if let Some(answer) = self.zone_answer(&reply, now_s).await? {
                        return Ok(answer);
                    }
                }
            }
        }
        self.may_take_place(token.is_some())?;
        let newcomer = state.gate.newcomer(zone.as_str()).await?;
        let mut watch = self.context.watch("join", zone.as_str());
        *limit = watch.limits(newcomer.ask_limits(&state.limits, self.client.0)).await;
        state.requests.obey(limit.as_ref())?;
        let (policy, client) = (self.policy(), self.client.0.to_canonical());
        let permit = if state.limits.tells_apart(client) {
            let permit = state.unused_visits.permit(zone, &policy, client, Instant::now());
            Some(permit.ok_or_else(|| Problem::too_many_requests(10))?)
        } else {
            None
        };
        let reply = newcomer.join(None, &mut watch.trips).await?;
        drop(watch);
        // The visit of a new entry is over at once only if the store lost the entry.
        let answer = self.zone_answer(&reply, now_s).await?;
        if let (Some(permit), Some(ZoneAnswer::Entered(visit))) = (permit, &answer) {
            permit.began(visit);
        }
        answer.ok_or_else(|| Problem::from(STORE_AWAY).retry_after(1))
    }

    /// Refuses a new place to what no visitor asked for.
    fn may_take_place(&self, has_place: bool) -> Result<(), Problem> {
        let has_cookie = has_place || self.has_cookie();
        if !has_cookie && self.poll.is_some_and(|poll| poll.was_given(self.gated.zone.as_str())) {
            return Err(NO_COOKIE.into());
        }
        match no_place(self.asked, self.headers, &self.state.requests.cors_origins) {
            None => Ok(()),
            Some(NoPlace::Refused(problem)) => Err(problem),
            Some(NoPlace::PageOfForm) => Err(Problem::from(NO_PLACE).retry_after(1)),
        }
    }

    /// Whether the browser sent a cookie of the zone, so that it keeps the one that it gets.
    fn has_cookie(&self) -> bool {
        self.has_cookie_of(self.gated)
    }

    fn has_cookie_of(&self, gated: &Gated) -> bool {
        let name = gated.cookie.get(self.asked.is_secure);
        check::cookie::values(self.headers, name).any(|value| Held::of(value).is_some())
    }

    /// What a reply means for the visitor; none if it is an entry whose visit is over or another one's.
    async fn zone_answer(&self, reply: &Reply, now_s: u64) -> Result<Option<ZoneAnswer>, Problem> {
        Ok(match *reply {
            Reply::Waiting { token, status } => {
                // It is said before the opening only.
                let is_drawn =
                    status.opens_in_ms > 0 && self.state.gate.draw_of_now(self.gated.zone.as_str()).is_some();
                let why = Why::Waiting { status, is_drawn };
                Some(ZoneAnswer::Waits { why, token })
            }
            Reply::Entered { pass, age_s, .. } => {
                let address = if self.is_zone_bound() { self.address() } else { 0 };
                let visit = self.state.gate.visit_of(&self.gated.zone, &pass, age_s, address, now_s).await?;
                visit.map(ZoneAnswer::Entered)
            }
        })
    }

    /// Whether a route of the zone binds visits to addresses. Then all of them are bound, so that a visit that begins on one route is the
    /// same person's on another.
    fn is_zone_bound(&self) -> bool {
        let zone = &self.gated.zone;
        self.in_force.routes.gated().any(|gated| gated.bind_address && gated.zone == *zone)
    }

    fn let_in(&self, cookie: Option<HeaderValue>) -> Response<Full<bytes::Bytes>> {
        self.asked.let_in(self.poll.is_some(), cookie)
    }

    /// The reply to somebody who may not go on: a page for a browser that shows one, otherwise a document.
    /// `gives` says whether it brings a cookie of the zone.
    fn blocked(&self, why: Why<'_>, problem: Problem, gives: bool) -> Response<Full<bytes::Bytes>> {
        let zone = self.gated.zone.as_str();
        let language = Language::choose(None, self.headers);
        let (notice, stock) = (self.state.gate.notice(zone), self.state.stock.of(zone));
        let notice = notice.as_deref().and_then(|notice| {
            let said = |tag: &str| notice.iter().find(|(of, _)| *of == tag).map(|(_, text)| text);
            said(language.tag()).or_else(|| said("en")).or_else(|| notice.iter().next().map(|(_, text)| text))
        });
        let given = self.given(gives);
        let blocked = Blocked {
            why,
            language,
            is_safe: is_safe(&self.asked.method) && !self.poll.is_some_and(|poll| poll.is_of_form),
            idle_timeout_s: self.state.gate.policy(zone).map(|policy| policy.idle_timeout_s),
            notice: notice.unwrap_or_default(),
            stock: stock.as_deref(),
            given: Some(&given),
        };
        let is_page = accepts_page(self.headers) && self.poll.is_none();
        let mut response = if is_page { blocked.page() } else { blocked.document(problem) };
        let page_of = self.state.requests.cors_origins.allowed(self.headers);
        self.state.requests.cors_origins.write_with_cookies(page_of, response.headers_mut());
        self.asked.finish(response)
    }

    /// The zones whose cookie the browser was given and has not sent back, after this reply.
    fn given(&self, gives: bool) -> Vec<&'a str> {
        let of_reply = gives.then_some(self.gated).into_iter().chain(self.before.iter().copied());
        let poll = self.poll.filter(|poll| !poll.names_none());
        let of_page = poll.into_iter().flat_map(|poll| {
            self.in_force.routes.gated().filter(|gated| poll.was_given(gated.zone.as_str()))
        });
        // A zone may have many routes.
        let zones: BTreeMap<&str, &Gated> =
            of_reply.chain(of_page).map(|gated| (gated.zone.as_str(), gated)).collect();
        zones.into_iter().filter(|(_, gated)| !self.has_cookie_of(gated)).map(|(zone, _)| zone).collect()
    }

    fn visit_cookie(&self, name: &str, visit: Visit, now_s: u64) -> HeaderValue {
        let zone: &ZoneId = &self.gated.zone;
        let ends_s = visit.began_s.saturating_add(self.policy().visit_ttl_s.into());
        let sealed = self.state.gate.seal_visit(zone, &visit);
        set_cookie::of_visit(name, &sealed, ends_s.saturating_sub(now_s), self.asked.is_secure)
    }

    fn policy(&self) -> Policy {
        self.state.gate.policy(self.gated.zone.as_str()).unwrap_or_default()
    }

    fn address(&self) -> u64 {
        address_digest(self.client.0)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    /// The header fields of a request.
    pub(super) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_visitor_is_led_to_the_same_address_only() {
        let headers = headers(&[("x-forwarded-host", "h"), ("x-forwarded-uri", "")]);
        let (method, uri) = (Method::GET, Uri::from_static("/gate/check"));
        let led = |target: &'static str| {
            let asked = Asked::of(&method, &uri, &headers).expect("all is there");
            let asked = Asked { target: target.as_bytes(), ..asked };
            asked.same_address().to_str().expect("text").to_owned()
        };
        for (target, address) in [
            ("/a?b=c", "/a?b=c"),
            ("/login?to=https://shop.example/x", "/login?to=https://shop.example/x"),
            ("//evil.example/x", "/evil.example/x"),
            ("/\\evil.example", "/evil.example"),
            ("http://evil.example//other.example", "/other.example"),
            ("", "/"),
        ] {
            assert_eq!(led(target), address, "{target}");
        }
    }
}
