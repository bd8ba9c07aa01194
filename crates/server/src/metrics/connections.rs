//! The public listener's connections.

use metrics::{Counter, Gauge};

use super::{names, readable::ReadableGauge, registry::Registry};

/// Counts the connections of a listener.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Open now.
    pub open: ReadableGauge,
    /// The most that may be open.
    pub most: Gauge,
    /// Accepted so far.
    pub accepted: Counter,
    /// Turned away so far, because too many were open.
    pub refused: Counter,
    /// Turned away so far, because their client had too many.
    pub refused_of_client: Counter,
    /// Ended so far without a TLS handshake. Stays 0 without TLS.
    pub handshakes_failed: Counter,
}

impl Connections {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            open: ReadableGauge::new(registry.gauge(names::CONNECTIONS_OPEN, &[])),
            most: registry.gauge(names::CONNECTIONS_MAX, &[]),
            accepted: registry.counter(names::CONNECTIONS_ACCEPTED, &[]),
            refused: registry.counter(names::CONNECTIONS_REFUSED, &[]),
            refused_of_client: registry.counter(names::CLIENT_CONNECTIONS_REFUSED, &[]),
            handshakes_failed: registry.counter(names::TLS_HANDSHAKES_FAILED, &[]),
        }
    }
}
