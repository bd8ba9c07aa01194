//! The commands about the zones that a store keeps.

use std::{fmt::Write as _, io, io::Write as _, sync::Arc};

use admission::{Definition, ZoneId};
use gate::{
    cells::Cells,
    definitions::{self, Applied, ApplyOptions},
};
use store::redis::Redis;

use super::on_this_thread;
use crate::{
    config::Config,
    failure::{self, Failure},
    fanout::{self, SenderId},
    output::print,
    stores::{self, Connections, RedisSettings, StoreSettings},
};

/// Puts the zones of the file into the store, and tells the servers.
pub(super) fn apply(config: &Config, options: ApplyOptions) -> Result<(), Failure> {
    let redis = store_of(config)?;
    for danger in super::contradictions(config).chain(super::begun_draws(config)) {
        let _ = writeln!(io::stderr(), "weir: warning: {danger}");
    }
    if config.zones.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "weir: warning: the file has no [[zone]], so nothing is put into the store"
        );
    }
    let (applied, not_told) = on_this_thread(async {
        let cells = Arc::new(Connections::read(redis)?.cells());
        Ok(apply_to(&cells, config, options).await)
    })?;
    if options.dry_run {
        let _ = writeln!(io::stderr(), "weir: nothing was changed; without --dry-run it would be:");
    }
    let printed = print(&applied.to_string());
    if let Some(why) = not_told {
        let _ =
            writeln!(io::stderr(), "weir: the servers were not told ({why}); they see it within a second");
    }
    match applied.failure() {
        None if applied.is_refused() => {
            printed?;
            Err(Failure::new(failure::DATA, "a zone stays as it is; see above"))
        }
        None => printed,
        Some(why) => Err(Failure::new(failure::UNAVAILABLE, format_args!("{why}; apply the file again"))),
    }
}

/// Puts the zones into the cells. Also returns why servers could not be told, if they could not.
async fn apply_to(
    cells: &Arc<Cells<Redis>>,
    config: &Config,
    options: ApplyOptions,
) -> (Applied, Option<String>) {
    let (transports, sender) = (stores::transports(&config.fanout, cells), SenderId::new());
    let mut not_told = None;
    let applied = definitions::apply(cells, &config.zones, options, async |at, zone, definition| {
        // After the first failure the other zones are not announced: each would wait for its own time limit.
        if not_told.is_none()
            && let Some(transport) = transports.get(at)
        {
            not_told = fanout::say(transport, sender, zone, Some(definition)).await.err();
        }
    });
    (applied.await, not_told)
}

/// Prints the zones of each cell that answers.
pub(super) fn list(config: &Config) -> Result<(), Failure> {
    let redis = store_of(config)?;
    on_this_thread(async {
        let mut away = None;
        for cell in Connections::read(redis)?.cells().all() {
            match cell.zones().await {
                Ok(kept) => print(&kept.zones.iter().map(zone_text).collect::<String>())?,
                Err(error) => away = Some(error),
            }
        }
        away.map_or(Ok(()), |error| Err(Failure::new(failure::UNAVAILABLE, error)))
    })
}

/// The store that keeps the zones.
fn store_of(config: &Config) -> Result<&RedisSettings, Failure> {
    match &config.store {
        StoreSettings::Redis(redis) => Ok(redis),
        StoreSettings::Memory => Err(Failure::new(
            failure::USAGE,
            "the embedded store keeps no zones: the server reads them from its file; change the file and send the server \
             SIGHUP, or name a store with --store redis://…",
        )),
    }
}

/// A zone on one line, and its notices below.
fn zone_text((zone, definition): &(ZoneId, Definition)) -> String {
    let mut out = format!("{zone}: {}\n", definitions::sentence(definition));
    for (language, text) in definition.notice.iter() {
        let _ = writeln!(out, "  {language}: {}", text.replace('\n', "\n      "));
    }
    for event in definition.schedule.events() {
        let _ = writeln!(
            out,
            "  event {}: places from {}, begins {}, ends {}",
            event.id, event.prequeue_from, event.begins, event.ends
        );
    }
    out
}
