//! What the running servers say of themselves: each registers with each cell, and names its zones whose store is away.
//!
//! It is the record that the server's log and `/readyz` read. The doctor reads it in Redis, so it needs no token. Invariant: a
//! server that registers with several cells is asked once.

use std::collections::BTreeMap;

use gate::TroubleKind;
use store::redis::servers::RegisteredServer;

use super::report::Report;
use crate::{
    clock::in_utc,
    servers::{ZoneAway, away},
};

const WHY: &str = "while its store is away, nobody joins or enters this zone at that server";

/// Reports the zones that servers say are away. `heard` is what all cells list.
pub(super) fn check(heard: Vec<RegisteredServer>, report: &mut Report) {
    let mut newest = BTreeMap::<String, RegisteredServer>::new();
    for server in heard {
        let of_server = newest.entry(server.id.clone()).or_insert_with(|| server.clone());
        if server.ago < of_server.ago {
            *of_server = server;
        }
    }
    let newest: Vec<RegisteredServer> = newest.into_values().collect();
    let away = away(&newest);
    if away.is_empty() && !newest.is_empty() {
        report.ok("servers", format!("{} servers run, and none says that a zone is away", newest.len()), WHY);
    }
    for (server, all) in away {
        let place = format!("server {server}");
        for ZoneAway { zone, since_ms, cause, why } in all.zones {
            let since = in_utc(i64::try_from(since_ms).ok());
            let advice = TroubleKind::named(&cause)
                .map_or("see the text, and the log of that server", TroubleKind::advice);
            let found = format!("says: zone {zone} is away since {since} UTC: {cause}: {why}");
            report.problem(&place, found, WHY, advice);
        }
        if all.more > 0 {
            let found = format!("says: {} more zones are away", all.more);
            report.problem(&place, found, WHY, "`weir stats` at that server, or its /readyz, names them");
        }
    }
}
