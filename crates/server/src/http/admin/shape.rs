//! The JSON of the admin API. One type for each shape, from which the OpenAPI document is made, too.
//!
//! Invariant: names and units are those of the configuration file; a policy always has all its fields.

mod events;
mod policy;

use std::collections::BTreeMap;

use admission::{Definition, Estimate, Notice, Policy};
use gate::{OperatorView, SamplePlace, Trouble, definitions::EventJson};
use serde::Serialize;
use utoipa::ToSchema;

pub(in crate::http) use events::{EventOfZone, EventsOfZone, ReportShape};
use policy::{PolicyShape, SomeOfPolicy};

use crate::{clock::unix_ms_of, draws::Progress, stats, told_waits::ToldWaits};

/// Texts for the people who wait, by language.
#[derive(Serialize, ToSchema)]
#[schema(as = Notice, example = json!({"en": "Tickets are still there.", "ko": "아직 표가 남아 있습니다."}))]
pub(in crate::http) struct NoticeShape(BTreeMap<String, String>);

impl From<&Notice> for NoticeShape {
    fn from(notice: &Notice) -> Self {
        Self(notice.iter().map(|(language, text)| (language.to_owned(), text.to_owned())).collect())
    }
}

/// The definition of a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Definition)]
pub(in crate::http) struct DefinitionShape {
    policy: PolicyShape,
    notice: NoticeShape,
    /// The events, in the order of time.
    #[schema(value_type = Vec<EventShape>)]
    events: Vec<EventJson>,
}

/// An event of a zone's schedule. Instants name their time zone: `2026-12-01T09:00[Europe/Berlin]`, or have an offset:
/// `2026-12-01T08:00:00Z`.
#[derive(ToSchema)]
#[schema(as = Event)]
#[expect(dead_code, reason = "a shape for the document: `gate::definitions::EventJson` is written and read")]
pub(in crate::http) struct EventShape {
    /// Its name among the events of the zone, written as a zone's id.
    #[schema(example = "spring-sale")]
    id: String,
    /// From when on people take places. At least a minute before `begins`.
    #[schema(example = "2026-12-01T08:30[Europe/Berlin]")]
    prequeue_from: String,
    /// From when on people enter.
    #[schema(example = "2026-12-01T09:00[Europe/Berlin]")]
    begins: String,
    /// When it is over.
    #[schema(example = "2026-12-01T12:00[Europe/Berlin]")]
    ends: String,
    /// What applies until `prequeue_from`: `usual` (the zone's policy), `hold` or `closed`.
    #[schema(required = false, default = "usual")]
    before: String,
    /// What applies from `ends` on, until the next event.
    #[schema(required = false, default = "usual")]
    after: String,
    /// Where people go on while `before` is `closed`: the address of a page, or a path of the waiting page's host.
    #[schema(nullable = false, example = "https://shop.example/soon")]
    before_page: Option<String>,
    /// The same for `after`.
    #[schema(nullable = false, example = "https://shop.example/thanks")]
    after_page: Option<String>,
    /// How many people may enter in a minute, where that differs from the policy.
    #[schema(nullable = false)]
    admit_per_minute: Option<u32>,
    /// How many people may be inside, where that differs from the policy.
    #[schema(nullable = false)]
    max_active: Option<u32>,
    /// Who enters first: `arrival`, or `draw`: the list is frozen when the event begins, and people enter 30 s later.
    #[schema(required = false, default = "arrival")]
    order: String,
    /// What decides a draw: `drand`, or `stated: ` and where the value comes from that an operator will state.
    #[schema(nullable = false, example = "drand")]
    randomness: Option<String>,
    /// What happens if it does not come: `wait`, or `arrival`.
    #[schema(nullable = false, example = "wait")]
    fallback: Option<String>,
    /// The text for people who wait, by language; without one, the zone's own counts.
    #[schema(required = false)]
    notice: BTreeMap<String, String>,
}

impl From<&Definition> for DefinitionShape {
    fn from(definition: &Definition) -> Self {
        Self {
            policy: (&definition.policy).into(),
            notice: (&definition.notice).into(),
            events: definition.schedule.events().iter().map(EventJson::from).collect(),
        }
    }
}

/// Why a zone's store is away, as the log, the metric `weir_zones_away` and `/readyz` say it.
#[derive(Serialize, ToSchema)]
#[schema(as = Away)]
pub(in crate::http) struct AwayShape {
    /// When the store failed first, in milliseconds since 1970.
    since: u64,
    /// The kind, as in the metric `weir_zones_away`.
    #[schema(example = "no_replica")]
    cause: &'static str,
    /// The store's own words.
    why: String,
    /// What an operator can do.
    advice: &'static str,
}

impl From<Trouble> for AwayShape {
    fn from(Trouble { kind, why, since }: Trouble) -> Self {
        Self { since: unix_ms_of(since), cause: kind.name(), why: why.to_string(), advice: kind.advice() }
    }
}

/// The state of a zone's line.
#[derive(Default, Serialize, ToSchema)]
pub(in crate::http) struct Now {
    /// The store does not answer, and this is the last known state.
    stale: bool,
    /// Why the store does not answer; null if it does, or has not said why.
    #[schema(required)]
    away: Option<AwayShape>,
    /// Places in the line.
    waiting: u64,
    /// Places whose holders poll.
    present: u64,
    /// Places given out since the store was created, including those that entered at once.
    joined: u64,
    /// Entries since the store was created.
    entered: u64,
    /// Places dropped because their holders did not poll or gave them up, since the store was created.
    evicted: u64,
    /// Slots that became free while people waited, since this server started.
    slots_offered: u64,
    /// Entries from the line since the store was created.
    slots_used: u64,
    /// People who count as inside, where the policy limits them: also those who have not shown themselves since a restart or a loss.
    #[schema(required)]
    inside: Option<u64>,
    /// Entries of the last 60 s: never more than entered in any 60 s, and by up to a second's entries fewer.
    entered_last_minute: u64,
    /// Of how many of these 60 s this server knows the entries. Fewer than 60 only soon after its start.
    entered_seen_s: u64,
    /// The expected wait of somebody who joins now, in seconds; null while nobody may enter.
    #[schema(required)]
    eta_s: Option<u64>,
    /// The range that holds the wait in nine of ten cases.
    #[schema(required)]
    eta_range_s: Option<[u64; 2]>,
}

impl Now {
    pub(in crate::http) fn of(
        view: Option<&OperatorView>,
        trouble: Option<Trouble>,
        last_minute: stats::LastMinute,
    ) -> Self {
        let away = trouble.map(Into::into);
        let Some(view) = view else { return Self { stale: true, away, ..Self::default() } };
        let (tally, eta) = (view.tally(), view.wait(SamplePlace::Last, view.policy()));
        Self {
            stale: view.is_stale(),
            away,
            waiting: tally.waiting,
            present: tally.present,
            joined: tally.joined,
            entered: tally.entered,
            evicted: tally.evicted,
            slots_offered: tally.slots_offered,
            slots_used: tally.slots_used,
            inside: view.occupancy().map(|people| people.most),
            entered_last_minute: last_minute.entered,
            entered_seen_s: last_minute.seen_s,
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
    /// When the minute began, in seconds since 1970.
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
    /// The value of `If-Match` for a change of this definition.
    pub(in crate::http) etag: String,
    #[serde(flatten)]
    pub(in crate::http) definition: DefinitionShape,
    pub(in crate::http) now: Now,
    /// The draw of the event that lasts or comes next, or of the last one; null where people enter in the order of arrival.
    #[schema(required)]
    pub(in crate::http) draw: Option<Progress>,
    /// The last minutes, the oldest first, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(in crate::http) trend: Option<Vec<TrendMinute>>,
}

/// All zones.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Zones {
    /// The time, in milliseconds since 1970.
    pub(in crate::http) at: u64,
    /// All zones, sorted by name.
    pub(in crate::http) zones: Vec<ZoneShape>,
}

/// An expected wait before and after a change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EtaChange {
    /// Whose wait: that of the person in the middle of the line, or of somebody who joins now.
    place: PlaceWord,
    rank: u64,
    /// In seconds; null while nobody may enter, or the order is still to be drawn.
    #[schema(required)]
    before_s: Option<u64>,
    /// In seconds; null while nobody may enter, or the order is still to be drawn.
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
    /// The waits if `policy` replaces the policy in force. Without `policy`, nobody may enter any more.
    pub(in crate::http) fn all(view: &OperatorView, policy: Option<&Policy>) -> Vec<Self> {
        let eta = |standing, place: PlaceWord| Self {
            place,
            rank: view.rank(standing),
            before_s: view.wait(standing, view.policy()).map(seconds),
            after_s: policy.and_then(|policy| view.wait(standing, policy)).map(seconds),
        };
        let middle = (view.tally().waiting > 1).then(|| eta(SamplePlace::Middle, PlaceWord::Middle));
        middle.into_iter().chain([eta(SamplePlace::Last, PlaceWord::Last)]).collect()
    }
}

/// A change that was made, or that would be made.
#[derive(Serialize, ToSchema)]
#[schema(as = Change)]
pub(in crate::http) struct ChangeShape {
    /// Nothing was changed; this is what would change.
    pub(in crate::http) dry_run: bool,
    /// The zone after the change; null if the change deletes it.
    #[schema(required)]
    pub(in crate::http) zone: Option<ZoneShape>,
    /// The definition before the change; null if there was no such zone. To undo a change, send this definition with the new tag.
    #[schema(required)]
    pub(in crate::http) before: Option<DefinitionShape>,
    /// How the change affects the waits, as of now. Empty if the zone is new, or the store does not say who waits.
    pub(in crate::http) etas: Vec<EtaChange>,
    /// Which fields of the new definition contradict each other, and which draws it makes though their events have begun; for a zone
    /// that is deleted, which routes lead there; and that the store does not say who waits. The change is made nevertheless.
    pub(in crate::http) warnings: Vec<String>,
}

/// One minute of a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Minute)]
pub(in crate::http) struct MinuteShape {
    /// When the minute began, in seconds since 1970.
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

/// One minute of a zone, as its store keeps it.
#[derive(Serialize, ToSchema)]
#[schema(as = PastMinute)]
struct PastMinuteShape {
    #[serde(flatten)]
    minute: MinuteShape,
    /// The waits of those who entered, as far as the servers know them; null if they know of nobody.
    #[schema(required)]
    waits_s: Option<MinuteWaitsShape>,
    /// The waits that these people were told first; null if nobody was told one.
    #[schema(required)]
    told_s: Option<MinuteToldShape>,
    /// How many pieces of each tier were left at the end of the minute; null where nobody knew. Without tiers, there is nothing.
    left: BTreeMap<String, Option<u32>>,
}

/// The waits of the people who entered in a minute, in seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = MinuteWaits)]
struct MinuteWaitsShape {
    count: u32,
    mean: f64,
    /// Of several servers: the mean of theirs, weighted with people.
    p50: f64,
    /// Of several servers: the highest of theirs.
    p95: f64,
    longest: f64,
}

/// The waits that people were told, in seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = MinuteTold)]
struct MinuteToldShape {
    count: u32,
    p50: u32,
    p95: u32,
    /// How many waited within the range that they were told.
    in_range: u32,
}

/// The minutes of a zone between two instants.
#[derive(Serialize, ToSchema)]
#[schema(as = PastMinutes)]
pub(in crate::http) struct PastMinutesShape {
    id: String,
    /// The oldest first. A minute in which nothing happened and nobody waited is missing. The last one may not be over yet.
    minutes: Vec<PastMinuteShape>,
}

impl PastMinutesShape {
    pub(in crate::http) fn new(id: String, minutes: &[stats::PastMinute]) -> Self {
        Self { id, minutes: minutes.iter().map(Into::into).collect() }
    }
}

impl From<&stats::PastMinute> for PastMinuteShape {
    fn from(stats::PastMinute { minute, waits, left }: &stats::PastMinute) -> Self {
        let seconds = |ms: u32| f64::from(ms) / 1_000.0;
        #[expect(clippy::cast_precision_loss, reason = "sums below 2^52")]
        let mean = waits.waited_ms as f64 / 1_000.0 / f64::from(waits.people.max(1));
        Self {
            minute: minute.into(),
            waits_s: (waits.people > 0).then(|| MinuteWaitsShape {
                count: waits.people,
                mean,
                p50: seconds(waits.p50_ms),
                p95: seconds(waits.p95_ms),
                longest: seconds(waits.longest_ms),
            }),
            told_s: (waits.told > 0).then_some(MinuteToldShape {
                count: waits.told,
                p50: waits.told_p50_s,
                p95: waits.told_p95_s,
                in_range: waits.in_range,
            }),
            left: left.iter().map(|(tier, number)| (tier.to_string(), *number)).collect(),
        }
    }
}

/// The waits of people who entered, in seconds.
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

/// Their waits divided by the waits that they were told first.
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

/// The waits that people were told first, against the waits that they had. Of those whom this server admitted in the
/// last hour, and who had waited.
#[derive(Serialize, ToSchema)]
#[schema(as = ToldWaits)]
struct ToldShape {
    count: u64,
    /// The mean of the waits less the told waits. Above 0: people waited longer than told.
    #[schema(required)]
    bias_s: Option<f64>,
    /// The mean absolute error.
    #[schema(required)]
    error_s: Option<f64>,
    /// The mean absolute error as a share of the mean wait.
    #[schema(required)]
    error_share: Option<f64>,
    /// The share of the waits that were within the range told.
    #[schema(required)]
    in_range: Option<f64>,
    /// The mean width of these ranges.
    #[schema(required)]
    range_s: Option<f64>,
}

impl ToldShape {
    fn new(waits: &ToldWaits) -> Self {
        let figures = waits.figures();
        Self {
            count: waits.people,
            bias_s: figures.map(|figures| figures.bias_s),
            error_s: figures.map(|figures| figures.error_s),
            error_share: figures.and_then(|figures| figures.error_share),
            in_range: figures.map(|figures| figures.in_range),
            range_s: figures.map(|figures| figures.range_s),
        }
    }
}

/// Statistics of the people whom this server admitted.
#[derive(Serialize, ToSchema)]
#[schema(as = Here)]
struct HereShape {
    /// The start of the statistics, in milliseconds since 1970.
    since: u64,
    waits_s: WaitsShape,
    told_ratio: RatioShape,
    told_last_hour: ToldShape,
}

/// The last hours of a zone.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(in crate::http) struct StatsShape {
    id: String,
    /// Why the zone's store does not answer; null if it does, or has not said why.
    #[schema(required)]
    away: Option<AwayShape>,
    /// The minutes, the oldest first, the current one last. Minutes that this server did not see are missing.
    minutes: Vec<MinuteShape>,
    here: HereShape,
}

impl StatsShape {
    pub(in crate::http) fn new(
        id: String,
        trouble: Option<Trouble>,
        minutes: &[stats::Minute],
        here: &stats::Here,
    ) -> Self {
        let stats::Here { since_ms, waits, told, last_hour } = here;
        Self {
            id,
            away: trouble.map(Into::into),
            minutes: minutes.iter().map(Into::into).collect(),
            here: HereShape {
                since: *since_ms,
                waits_s: WaitsShape { count: waits.count, p50: waits.p50, p90: waits.p90, p99: waits.p99 },
                told_ratio: RatioShape { count: told.count, p10: told.p10, p50: told.p50, p90: told.p90 },
                told_last_hour: ToldShape::new(last_hour),
            },
        }
    }
}

/// Where a change was made.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Made {
    /// At this server, by an operator.
    Here,
    /// In the configuration file of this server.
    File,
    /// In the store: at another server, or by `weir zones apply`.
    Store,
}

/// A change that was made.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PastChange {
    /// The time, in milliseconds since 1970.
    pub(in crate::http) at: u64,
    /// The name of the operator's token; null if the change was not made at this server.
    #[schema(required)]
    pub(in crate::http) who: Option<String>,
    #[schema(required)]
    pub(in crate::http) role: Option<String>,
    /// Where the change was made.
    pub(in crate::http) made: Made,
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

/// A rare event, with the name and the fields that it has in the stream of events; or what an operator did, with its author.
#[derive(Serialize, ToSchema)]
#[schema(as = PastEvent)]
pub(in crate::http) struct PastEventShape {
    /// The time, in milliseconds since 1970.
    pub(in crate::http) at: u64,
    /// `StoreLost`, `StoreBack`, `Reloaded`, `Drained`, `Undrained` or `RoutesChanged`.
    pub(in crate::http) kind: &'static str,
    /// The zone; null if the event is about the whole server.
    #[schema(required)]
    pub(in crate::http) zone: Option<String>,
    /// The name of the operator's token; null if no operator did it.
    #[schema(required)]
    pub(in crate::http) who: Option<String>,
    #[schema(required)]
    pub(in crate::http) role: Option<String>,
    /// `StoreBack`: for how long the store was away, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(in crate::http) away_ms: Option<u64>,
    /// `Reloaded`: whether the new configuration is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(in crate::http) ok: Option<bool>,
}

/// Rare events, the newest first; at most 200.
#[derive(Serialize, ToSchema)]
#[schema(as = PastEvents)]
pub(in crate::http) struct PastEventsShape {
    pub(in crate::http) events: Vec<PastEventShape>,
}

/// The caller.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct WhoAmI {
    pub(in crate::http) name: String,
    pub(in crate::http) role: String,
    /// The server's name.
    pub(in crate::http) server: String,
    pub(in crate::http) version: String,
    /// Whether the call needed a token, and had a valid one.
    pub(in crate::http) authenticated: bool,
}

/// A server.
#[derive(Serialize, ToSchema)]
#[schema(as = Server)]
pub(in crate::http) struct ServerShape {
    pub(in crate::http) name: String,
    pub(in crate::http) version: String,
    /// Its address for apps.
    pub(in crate::http) address: String,
    /// When it started, in milliseconds since 1970.
    pub(in crate::http) started_at: u64,
    /// When it was last seen, in milliseconds since 1970.
    pub(in crate::http) seen_at: u64,
    /// Whether it is the server that answers this call.
    pub(in crate::http) here: bool,
    pub(in crate::http) draining: bool,
    /// The number of zones that it serves.
    pub(in crate::http) zones: u64,
    /// Open public connections.
    #[schema(required)]
    pub(in crate::http) connections: Option<u64>,
    /// The longest polling period that it told lately because it is busy, in milliseconds; 0 if it is not busy.
    pub(in crate::http) polling_period_ms: u32,
    /// Why it is busy: `processor`, `lag` (its tasks run late) or `accept_queue` (connections did not get in). Empty if it is not.
    pub(in crate::http) busy: String,
    /// Whether this server and that one accept each other's tokens. Otherwise their seal keys differ, and people lose their places.
    pub(in crate::http) keys_agree: bool,
    /// The number of its zones whose store is away.
    pub(in crate::http) zones_away: u64,
}

/// A store.
#[derive(Serialize, ToSchema)]
#[schema(as = Cell)]
pub(in crate::http) struct CellShape {
    pub(in crate::http) name: String,
    /// Whether it answered the last call.
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
pub(in crate::http) struct Drain {
    pub(in crate::http) draining: bool,
}

/// The visitor whose visit ends.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Leaver {
    /// The entry as its pass names it: zone, epoch (8 hexadecimal digits) and number. The audit log has both.
    #[schema(example = "TEST_ZONE/0000002a/1202")]
    pub(in crate::http) jti: String,
}

/// A zone to create.
#[derive(ToSchema)]
#[schema(example = json!({"id": "shop:spring", "policy": {"admit_per_minute": 600}, "notice": {"en": "Soon."}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct NewZone {
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.:-]{1,64}$")]
    id: String,
    /// Fields that are missing have their defaults.
    #[schema(nullable = false)]
    policy: Option<SomeOfPolicy>,
    notice: Option<NoticeShape>,
    /// At most 32. They do not overlap, from `prequeue_from` to `ends`.
    events: Option<Vec<EventShape>>,
}

/// A definition that replaces the zone's definition.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct NewDefinition {
    /// Fields that are missing have their defaults.
    policy: SomeOfPolicy,
    notice: Option<NoticeShape>,
    /// Without them, the zone has none.
    events: Option<Vec<EventShape>>,
}

/// The fields to change; RFC 7396.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a shape for the document: `body` reads it")]
pub(in crate::http) struct DefinitionPatch {
    #[schema(nullable = false)]
    policy: Option<SomeOfPolicy>,
    /// A null instead of a text removes that language; a null instead of the object removes all.
    notice: Option<BTreeMap<String, Option<String>>>,
    /// Replaces all events; null deletes them.
    events: Option<Vec<EventShape>>,
}
