//! One stream of a waiting user: what it knows already, and how events are written to it.

use std::{
    fmt::{Display, Write as _},
    time::Duration,
};

use admission::{Ticket, ZoneId};
use edge::Outlet;
use gate::{Reply, Token, WaitStatus};
use metrics::Gauge;
use tokio::time::Instant;

use super::{Arrival, Share, Streams};
use crate::{
    http::{
        problem::Problem,
        reply::{self, Common, is_beyond, token_text, write_waiting},
        stream::{HEARTBEAT, RECONNECT, SILENCE, event},
    },
    stock::InStock,
};

/// One stream.
pub(super) struct Follower {
    pub(super) outlet: Outlet,
    /// Its last token, with which the browser reconnects.
    pub(super) token: Token,
    /// The ticket of its last token.
    pub(super) ticket: Ticket,
    last: Option<WaitStatus>,
    /// What was told with `last` of what is left in the zone.
    stock: StockTold,
    /// When `last` was sent.
    told_at: Instant,
    /// When anything was sent.
    sent_at: Instant,
    _open: OpenStreamGuard,
    _share: Share,
}

/// Counts one stream in the gauge.
struct OpenStreamGuard(Gauge);

impl OpenStreamGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Follower {
    /// A stream that was just opened, and what it gets first. `open` is the gauge of open streams.
    pub(super) fn new(outlet: Outlet, first: &(Reply, Ticket), open: &Gauge, share: Share) -> Self {
        let (now, guard) = (Instant::now(), OpenStreamGuard::new(open));
        let (Reply::Waiting { token, .. } | Reply::Entered { token, .. }) = first.0;
        Self {
            outlet,
            token,
            ticket: first.1,
            last: None,
            stock: StockTold::default(),
            told_at: now,
            sent_at: now,
            _open: guard,
            _share: share,
        }
    }

    /// Sends `text` and the answer of the store or a view. If the stream goes on, returns it and when to ask next.
    pub(super) fn answer(
        mut self,
        streams: &Streams,
        zone: &ZoneId,
        (reply, ticket): (Reply, Ticket),
        text: &mut String,
    ) -> Option<Arrival> {
        match reply {
            Reply::Entered { token, .. } => {
                write_id(text, &token);
                event(text, "enter", &reply::write(&streams.passes.load(), zone.as_str(), &reply, None));
                self.outlet.send(text.as_bytes());
                self.finish();
                None
            }
            Reply::Waiting { token, status } => {
                let stock = streams.stock.of(zone.as_str());
                let common = Common::of(&status, stock.as_deref());
                write_wait(text, &status, common, &token, stock.as_deref());
                self.tell(status, ticket, token, stock.as_deref(), text);
                let due = Instant::now() + Duration::from_millis(status.polling_period_ms.into());
                Some((self, due))
            }
        }
    }

    /// Ends the stream with a problem.
    pub(super) fn refuse(mut self, problem: &Problem, text: &mut String) {
        text.clear();
        write_id(text, &self.token);
        event(text, "problem", &problem.body());
        self.outlet.send(text.as_bytes());
        self.finish();
    }

    /// Ends the stream because the server is about to stop. Another server goes on.
    pub(super) fn send_away(mut self, text: &mut String) {
        text.clear();
        write_id(text, &self.token);
        event(text, RECONNECT, "{}");
        self.outlet.send(text.as_bytes());
        self.finish();
    }

    /// Ends the stream when everything is out.
    fn finish(mut self) {
        if !self.outlet.flush() {
            tokio::spawn(async move { self.outlet.flushed().await });
        }
    }

    /// Sends `text`. After that the browser knows `wait` and `stock`, and has `token`, whose ticket is `ticket`.
    pub(super) fn tell(
        &mut self,
        wait: WaitStatus,
        ticket: Ticket,
        token: Token,
        stock: Option<&InStock>,
        text: &str,
    ) {
        if self.outlet.send(text.as_bytes()) {
            let now = Instant::now();
            (self.told_at, self.sent_at, self.stock) = (now, now, StockTold::of(stock, &wait));
            (self.last, self.ticket, self.token) = (Some(wait), ticket, token);
        }
    }

    /// Whether `wait` is worth a message: something besides the passing of time changed, or the period that was told is over.
    pub(super) fn is_news(
        &self,
        wait: &WaitStatus,
        ticket: &Ticket,
        stock: Option<&InStock>,
        now: Instant,
    ) -> bool {
        let Some(last) = &self.last else { return true };
        let shape = |wait: &WaitStatus| (wait.rank, wait.reason, wait.stale, wait.eta.is_some());
        let period = Duration::from_millis(last.polling_period_ms.into());
        shape(last) != shape(wait)
            || self.stock != StockTold::of(stock, wait)
            || self.ticket.told_s != ticket.told_s
            || now.saturating_duration_since(self.told_at) >= period
    }

    /// The rank to tell, where a view that was taken at `taken_at` says `rank`.
    pub(super) fn rank(&self, rank: u64, taken_at: Instant) -> u64 {
        self.last.as_ref().map_or(rank, |last| newest_rank(last.rank, self.told_at, rank, taken_at))
    }

    /// Sends a heartbeat if nothing was sent for long.
    pub(super) fn heartbeat(&mut self, now: Instant) {
        if now.saturating_duration_since(self.sent_at) >= SILENCE && self.outlet.send(HEARTBEAT.as_bytes()) {
            self.sent_at = now;
        }
    }
}

/// Of a rank that was told and one of a view, the one to tell now. The store's answer to the request of a stream may know
/// entries that the view in use does not know yet, and a lower rank is not taken back for that. The next view knows them.
fn newest_rank(told: u64, told_at: Instant, rank: u64, taken_at: Instant) -> u64 {
    if taken_at <= told_at { rank.min(told) } else { rank }
}

/// Writes the id of the next event: the newest token, with which a browser reconnects. Each event has one: browsers remember the
/// last id, but some libraries forget it with the next event.
fn write_id(text: &mut String, token: &Token) {
    let written = writeln!(text, "id: {}", token_text(token));
    debug_assert!(written.is_ok(), "writing to a String does not fail");
}

/// What is worth a message of what is left in a zone. A number that only becomes another one is not: it comes with the next message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct StockTold {
    /// See [`InStock::news`]; 0 for nothing.
    news: u64,
    is_beyond: bool,
}

impl StockTold {
    fn of(stock: Option<&InStock>, wait: &WaitStatus) -> Self {
        let is_beyond = is_beyond(stock, wait);
        Self { news: stock.map_or(0, |stock| stock.news), is_beyond }
    }
}

/// Writes an event `wait`. `common` is [`Common`], or its text.
pub(super) fn write_wait(
    text: &mut String,
    wait: &WaitStatus,
    common: impl Display,
    token: &Token,
    stock: Option<&InStock>,
) {
    write_id(text, token);
    text.push_str("event: wait\ndata: ");
    write_waiting(text, wait, common, stock);
    text.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_older_view_takes_no_rank_back() {
        let view = Instant::now();
        let told = view + Duration::from_millis(1);
        let later = told + Duration::from_millis(1);
        assert_eq!(
            newest_rank(10, told, 11, view),
            10,
            "the store knew of an entry that the view does not know"
        );
        assert_eq!(newest_rank(10, told, 9, view), 9);
        assert_eq!(newest_rank(10, told, 11, later), 11, "the line says that people came back");
    }
}
