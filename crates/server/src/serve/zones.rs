//! Where the zones are kept: the store and its cells, the editor, and what follows changes that are made elsewhere.

use std::{sync::Arc, time::Duration};

use admission::ZoneId;
use events::Bus;
use gate::{
    AnyStore, Gate, Refresh, Watcher,
    cells::{Cells, Health},
    definitions::{DefineError, OnChange, ZoneEditor},
    limits::BucketsOf,
};
use store::{Embedded, redis::Redis};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    config::Config,
    failure::{self, Failure},
    fanout::{self, Fanout, SenderId},
    metrics::Metrics,
    stores::{self, Connections},
};

/// How long the start waits until each cell has listed its zones. After that the server serves what it knows.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// A store. The cells are `None` if it is in this process.
type Opened = (AnyStore, Option<Arc<Cells<Redis>>>);

/// Opens the configured store. `connections` are those to Redis, if the store is there.
pub(super) fn open_store(config: &Config, connections: Option<&Connections>) -> Result<Opened, Failure> {
    match connections {
        None => {
            let store = Embedded::open(&config.data_dir).map_err(Failure::with(failure::IO))?;
            Ok((AnyStore::Embedded(Arc::new(store)), None))
        }
        Some(connections) => {
            let cells = Arc::new(connections.cells());
            if config.seal.key_file.is_none() || config.pass.key_file.is_none() {
                tracing::warn!(
                    "seal.key_file and pass.key_file are not both set: several servers of one store need the same keys"
                );
            }
            Ok((AnyStore::Cells(Arc::clone(&cells)), Some(cells)))
        }
    }
}

/// What the rest of the server needs to know of the zones.
pub(super) struct Zones {
    pub(super) editor: ZoneEditor<AnyStore>,
    /// Whether each cell answers. Empty for a store in this process.
    pub(super) cells: Arc<[Arc<Health>]>,
    pub(super) buckets_of: Box<BucketsOf>,
}

/// How often the zones of the file are compared with their schedules. A zone opens by itself, in the store.
const SCHEDULE_EVERY: Duration = Duration::from_millis(250);

/// What follows the cells.
pub(super) struct Followers<'a> {
    /// The tasks that follow.
    pub(super) tasks: &'a mut JoinSet<()>,
    pub(super) bus: &'a Arc<Bus>,
    pub(super) metrics: &'a Arc<Metrics>,
    /// Is notified when zones or policies changed elsewhere.
    pub(super) changed: &'a Arc<Notify>,
}

/// Serves the zones of the file, which the data directory may override.
pub(super) async fn of_file(
    config: &Config,
    gate: &Arc<Gate<AnyStore>>,
    on_change: Box<OnChange>,
    tasks: &mut JoinSet<()>,
) -> Result<Zones, Failure> {
    let editor =
        ZoneEditor::over_file(Arc::clone(gate), &config.data_dir, config.zones.clone(), on_change).await;
    let editor = editor.map_err(|fault| match fault {
        // Nobody makes a change now.
        DefineError::Disk(why) => Failure::new(failure::IO, why),
        fault => Failure::new(failure::IO, fault),
    })?;
    let gate = Arc::clone(gate);
    tasks.spawn(async move {
        loop {
            sleep(SCHEDULE_EVERY).await;
            gate.follow_schedules().await;
        }
    });
    Ok(Zones { editor, cells: Arc::new([]), buckets_of: Box::new(|_| None) })
}

/// Serves the zones that `cells` keep. Returns when each cell has listed its zones, or after [`FIRST_ANSWER`].
pub(super) async fn of_cells(
    config: &Config,
    gate: &Arc<Gate<AnyStore>>,
    (cells, connections): (&Arc<Cells<Redis>>, &Connections),
    on_change: Box<OnChange>,
    followers: Followers<'_>,
) -> Result<Zones, Failure> {
    let health: Vec<_> = cells.all().iter().map(|cell| Arc::clone(cell.health())).collect();
    followers.metrics.watch_cells(health.clone());
    let buckets = connections.buckets();
    for buckets in &buckets {
        followers.tasks.spawn(Arc::clone(buckets).run());
    }
    let places = Arc::clone(cells);
    let buckets_of: Box<BucketsOf> =
        Box::new(move |zone| places.place_of(zone).map(|at| Arc::clone(&buckets[at])));
    let refreshes = follow(config, gate, cells, followers).await?;
    let places = Arc::clone(cells);
    let refresh_of = move |zone: &str| places.place_of(zone).map(|at| Arc::clone(&refreshes[at]));
    let editor = ZoneEditor::over_store(Arc::clone(gate), Box::new(refresh_of), on_change);
    Ok(Zones { editor, cells: health.into(), buckets_of })
}

/// Follows the zones of each cell, and the messages of other servers about them. Returns the refreshes of each cell.
async fn follow(
    config: &Config,
    gate: &Arc<Gate<AnyStore>>,
    cells: &Arc<Cells<Redis>>,
    Followers { tasks, bus, metrics, changed }: Followers<'_>,
) -> Result<Vec<Arc<Refresh>>, Failure> {
    let (mut firsts, mut news, mut refreshes) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..cells.all().len() {
        let (listed, first) = oneshot::channel();
        firsts.push(first);
        let watcher = Watcher::new(Arc::clone(gate), Arc::clone(cells), at, &config.zones);
        // The zone to try is nobody's wish if the store has others.
        let watcher = if config.has_file { watcher } else { watcher.without_file() };
        news.push(watcher.news());
        refreshes.push(watcher.refresh());
        tasks.spawn(watcher.run(listed, Arc::clone(changed)));
    }
    let all = async {
        for first in firsts {
            let _ = first.await;
        }
    };
    if timeout(FIRST_ANSWER, all).await.is_err() {
        tracing::warn!("not every store has answered yet; serving what is known");
    }
    // After the first listing, because what a server finds at its start is no news to the others.
    let (sender, transports) = (SenderId::new(), stores::transports(&config.fanout, cells));
    for (at, (transport, news)) in transports.into_iter().zip(news).enumerate() {
        let name = &cells.all()[at].health().name;
        let fanout = Fanout::new(name, transport, sender, metrics.fanout(name));
        let changes = fanout::subscribe(bus).map_err(Failure::with(failure::UNAVAILABLE))?;
        let (gate, cells, bus) = (Arc::clone(gate), Arc::clone(cells), Arc::clone(bus));
        tasks.spawn(async move {
            let mine = |zone: &ZoneId| cells.place_of(zone.as_str()) == Some(at);
            fanout.run(&gate, mine, (&bus, changes), &news).await;
        });
    }
    Ok(refreshes)
}
