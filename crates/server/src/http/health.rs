//! Whether the server runs, and whether it is ready for new work.

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

/// The most names of silent cells and zones that a reply lists.
const MAX_NAMES: usize = 10;

/// Whether the server takes new work.
#[derive(Debug, Default)]
pub struct Lifecycle {
    stopping: AtomicBool,
    draining: AtomicBool,
}

impl Lifecycle {
    /// The server is about to stop. There is no way back.
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
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn healthz() -> Response<Full<Bytes>> {
    text("ok", "text/plain; charset=utf-8")
}

/// New work is welcome: the server is in service, and a store answers.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn readyz(State(readiness): State<Readiness>) -> Replied {
    readiness.reply()
}

impl Readiness {
    /// Ready when the server is in service and at least a part of the store answers. Names the parts that do not.
    fn reply(&self) -> Replied {
        if self.lifecycle.is_out_of_service() {
            return Err(Problem::stopping());
        }
        let zones = self.gate.zones();
        let down = self.cells.iter().filter(|cell| !cell.is_up()).map(|cell| cell.name.as_str());
        let silent = zones.iter().filter(|(_, answers)| !answers).map(|(zone, _)| zone.as_str());
        let answers = if zones.is_empty() {
            self.cells.iter().any(|cell| cell.is_up())
        } else {
            zones.iter().any(|(_, answers)| *answers)
        };
        let away = [names_line("cells", down), names_line("zones", silent)].concat();
        if answers {
            Ok(text(format!("ok\n{away}"), "text/plain; charset=utf-8"))
        } else {
            Err(Problem::new(STORE_AWAY, away.trim_end().replace('\n', "; ")).retry_after(1))
        }
    }
}

/// A line with the first few names of what is away; empty where nothing is.
fn names_line<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    match names.len() {
        0 => String::new(),
        _ if more > 0 => format!("{what} away: {} and {more} more\n", names[..MAX_NAMES].join(", ")),
        _ => format!("{what} away: {}\n", names.join(", ")),
    }
}
