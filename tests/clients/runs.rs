//! Scripts run where their keys are, and their answers arrive.

use std::{pin::pin, sync::LazyLock};

use bytes::Bytes;
use redis_script::{
    address::Library,
    client::{Client as _, ClientError, Script, Value},
};

use crate::{Cluster, Standalone, begin, connect, count, keys, run, settings, with_both};

with_both!(standalone, cluster, values, errors, flushed, flushed_in_a_cluster, many_together, too_many);

async fn standalone(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    assert_eq!(count(&client, "a").await, Ok(Value::Int(2)));
}

async fn cluster(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    for (i, key) in keys(&cluster, 3).iter().enumerate() {
        assert_eq!(count(&client, key).await, Ok(Value::Int(1)), "{key}");
        assert_eq!(cluster.command(i, &["GET", key]).text(), "1");
    }
}

static VALUES: LazyLock<Script> = LazyLock::new(|| Script {
    name: "values",
    text: "return {1, '2', {false, ARGV[1]}, {ok = 'FINE'}, {}}".to_owned(),
    sha1: "038f55f7207dbc1de3e3a542d26fc269d5d11c67".to_owned(),
});

async fn values(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    let bytes = Bytes::from_static(b"\0\r\n\xff");
    let answer = client.run(&VALUES, vec![Bytes::from_static(b"key")], vec![bytes.clone()], None).await;
    let expected = Value::Array(vec![
        Value::Int(1),
        Value::Bytes(Bytes::from_static(b"2")),
        Value::Array(vec![Value::Nil, Value::Bytes(bytes)]),
        Value::Bytes(Bytes::from_static(b"FINE")),
        Value::Array(vec![]),
    ]);
    assert_eq!(answer, Ok(expected));
}

static REFUSES: LazyLock<Script> = LazyLock::new(|| Script {
    name: "refuses",
    text: "return redis.error_reply('WEIR this is my reason')".to_owned(),
    sha1: "9b593b7f387251dd711db3bdea69c4be483b29dc".to_owned(),
});

async fn errors(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    let refused = run(&client, &REFUSES, "a", None).await;
    assert_eq!(refused, Err(ClientError::Script("WEIR this is my reason".to_owned())));
    server.command(&["SET", "text", "no number"]);
    match count(&client, "text").await {
        Err(ClientError::Script(text)) => assert!(text.starts_with("ERR value is not an integer"), "{text}"),
        other => panic!("the script fails, not {other:?}"),
    }
}

async fn flushed(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&client, "a").await, Ok(Value::Int(2)));
    // From then on the script is called by its digest again.
    server.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(count(&client, "a").await, Ok(Value::Int(3)));
    let stats = server.command(&["INFO", "commandstats"]).text();
    assert!(stats.contains("cmdstat_evalsha:calls=1,") && !stats.contains("cmdstat_eval:"), "{stats}");
}

async fn flushed_in_a_cluster(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    for (i, key) in keys(&cluster, 3).iter().enumerate() {
        assert_eq!(count(&client, key).await, Ok(Value::Int(1)));
        cluster.command(i, &["SCRIPT", "FLUSH"]);
        assert_eq!(count(&client, key).await, Ok(Value::Int(2)));
    }
}

async fn many_together(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = std::sync::Arc::new(connect(&cluster.url(), &settings(library)).await);
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..3_000 {
        let client = std::sync::Arc::clone(&client);
        runs.spawn(async move { count(&client, &format!("key:{}", n % 30)).await });
    }
    let mut sum = 0;
    while let Some(answer) = runs.join_next().await {
        match answer.expect("no run panics") {
            Ok(Value::Int(number)) => sum += number,
            other => panic!("a count, not {other:?}"),
        }
    }
    // Each of 30 counters went from 1 to 100, once each.
    assert_eq!(sum, 30 * 5_050);
}

async fn too_many(library: Library) {
    let server = Standalone::start();
    let mut settings = settings(library);
    settings.max_in_flight = 2;
    let client = connect(&server.url(), &settings).await;
    let (mut first, mut second) = (pin!(count(&client, "a")), pin!(count(&client, "a")));
    server.stop();
    begin(first.as_mut());
    begin(second.as_mut());
    assert_eq!(count(&client, "a").await, Err(ClientError::Busy));
    server.cont();
    let (first, second) = (first.await, second.await);
    assert!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
    assert_eq!(count(&client, "a").await, Ok(Value::Int(3)));
}
