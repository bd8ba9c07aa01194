//! Server-sent events, by the rules of
//! [EventSource](https://html.spec.whatwg.org/multipage/server-sent-events.html), of a reply that does not end.
//!
//! Invariant: a stream holds at most `EVENT_BYTES` of an event that is not complete. The libraries for this have no such limit.
//! Lines end with LF or CRLF; nobody sends a single CR.

use std::collections::VecDeque;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The largest event. A waiting room's events have a few hundred bytes.
const EVENT_BYTES: usize = 64 * 1024;

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The name; empty if the server gave none.
    pub name: String,
    /// The data.
    pub data: String,
}

/// What a stream carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An event.
    Event(Event),
    /// A comment: the server shows that the stream is open.
    Comment,
}

/// An open stream. When it is dropped, its connection closes.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    reader: Reader,
}

impl Events {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, reader: Reader::default() }
    }

    /// The next message; none when the stream has ended. Nothing is lost if the future is dropped before it is ready.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub async fn next(&mut self) -> Result<Option<Message>, String> {
        loop {
            if let Some(message) = self.reader.messages.pop_front() {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(_)) => return Err("the stream broke off".to_owned()),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.reader.read(bytes)?;
                    }
                }
            }
        }
    }

    /// The newest id that an event had.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.reader.id.as_deref()
    }

    /// After which time to reconnect, milliseconds, if the server said so.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u32> {
        self.reader.retry_ms
    }
}

/// Reads bytes into messages.
#[derive(Debug, Default)]
struct Reader {
    /// A line that is not complete.
    line: Vec<u8>,
    /// An event that is not complete.
    event: Event,
    messages: VecDeque<Message>,
    id: Option<String>,
    retry_ms: Option<u32>,
}

impl Reader {
    fn read(&mut self, bytes: &[u8]) -> Result<(), String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.event.data.len() + part.len() > EVENT_BYTES {
                return Err(format!("an event of more than {} KB", EVENT_BYTES / 1024));
            }
            self.line.extend_from_slice(part);
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                self.line(line.trim_end_matches(['\r', '\n']));
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() {
                self.messages.push_back(Message::Event(event));
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.messages.push_back(Message::Comment),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" => self.id = Some(value.to_owned()),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Message {
        Message::Event(Event { name: name.to_owned(), data: data.to_owned() })
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "retry: 1500\nid: t1\nevent: wait\ndata: {\"rank\":1}\n\n:\n\nid:t2\r\ndata:a\r\ndata: b\r\nnew: x\r\n\r\n";
        for size in 1..text.len() {
            let mut reader = Reader::default();
            for part in text.as_bytes().chunks(size) {
                reader.read(part).expect("small");
            }
            assert_eq!(reader.messages, [event("wait", "{\"rank\":1}"), Message::Comment, event("", "a\nb")]);
            assert_eq!((reader.id.as_deref(), reader.retry_ms), (Some("t2"), Some(1500)));
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        for line in ["data: x\n", "x"] {
            let mut reader = Reader::default();
            let refused = (0..=EVENT_BYTES).find_map(|_| reader.read(line.as_bytes()).err());
            assert_eq!(refused.as_deref(), Some("an event of more than 64 KB"), "{line:?}");
        }
    }
}
