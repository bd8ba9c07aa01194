//! The messages between the parent and its workers: JSON, one message per line.
//!
//! Invariant: the line of a message begins with `{`. The parent ignores all other lines of a worker's output.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::Columns,
    paper::Paper,
    profile::Profile,
    report::{Counters, Draw, Failure, Second, Streams},
    target::Target,
};

/// Latencies in microseconds, exact to three digits.
pub type Latencies = Histogram<u32>;

/// An empty histogram.
#[must_use]
pub fn no_latencies() -> Latencies {
    // It fails only for more than five digits.
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
}

/// The histogram in HdrHistogram's V2 format, base64; an empty text for an empty histogram.
#[must_use]
pub fn pack(latencies: &Latencies) -> String {
    let mut bytes = Vec::new();
    if !latencies.is_empty() {
        // Writing to memory does not fail.
        drop(V2Serializer::new().serialize(latencies, &mut bytes));
    }
    STANDARD.encode(bytes)
}

/// The histogram that [`pack`] packed; none if the text is damaged.
#[must_use]
pub fn unpack(text: &str) -> Option<Latencies> {
    if text.is_empty() {
        return Some(no_latencies());
    }
    Deserializer::new().deserialize(&mut STANDARD.decode(text).ok()?.as_slice()).ok()
}

/// The task of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The waiting room.
    pub target: Target,
    /// The zone.
    pub zone: String,
    /// The profile, with the run's number of users.
    pub profile: Profile,
    /// The number of this worker, from 0.
    pub worker: u16,
    /// The number of workers.
    pub workers: u16,
    /// The largest number of connections of this worker.
    pub connections: usize,
    /// Source addresses; empty for any.
    pub sources: Vec<IpAddr>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The draw that the run was made for.
    pub draw: Option<Draw>,
}

/// What the parent sends after the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Start at this time, milliseconds of the Unix clock.
    Begin(u64),
    /// Stop now and report. The end of standard input means the same.
    End,
}

/// What a worker sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// All users are created; the worker waits for [`Order::Begin`].
    Ready {},
    /// The counts of a second that has ended, without `due` and percentiles.
    Second {
        /// The number of the second, from 0.
        at: u32,
        /// The counts.
        second: Second,
        /// Latencies of `wait`, packed.
        wait: String,
        /// Latencies of `entry`, packed.
        entry: String,
    },
    /// Some of the stories.
    Stories(Box<Columns>),
    /// Some of what users fetched of a draw.
    Papers(Vec<Paper>),
    /// The last message of a run that ended well.
    End {
        /// The duration of the run.
        lasted_ms: u32,
        /// Calls that were due in each second.
        due: Vec<u32>,
        /// The counters.
        counters: Counters,
        /// What became of the streams.
        streams: Streams,
        /// Failures by kind.
        failures: Vec<Failure>,
    },
    /// The worker cannot continue, with the reason.
    Broken(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_a_histogram_is_exact() {
        let mut latencies = no_latencies();
        for us in [1, 999, 1_000_000, 59_000_000] {
            latencies.record(us).expect("packed");
        }
        assert_eq!(unpack(&pack(&latencies)).expect("packed"), latencies);
        assert_eq!(unpack(&pack(&no_latencies())).expect("packed"), no_latencies());
        assert_eq!(unpack("!"), None);
    }

    #[test]
    fn a_message_is_one_line() {
        for frame in [Frame::Broken("a\nb".into()), Frame::Ready {}] {
            let line = serde_json::to_string(&frame).expect("packed");
            assert!(line.starts_with('{') && !line.contains('\n'), "{line}");
        }
        assert_eq!(
            serde_json::from_str::<Order>(&serde_json::to_string(&Order::Begin(7)).expect("packed"))
                .expect("packed"),
            Order::Begin(7)
        );
    }
}
