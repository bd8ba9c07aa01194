//! Servers are killed, frozen and cut off. Each call ends, calls to other servers are not delayed, and a server that is back
//! is used again.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use redis_script::{address::Library, client::Value};

use crate::{
    COUNT, Cluster, DEADLINE, ONE, Standalone, assert_away, connect, count, count_at_last, impatient, keys,
    now, patient,
    redis::{Options, Proxy},
    replica_of, run, settings, try_connect, with_both,
};

with_both!(
    absent_at_the_start,
    first_seeds_are_dead,
    first_seed_is_frozen,
    restarted,
    frozen,
    severed,
    replies_are_lost,
    killed_primary_is_replaced,
    frozen_primary_is_replaced,
    killed_primary_delays_no_other_shard,
    frozen_primary_delays_no_other_shard,
    primary_among_the_hosts_is_found,
    demoted_primary_behind_a_name_is_left,
    sentinels_name_the_primary,
    silent_server_of_a_cluster_is_named,
    frozen_server_is_named_by_the_call,
    cluster_behind_the_address_of_one_server_is_reported,
    another_kind_behind_the_address_of_one_server_is_reported,
);

async fn absent_at_the_start(library: Library) {
    let mut server = Standalone::start();
    server.kill();
    assert_away(&try_connect(&server.url(), &patient(library)).await.map(drop), "refused");
    server.restart();
    server.stop();
    assert_away(&try_connect(&server.url(), &impatient(library)).await.map(drop), "within 500 ms");
    server.cont();
    let client = connect(&server.url(), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
}

/// One address leads to the primary. It is demoted and stays up, with its connections, and the address leads to the next one.
async fn demoted_primary_behind_a_name_is_left(library: Library) {
    let first = Standalone::start();
    let second = replica_of(&first);
    let of = |server: &Standalone| (Ipv4Addr::LOCALHOST, server.port()).into();
    let address = Proxy::start(of(&first));
    let client = connect(&format!("redis://127.0.0.1:{}", address.port()), &patient(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(2)));
    let port = second.port().to_string();
    second.command(&["REPLICAOF", "NO", "ONE"]);
    first.command(&["REPLICAOF", "127.0.0.1", &port]);
    assert_away(&count(&client, "a").await, "READONLY");
    address.lead_to(of(&second));
    assert_eq!(count_at_last(&client, "a").await, Value::Int(3));
    second.wait_replicas(1);
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(4)));
}

/// There are more dead seeds than one refresh asks.
async fn first_seeds_are_dead(library: Library) {
    let mut dead = Standalone::start();
    dead.kill();
    let cluster = Cluster::start(3, 0);
    let seeds: String = (1..20).map(|n| format!("127.0.0.{n}:{},", dead.port())).collect();
    let client = connect(&cluster.url().replace("://", &format!("://{seeds}")), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
}

async fn first_seed_is_frozen(library: Library) {
    let frozen = Standalone::start();
    frozen.stop();
    let cluster = Cluster::start(3, 0);
    let url = cluster.url().replace("://", &format!("://127.0.0.1:{},", frozen.port()));
    let client = connect(&url, &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
}

async fn restarted(library: Library) {
    let mut server = Standalone::start();
    let client = connect(&server.url(), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    server.kill();
    assert_away(&count(&client, "a").await, "");
    server.restart();
    assert_eq!(count_at_last(&client, "a").await, Value::Int(1));
}

async fn frozen(library: Library) {
    let server = Standalone::start();
    let client = connect(&server.url(), &impatient(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    server.stop();
    assert_away(&count(&client, "a").await, "no answer within 500 ms");
    // The client gives up the connection and can't open another. From then on, calls fail for that reason.
    let deadline = now() + DEADLINE;
    loop {
        let result = count(&client, "a").await;
        assert_away(&result, "within 500 ms");
        if result.is_err_and(|error| error.to_string().contains("no connection")) {
            break;
        }
        assert!(now() < deadline, "not within {DEADLINE:?}: the frozen server is given up");
    }
    server.cont();
    count_at_last(&client, "a").await;
}

/// If a connection is closed, the call opens another one and succeeds.
async fn severed(library: Library) {
    let server = Standalone::start_with(&Options::new().proxied());
    let client = connect(&server.url(), &settings(library)).await;
    for expected in 1..=5 {
        assert_eq!(count(&client, "a").await, Ok(Value::Int(expected)));
        server.proxy().sever();
    }
}

/// The server gets requests, but its replies are held.
async fn replies_are_lost(library: Library) {
    let server = Standalone::start_with(&Options::new().proxied());
    let client = connect(&server.url(), &impatient(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    server.proxy().cut_replies();
    assert_away(&count(&client, "a").await, "no answer within 500 ms");
    assert_eq!(server.command(&["GET", "a"]).text(), "2");
    server.proxy().pass();
    count_at_last(&client, "a").await;
}

async fn killed_primary_is_replaced(library: Library) {
    let mut cluster = Cluster::start(3, 1);
    let client = connect(&cluster.url(), &settings(library)).await;
    let key = &keys(&cluster, 3)[1];
    assert_eq!(run(&client, &COUNT, key, ONE).await, Ok(Value::Int(1)));
    cluster.kill(1);
    assert_eq!(cluster.wait_failover(cluster.slot(key), 1), 4);
    count_at_last(&client, key).await;
    assert_ne!(cluster.command(4, &["GET", key]).text(), "1");
}

async fn frozen_primary_is_replaced(library: Library) {
    let cluster = Cluster::start(3, 1);
    let client = connect(&cluster.url(), &impatient(library)).await;
    let key = &keys(&cluster, 3)[1];
    assert_eq!(run(&client, &COUNT, key, ONE).await, Ok(Value::Int(1)));
    cluster.stop(1);
    assert_eq!(cluster.wait_failover(cluster.slot(key), 1), 4);
    count_at_last(&client, key).await;
    // The old primary is back as a replica. The client soon stops calling it.
    cluster.cont(1);
    count_at_last(&client, key).await;
}

async fn killed_primary_delays_no_other_shard(library: Library) {
    let mut cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    let keys = keys(&cluster, 3);
    cluster.kill(0);
    for number in 1..=50 {
        let answers =
            tokio::join!(count(&client, &keys[0]), count(&client, &keys[1]), count(&client, &keys[2]));
        assert_away(&answers.0, "");
        assert_eq!((answers.1, answers.2), (Ok(Value::Int(number)), Ok(Value::Int(number))));
    }
}

/// While calls to the first shard wait for their timeout, calls to the others are answered.
async fn frozen_primary_delays_no_other_shard(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &settings(library)).await;
    let keys = keys(&cluster, 3);
    cluster.stop(0);
    let absent = async {
        for _ in 0..3 {
            assert_away(&count(&client, &keys[0]).await, "");
        }
    };
    let mut absent = std::pin::pin!(absent);
    let mut others = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut absent => break,
            answers = async { (count(&client, &keys[1]).await, count(&client, &keys[2]).await) } => {
                others += 1;
                assert_eq!(answers, (Ok(Value::Int(others)), Ok(Value::Int(others))));
            }
        }
    }
    // If the frozen shard delayed them, there would be one answer per timeout.
    assert!(others > 3, "only {others} calls to the other shards were answered meanwhile");
    cluster.cont(0);
    count_at_last(&client, &keys[0]).await;
}

async fn primary_among_the_hosts_is_found(library: Library) {
    let primary = Standalone::start();
    let replica = replica_of(&primary);
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", replica.port(), primary.port());
    let client = connect(&url, &settings(library)).await;
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(1)));
    // The two servers swap roles: the old primary refuses writes.
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    primary.command(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    count_at_last(&client, "a").await;
    assert_ne!(replica.command(&["GET", "a"]).text(), "1");
}

async fn sentinels_name_the_primary(library: Library) {
    let mut primary = Standalone::start();
    let replica = replica_of(&primary);
    let sentinel = Standalone::sentinel("main", &primary);
    let url = format!("redis-sentinel://127.0.0.1:{}?service=main", sentinel.port());
    let client = connect(&url, &settings(library)).await;
    assert_eq!(run(&client, &COUNT, "a", ONE).await, Ok(Value::Int(1)));
    assert_eq!(primary.command(&["GET", "a"]).text(), "1");
    crate::clock::eventually("the sentinel knows the replica", || {
        (sentinel.command(&["SENTINEL", "REPLICAS", "main"]).parts().len() == 1).then_some(())
    });
    primary.kill();
    count_at_last(&client, "a").await;
    assert!(replica.info("replication", "role") == "master");
}

/// The seed answers, and the address that it announces does not. The announced one is named.
async fn silent_server_of_a_cluster_is_named(library: Library) {
    // The system takes connections for it, and nobody answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = silent.local_addr().expect("it is bound").port();
    let announced = Options::new().arg(&["--cluster-announce-port", &port.to_string()]);
    let cluster = Cluster::start_with(1, 0, &announced);
    let late = try_connect(&cluster.url(), &impatient(library)).await.map(drop);
    // Of two times that end at the same moment, that of the whole connection also says who told of the address.
    assert_away(&late, &format!("127.0.0.1:{port}"));
}

/// A server that is frozen when a call is redirected to it is named as well.
async fn frozen_server_is_named_by_the_call(library: Library) {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster.url(), &impatient(library)).await;
    let key = &keys(&cluster, 3)[1];
    assert_eq!(count(&client, key).await, Ok(Value::Int(1)));
    cluster.stop(1);
    let late = count(&client, key).await;
    cluster.cont(1);
    assert_away(&late, &format!("127.0.0.1:{}: no answer within 500 ms", cluster.port(1)));
}

/// The address is that of a single server, which belongs to a cluster. It is used as one, without a new connection for each
/// call, and the log says what to write.
async fn cluster_behind_the_address_of_one_server_is_reported(library: Library) {
    let log = Log::default();
    let text = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || text.clone()).finish();
    let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    let cluster = Cluster::start(3, 0);
    let url = format!("redis://127.0.0.1:{}", cluster.port(0));
    let client = connect(&url, &settings(library)).await;
    let keys = keys(&cluster, 3);
    for key in &keys {
        count_at_last(&client, key).await;
    }
    let connections = || -> u64 {
        let of = |i| cluster.info(i, "stats", "total_connections_received").parse::<u64>().expect("a number");
        (0..3).map(of).sum()
    };
    // A refresh of the map asks over a connection of its own.
    let before = connections();
    let until = now() + Duration::from_secs(2);
    let mut calls = 0;
    while now() < until {
        for key in &keys {
            count(&client, key).await.expect("counted");
            calls += 1;
        }
    }
    let opened = connections() - before;
    assert!(opened <= 6, "{opened} connections for {calls} calls");
    let log = log.text();
    let written = format!("write store = \"redis-cluster://127.0.0.1:{}\"", cluster.port(0));
    assert_eq!(log.matches(&written).count(), 1, "{log}");
}

/// A cluster of one server redirects nothing, and a Sentinel keeps no data. Each is asked once what it is, and the log says what to
/// write. A single server is not spoken of.
async fn another_kind_behind_the_address_of_one_server_is_reported(library: Library) {
    let log = Log::default();
    let text = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || text.clone()).finish();
    let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    let alone = Standalone::start();
    let _alone = connect(&alone.url(), &settings(library)).await;
    let cluster = Cluster::start(1, 0);
    let _client = connect(&format!("redis://127.0.0.1:{}", cluster.port(0)), &settings(library)).await;
    let sentinel = Standalone::sentinel("weir", &alone);
    let _to_sentinel = connect(&format!("redis://127.0.0.1:{}", sentinel.port()), &settings(library)).await;
    let written = [
        format!("redis-cluster://127.0.0.1:{}", cluster.port(0)),
        format!("redis-sentinel://127.0.0.1:{}?service=NAME", sentinel.port()),
    ];
    let until = now() + Duration::from_secs(20);
    while !written.iter().all(|written| log.text().contains(written)) {
        assert!(now() < until, "{}", log.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = log.text();
    for written in written {
        assert_eq!(log.matches(&format!("write store = \"{written}\"")).count(), 1, "{log}");
    }
    assert_eq!(log.lines().count(), 2, "{log}");
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no writer panics")).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
