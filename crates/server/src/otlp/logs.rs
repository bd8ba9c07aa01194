//! Sends the log to the collector, beside standard error.
//!
//! Invariants: a record has what the line on standard error has, without what [`hide`] hides, and cut at [`MOST_TEXT`] bytes a text. Lines
//! below `info` stay here, since requests of outsiders write those.

use std::fmt;

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

use super::{
    hidden::hide,
    message::{AnyValue, LogRecord, Value, attribute},
    queue::Queue,
};
use crate::clock::unix_ns;

/// The longest text of a record, in bytes.
const MOST_TEXT: usize = 2_048;

/// The most fields of a record.
const MOST_FIELDS: usize = 24;

/// The numbers of severities in OpenTelemetry.
const ERROR: i32 = 17;
const WARN: i32 = 13;
const INFO: i32 = 9;

/// Takes the events of `tracing` in.
pub struct LogLayer {
    queue: Queue<LogRecord>,
}

impl LogLayer {
    pub(super) fn new(queue: Queue<LogRecord>) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let severity_number = match level {
            Level::ERROR => ERROR,
            Level::WARN => WARN,
            Level::INFO => INFO,
            _ => return,
        };
        let now = unix_ns();
        let mut record = LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number,
            severity_text: level.as_str().to_owned(),
            body: None,
            attributes: vec![attribute("target", target)],
        };
        event.record(&mut Fields(&mut record));
        self.queue.offer(record);
    }
}

struct Fields<'a>(&'a mut LogRecord);

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.0.body = Some(AnyValue { value: Some(value) });
        } else if self.0.attributes.len() < MOST_FIELDS {
            self.0.attributes.push(attribute(field.name(), value));
        }
    }

    fn add_text(&mut self, field: &Field, text: &str) {
        let shown = hide(text);
        let end = shown.floor_char_boundary(MOST_TEXT.min(shown.len()));
        self.add(field, Value::from(&shown[..end]));
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, &format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.add(field, value.into()),
            Err(_) => self.add(field, value.to_string().into()),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::metrics::{Deliveries, Signal};

    #[test]
    fn a_line_becomes_a_record_without_what_is_private() {
        let (queue, mut waiting) = Queue::new(8, Signal::Logs, &Arc::new(Deliveries::default()));
        let subscriber = tracing_subscriber::registry().with(LogLayer::new(queue));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(client = "203.0.113.7", "refused");
            tracing::warn!(zone = "Z", from = "203.0.113.7", count = 3_u64, "kim@shop.example did it");
            tracing::info!("{}", "가".repeat(MOST_TEXT));
        });
        let record = waiting.try_recv().expect("the warning is the first");
        assert_eq!((record.severity_number, record.severity_text.as_str()), (WARN, "WARN"));
        let text = |value: &str| Some(AnyValue { value: Some(value.into()) });
        assert_eq!(record.body, text("(hidden) did it"));
        let expected = [
            attribute("target", module_path!()),
            attribute("zone", "Z"),
            attribute("from", "(hidden)"),
            attribute("count", 3),
        ];
        assert_eq!(record.attributes, expected);
        let Some(AnyValue { value: Some(Value::Text(long)) }) = waiting.try_recv().expect("there").body
        else {
            panic!("a text");
        };
        assert_eq!(long.len(), MOST_TEXT / 3 * 3);
        assert!(waiting.try_recv().is_err());
    }
}
