//! What the admin API tells, as JSON: one type for each shape, which is what its OpenAPI document is made of, too.
//!
//! Invariant: names and units are those of the configuration file; a policy has all its fields, always.

mod policy;

use std::collections::BTreeMap;

use admission::{Definition, Estimate, Notice, Policy};
use gate::{OperatorView, Standing};
use serde::Serialize;
use utoipa::ToSchema;

use policy::{PolicyShape, SomeOfPolicy};

use crate::stats;

/// Texts to those who wait, by language.
#[derive(Serialize, ToSchema)]
#[schema(as = Notice, example = json!({"en": "Tickets are still there.", "ko": "아직 표가 남아 있습니다."}))]
pub(in crate::http) struct NoticeShape(BTreeMap<String, String>);

impl From<&Notice> for NoticeShape {
    fn from(notice: &Notice) -> Self {
        Self(notice.iter().map(|(language, text)| (language.to_owned(), text.to_owned())).collect())
    }
}

/// What operators define of a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Definition)]
pub(in crate::http) struct DefinitionShape {
    policy: PolicyShape,
    notice: NoticeShape,
}

impl From<&Definition> for DefinitionShape {
    fn from(definition: &Definition) -> Self {
        Self { policy: (&definition.policy).into(), notice: (&definition.notice).into() }
    }
}

/// A zone's line at this instant.
#[derive(Default, Serialize, ToSchema)]
pub(in crate::http) struct Now {
    /// The store is away, and this is what was last known.
    stale: bool,
    /// Places that are waited on.
    waiting: u64,
    /// Those of them whose holders ask.
    present: u64,
    /// Places given out, entries at once included, since the store began.
    joined: u64,
    /// Entries since the store began.
    entered: u64,
    /// Places given up for silence since the store began.
    evicted: u64,
    /// Slots that fell free for a line, since this server started.
    slots_offered: u64,
    /// Entries from the line since the store began.
    slots_used: u64,
    /// Entries of the last 60 s.
    entered_last_minute: u64,
    /// The wait that somebody who joins now would be told, in seconds; none while nobody is let in.
    #[schema(required)]
    eta_s: Option<u64>,
    /// In which it is in nine of ten cases.
    #[schema(required)]
    eta_range_s: Option<[u64; 2]>,
}

impl Now {
    pub(in crate::http) fn of(view: Option<&OperatorView>, entered_last_minute: u64) -> Self {
        let Some(view) = view else { return Self { stale: true, ..Self::default() } };
        let (tally, eta) = (view.tally(), view.wait(Standing::Last, view.policy()));
        Self {
            stale: view.is_stale(),
            waiting: tally.waiting,
            present: tally.present,
            joined: tally.joined,
            entered: tally.entered,
            evicted: tally.evicted,
            slots_offered: tally.slots_offered,
            slots_used: tally.slots_used,
            entered_last_minute,
            eta_s: eta.map(seconds),
            eta_range_s: eta.map(|eta| [eta.low_ms / 1_000, eta.high_ms.div_ceil(1_000)]),
        }
    }
}

fn seconds(estimate: Estimate) -> u64 {
    estimate.wait_ms.div_ceil(1_000)
}

/// One minute of a trend.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct TrendMinute {
    /// When it began, in seconds since 1970.
    at: u64,
    waiting: u32,
    entered: u32,
    joined: u32,
}

impl From<&stats::Minute> for TrendMinute {
    fn from(minute: &stats::Minute) -> Self {
        Self { at: minute.at_s, waiting: minute.waiting, entered: minute.entered, joined: minute.joined }
    }
}

/// A zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Zone)]
pub(in crate::http) struct ZoneShape {
    pub(in crate::http) id: String,
    /// What `If-Match` is to say for a change of this very definition.
    pub(in crate::http) etag: String,
    #[serde(flatten)]
    pub(in crate::http) definition: DefinitionShape,
    pub(in crate::http) now: Now,
    /// The last minutes, the oldest first; where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(in crate::http) trend: Option<Vec<TrendMinute>>,
}

/// All zones.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Zones {
    /// When, in milliseconds since 1970.
    pub(in crate::http) at: u64,
    /// In the order of their names.
    pub(in crate::http) zones: Vec<ZoneShape>,
}

/// A wait before a change and after it.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EtaChange {
    /// Whose: who stands in the middle of the line, or who joins now.
    place: PlaceWord,
    rank: u64,
    /// In seconds; none while nobody is let in.
    #[schema(required)]
    before_s: Option<u64>,
    /// In seconds; none while nobody is let in.
    #[schema(required)]
    after_s: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Place)]
#[serde(rename_all = "lowercase")]
enum PlaceWord {
    Middle,
    Last,
}

impl EtaChange {
    /// What becomes of the waits where `policy` takes the place of the one in force; none: where nobody is let in any more.
    pub(in crate::http) fn all(view: &OperatorView, policy: Option<&Policy>) -> Vec<Self> {
        let eta = |standing, place: PlaceWord| Self {
            place,
            rank: view.rank(standing),
            before_s: view.wait(standing, view.policy()).map(seconds),
            after_s: policy.and_then(|policy| view.wait(standing, policy)).map(seconds),
        };
        let middle = (view.tally().waiting > 1).then(|| eta(Standing::Middle, PlaceWord::Middle));
        middle.into_iter().chain([eta(Standing::Last, PlaceWord::Last)]).collect()
    }
}

/// A change that was made, or that would be.
#[derive(Serialize, ToSchema)]
#[schema(as = Change)]
pub(in crate::http) struct ChangeShape {
    /// Nothing was changed; this is what would be.
    pub(in crate::http) dry_run: bool,
    /// The zone as it is now, or would be; none where it is deleted.
    #[schema(required)]
    pub(in crate::http) zone: Option<ZoneShape>,
    /// What was defined before; none where there was no such zone. To undo a change, put this back, with the new tag.
    #[schema(required)]
    pub(in crate::http) before: Option<DefinitionShape>,
    /// What it does to the waits, as of this instant.
    pub(in crate::http) etas: Vec<EtaChange>,
}

/// One minute of a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Minute)]
pub(in crate::http) struct MinuteShape {
    /// When it began, in seconds since 1970.
    at: u64,
    waiting: u32,
    present: u32,
    joined: u32,
    entered: u32,
    evicted: u32,
    slots_offered: u32,
    slots_used: u32,
    admit_per_minute: u32,
}

impl From<&stats::Minute> for MinuteShape {
    fn from(minute: &stats::Minute) -> Self {
        Self {
            at: minute.at_s,
            waiting: minute.waiting,
            present: minute.present,
            joined: minute.joined,
            entered: minute.entered,
            evicted: minute.evicted,
            slots_offered: minute.slots_offered,
            slots_used: minute.slots_used,
            admit_per_minute: minute.admit_per_minute,
        }
    }
}

/// How long people waited, in seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = Waits)]
struct WaitsShape {
    count: u64,
    #[schema(required)]
    p50: Option<f64>,
    #[schema(required)]
    p90: Option<f64>,
    #[schema(required)]
    p99: Option<f64>,
}

/// Their waits over those told when they came.
#[derive(Serialize, ToSchema)]
#[schema(as = Ratio)]
struct RatioShape {
    count: u64,
    #[schema(required)]
    p10: Option<f64>,
    #[schema(required)]
    p50: Option<f64>,
    #[schema(required)]
    p90: Option<f64>,
}

/// Of those whom this server let in.
#[derive(Serialize, ToSchema)]
#[schema(as = Here)]
struct HereShape {
    /// Since when, in milliseconds since 1970.
    since: u64,
    waits_s: WaitsShape,
    told_ratio: RatioShape,
}

/// A zone's last hours.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(in crate::http) struct StatsShape {
    id: String,
    /// The oldest first, the current one last; those that this server did not see are absent.
    minutes: Vec<MinuteShape>,
    here: HereShape,
}

impl StatsShape {
    pub(in crate::http) fn new(id: String, minutes: &[stats::Minute], here: &stats::Here) -> Self {
        let stats::Here { since_ms, waits, told } = here;
        Self {
            id,
            minutes: minutes.iter().map(Into::into).collect(),
            here: HereShape {
                since: *since_ms,
                waits_s: WaitsShape { count: waits.count, p50: waits.p50, p90: waits.p90, p99: waits.p99 },
                told_ratio: RatioShape { count: told.count, p10: told.p10, p50: told.p50, p90: told.p90 },
            },
        }
    }
}

/// A change of the past.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PastChange {
    /// When, in milliseconds since 1970.
    pub(in crate::http) at: u64,
    /// The token's name; none where it was not made by this server.
    #[schema(required)]
    pub(in crate::http) who: Option<String>,
    #[schema(required)]
    pub(in crate::http) role: Option<String>,
    pub(in crate::http) zone: String,
    #[schema(required)]
    pub(in crate::http) before: Option<DefinitionShape>,
    #[schema(required)]
    pub(in crate::http) after: Option<DefinitionShape>,
}

/// Changes, the newest first.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PastChanges {
    pub(in crate::http) changes: Vec<PastChange>,
}

/// Who asks.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct WhoAmI {
    pub(in crate::http) name: String,
    pub(in crate::http) role: String,
    /// The server's name.
    pub(in crate::http) server: String,
    pub(in crate::http) version: String,
    /// Whether a token was asked for, and shown.
    pub(in crate::http) authenticated: bool,
}

/// A server.
#[derive(Serialize, ToSchema)]
#[schema(as = Server)]
pub(in crate::http) struct ServerShape {
    pub(in crate::http) name: String,
    pub(in crate::http) version: String,
    /// Where apps call it.
    pub(in crate::http) address: String,
    /// In milliseconds since 1970.
    pub(in crate::http) started_at: u64,
    /// When it was last heard, in milliseconds since 1970.
    pub(in crate::http) seen_at: u64,
    /// It is the one that answers this.
    pub(in crate::http) here: bool,
    pub(in crate::http) draining: bool,
    /// How many it serves.
    pub(in crate::http) zones: u64,
    /// Open public connections.
    #[schema(required)]
    pub(in crate::http) connections: Option<u64>,
}

/// A store.
#[derive(Serialize, ToSchema)]
#[schema(as = Cell)]
pub(in crate::http) struct CellShape {
    pub(in crate::http) name: String,
    /// It answered when it was last asked.
    pub(in crate::http) up: bool,
}

/// Servers and their stores.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Servers {
    pub(in crate::http) servers: Vec<ServerShape>,
    pub(in crate::http) cells: Vec<CellShape>,
}

/// Whether this server is taken out of service.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Drain {
    pub(in crate::http) draining: bool,
}

/// A zone to be made.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct NewZone {
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.:-]{1,64}$")]
    id: String,
    /// What is left out is as in a configuration file that leaves it out.
    #[schema(nullable = false)]
    policy: Option<SomeOfPolicy>,
    notice: Option<NoticeShape>,
}

/// A definition to take the place of the one there is.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct NewDefinition {
    /// What is left out is as in a configuration file that leaves it out.
    policy: SomeOfPolicy,
    notice: Option<NoticeShape>,
}

/// What is to be different; RFC 7396.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct DefinitionPatch {
    #[schema(nullable = false)]
    policy: Option<SomeOfPolicy>,
    /// A text of null takes a language away, null all of them.
    notice: Option<BTreeMap<String, Option<String>>>,
}
