//! Fan-out over sharded channels of Redis.

use admission::Mode;
use bytes::Bytes;
use store::redis::{
    address::{Address, Settings},
    client::{AnyClient, ChannelEvent},
};

use crate::{
    HOURLY, Operator, USUAL, changes_arrive,
    clock::eventually,
    config, garbage,
    redis::{Cluster, Standalone},
    servers, wait_garbled, wait_in_force, with, zone,
};

/// The register of zones. The channel is in its slot.
const REGISTER: &str = "weir:v1:{zones}";
const CHANNEL: &str = "weir:v1:{zones}:changed";

#[tokio::test(flavor = "multi_thread")]
async fn changes_arrive_by_what_is_said() {
    let redis = Standalone::start();
    let config = config(&redis.url(), "redis");
    let servers = servers(2, &config, HOURLY).await;
    changes_arrive(&config, &servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_counted_and_nothing_else() {
    let redis = Standalone::start();
    let servers = servers(2, &config(&redis.url(), "redis"), HOURLY).await;
    for text in garbage() {
        redis.command(&[b"SPUBLISH".to_vec(), CHANNEL.into(), text]);
    }
    wait_garbled(&servers, garbage().len());
}

/// The servers follow the channel, and read what they missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves() {
    let cluster = Cluster::start(3, 0);
    let config = config(&cluster.url(), "redis");
    let servers = servers(2, &config, HOURLY).await;
    let operator = Operator::new(&config);
    let slot = cluster.slot(REGISTER);
    for to in [2, 0, 1] {
        let from = cluster.primary_of(slot);
        if from == to {
            continue;
        }
        cluster.begin_move(slot, to);
        // During the move, the channel is still at the old server.
        operator.apply(&zone("Z"), with(Mode::Hold)).await;
        wait_in_force(&servers, "Z", with(Mode::Hold));
        cluster.move_keys(slot, to);
        cluster.end_move(slot, to);
        eventually("both listen at the new server", || {
            let listeners = cluster.command(to, &["PUBSUB", "SHARDNUMSUB", CHANNEL]);
            (listeners.parts()[1].int() == 2).then_some(())
        });
        for mode in [Mode::Closed, Mode::Auto] {
            assert!(operator.apply(&zone("Z"), with(mode)).await, "the message was sent");
            wait_in_force(&servers, "Z", with(mode));
        }
    }
}

/// A primary is frozen, and then one is killed. A replica takes over, and the servers listen there. They ask the store as often
/// as usual, so a server without a connection sees changes by asking.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_is_frozen_and_one_killed() {
    let mut cluster = Cluster::start(3, 1);
    let config = config(&cluster.url(), "redis");
    let servers = servers(2, &config, USUAL).await;
    let operator = Operator::new(&config);
    let slot = cluster.slot(REGISTER);
    let first = cluster.primary_of(slot);
    cluster.stop(first);
    servers.iter().for_each(crate::Server::wait_unheard);
    let second = cluster.wait_failover(slot, first);
    servers.iter().for_each(crate::Server::wait_heard);
    // The change is repeated until the new primary accepts it.
    let closed = with(Mode::Closed);
    let heard = servers.iter().map(|server| server.meter.heard.get()).collect::<Vec<_>>();
    assert!(operator.apply_at_last(&zone("Z"), closed).await, "the message was sent");
    wait_in_force(&servers, "Z", closed);
    for (server, before) in servers.iter().zip(heard) {
        eventually("it is told by the new primary", || (server.meter.heard.get() > before).then_some(()));
    }

    cluster.cont(first);
    eventually("the first one follows the second", || {
        cluster
            .info(second, "replication", "connected_slaves")
            .parse::<u8>()
            .is_ok_and(|n| n > 0)
            .then_some(())
    });
    cluster.kill(second);
    assert_eq!(cluster.wait_failover(slot, second), first);
    cluster.wait_ok();
    servers.iter().for_each(crate::Server::wait_heard);
    let hold = with(Mode::Hold);
    assert!(operator.apply_at_last(&zone("Z"), hold).await, "the message was sent");
    wait_in_force(&servers, "Z", hold);
}

/// A server that opens a zone while it is changed may give the zone the older policy after the newer one. The servers follow
/// the register, and give the zone the newer policy again.
#[tokio::test(flavor = "multi_thread")]
async fn a_zone_that_was_told_an_older_policy_is_told_again() {
    let redis = Standalone::start();
    let config = config(&redis.url(), "redis");
    let servers = servers(2, &config, USUAL).await;
    let policy = admission::Policy { admit_per_minute: 7, ..with(Mode::Hold) };
    // As `put_zone` leaves the register, but the zone's own state keeps its policy.
    redis.command(&["HSET", REGISTER, "Z", "1 7 10 3000 60 300 0"]);
    redis.command(&["HINCRBY", REGISTER, "#rev", "1"]);
    wait_in_force(&servers, "Z", policy);
}

/// No server may subscribe. Changes still arrive.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_listen_changes_are_seen_by_asking() {
    let redis = Standalone::start();
    redis.command(&["ACL", "SETUSER", "weir", "on", ">word", "~*", "+@all", "-@pubsub"]);
    let config = config(&redis.url().replace("://", "://weir:word@"), "redis");
    let server = crate::Server::start(&config, USUAL).await;
    eventually("it serves", || server.gate.policy("Z").map(drop));
    assert!(!Operator::new(&config).apply(&zone("Z"), with(Mode::Closed)).await, "it may not send messages");
    wait_in_force(&[server], "Z", with(Mode::Closed));
}

/// A slow subscriber delays nothing, and learns how many messages it missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_listener_knows_what_it_missed() {
    const SAID: u64 = 5_000;
    let redis = Standalone::start();
    let address = Address::parse(&redis.url()).expect("an address");
    let client = AnyClient::connect(&address, &Settings::default()).await.expect("it is up");
    let channel = Bytes::from_static(b"some channel");
    let mut listener = client.listen(channel.clone(), 10);
    assert_eq!(listener.next().await, Some(ChannelEvent::Listening));
    for _ in 0..SAID {
        client.publish(channel.clone(), Bytes::from_static(b"0123456789abcdef")).await.expect("it is up");
    }
    let (mut heard, mut missed) = (0, 0);
    while heard + missed < SAID {
        match listener.next().await {
            Some(ChannelEvent::Message(message)) => {
                assert_eq!(&message[..], b"0123456789a", "cut to one more than is allowed");
                heard += 1;
            }
            Some(ChannelEvent::Missed(count)) => missed += count,
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0, "the queue has a limit");
}
