//! A user who looks after a draw: it saves the checkpoint as soon as the list is frozen, and fetches its receipt once it knows its place.
//!
//! Only a sample of the users does. Their calls count neither as `wait` nor as `entry`. Invariant: a user makes at most a few of them,
//! each after a poll.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header::CONTENT_TYPE};

use super::User;
use crate::{
    clock::ms,
    paper::{Kind, Paper, Published},
    pool::Reply,
    story::{Call, ToldOpening},
    wire,
};

/// The list is published within this time after the freeze, milliseconds.
const PUBLISHED_MS: u32 = 1_000;
/// A receipt is asked for at most so often: another server may know the draw a moment later.
const TRIES: u8 = 3;

/// What a user of the sample still looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    published: bool,
    /// How often the receipt may be asked for.
    receipt: u8,
}

impl Wants {
    pub(super) const ALL: Self = Self { published: true, receipt: TRIES };
}

impl User {
    /// Whether it is time to fetch this.
    pub(super) fn wants_now(&self, kind: Kind) -> bool {
        let (Some(wants), Some(draw)) = (self.wants, &self.crowd.draw) else { return false };
        let is_placed = self.story.placed.is_some();
        match kind {
            Kind::Published => {
                let frozen_ms = |opens: ToldOpening| opens.latest_ms().saturating_sub(draw.frozen_before_ms);
                let now_ms = ms(self.crowd.clock.now_us());
                let is_frozen = self
                    .story
                    .opens
                    .is_some_and(|opens| now_ms >= frozen_ms(opens).saturating_add(PUBLISHED_MS));
                wants.published && (is_placed || is_frozen)
            }
            Kind::Receipt => wants.receipt > 0 && is_placed && self.token.is_some(),
        }
    }

    /// Fetches it.
    pub(super) async fn fetch(&mut self, kind: Kind) {
        let (Some(mut wants), Some(draw)) = (self.wants, self.crowd.draw.clone()) else { return };
        let request = match kind {
            Kind::Published => Request::get(&draw.path).body(Full::default()),
            Kind::Receipt => Request::post(format!("{}/receipt", draw.path))
                .body(Full::new(wire::body(&self.crowd.zone, self.token.as_deref()))),
        };
        let mut request = request.unwrap_or_default();
        request.headers_mut().clone_from(&self.crowd.headers);
        if kind == Kind::Published {
            request.headers_mut().remove(CONTENT_TYPE);
        }
        let mut sent_us = self.crowd.clock.now_us();
        let reply = self.crowd.pool.call(request, || sent_us = self.crowd.clock.now_us()).await;
        let call = Call { sent_ms: ms(sent_us), heard_ms: ms(self.crowd.clock.now_us()) };
        let reply = match reply {
            Ok(reply) => reply,
            Err(what) => {
                self.crowd.tally.failed(&format!("draw: {what}"), call.heard_ms);
                Reply { status: 0, retry_after: None, body: Bytes::new() }
            }
        };
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let is_kept = match kind {
            Kind::Published => {
                let published = serde_json::from_str::<Published>(&text);
                wants.published = !published.is_ok_and(|draw| draw.checkpoint.is_some());
                !wants.published
            }
            Kind::Receipt => {
                wants.receipt = if reply.status == 200 { 0 } else { wants.receipt - 1 };
                // The last refusal is kept, because it may be wrong.
                wants.receipt == 0
            }
        };
        self.wants = Some(wants);
        if is_kept {
            let who = self.story.who;
            self.crowd.tally.paper(Paper { who, call, kind, status: reply.status, text });
        }
    }
}
