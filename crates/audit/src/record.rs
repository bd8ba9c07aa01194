//! The content of the log's lines, apart from their numbers and hashes.
//!
//! Invariant: names and order of the fields stay as they are, because other programs read old and new logs. A test compares
//! them with a log from an earlier version.

use std::net::IpAddr;

use admission::ZoneId;
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use store::unix_ms;

/// A line's content: when it was written, and what happened.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    /// Milliseconds since 1970 by the wall clock.
    pub(super) at_ms: u64,
    #[serde(flatten)]
    pub(super) event: Event<'a>,
}

impl<'a> Record<'a> {
    /// A record of an event that is written now.
    pub(super) fn now(event: Event<'a>) -> Self {
        Self { at_ms: unix_ms(), event }
    }
}

/// What happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// A server opened the log.
    Started {
        /// The server's version.
        version: &'a str,
        /// Whether the log ended with [`Event::Stopped`] or was empty.
        clean: bool,
    },
    /// The server stopped and wrote everything.
    Stopped,
    /// An earlier file ends in the middle of a line.
    Cut {
        /// The file's name.
        file: &'a str,
        /// The length of the fragment at the file's end.
        bytes: u64,
        /// The fragment's BLAKE3, in hex.
        piece: &'a str,
    },
    /// Events before this line are missing.
    Missing {
        /// How many.
        count: u64,
    },
    /// An operator changed a zone.
    Change(&'a ChangeRecord),
    /// An operator changed the routes.
    Routes(&'a RoutesRecord),
    /// Somebody changed what people are told is left in a zone, beyond a number.
    Stock(&'a StockRecord),
    /// The published rule of a zone is another one than before.
    Rule(&'a RuleRecord),
    /// An operator ended a visit.
    Left(&'a LeftRecord),
    /// An operator stated what decides a draw.
    Stated(&'a StatedRecord),
    /// An operator took this server out of service, or put it back.
    Drain(&'a DrainRecord),
    /// The store did not answer what an operator ordered: it may have been done.
    Unanswered(&'a UnansweredRecord),
    /// Another policy is in force.
    Policy {
        /// The zone.
        zone: &'a str,
        /// The old policy; null if the zone was not served.
        before: Option<&'a RawValue>,
        /// The new policy; null if the zone is not served any more.
        after: Option<&'a RawValue>,
    },
    /// A ticket's holder entered. See [`events::Admitted`].
    Entered {
        /// The zone; null if the bus has no number for it.
        zone: Option<&'a str>,
        /// The line's epoch.
        epoch: u32,
        /// The ticket.
        seq: u64,
        /// When, in seconds since 1970, as in the pass.
        entered_unix_s: u64,
        /// When the store answered, in milliseconds on its clock.
        store_ms: u64,
        /// The policy in force.
        policy: &'a RawValue,
    },
    /// Tickets were evicted: their holders were silent, or gave up their places.
    Evicted {
        /// The zone.
        zone: Option<&'a str>,
        /// How many.
        count: u32,
        /// When the store reported it, in milliseconds on its clock.
        store_ms: u64,
    },
    /// The store does not answer for a zone any more.
    StoreLost {
        /// The zone.
        zone: Option<&'a str>,
    },
    /// The store answers for a zone again.
    StoreBack {
        /// The zone.
        zone: Option<&'a str>,
        /// How long it did not answer, in milliseconds.
        away_ms: u64,
    },
    /// The configuration was read again.
    Reloaded {
        /// Whether it was accepted.
        ok: bool,
    },
}

/// An operator's change of a zone.
#[derive(Debug, Serialize)]
pub(super) struct ChangeRecord {
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: ZoneId,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the change did not come over the network.
    pub(super) from: Option<IpAddr>,
    /// The old definition; null for a new zone.
    pub(super) before: Option<Box<RawValue>>,
    /// The new definition; null for a deleted zone.
    pub(super) after: Option<Box<RawValue>>,
}

/// An operator's change of the routes of the admin API. Secrets are not in it.
#[derive(Debug, Serialize)]
pub(super) struct RoutesRecord {
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the change did not come over the network.
    pub(super) from: Option<IpAddr>,
    /// The old list.
    pub(super) before: Vec<Value>,
    /// The new list.
    pub(super) after: Vec<Value>,
}

/// A change of what people are told is left in a zone: of tiers, labels or prices, or of whether a tier is sold out.
#[derive(Debug, Serialize)]
pub(super) struct StockRecord {
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: ZoneId,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the change did not come over the network.
    pub(super) from: Option<IpAddr>,
    /// What was told before.
    pub(super) before: Box<RawValue>,
    /// What is told after it.
    pub(super) after: Box<RawValue>,
}

/// The rule of a zone, as this server publishes it from now on.
#[derive(Debug, Serialize)]
pub(super) struct RuleRecord {
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: ZoneId,
    /// The digest of the rule that this server saw before; null if it saw none.
    pub(super) before: Option<String>,
    /// The digest of this one, as it is published.
    pub(super) digest: String,
    /// The rule, as it is published.
    pub(super) rule: Box<RawValue>,
}

/// An operator's end of a visit.
#[derive(Debug, Serialize)]
pub(super) struct LeftRecord {
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: ZoneId,
    /// The line's epoch, as in [`Event::Entered`].
    pub(super) epoch: u32,
    /// The ticket whose visit ends.
    pub(super) seq: u64,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the order did not come over the network.
    pub(super) from: Option<IpAddr>,
}

/// An operator's statement of what decides a draw.
#[derive(Debug, Serialize)]
pub(super) struct StatedRecord {
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: ZoneId,
    /// The id of the event whose order is drawn.
    pub(super) draw: String,
    /// What the announced source gave; null if it gave nothing.
    pub(super) value: Option<String>,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the statement did not come over the network.
    pub(super) from: Option<IpAddr>,
}

/// An operator's order that this server leaves service, or is in service again.
#[derive(Debug, Serialize)]
pub(super) struct DrainRecord {
    /// Whether the server is out of service now.
    pub(super) draining: bool,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the order did not come over the network.
    pub(super) from: Option<IpAddr>,
}

/// An operator's order that the store did not answer. Secrets are not in it.
#[derive(Debug, Serialize)]
pub(super) struct UnansweredRecord {
    /// The event that the line would be if the store had answered.
    pub(super) order: &'static str,
    /// The zone; null for the routes.
    pub(super) zone: Option<String>,
    /// The author's name.
    pub(super) name: String,
    /// The author's role.
    pub(super) role: String,
    /// The author's address; null if the order did not come over the network.
    pub(super) from: Option<IpAddr>,
    /// What was ordered: the new definition, list or numbers, the visit, or the value.
    pub(super) wanted: Box<RawValue>,
}

fn zone_name<S: serde::Serializer>(zone: &ZoneId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(zone.as_str())
}

/// Text that is JSON, to be part of a record.
///
/// # Panics
/// If it is not JSON.
pub(super) fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("policies and definitions are written as JSON")
}
