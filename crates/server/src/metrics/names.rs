//! Every metric: its name, its type, its help text and, for a histogram, its buckets.
//!
//! Names, types, labels and help texts are an interface: rules, alerts and dashboards use them. Each metric has one
//! constant here, and nothing else in the server spells a metric's name.
//!
//! Invariants: names are unique; a counter's name, and no other, ends in `_total`; every histogram has buckets, because
//! the exporter would make a summary of one without.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A whole number that only grows.
    Counter,
    /// A fraction that only grows. The exporter has no such counter: see [`super::exposition`].
    FractionCounter,
    /// A number that goes up and down.
    Gauge,
    /// The numbers that were observed, counted by bucket. These are the upper bounds, without infinity.
    Histogram(&'static [f64]),
}

/// All series of one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// Makes a constant of each family, and the list of all of them.
macro_rules! families {
    ($list:ident: $($constant:ident = $kind:expr, $name:literal, $help:literal;)*) => {
        $(pub(super) const $constant: Family = Family { name: $name, kind: $kind, help: $help };)*
        /// In the order of this file.
        pub(super) const $list: &[Family] = &[$($constant),*];
    };
}

use Kind::{Counter, FractionCounter, Gauge, Histogram};

const REQUEST_S: &[f64] =
    &[25e-6, 50e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.0, 10.0];
const CALL_S: &[f64] = &[1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 5.0];
const BATCH: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
const WAIT_S: &[f64] =
    &[0.5, 2.0, 6.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 3_600.0, 7_200.0];
const ERROR_RATIO: &[f64] = &[0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];

families! { OF_THE_SERVER:
    BUILD_INFO = Gauge, "weir_build_info", "Always 1; the version is the label.";
    REQUESTS = Counter, "weir_requests_total", "Requests answered, by route and status.";
    REQUEST_DURATION = Histogram(REQUEST_S), "weir_request_duration_seconds",
        "From a request's head to its reply, by route.";
    CONNECTIONS_OPEN = Gauge, "weir_connections_open", "Public connections open now.";
    CONNECTIONS_MAX = Gauge, "weir_connections_max", "The most public connections that may be open.";
    CONNECTIONS_ACCEPTED = Counter, "weir_connections_accepted_total", "Public connections taken in.";
    CONNECTIONS_REFUSED = Counter, "weir_connections_refused_total", "Public connections turned away at the cap.";
    CLIENT_CONNECTIONS_REFUSED = Counter, "weir_client_connections_refused_total",
        "Public connections turned away because their client has too many.";
    TLS_HANDSHAKES_FAILED = Counter, "weir_tls_handshakes_failed_total",
        "Public connections that did not get through the TLS handshake.";
    TLS_CERTIFICATE_EXPIRES = Gauge, "weir_tls_certificate_expires_seconds",
        "When the certificate of the public listener expires, since 1970; 0 without TLS.";
    CLIENT_STREAMS_REFUSED = Counter, "weir_client_streams_refused_total",
        "Streams turned away because their client has too many.";
    LIMITS_UNKNOWN = Counter, "weir_limits_unknown_total",
        "Calls let through since nobody could say whether their client asks too often.";
    CHECKS = Counter, "weir_checks_total",
        "Requests that proxies asked about, by route and by what was said; the route is empty where none fits.";
    STREAMS_OPEN = Gauge, "weir_streams_open", "Streams of waiting users open now.";
    POLLING_PERIOD = Gauge, "weir_polling_period_seconds",
        "The longest polling period told lately because the server is busy; 0 while it is not.";
    BUSY = Gauge, "weir_busy", "Whether polling periods are longer than the policy wishes for, by cause.";
    POLL_ROOM = Gauge, "weir_poll_room_per_second", "Polls in a second that the server has room for, beside appointments.";
    LAG = Gauge, "weir_scheduler_lag_seconds", "How late tasks of the server run, on average.";
    STORE_CALL_DURATION = Histogram(CALL_S), "weir_store_call_duration_seconds", "Calls to the store, by call.";
    STORE_CALL_TICKETS = Histogram(BATCH), "weir_store_call_tickets", "Tickets gathered into a call to the store.";
    STORE_CALLS_FAILED = Counter, "weir_store_calls_failed_total", "Calls that the store did not answer.";
    STORE_CELL_UP = Gauge, "weir_store_cell_up", "Whether a cell answered when it was last asked for its zones.";
    ZONES_AWAY = Gauge, "weir_zones_away", "Zones whose store is away, by why.";
    UNARMED_SERVERS = Gauge, "weir_unarmed_servers",
        "Servers of the store that have not read an event which comes or runs, for 10 s or longer.";
    DRAWS_OVERDUE = Gauge, "weir_draws_overdue",
        "Draws that should have taken place, so that nobody enters, by what they wait for.";
    CONFIG_RELOADS = Counter, "weir_config_reloads_total",
        "Readings of the configuration while serving, by result.";
    EVENTS_LOST = Counter, "weir_events_lost_total",
        "Events that a subscriber did not take in time, and that it will not see.";
    EVENTS_WAITING = Gauge, "weir_events_waiting", "Events that a subscriber has not dealt with yet.";
    EVENTS_UNHEARD = Counter, "weir_events_unheard_total",
        "Events of threads beyond those that the bus has room for.";
    FANOUT_CONNECTED = Gauge, "weir_fanout_connected", "Whether the other servers are heard, by cell.";
    FANOUT_SENT = Counter, "weir_fanout_sent_total", "Messages to the other servers, by cell.";
    FANOUT_HEARD = Counter, "weir_fanout_heard_total", "Messages of other servers, by cell.";
    FANOUT_DROPPED = Counter, "weir_fanout_dropped_total",
        "Messages lost here: garbled, missed by a slow reader, or unsent; by cell.";
    OTLP_SENT = Counter, "weir_otlp_sent_total",
        "Traces, reports of metrics and log records that the collector took, by signal.";
    OTLP_DROPPED = Counter, "weir_otlp_dropped_total",
        "Traces, reports of metrics and log records that were not sent, by signal and reason.";
    LISTEN_OVERFLOWS = Counter, "weir_kernel_listen_overflows_total",
        "Connections that found an accept queue full, in this network namespace since it began.";
    LISTEN_DROPS = Counter, "weir_kernel_listen_drops_total",
        "Connections dropped before they were accepted, in this network namespace since it began.";
    PANICS = Counter, "weir_panics_total", "Tasks that panicked, which is a fault of the server.";
    PROCESS_START = Gauge, "process_start_time_seconds", "When the process started, since 1970.";
    PROCESS_OPEN_FILES = Gauge, "process_open_fds", "Open files.";
    PROCESS_MAX_FILES = Gauge, "process_max_fds", "The most files the process may open.";
    PROCESS_RESIDENT = Gauge, "process_resident_memory_bytes", "Memory in use.";
    PROCESS_CPU = FractionCounter, "process_cpu_seconds_total", "Processor time used, user and system.";
}

families! { OF_ZONES:
    ZONE_WAITING = Gauge, "weir_zone_waiting_tickets", "Tickets that wait.";
    ZONE_PRESENT = Gauge, "weir_zone_present_tickets", "Waiting tickets whose holders poll.";
    ZONE_RATE = Gauge, "weir_zone_admit_per_minute", "How many the policy lets in a minute.";
    ZONE_INSIDE = Gauge, "weir_zone_inside", "People who count as inside, also those who have not shown themselves since a restart or a loss; 0 where the policy does not limit them.";
    ZONE_MAX_ACTIVE = Gauge, "weir_zone_max_active", "How many the policy allows inside; 0 for no limit.";
    ZONE_MODE = Gauge, "weir_zone_mode", "1 for the mode in force, and 0 for the others.";
    ZONE_VIEW_AGE = Gauge, "weir_zone_view_age_seconds", "Since the store last showed the zone.";
    ZONE_JOINED = Counter, "weir_zone_joined_total", "Tickets given out, entries at once included.";
    ZONE_ENTERED = Counter, "weir_zone_entered_total", "Entries.";
    ZONE_ADMITTED_WITHOUT_STORE = Counter, "weir_admitted_unseen_total",
        "Times somebody was let in without the store.";
    ZONE_EVICTED = Counter, "weir_zone_evicted_total",
        "Tickets that lost their place, because the holder was silent or gave it up.";
    ZONE_FULL = Counter, "weir_zone_full_total", "Joins refused since the line takes no more people.";
    ZONE_LIMITED = Counter, "weir_zone_limited_total",
        "Calls refused since their client asks too often, by route.";
    ZONE_SLOTS_OFFERED = Counter, "weir_zone_slots_offered_total", "Slots that fell free for a line.";
    ZONE_SLOTS_USED = Counter, "weir_zone_slots_used_total", "Entries from the line.";
    ZONE_WAIT = Histogram(WAIT_S), "weir_zone_wait_seconds", "Time in line of those who entered.";
    ZONE_WAIT_ERROR = Histogram(ERROR_RATIO), "weir_zone_wait_error_ratio",
        "Time in line over the wait told first.";
    ZONE_TOLD_PEOPLE = Counter, "weir_zone_told_people_total",
        "People who entered and had been told a wait and its range.";
    ZONE_TOLD_IN_RANGE = Counter, "weir_zone_told_in_range_total", "Those of them who waited within the range.";
    ZONE_TOLD_WAITED = Counter, "weir_zone_told_waited_seconds_total", "Their time in line, added up.";
    ZONE_TOLD_TOO_SHORT = Counter, "weir_zone_told_too_short_seconds_total",
        "By how much they waited longer than told, added up.";
    ZONE_TOLD_TOO_LONG = Counter, "weir_zone_told_too_long_seconds_total",
        "By how much they waited shorter than told, added up.";
    ZONE_TOLD_RANGE = Counter, "weir_zone_told_range_seconds_total",
        "The widths of the ranges that they were told, added up.";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_say_their_type() {
        let mut names = HashSet::new();
        for family in OF_THE_SERVER.iter().chain(OF_ZONES) {
            assert!(names.insert(family.name), "{} is there twice", family.name);
            let counts = matches!(family.kind, Counter | FractionCounter);
            assert_eq!(family.name.ends_with("_total"), counts, "{}", family.name);
            let well_formed = |b: u8| b.is_ascii_lowercase() || b == b'_';
            assert!(family.name.bytes().all(well_formed), "{}", family.name);
            assert!(family.help.ends_with('.') && !family.help.contains(['\\', '\n']), "{}", family.name);
            if let Histogram(buckets) = family.kind {
                assert!(!buckets.is_empty() && buckets.is_sorted(), "{}", family.name);
            }
        }
    }
}
