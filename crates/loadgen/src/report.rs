//! The result of a run: one structure for the JSON file, the HTML report and the summary on the terminal.
//!
//! This file defines the schema of the JSON; the field `schema` holds its version. Invariant: reports of several
//! machines can be merged. Counts and histograms are added, stories are appended, and the verdict is computed again.

use serde::{Deserialize, Serialize};

/// The version of the JSON's schema.
pub const SCHEMA: u32 = 1;

/// What the run was asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The address of the waiting room, without credentials.
    pub target: String,
    /// The zone.
    pub zone: String,
    /// The profile's name.
    pub profile: String,
    /// The planned largest number of users.
    pub users: u32,
    /// The planned duration, milliseconds.
    pub planned_ms: u32,
    /// The share of users who leave while they wait, 0 to 1.
    pub abandon: f64,
    /// The largest number of streams that are open at once.
    #[serde(default)]
    pub streams: u32,
    /// The start, milliseconds of the Unix clock.
    pub start_unix_ms: u64,
    /// Other machines have users of the same run, because it was given `--start-at`. Their files are to be merged.
    #[serde(default)]
    pub is_part: bool,
    /// How many users may enter in any 60 s, if `--admit-per-minute` was given.
    pub admit_per_minute: Option<u32>,
    /// Sub-windows per minute.
    pub sub_windows: u32,
    /// How long a user may be silent without losing the place, seconds.
    pub idle_s: u32,
    /// How many people may be inside at once, as the zone's published rule said before the run; none if it limits nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_at_most: Option<u32>,
    /// The opening that the run was made for, if its profile has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Opening>,
}

/// The opening that a run was made for, as it was told before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// When people enter, milliseconds since the start.
    pub at_ms: u32,
    /// The draw of the order; none if people enter in the order of arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<Draw>,
}

/// A draw, as it is published. Times are seconds since 1970 by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// The event.
    pub event: String,
    /// When the list is frozen.
    pub begins_unix_s: u64,
    /// When people enter.
    pub opens_unix_s: u64,
}

impl Draw {
    /// How long before the opening the list is frozen, milliseconds.
    #[must_use]
    pub fn frozen_before_ms(&self) -> u32 {
        let before_s = self.opens_unix_s.saturating_sub(self.begins_unix_s);
        u32::try_from(before_s).unwrap_or(u32::MAX).saturating_mul(1_000)
    }
}

/// One second of the run, summed over all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Users at its end, whether they call, wait or pause.
    pub users: u32,
    /// Users at its end who have a place and have not entered.
    pub waiting: u32,
    /// Calls of `wait` that were answered in this second.
    pub wait_calls: u32,
    /// Calls of `entry` that were answered in this second.
    pub entry_calls: u32,
    /// Calls that would have been due in this second if every earlier reply had come at once.
    pub due: u32,
    /// Users who entered.
    pub entered: u32,
    /// Calls that failed: no reply, or an unexpected status.
    pub errors: u32,
    /// Replies marked stale.
    pub stale: u32,
    /// Streams that are open at its end.
    #[serde(default)]
    pub streams: u32,
    /// Events that arrived on streams.
    #[serde(default)]
    pub stream_events: u32,
    /// Latency from the intended start: 50th, 90th, 95th and 99th percentile and maximum, microseconds.
    pub latency_us: [u32; 5],
    /// The longest delay caused by the generator itself, from the intended start of a call, microseconds.
    pub lag_us: u32,
    /// CPU time that all workers used together, in thousandths of one core.
    pub cpu_millicores: u32,
}

/// Counters. Existing tools know these names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls of `wait`.
    pub wait_requests_total: u64,
    /// Calls of `entry`.
    pub entry_requests_total: u64,
    /// Replies with `canEnter` true.
    pub can_enter_true_count: u64,
    /// Replies with `canEnter` false.
    pub can_enter_false_count: u64,
}

/// What became of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Streams that were opened, each reconnect included.
    pub opened: u64,
    /// Streams that a user opened again, with the place that it had.
    pub reconnected: u64,
    /// Streams that the server refused, so that the user polled.
    pub refused: u64,
    /// Events that arrived.
    pub events: u64,
}

/// Latencies of one kind of call, from the intended start, microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of calls.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// 50th, 90th, 95th, 99th and 99.9th percentile and maximum.
    pub percentiles_us: [u64; 6],
    /// The histogram in HdrHistogram's V2 format, base64. Merging adds histograms.
    pub histogram: String,
}

/// A kind of failure, and how often it occurred.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Such as `503 busy` or `connection refused`.
    pub what: String,
    /// Number of failures.
    pub count: u64,
    /// The first occurrence, milliseconds since the start.
    pub first_ms: u32,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Passed.
    Good,
    /// Failed.
    Bad,
    /// The run did not show enough to decide it; `note` says what is missing.
    #[default]
    Open,
}

/// The name of the check that measures the expected waits. Only an objective judges them.
pub const MEASURES: &str = "eta";

/// The name of the check that is present when the run itself failed.
pub const GENERATOR: &str = "generator";

/// A check and its result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Check {
    /// Stable name: `over_admission_60s`, `over_admission_sub_window`, `order`, `rank_rises`, `slot_use`,
    /// `entered_once`, `eta`, `polling_period`, `evictions`, `errors`, `opening` (if there is one), `draw_order`,
    /// `draw_fairness`, `draw_receipts` (if the run was made for a draw), `slo:p95` and the like, or [`GENERATOR`].
    pub name: String,
    /// The result.
    pub judgement: Judgement,
    /// Number of violations. In an open check of `errors`, the number of users to whom the zone gave no place.
    pub count: u64,
    /// The measured figure, if there is one. `slot_use` is a share, 0 to 1; `polling_period` is in seconds.
    pub figure: Option<f64>,
    /// What an objective demands of the figure; none for other checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// A sentence in English with the figures.
    pub note: String,
    /// The worst example, with users and times; empty if there is no violation.
    pub worst: String,
    /// [`note`](Self::note) in Korean; empty where there is none.
    #[serde(default)]
    pub note_ko: String,
    /// [`worst`](Self::worst) in Korean; empty where there is none.
    #[serde(default)]
    pub worst_ko: String,
}

/// What an objective demands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The least figure that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The largest figure that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The unit of the limit and of the figure.
    pub unit: Unit,
}

/// The unit of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// A share, 0 to 1.
    Share,
}

impl Check {
    /// Whether it is an objective that the operator set.
    #[must_use]
    pub fn is_objective(&self) -> bool {
        self.name.starts_with("slo:")
    }

    /// Whether it only measures. Then it never fails, and it is no evidence.
    #[must_use]
    pub fn only_measures(&self) -> bool {
        self.name == MEASURES
    }

    /// Whether it leaves the verdict open.
    #[must_use]
    pub fn leaves_open(&self) -> bool {
        self.judgement == Judgement::Open && !self.only_measures()
    }
}

/// How the expected wait compares with the actual wait, for users who entered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Eta {
    /// Users who were told a wait and entered.
    pub users: u64,
    /// Mean of (actual - expected) in seconds: positive if users waited longer than told.
    pub bias_s: f64,
    /// Mean of |actual - expected| / actual.
    pub mape: f64,
    /// Mean of |actual - expected|, as a share of the mean of the actual waits. Short waits weigh little.
    #[serde(default)]
    pub error: f64,
    /// The share of users whose wait lay in the range that they were told.
    pub coverage: f64,
    /// Actual / expected wait: 10th, 50th and 90th percentile.
    pub ratio: [f64; 3],
    /// What `error` would have been of somebody who knows everything but whom chance makes leave.
    #[serde(default)]
    pub floor: f64,
    /// Users who were told about the same, by what they were told.
    #[serde(default)]
    pub groups: Vec<EtaGroup>,
}

/// Users who were told about the same wait.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EtaGroup {
    /// How many.
    pub users: u64,
    /// The mean of what they were told, seconds.
    pub told_s: f64,
    /// Their actual waits: 10th, 50th and 90th percentile, seconds.
    pub actual_s: [f64; 3],
}

/// The generator, not the server, limited the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The first second in which it did.
    pub from_s: u32,
    /// The evidence, as a clause in English.
    pub why: String,
    /// The evidence, as a sentence in Korean.
    pub why_ko: String,
}

/// The result of one machine, or the merged result of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the run was asked to do.
    pub plan: Plan,
    /// The actual duration, milliseconds.
    pub lasted_ms: u32,
    /// The run was stopped early, such as by Ctrl-C.
    pub interrupted: bool,
    /// A random number of each run that is in the report: one, or those that were merged. Files of earlier versions do not have it.
    #[serde(default)]
    pub runs: Vec<String>,
    /// Nothing was rehearsed: nobody got a place or a pass, because the zone was closed or its line was full.
    #[serde(default)]
    pub gave_no_places: bool,
    /// Each second from the start.
    pub seconds: Vec<Second>,
    /// The counters. An `enter` event counts as a reply with `canEnter` true.
    pub counters: Counters,
    /// What became of the streams.
    #[serde(default)]
    pub streams: Streams,
    /// Latencies of `wait`.
    pub wait: Latency,
    /// Latencies of `entry`.
    pub entry: Latency,
    /// Latencies of both kinds of calls.
    pub all: Latency,
    /// Failures by kind, most frequent first.
    pub failures: Vec<Failure>,
    /// Set if the generator limited the run.
    pub bottleneck: Option<Bottleneck>,
    /// The checks, including objectives.
    pub checks: Vec<Check>,
    /// Expected and actual waits.
    pub eta: Eta,
}
