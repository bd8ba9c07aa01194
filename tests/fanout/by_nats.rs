//! Fan-out over NATS.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::Mode;
use gate::Reply;
use server::{
    fanout::{ChannelEvent, Transport as _},
    stores,
};
use tokio::sync::mpsc;

use crate::{
    HOURLY, Operator, Server, USUAL, cells, changes_arrive, clock::eventually, config, garbage, nats::Nats,
    redis::Standalone, servers, wait_garbled, wait_in_force, with, zone,
};

const SUBJECT: &str = "weir.redis.zones";

#[tokio::test(flavor = "multi_thread")]
async fn changes_arrive_by_what_is_said() {
    let (redis, nats) = (Standalone::start(), Nats::start());
    let config = config(&redis.url(), &nats.url());
    let servers = servers(2, &config, HOURLY).await;
    changes_arrive(&config, &servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_counted_and_nothing_else() {
    let (redis, nats) = (Standalone::start(), Nats::start());
    let servers = servers(2, &config(&redis.url(), &nats.url()), HOURLY).await;
    let garbage = garbage();
    nats.publish(SUBJECT, &garbage.iter().map(|text| &text[..]).collect::<Vec<_>>());
    wait_garbled(&servers, garbage.len());
}

/// NATS is killed and frozen while people join and poll. They do not notice it. Servers see changes by asking the store, and,
/// when NATS is back, by messages.
#[tokio::test(flavor = "multi_thread")]
async fn killed_and_frozen_under_load() {
    let (redis, mut nats) = (Standalone::start(), Nats::start());
    let config = config(&redis.url(), &nats.url());
    let servers = servers(2, &config, USUAL).await;
    let operator = Operator::new(&config);
    operator.apply(&zone("Z"), with(Mode::Hold)).await;
    wait_in_force(&servers, "Z", with(Mode::Hold));
    let ended = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = servers
        .iter()
        .map(|server| {
            let (gate, ended) = (Arc::clone(&server.gate), Arc::clone(&ended));
            tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    let joined = gate.join("Z").await.expect("the store is there");
                    let fresh = |reply: &Reply| match reply {
                        Reply::Waiting { token, status } if !status.stale => Some(*token),
                        _ => None,
                    };
                    let token = fresh(&joined).unwrap_or_else(|| panic!("{joined:?}"));
                    let polled = gate.poll("Z", &token).await.expect("the store is there");
                    assert!(fresh(&polled).is_some(), "{polled:?}");
                }
            })
        })
        .collect();
    let mut rate = 1;
    let mut change = async |told: Option<bool>| {
        rate += 1;
        let policy = admission::Policy { admit_per_minute: rate, ..with(Mode::Hold) };
        let said = operator.apply(&zone("Z"), policy).await;
        assert!(told.is_none_or(|told| told == said), "whether the servers were told: {said}");
        wait_in_force(&servers, "Z", policy);
    };
    change(Some(true)).await;
    nats.kill();
    servers.iter().for_each(Server::wait_unheard);
    change(Some(false)).await;
    nats.restart();
    servers.iter().for_each(Server::wait_heard);
    nats.stop();
    // It may take a second message until the server notices that NATS does not answer.
    change(None).await;
    servers.iter().for_each(Server::wait_unheard);
    change(None).await;
    nats.cont();
    servers.iter().for_each(Server::wait_heard);
    eventually("the operator's connection is back", || (!operator_is_away(&operator)).then_some(()));
    change(Some(true)).await;
    ended.store(true, Ordering::Relaxed);
    for load in load {
        load.await.expect("everybody was served");
    }
}

fn operator_is_away(operator: &Operator) -> bool {
    let crate::AnyTransport::Nats(subject) = &operator.transport else { panic!("it is NATS") };
    !subject.is_up()
}

/// No server may subscribe. Changes still arrive, and the servers report that they receive no messages.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_listen_changes_are_seen_by_asking() {
    let rights = tempfile::NamedTempFile::new().expect("a temporary directory");
    let users = r#"{ user: weir, password: word, permissions: { subscribe: { deny: ">" } } }"#;
    fs::write(rights.path(), format!("authorization {{ users: [{users}] }}")).expect("a temporary directory");
    let redis = Standalone::start();
    let nats = Nats::start_with(&["--config", rights.path().to_str().expect("a plain path")]);
    let config = config(&redis.url(), &nats.url().replace("://", "://weir:word@"));
    let server = Server::start(&config, USUAL).await;
    let operator = Operator::new(&config);
    for mode in [Mode::Closed, Mode::Open] {
        assert!(operator.apply(&zone("Z"), with(mode)).await, "the message was sent");
        wait_in_force(std::slice::from_ref(&server), "Z", with(mode));
    }
    assert_eq!(server.meter.heard.get(), 0);
    server.wait_unheard();
}

/// A slow subscriber delays nothing, and learns that it missed messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_listener_knows_that_it_missed_something() {
    let nats = Nats::start();
    let config = config("redis://127.0.0.1:1", &nats.url());
    let transport =
        stores::transports(&config.fanout, &cells(&config)).pop().expect("the configuration has a transport");
    let (hears, mut heard) = mpsc::channel(1);
    tokio::spawn(async move { transport.listen(hears).await });
    while let ChannelEvent::Silent(_) = heard.recv().await.expect("it listens on") {}
    // The subscription was sent. A message may still be ahead of it at NATS, so messages are sent until one is heard.
    let message = async |heard: &mut mpsc::Receiver<ChannelEvent>| {
        tokio::time::timeout(Duration::from_millis(50), heard.recv()).await
    };
    loop {
        nats.publish(SUBJECT, &[b"x"]);
        match message(&mut heard).await {
            Ok(Some(ChannelEvent::Message(_))) => break,
            Err(_) => {}
            other => panic!("{other:?}"),
        }
    }
    for _ in 0..100 {
        nats.publish(SUBJECT, &[b"x".as_slice(); 1_000]);
        for _ in 0..10 {
            match heard.recv().await {
                Some(ChannelEvent::Message(message)) => assert_eq!(&message[..], b"x"),
                Some(ChannelEvent::Missed(count)) => return assert!(count > 0),
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("the queue has no limit");
}

/// A refused login is tried again, because setting up NATS may take a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_tried_again() {
    let (redis, mut nats) = (Standalone::start(), Nats::start_with(&["--user", "weir", "--pass", "old"]));
    let config = config(&redis.url(), &nats.url().replace("://", "://weir:s3cret@"));
    let server = Server::start(&config, HOURLY).await;
    let operator = Operator::new(&config);
    assert!(!operator.apply(&zone("Z"), with(Mode::Open)).await, "the login is refused");
    assert_eq!(server.meter.connected.get(), 0);
    nats.set_args(&["--user", "weir", "--pass", "s3cret"]);
    nats.restart();
    server.wait_heard();
    wait_in_force(std::slice::from_ref(&server), "Z", with(Mode::Open));
    assert!(operator.apply(&zone("Z"), with(Mode::Closed)).await, "the message was sent");
    wait_in_force(&[server], "Z", with(Mode::Closed));
}
