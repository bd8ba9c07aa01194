//! The app of a user. It joins, polls at the given period, enters, and records the replies.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde::Deserialize;

use crate::{
    client::{Client, Reply},
    clock::{now, obey_polling_period},
};

/// A reply of the two polling calls. An unknown field fails the test.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) can_enter: bool,
    pub(crate) token: String,
    pub(crate) pass: Option<String>,
    pub(crate) waiting: Option<Waiting>,
}

/// The `waiting` object of a reply.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Waiting {
    pub(crate) rank: u64,
    pub(crate) eta_seconds: Option<u64>,
    pub(crate) eta_range: Option<(u64, u64)>,
    pub(crate) polling_period: u64,
    pub(crate) stale: bool,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) opens_in_ms: Option<u64>,
    #[serde(default)]
    pub(crate) stock: Option<serde_json::Value>,
    #[serde(default)]
    pub(crate) beyond_stock: Option<bool>,
}

impl Answer {
    /// Reads a reply, which must be 200.
    pub(crate) fn of(reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{reply:?}");
        let answer: Self = serde_json::from_slice(&reply.body).unwrap_or_else(|e| panic!("{e}: {reply:?}"));
        assert_eq!(answer.can_enter, answer.pass.is_some(), "{answer:?}");
        assert_eq!(answer.can_enter, answer.waiting.is_none(), "{answer:?}");
        if let Some(waiting) = &answer.waiting {
            assert!(waiting.rank >= 1 && waiting.polling_period >= 1, "{answer:?}");
            assert_eq!(waiting.eta_seconds.is_some(), waiting.eta_range.is_some(), "{answer:?}");
            if let (Some(eta), Some((low, high))) = (waiting.eta_seconds, waiting.eta_range) {
                assert!(low <= eta && eta <= high, "{answer:?}");
                let opens_s = waiting.opens_in_ms.unwrap_or(0) / 1_000;
                assert!(low >= opens_s.min(eta), "nobody enters before the opening: {answer:?}");
            }
        }
        answer
    }

    /// The `waiting` object; the test fails if the holder has entered.
    pub(crate) fn waiting(&self) -> &Waiting {
        self.waiting.as_ref().unwrap_or_else(|| panic!("does not wait: {self:?}"))
    }

    /// The pass; the test fails if the holder waits.
    pub(crate) fn pass(&self) -> &str {
        self.pass.as_deref().unwrap_or_else(|| panic!("has not entered: {self:?}"))
    }
}

/// The body of a call.
pub(crate) fn body(zone: &str, token: Option<&str>) -> String {
    match token {
        Some(token) => format!(r#"{{"zoneId":"{zone}","token":"{token}"}}"#),
        None => format!(r#"{{"zoneId":"{zone}","clientIp":"192.0.2.7","clientAgent":"test"}}"#),
    }
}

/// The interval in which something happened, as the client observed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// The largest number of these that certainly happened within one interval of `span`.
pub(crate) fn most_within(span: Duration, entries: &[Between]) -> usize {
    // The server counts whole milliseconds.
    let span = span - Duration::from_millis(2);
    let within = |start: Instant| entries.iter().filter(|e| e.from >= start && e.to < start + span).count();
    entries.iter().map(|e| within(e.from)).max().unwrap_or(0)
}

/// One user of a zone.
pub(crate) struct App {
    zone: String,
    client: Option<Client>,
    token: Option<String>,
    /// When the first call since the last answer was sent.
    unsure_since: Option<Instant>,
    /// When the next call is due.
    due: Instant,
    /// When the user joined.
    pub(crate) joined: Option<Between>,
    /// The last answer.
    pub(crate) last: Option<Answer>,
    /// When the user entered.
    pub(crate) entered: Option<Between>,
    /// The number of calls that failed.
    pub(crate) broken: usize,
}

impl App {
    /// An app that has made no call yet.
    pub(crate) fn new(zone: &str) -> Self {
        Self {
            zone: zone.to_owned(),
            client: None,
            token: None,
            unsure_since: None,
            due: now(),
            joined: None,
            last: None,
            entered: None,
            broken: 0,
        }
    }

    /// Makes the next call: a join without a token, otherwise an entry. The next step repeats a call that failed. A status
    /// other than 200 fails the test.
    pub(crate) fn step(&mut self, server: SocketAddr) -> Option<&Answer> {
        let sent = now();
        let unsure_since = *self.unsure_since.get_or_insert(sent);
        match self.call(server) {
            Ok(reply) => {
                let answer = Answer::of(&reply);
                let seen = Between { from: unsure_since, to: now() };
                self.joined.get_or_insert(seen);
                if let Some(before) = self.last.as_ref().and_then(|a| a.pass.as_deref()) {
                    assert_eq!(before, answer.pass(), "a repeated call returned another pass");
                }
                if answer.can_enter {
                    self.entered.get_or_insert(seen);
                }
                self.unsure_since = None;
                let pause = answer.waiting.as_ref().map_or(1_000, |w| w.polling_period);
                self.due = now() + Duration::from_millis(pause);
                self.token = Some(answer.token.clone());
                self.last = Some(answer);
                self.last.as_ref()
            }
            Err(_) => {
                self.client = None;
                self.broken += 1;
                self.due = now() + Duration::from_millis(50);
                None
            }
        }
    }

    fn call(&mut self, server: SocketAddr) -> io::Result<Reply> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(server)?),
        };
        let path = if self.token.is_some() { "/traffic/entry" } else { "/traffic/wait" };
        client.post(path, &body(&self.zone, self.token.as_deref()))
    }

    /// The pass, after the entry.
    pub(crate) fn pass(&self) -> Option<&str> {
        self.last.as_ref()?.pass.as_deref()
    }
}

/// Makes the calls of all apps when they are due, one after another, until `done` is true. `server` returns the address.
pub(crate) fn run(
    apps: &mut [App],
    server: impl Fn() -> SocketAddr,
    mut done: impl FnMut(&[App]) -> bool,
    limit: Duration,
) {
    let deadline = now() + limit;
    while !done(apps) {
        assert!(now() < deadline, "not done within {limit:?}");
        let Some(next) = apps.iter_mut().min_by_key(|app| app.due) else {
            return;
        };
        obey_polling_period(next.due);
        next.step(server());
    }
}

/// Asserts that every app entered, each with a different pass.
pub(crate) fn assert_each_in_once(apps: &[App]) {
    let passes: HashSet<_> = apps.iter().map(|app| app.pass().expect("every app entered")).collect();
    assert_eq!(passes.len(), apps.len(), "two apps have the same pass");
}
