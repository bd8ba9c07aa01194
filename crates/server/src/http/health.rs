//! Whether the server runs, and whether it is ready for new work.
//!
//! Invariant: only the admin listener names zones and cells. The public does not learn which zones exist or do not work.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use axum::extract::State;
use bytes::Bytes;
use gate::{AnyStore, Gate, cells::Health};
use http_body_util::Full;
use hyper::Response;

use super::{
    Replied,
    problem::{Problem, STORE_AWAY},
    text,
};
use crate::servers::{Lack, Servers};

/// The most names of silent cells and zones that a reply lists.
const MAX_NAMES: usize = 10;

/// Whether the server takes new work.
#[derive(Debug, Default)]
pub struct Lifecycle {
    stopping: AtomicBool,
    draining: AtomicBool,
}

impl Lifecycle {
    /// The server is about to stop. This is final.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// An operator takes the server out of service, or puts it back. Returns whether that changes anything.
    pub fn set_draining(&self, draining: bool) -> bool {
        self.draining.swap(draining, Relaxed) != draining
    }

    /// Whether the server is about to stop, or an operator took it out of service.
    #[must_use]
    pub fn is_out_of_service(&self) -> bool {
        self.is_stopping() || self.draining.load(Relaxed)
    }
}

/// What decides whether the server is ready.
#[derive(Clone)]
pub struct Readiness {
    /// The zones.
    pub gate: Arc<Gate<AnyStore>>,
    /// The cells that keep the zones. Empty for a store in this process.
    pub cells: Arc<[Arc<Health>]>,
    /// Whether the server takes new work.
    pub lifecycle: Arc<Lifecycle>,
}

/// The server runs.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "The server runs", content_type = "text/plain", body = String)))]
pub(super) async fn healthz() -> Response<Full<Bytes>> {
    text("ok", "text/plain; charset=utf-8")
}

/// New work is welcome: the server is in service, and a store answers.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, description = "The server is ready for new work", content_type = "text/plain", body = String)))]
pub(super) async fn readyz(State(readiness): State<Readiness>) -> Replied {
    match readiness.look() {
        (None, _) => Ok(text("ok\n", "text/plain; charset=utf-8")),
        (Some(problem), _) => Err(problem),
    }
}

/// The same for operators: the reply names what does not answer, and the servers that have not read an event. Those do not make this
/// server less ready.
pub(super) async fn readyz_with_names(
    State(readiness): State<Readiness>,
    State(servers): State<Arc<Servers>>,
) -> Replied {
    match readiness.look() {
        (None, away) => {
            let unarmed: String = servers.unarmed().iter().take(MAX_NAMES).map(unarmed_line).collect();
            Ok(text(format!("ok\n{away}{unarmed}"), "text/plain; charset=utf-8"))
        }
        (Some(problem), away) => {
            Err(Problem { detail: away.trim_end().replace('\n', "; ").into(), ..problem })
        }
    }
}

impl Readiness {
    /// Returns the problem if the server is not ready, and the names of the parts that do not answer. It is ready when it is
    /// in service and at least a part of the store answers.
    fn look(&self) -> (Option<Problem>, String) {
        if self.lifecycle.is_out_of_service() {
            return (Some(Problem::stopping()), String::new());
        }
        let zones = self.gate.zones();
        let down = self.cells.iter().filter(|cell| !cell.is_up()).map(|cell| cell.name.as_str());
        let silent = zones.iter().filter(|(_, answers)| !answers).map(|(zone, _)| zone.as_str());
        let answers = if zones.is_empty() {
            self.cells.iter().any(|cell| cell.is_up())
        } else {
            zones.iter().any(|(_, answers)| *answers)
        };
        let mut away = [names_line("cells", down), names_line("zones", silent)].concat();
        for (zone, trouble) in self.gate.troubles().into_iter().take(MAX_NAMES) {
            // One line for each, whatever the store said.
            let told = trouble.to_string().replace(|c: char| c.is_control(), " ");
            away.push_str(&format!("{zone}: {told}\n"));
        }
        ((!answers).then(|| Problem::from(STORE_AWAY).retry_after(1)), away)
    }
}

fn unarmed_line(Lack { zone, event, server }: &Lack) -> String {
    format!("{zone}: {server} has not read the event {event}\n")
}

/// A line with the first few names of what does not answer; empty if everything answers.
fn names_line<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    match names.len() {
        0 => String::new(),
        _ if more > 0 => format!("{what} away: {} and {more} more\n", names[..MAX_NAMES].join(", ")),
        _ => format!("{what} away: {}\n", names.join(", ")),
    }
}
