//! A small reader of server-sent events, by the rules of
//! [EventSource](https://html.spec.whatwg.org/multipage/server-sent-events.html). It fails on anything unknown, so this file
//! lists everything that the stream of a waiting user can contain.

use std::io;

use crate::{
    app::{Answer, Waiting},
    client::{Client, Reply},
    weir::Weir,
};

/// One event of a waiting user's stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StreamEvent {
    /// `wait`
    Wait(Waiting),
    /// `enter`
    Enter(Answer),
    /// `problem`, with its code.
    Problem(String),
    /// `reconnect`
    Reconnect,
}

/// Reads blocks into events.
#[derive(Default)]
pub(crate) struct Reader {
    /// The newest id, which resumes the place.
    pub(crate) id: Option<String>,
    /// The time until a reconnect, milliseconds.
    pub(crate) retry_ms: Option<u64>,
}

impl Reader {
    /// Reads the event of a block; none for a heartbeat.
    pub(crate) fn stream_event(&mut self, block: &str) -> Option<StreamEvent> {
        let (name, data) = self.event(block)?;
        // Libraries that forget the last id with the next event would lose the place.
        assert!(block.lines().any(|line| line.starts_with("id: ")), "an event without an id: {block}");
        let event = match name {
            "wait" => StreamEvent::Wait(serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))),
            "enter" => {
                StreamEvent::Enter(serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}")))
            }
            "problem" => {
                let problem: serde_json::Value = serde_json::from_str(data).expect("JSON");
                let fields: Vec<_> = problem.as_object().expect("an object").keys().collect();
                let known = ["type", "title", "status", "code", "detail"];
                assert!(fields.iter().all(|field| known.contains(&field.as_str())), "{data}");
                StreamEvent::Problem(problem["code"].as_str().expect("a code").to_owned())
            }
            "reconnect" => {
                assert_eq!(data, "{}");
                StreamEvent::Reconnect
            }
            other => panic!("unexpected event: {other}"),
        };
        if let StreamEvent::Wait(waiting) = &event {
            assert!(waiting.rank >= 1 && waiting.polling_period >= 1, "{block}");
            assert_eq!(waiting.eta_seconds.is_some(), waiting.eta_range.is_some(), "{block}");
        }
        Some(event)
    }

    /// The name and data of a block.
    pub(crate) fn event<'a>(&mut self, block: &'a str) -> Option<(&'a str, &'a str)> {
        let (mut name, mut data) = ("message", None);
        for line in block.lines() {
            match line.split_once(": ").unwrap_or((line, "")) {
                ("event", value) => name = value,
                ("data", value) => data = Some(value),
                ("id", value) => {
                    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                    assert!(value.len() == 52 && value.bytes().all(is_token), "a token: {line:?}");
                    self.id = Some(value.to_owned());
                }
                ("retry", value) => self.retry_ms = Some(value.parse().expect("a number")),
                (":", "") => {}
                _ => panic!("unexpected line: {line:?}"),
            }
        }
        data.map(|data| (name, data))
    }
}

/// All header fields that a reply may have.
const HEAD: [&str; 9] = [
    "content-type",
    "cache-control",
    "x-accel-buffering",
    "connection",
    "ratelimit",
    "ratelimit-policy",
    "vary",
    "access-control-allow-origin",
    "access-control-expose-headers",
];

/// One user's stream.
pub(crate) struct Stream {
    pub(crate) client: Client,
    pub(crate) head: Reply,
    pub(crate) reader: Reader,
}

/// The request for a stream.
pub(crate) fn request(zone: &str, token: &str, last_event_id: Option<&str>) -> String {
    let last = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
    let path = format!("/traffic/stream?zone={zone}&token={token}");
    format!("GET {path} HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n{last}\r\n")
}

impl Stream {
    /// Opens the stream of a ticket.
    pub(crate) fn open(weir: &Weir, zone: &str, token: &str) -> Self {
        Self::over(weir.connect(), &request(zone, token, None))
    }

    /// Opens a stream on a connection.
    pub(crate) fn over(mut client: Client, request: &str) -> Self {
        client.send(request).expect("taken");
        let head = client.head().expect("a head");
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        assert_eq!(head.header("cache-control"), Some("no-store"), "{head:?}");
        assert!(head.closes(), "{head:?}");
        assert!(head.headers.iter().all(|(name, _)| HEAD.contains(&name.as_str())), "{head:?}");
        Self { client, head, reader: Reader::default() }
    }

    /// The next event; an error at the end of the stream.
    pub(crate) fn next(&mut self) -> io::Result<StreamEvent> {
        loop {
            let block = self.client.block()?;
            if let Some(event) = self.reader.stream_event(&block) {
                return Ok(event);
            }
        }
    }

    /// The next event, which must be `wait`.
    pub(crate) fn wait(&mut self) -> Waiting {
        match self.next() {
            Ok(StreamEvent::Wait(waiting)) => waiting,
            other => panic!("not a wait: {other:?}"),
        }
    }

    /// The newest token.
    pub(crate) fn token(&self) -> &str {
        self.reader.id.as_deref().expect("the first event has an id")
    }

    /// Reads until the holder enters, and asserts that ranks do not rise.
    pub(crate) fn enter(&mut self, mut rank: u64) -> Answer {
        loop {
            match self.next() {
                Ok(StreamEvent::Wait(waiting)) => {
                    assert!(waiting.rank <= rank, "the rank rose from {rank} to {}", waiting.rank);
                    rank = waiting.rank;
                }
                Ok(StreamEvent::Enter(answer)) => return answer,
                other => panic!("neither wait nor enter: {other:?}"),
            }
        }
    }
}
