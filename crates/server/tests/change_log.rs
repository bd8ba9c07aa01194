//! Operators' changes and their list, while one of several cells is frozen: in virtual time over stores in memory.

#[path = "../../gate/tests/shared_store/world.rs"]
#[allow(dead_code, reason = "the tests of `gate` use the rest")]
mod world;

use std::{sync::Arc, time::Duration};

use gate::{cells::Cell, definitions::Author};
use store::Expected;
use tokio::time::timeout;
use weir::{
    access::{Caller, Role},
    change_log::ChangeLog,
};
use world::{Fake, Is, Server, closed, hold, in_virtual_time, serve, zone, zones};

/// Closes a zone as the admin API does.
async fn close(server: &Server, log: &ChangeLog, name: &str) -> bool {
    let caller = Caller { name: "ada".into(), role: Role::Admin, authenticated: true };
    let author = Author { name: "ada".to_owned(), role: "admin".to_owned(), from: None };
    let zone = zone(name);
    let define = server.editor.define(author, &zone, Expected::Any, Some(closed().into()));
    log.make(caller, &zone, define).await.is_ok()
}

#[test]
fn a_frozen_cell_delays_no_other_cells_changes_and_no_list() {
    in_virtual_time(async {
        let (shop, gov) = (Fake::new(), Fake::new());
        let cells = vec![
            Cell::new("shop", vec!["shop".to_owned()], shop.connect()),
            Cell::new("gov", vec!["gov".to_owned()], gov.connect()),
        ];
        let server = serve(cells, &zones(&["shop:a", "gov:a"], hold())).await;
        let told = ChangeLog::subscribe(&server.bus).expect("room");
        let log = ChangeLog::new(server.gate.definitions());
        let mut following = tokio::task::JoinSet::new();
        following.spawn(Arc::clone(&log).follow(told, Arc::clone(&server.gate)));

        gov.set(Is::Frozen);
        let frozen = close(&server, &log, "gov:a");
        let others = async {
            let soon = Duration::from_secs(1);
            let made = timeout(soon, close(&server, &log, "shop:a")).await;
            assert_eq!(made, Ok(true), "a change in another cell");
            let listed = log.of(None);
            assert_eq!(listed.len(), 1, "{listed:?}");
            assert_eq!((listed[0].zone.as_str(), listed[0].by.is_some()), ("shop:a", true));
        };
        tokio::select! {
            biased;
            _ = frozen => panic!("its cell is frozen"),
            () = others => {}
        }
    });
}
