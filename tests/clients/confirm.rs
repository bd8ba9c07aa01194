//! `WAIT`: an answer counts when replicas have the write.

use redis_script::{
    address::Library,
    client::{ClientError, Confirm, Value},
};

use crate::{COUNT, Cluster, ONE, Standalone, connect, count, keys, replica_of, run, settings, with_both};

with_both!(
    by_a_replica,
    without_a_replica,
    by_a_frozen_replica,
    in_a_cluster,
    after_a_flush,
    waiting_does_not_delay_others
);

async fn by_a_replica(library: Library) {
    let primary = Standalone::start();
    let replica = replica_of(&primary);
    let client = connect(&primary.url(), &settings(library)).await;
    for number in 1..=20 {
        assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(number)));
        // The replica has it at that moment, not only later.
        assert_eq!(replica.command(&["GET", "a"]).text(), number.to_string());
    }
}

async fn without_a_replica(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    let two = Some(Confirm { replicas: 2, timeout_ms: 50 });
    assert_eq!(
        run(&client, &COUNT, "a", two).await,
        Err(ClientError::Unconfirmed { confirmed: 0, asked: 2, reply: Value::Int(1) })
    );
    assert_eq!(server.command(&["GET", "a"]).text(), "1");
}

async fn by_a_frozen_replica(library: Library) {
    let primary = Standalone::start();
    let replica = replica_of(&primary);
    let client = connect(&primary.url(), &settings(library)).await;
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(1)));
    replica.stop();
    let short = Some(Confirm { replicas: 1, timeout_ms: 50 });
    assert_eq!(
        run(&client, &COUNT, "a", short).await,
        Err(ClientError::Unconfirmed { confirmed: 0, asked: 1, reply: Value::Int(2) })
    );
    replica.cont();
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(3)));
}

async fn in_a_cluster(library: Library) {
    let cluster = Cluster::start(3, 1);
    let client = connect(&cluster.url(), &settings(library)).await;
    for key in keys(&cluster, 3) {
        assert_eq!(run(&client, &COUNT, &key, ONE).await, Ok(Value::Int(1)), "{key}");
        let two = Some(Confirm { replicas: 2, timeout_ms: 50 });
        let result = run(&client, &COUNT, &key, two).await;
        let unconfirmed = ClientError::Unconfirmed { confirmed: 1, asked: 2, reply: Value::Int(2) };
        assert_eq!(result, Err(unconfirmed), "{key}");
    }
}

async fn after_a_flush(library: Library) {
    let primary = Standalone::start();
    let replica = replica_of(&primary);
    let client = connect(&primary.url(), &settings(library)).await;
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(1)));
    primary.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(2)));
    assert_eq!(replica.command(&["GET", "a"]).text(), "2");
}

/// A run that waits for replicas does not delay other runs.
async fn waiting_does_not_delay_others(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    let long = Some(Confirm { replicas: 1, timeout_ms: 1_000 });
    let mut waiting = std::pin::pin!(run(&client, &COUNT, "a", long));
    let mut others = 0;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut waiting => break result,
            answer = count(&client, "b") => {
                others += 1;
                assert_eq!(answer, Ok(Value::Int(others)));
            }
        }
    };
    assert_eq!(result, Err(ClientError::Unconfirmed { confirmed: 0, asked: 1, reply: Value::Int(1) }));
    assert!(others > 3, "only {others} other calls were answered meanwhile");
}
