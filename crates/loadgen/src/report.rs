//! What a run tells: the one structure behind the JSON file, the HTML report and the words on the terminal.
//!
//! The JSON's schema is this file; `schema` says which one. Invariant: everything in it can be merged with another
//! machine's: counts add up, histograms add up, stories are a list, and the verdict is made anew from them.

use serde::{Deserialize, Serialize};

/// The version of the JSON's schema.
pub const SCHEMA: u32 = 1;

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The address that was called, without credentials.
    pub target: String,
    /// The zone.
    pub zone: String,
    /// The profile's name.
    pub profile: String,
    /// How many users there were to be at most.
    pub users: u32,
    /// How long the run was to last, milliseconds.
    pub planned_ms: u32,
    /// The part that walks away, 0 to 1.
    pub abandon: f64,
    /// When it was to begin, milliseconds of the Unix clock.
    pub start_unix_ms: u64,
    /// How many may enter in any 60 s, if the zone's policy was told.
    pub admit_per_minute: Option<u32>,
    /// Into how many sub-windows the minute is divided.
    pub sub_windows: u32,
    /// How long a user may be silent and keep the place, seconds.
    pub idle_s: u32,
}

/// One second of the run. Sums over all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Users at its end: asking, waiting or pausing.
    pub users: u32,
    /// Those of them that have a place and are not in.
    pub waiting: u32,
    /// Calls answered in it, of each kind.
    pub wait_calls: u32,
    /// See [`wait_calls`](Self::wait_calls).
    pub entry_calls: u32,
    /// Calls that would have been due in it, had no user been kept waiting for an earlier reply.
    pub due: u32,
    /// Users who got in.
    pub entered: u32,
    /// Calls that failed: no reply, or a status that is no answer.
    pub errors: u32,
    /// Replies marked stale.
    pub stale: u32,
    /// Latency from the intended start: 50th, 90th, 95th, 99th percentile, and the greatest, microseconds.
    pub latency_us: [u32; 5],
    /// How late the generator itself was at most, between a call's intended start and its being sent, microseconds.
    pub lag_us: u32,
    /// Processor time that the generator used, all workers together, in thousandths of one core.
    pub cpu_millicores: u32,
}

/// Counters, by the names that rehearsals of this kind are known to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls of `wait`.
    pub wait_requests_total: u64,
    /// Calls of `entry`.
    pub entry_requests_total: u64,
    /// Replies that said "enter".
    pub can_enter_true_count: u64,
    /// Replies that said "not yet".
    pub can_enter_false_count: u64,
}

/// Latencies of one kind of call, from the intended start, microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// 50th, 90th, 95th, 99th and 99.9th percentile, and the greatest.
    pub percentiles_us: [u64; 6],
    /// The histogram itself, in HdrHistogram's V2 format, base64: what merging adds up.
    pub histogram: String,
}

/// A kind of failure, and how often it came.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Such as `503 busy` or `connection refused`.
    pub what: String,
    /// How often.
    pub count: u64,
    /// When it came first, milliseconds since the start.
    pub first_ms: u32,
}

/// How one thing was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It holds.
    Good,
    /// It does not.
    Bad,
    /// It can't be told from what there is; `note` says what is missing.
    #[default]
    Open,
}

/// The name of the check that is there where the run itself was no good.
pub const GENERATOR: &str = "generator";

/// What was checked, and how it came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Check {
    /// Stable name: `over_admission_60s`, `over_admission_sub_window`, `order`, `rank_rises`, `slot_use`,
    /// `entered_once`, `eta`, `evictions`, `errors`, `slo:p95` and the like, or [`GENERATOR`].
    pub name: String,
    /// How it came out.
    pub judgement: Judgement,
    /// How often it went wrong.
    pub count: u64,
    /// The measured figure, where there is one, and what it is of: `slot_use` is a part of 1.
    pub figure: Option<f64>,
    /// One sentence in English with the figures.
    pub note: String,
    /// The worst example, with users and times; empty where nothing went wrong.
    pub worst: String,
    /// [`note`](Self::note) in Korean; empty where there is none.
    #[serde(default)]
    pub note_ko: String,
    /// [`worst`](Self::worst) in Korean; empty where there is none.
    #[serde(default)]
    pub worst_ko: String,
}

/// How the wait told compares to the wait had, for users who got in.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Eta {
    /// How many were told a wait and got in.
    pub users: u64,
    /// Mean of (had - told) in seconds: above zero where people waited longer than told.
    pub bias_s: f64,
    /// Mean of |had - told| / had, a part of 1.
    pub mape: f64,
    /// The part of them whose wait lay in the range told.
    pub coverage: f64,
    /// Wait had over wait told: 10th, 50th and 90th percentile.
    pub ratio: [f64; 3],
}

/// That the generator, not the server, held things up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bottleneck {
    /// From this second on.
    pub from_s: u32,
    /// How that shows: a sentence in English.
    pub why: String,
    /// The same in Korean.
    pub why_ko: String,
}

/// A run, as a worker or machine knows it, or all of them together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was asked for.
    pub plan: Plan,
    /// How long it lasted, milliseconds.
    pub lasted_ms: u32,
    /// It was ended early (Ctrl-C).
    pub interrupted: bool,
    /// Second by second, from the start.
    pub seconds: Vec<Second>,
    /// The counters.
    pub counters: Counters,
    /// Latencies of `wait`, of `entry`, and of both.
    pub wait: Latency,
    /// See [`wait`](Self::wait).
    pub entry: Latency,
    /// See [`wait`](Self::wait).
    pub all: Latency,
    /// Failures by kind, most frequent first.
    pub failures: Vec<Failure>,
    /// Where the generator was what held things up; none if it never was.
    pub bottleneck: Option<Bottleneck>,
    /// What was checked, SLOs too.
    pub checks: Vec<Check>,
    /// Wait told and wait had.
    pub eta: Eta,
}
