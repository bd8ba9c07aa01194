//! The routes in force: those that operators set through the admin API, then those of the configuration file. Each is counted.
//!
//! Invariants: a route that keeps its name keeps its counts, whatever else changes. A list that cannot be read changes nothing. The
//! names that metrics show are bounded.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use check::{Route, Routes, written};
use serde_json::Value;
use tokio::sync::watch;

use crate::metrics::{Metrics, ReadableCounter};

/// The most names that are counted on their own. An operator may set new names every minute.
const MOST_NAMES: usize = 4_096;

/// What counts for the others.
const OTHER_NAMES: &str = "(others)";

/// What was said about a request, as routes count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// No zone is asked: by the route, or since it is a static file or the like.
    Through,
    /// The visit is open.
    Visit,
    /// The visitor has just entered.
    Entered,
    /// The visitor waits.
    Waits,
    /// The route refuses the request.
    Denied,
    /// The zone, a limit or the store refuses it.
    Refused,
}

impl CheckResult {
    /// All of them with their names in metrics.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Through, "through"),
        (Self::Visit, "visit"),
        (Self::Entered, "entered"),
        (Self::Waits, "waits"),
        (Self::Denied, "denied"),
        (Self::Refused, "refused"),
    ];
}

/// How often each was said about the requests that fit a route.
pub type Counts = [ReadableCounter; CheckResult::ALL.len()];

/// Who wrote a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An operator, through the admin API.
    Api,
    /// The configuration file.
    File,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::File => "file",
        })
    }
}

/// The routes in force at one moment.
pub struct InForce {
    /// All of them, in their order.
    pub routes: Routes,
    /// How many of them are of the API. They come first.
    of_api: usize,
    counts: Vec<Arc<Counts>>,
}

impl InForce {
    /// Who wrote the route with this index.
    #[must_use]
    pub fn source(&self, index: usize) -> Source {
        if index < self.of_api { Source::Api } else { Source::File }
    }

    /// The counts of the route with this index, since this server started.
    #[must_use]
    pub fn counts(&self, index: usize) -> &Counts {
        &self.counts[index]
    }
}

struct Lists {
    /// Of the file.
    file: Routes,
    /// Of the API, and the text that has them.
    api: (Option<Arc<str>>, Vec<Route>),
    /// By name.
    counts: HashMap<String, Arc<Counts>>,
}

/// The routes, which change while the server runs.
pub struct ServedRoutes {
    metrics: Arc<Metrics>,
    lists: Mutex<Lists>,
    in_force: ArcSwap<InForce>,
    /// Requests that no route fits.
    pub none: ReadableCounter,
    /// Visitors who leave.
    pub left: ReadableCounter,
    /// Requests that are refused without a route: for their host, or for their target.
    pub refused: ReadableCounter,
}

/// Reads a list that [`list_text`] wrote.
///
/// # Errors
/// What is wrong with it.
pub fn read_list(text: &str) -> Result<Vec<Route>, String> {
    let all: Vec<serde_json::Map<String, Value>> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut routes = Vec::with_capacity(all.len());
    for (fields, number) in all.iter().zip(1..) {
        let route = written::read(fields, number);
        routes.push(route.map_err(|fault| format!("route {number}: {fault}"))?);
    }
    match written::fault_of_list(&routes) {
        Some((_, what)) => Err(what),
        None => Ok(routes),
    }
}

/// The routes of a list as a store keeps them.
#[must_use]
pub fn list_text(routes: &[Route]) -> String {
    routes.iter().map(written::stored).collect::<Value>().to_string()
}

impl ServedRoutes {
    /// Serves the routes of the file.
    #[must_use]
    pub fn new(file: Routes, metrics: Arc<Metrics>) -> Self {
        let [none, left, refused] = ["through", "left", "refused"].map(|said| metrics.checks("", said));
        let lists = Lists { file, api: (None, Vec::new()), counts: HashMap::new() };
        let empty = InForce { routes: Routes::default(), of_api: 0, counts: Vec::new() };
        let (lists, in_force) = (Mutex::new(lists), ArcSwap::from_pointee(empty));
        let served = Self { metrics, lists, in_force, none, left, refused };
        served.change(|_| {});
        served
    }

    /// The routes in force.
    #[must_use]
    pub fn load(&self) -> arc_swap::Guard<Arc<InForce>> {
        self.in_force.load()
    }

    /// The routes of the file are these from now on.
    pub fn set_file(&self, file: Routes) {
        self.change(|lists| lists.file = file);
    }

    /// Takes in the list of the API as its keeper has it.
    ///
    /// # Errors
    /// What is wrong with it. The routes stay as they were then.
    pub fn take_in(&self, listed: &watch::Sender<Option<Arc<str>>>) -> Result<(), String> {
        let mut read = Ok(());
        // The text is read under the lock, so that of two callers the later one has the later list.
        self.change(|lists| {
            let text = listed.borrow().clone();
            if text == lists.api.0 {
                return;
            }
            match text.as_deref().map_or(Ok(Vec::new()), read_list) {
                Ok(routes) => lists.api = (text, routes),
                Err(fault) => read = Err(fault),
            }
        });
        read
    }

    /// Takes in each list that comes, for ever.
    pub async fn follow(self: Arc<Self>, listed: watch::Sender<Option<Arc<str>>>) {
        let mut changes = listed.subscribe();
        loop {
            if let Err(fault) = self.take_in(&listed) {
                tracing::error!(
                    "the routes of the admin API cannot be read ({fault}); those in force stay as they were"
                );
            }
            // This holds a sender, too, so there may always be another change.
            let _ = changes.changed().await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Lists)) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut lists);
        let Lists { file, api: (_, api), counts } = &mut *lists;
        let routes: Vec<Route> = api.iter().chain(file.all()).cloned().collect();
        let counts = routes.iter().map(|route| self.counts(counts, &route.name)).collect();
        self.in_force.store(Arc::new(InForce { routes: Routes::new(routes), of_api: api.len(), counts }));
    }

    fn counts(&self, known: &mut HashMap<String, Arc<Counts>>, name: &str) -> Arc<Counts> {
        let name = if known.len() < MOST_NAMES || known.contains_key(name) { name } else { OTHER_NAMES };
        let of = |name: &str| Arc::new(CheckResult::ALL.map(|(_, said)| self.metrics.checks(name, said)));
        Arc::clone(known.entry(name.to_owned()).or_insert_with(|| of(name)))
    }
}

#[cfg(test)]
mod tests {
    use events::Bus;

    use super::*;

    fn served(file: &str) -> ServedRoutes {
        let bus = Arc::new(Bus::new().expect("a thread"));
        ServedRoutes::new(Routes::new(read_list(file).expect("right")), Arc::new(Metrics::new(bus)))
    }

    fn names(served: &ServedRoutes) -> Vec<String> {
        let now = served.load();
        let of = |(index, route): (usize, &Route)| format!("{} {}", now.source(index), route.name);
        now.routes.all().iter().enumerate().map(of).collect()
    }

    #[test]
    fn the_routes_of_the_api_come_first_and_counts_follow_the_names() {
        let served = served(r#"[{"name": "site", "zone": "Z"}]"#);
        let listed = watch::Sender::new(None);
        served.take_in(&listed).expect("nothing");
        assert_eq!(names(&served), ["file site"]);
        served.load().counts(0)[CheckResult::Waits as usize].inc();
        listed.send_replace(Some(r#"[{"name": "abuse", "deny": true, "address": "10.0.0.1"}]"#.into()));
        served.take_in(&listed).expect("right");
        assert_eq!(names(&served), ["api abuse", "file site"]);
        assert_eq!(served.load().counts(1)[CheckResult::Waits as usize].get(), 1);
        for wrong in ["", "{}", "[1]", r#"[{"name": "a"}]"#, r#"[{"name": "x", "later": 1}]"#] {
            listed.send_replace(Some(wrong.into()));
            served.take_in(&listed).expect_err(wrong);
            assert_eq!(names(&served), ["api abuse", "file site"], "{wrong}");
        }
        served.set_file(Routes::default());
        assert_eq!(names(&served), ["api abuse"]);
        listed.send_replace(Some("[]".into()));
        served.take_in(&listed).expect("none");
        assert!(names(&served).is_empty());
    }

    #[test]
    fn what_is_written_is_read() {
        let text = r#"[{"name": "a", "bypass": true, "token": "press"}, {"name": "b", "zone": "Z"}]"#;
        let routes = read_list(text).expect("right");
        assert_eq!(read_list(&list_text(&routes)), Ok(routes));
    }
}
