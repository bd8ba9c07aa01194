//! What the edge reports about a listener's connections: metrics, and the replies to connections that never sent a request.

use std::sync::Arc;

use edge::{Observer, Refusal};

use super::problem::{HEAD_TOO_LARGE, MALFORMED_HTTP, Problem, SLOW_HEAD};
use crate::metrics::{Connections, Metrics, Route};

/// Counts the refusals of a listener and, on the public one, its connections.
pub struct ListenerObserver {
    metrics: Arc<Metrics>,
    connections: Option<Connections>,
}

impl ListenerObserver {
    /// For the public listener, which may have `most` connections.
    #[must_use]
    pub fn public(metrics: Arc<Metrics>, most: usize) -> Self {
        let connections = metrics.connections.clone();
        connections.most.set(most as f64);
        Self { metrics, connections: Some(connections) }
    }

    /// For the admin listener, whose connections no metric counts.
    #[must_use]
    pub fn admin(metrics: Arc<Metrics>) -> Self {
        Self { metrics, connections: None }
    }
}

impl Observer for ListenerObserver {
    fn opened(&self) {
        if let Some(connections) = &self.connections {
            connections.accepted.increment(1);
            connections.open.inc();
        }
    }

    fn closed(&self) {
        if let Some(connections) = &self.connections {
            connections.open.dec();
        }
    }

    fn refused(&self, refusal: Refusal) -> Vec<u8> {
        if refusal == Refusal::Overloaded
            && let Some(connections) = &self.connections
        {
            connections.refused.increment(1);
        }
        let problem = match refusal {
            Refusal::Overloaded => Problem::overloaded(),
            Refusal::Malformed => MALFORMED_HTTP.into(),
            Refusal::HeadTooLarge => HEAD_TOO_LARGE.into(),
            Refusal::SlowHead => SLOW_HEAD.into(),
        };
        self.metrics.refused(Route::Other, problem.code.status);
        problem.into_bytes()
    }
}
