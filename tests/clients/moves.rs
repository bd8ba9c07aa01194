//! Slots move from server to server, and calls follow them.

use redis_script::{address::Library, client::Value};

use crate::{Cluster, connect, count, keys, settings, with_both};

with_both!(moved, while_moving, to_a_new_server);

async fn moved(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    let key = &keys(&cluster, 3)[0];
    let slot = cluster.slot(key);
    cluster.begin_move(slot, 2);
    cluster.end_move(slot, 2);
    assert_eq!(count(&client, key).await, Ok(Value::Int(1)));
    assert_eq!(cluster.command(2, &["GET", key]).text(), "1");
    assert_eq!(count(&client, key).await, Ok(Value::Int(2)));
}

async fn while_moving(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    let key = &keys(&cluster, 3)[0];
    let slot = cluster.slot(key);
    cluster.begin_move(slot, 2);
    // The old server does not have the key, and answers `ASK`.
    assert_eq!(count(&client, key).await, Ok(Value::Int(1)));
    assert_eq!(count(&client, key).await, Ok(Value::Int(2)));
    cluster.end_move(slot, 2);
    assert_eq!(count(&client, key).await, Ok(Value::Int(3)));
}

/// The slot moves to a server that was started after the client connected.
async fn to_a_new_server(library: Library) {
    let mut cluster = Cluster::start(2, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    let key = &keys(&cluster, 2)[0];
    let (slot, new) = (cluster.slot(key), cluster.add());
    cluster.begin_move(slot, new);
    assert_eq!(count(&client, key).await, Ok(Value::Int(1)));
    cluster.end_move(slot, new);
    assert_eq!(count(&client, key).await, Ok(Value::Int(2)));
    assert_eq!(cluster.command(new, &["GET", key]).text(), "2");
}
