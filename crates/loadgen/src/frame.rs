//! What parent and worker say to each other: JSON, a line each.
//!
//! Invariant: a frame's line begins with `{`; what else a worker's output has is not for the parent.

use std::net::{IpAddr, SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::Columns,
    profile::Profile,
    report::{Counters, Failure, Second},
};

/// Latencies in microseconds, three digits exact.
pub type Latencies = Histogram<u32>;

/// None yet.
#[must_use]
pub fn no_latencies() -> Latencies {
    // Only a number of digits above 5 is refused.
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
}

/// In HdrHistogram's V2 format, base64; empty for none.
#[must_use]
pub fn pack(latencies: &Latencies) -> String {
    let mut bytes = Vec::new();
    if !latencies.is_empty() {
        // Writing to memory does not fail.
        drop(V2Serializer::new().serialize(latencies, &mut bytes));
    }
    STANDARD.encode(bytes)
}

/// What [`pack`] packed; none if it is damaged.
#[must_use]
pub fn unpack(text: &str) -> Option<Latencies> {
    if text.is_empty() {
        return Some(no_latencies());
    }
    Deserializer::new().deserialize(&mut STANDARD.decode(text).ok()?.as_slice()).ok()
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Where the waiting room is.
    pub address: SocketAddr,
    /// The header `Host`.
    pub host: String,
    /// What stands before the paths; empty or begins with `/`.
    pub prefix: String,
    /// The zone.
    pub zone: String,
    /// The profile, with the run's number of users.
    pub profile: Profile,
    /// Which of how many workers this is.
    pub worker: u16,
    /// How many workers there are.
    pub workers: u16,
    /// Connections of this worker, at most.
    pub connections: usize,
    /// Source addresses; empty for any.
    pub sources: Vec<IpAddr>,
    /// What chance begins with.
    pub seed: u64,
}

/// What a parent says after the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Begin at this time of the Unix clock, milliseconds.
    Begin(u64),
    /// End now, cleanly. The end of the parent's words says the same.
    End,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// All users are made; waiting for [`Order::Begin`].
    Ready {},
    /// A second is over. `due` and percentiles are not in it.
    Second {
        /// Which one.
        at: u32,
        /// Its counts.
        second: Second,
        /// Latencies of `wait`, packed.
        wait: String,
        /// Latencies of `entry`, packed.
        entry: String,
    },
    /// Some of the stories.
    Stories(Box<Columns>),
    /// The last word.
    End {
        /// How long it lasted.
        lasted_ms: u32,
        /// Calls that were due, second by second.
        due: Vec<u32>,
        /// The counters.
        counters: Counters,
        /// Failures by kind.
        failures: Vec<Failure>,
    },
    /// The worker can't go on: why.
    Broken(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_come_back_exactly() {
        let mut latencies = no_latencies();
        for us in [1, 999, 1_000_000, 59_000_000] {
            latencies.record(us).expect("packed");
        }
        assert_eq!(unpack(&pack(&latencies)).expect("packed"), latencies);
        assert_eq!(unpack(&pack(&no_latencies())).expect("packed"), no_latencies());
        assert_eq!(unpack("!"), None);
    }

    #[test]
    fn a_frame_is_one_line() {
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
