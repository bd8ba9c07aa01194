//! Subscribes to one sharded channel (`SSUBSCRIBE`), at the server that has its slot.
//!
//! A subscription has its own connection, by redis-rs with RESP3, whatever library carries the calls. When the
//! subscription ends, its connection is closed: redis-rs takes the `SUNSUBSCRIBE` that the server sends when the slot
//! moves for the reply to the last command.
//!
//! Invariants: after each time in which messages may have been missed, the subscriber gets [`ChannelEvent::Listening`] or
//! [`ChannelEvent::Missed`]. A slow subscriber delays nothing; at most twice [`QUEUE`] messages are kept for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::fred::util::redis_keyslot;
use bytes::Bytes;
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use super::{
    link::Link,
    redis_rs::{Connection, connect},
    routes::{Routes, Shared, redirected},
    server::{BACKOFF, HostPort},
};
use crate::address::authority;

/// How many messages may wait behind the connection, and again behind the task that reads it. Further messages are
/// dropped and counted.
const QUEUE: usize = 256;

/// How often to check that the server answers, and that the map still gives it the slot.
const CHECK: Duration = Duration::from_secs(1);

/// What the subscriber of a channel hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// The subscription is active from now on. Earlier messages may have been missed.
    Listening,
    /// A message. A longer one than the subscriber asked for may have been cut, but not to that length or less.
    Message(Bytes),
    /// The subscriber was too slow: so many messages were dropped.
    Missed(u64),
    /// The subscription is not active, for this reason. It is tried again.
    Silent(String),
}

/// A subscription that renews itself. It ends when it is dropped.
#[derive(Debug)]
pub struct Listener {
    events: mpsc::Receiver<ChannelEvent>,
    subscriber: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.subscriber.abort();
    }
}

impl<L: Link> Routes<L> {
    /// Subscribes to a sharded channel, and follows its slot when it moves.
    pub(super) fn listen(&self, channel: Bytes, max_len: usize) -> Listener {
        Listener::start(Arc::clone(&self.shared), channel, max_len)
    }
}

impl Listener {
    fn start<L: Link>(shared: Arc<Shared<L>>, channel: Bytes, max_len: usize) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let channel = Channel { name: channel, max_len };
        let subscriber = tokio::spawn(keep_subscribed(shared, channel, sender)).abort_handle();
        Self { events, subscriber }
    }

    /// Waits for the next event; `None` once the runtime stops. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        self.events.recv().await
    }
}

struct Channel {
    name: Bytes,
    max_len: usize,
}

/// Why a subscription ended.
struct Ended {
    reason: String,
    /// The server that the channel was said to be at.
    redirect: Option<HostPort>,
    /// Whether it had been active.
    was_active: bool,
}

async fn keep_subscribed<L: Link>(
    shared: Arc<Shared<L>>,
    channel: Channel,
    sender: mpsc::Sender<ChannelEvent>,
) {
    let slot = redis_keyslot(&channel.name);
    let mut pause = *BACKOFF.start();
    let mut redirect: Option<HostPort> = None;
    loop {
        let since = Instant::now();
        let server = match redirect.take() {
            Some(server) => Ok(server),
            None => shared.owner(slot),
        };
        let ended = match server {
            Ok(server) => subscribe(&shared, &server, slot, &channel, &sender).await,
            Err(error) => Ended { reason: error.to_string(), redirect: None, was_active: false },
        };
        shared.stale.notify_one();
        // A server that accepts subscriptions and ends them at once is not asked more often than one that does not answer.
        if ended.was_active && since.elapsed() > *BACKOFF.end() {
            pause = *BACKOFF.start();
        }
        redirect = ended.redirect;
        if sender.send(ChannelEvent::Silent(ended.reason)).await.is_err() {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(*BACKOFF.end());
    }
}

/// Subscribes at one server, until the subscription ends or another server has the slot.
async fn subscribe<L: Link>(
    shared: &Shared<L>,
    server: &HostPort,
    slot: u16,
    channel: &Channel,
    sender: &mpsc::Sender<ChannelEvent>,
) -> Ended {
    let settings = &shared.access.settings;
    let named = |reason: &str| format!("{}: {reason}", authority(server));
    let ended = |reason: &str, was_active| Ended { reason: named(reason), redirect: None, was_active };
    let (pushes, mut pushed) = mpsc::channel(QUEUE);
    let missed = Arc::new(AtomicU64::new(0));
    let (missing, max_len) = (Arc::clone(&missed), channel.max_len);
    let push = move |mut info: PushInfo| {
        // One byte more than allowed shows that the message was too long; the rest is not kept.
        if let Some(Value::BulkString(bytes)) = info.data.get_mut(1)
            && bytes.len() > max_len
        {
            bytes.truncate(max_len + 1);
            bytes.shrink_to_fit();
        }
        match pushes.try_send(info) {
            // If the dropped push was the end of the subscription, the next check notices it.
            Err(mpsc::error::TrySendError::Full(_)) => {
                missing.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    };
    let opened = timeout(settings.connect_timeout, async {
        let mut connection = open(shared, server, AsyncConnectionConfig::new().set_push_sender(push)).await?;
        ask(&mut connection, Cmd::new().arg("SSUBSCRIBE").arg(&channel.name[..])).await?;
        // A server that reads its data, or cannot save, takes a subscription and refuses everything else.
        ask(&mut connection, &redis::cmd("PING")).await?;
        Ok::<_, String>(connection)
    });
    let mut connection = match opened.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(reason)) => {
            let redirect = reason.starts_with("MOVED ").then(|| redirected(&reason, server)).flatten();
            return Ended { reason: named(&reason), redirect, was_active: false };
        }
        Err(_) => return ended("no subscription in time", false),
    };
    if sender.send(ChannelEvent::Listening).await.is_err() {
        return ended("nobody listens", true);
    }
    // The first check comes later: the map may be older than the redirect that led here.
    let mut check = interval_at(Instant::now() + CHECK, CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let heard = tokio::select! {
            push = pushed.recv() => match push {
                Some(PushInfo { kind: PushKind::SMessage, data }) => message(data),
                Some(PushInfo { kind: PushKind::SUnsubscribe, .. }) => return ended("the slot has moved", true),
                Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => {
                    return ended("the connection is lost", true);
                }
                Some(_) => None,
            },
            _ = check.tick() => {
                if shared.owner(slot).is_ok_and(|owner| owner != *server) {
                    return ended("another server has the slot", true);
                }
                match timeout(settings.command_timeout, ask(&mut connection, &redis::cmd("PING"))).await {
                    Ok(Ok(())) => None,
                    Ok(Err(reason)) => return ended(&reason, true),
                    Err(_) => return ended("no answer in time", true),
                }
            }
        };
        let lost = missed.swap(0, Ordering::Relaxed);
        for heard in heard.into_iter().chain((lost > 0).then_some(ChannelEvent::Missed(lost))) {
            if sender.send(heard).await.is_err() {
                return ended("nobody listens", true);
            }
        }
    }
}

async fn open<L: Link>(
    shared: &Shared<L>,
    (host, port): &HostPort,
    config: AsyncConnectionConfig,
) -> Result<Connection, String> {
    let access = &shared.access;
    let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    if let Some(user) = &access.address.user {
        login = login.set_username(user);
    }
    if let Some(password) = &access.address.password {
        login = login.set_password(password.reveal());
    }
    connect((host, *port), &access.address, &access.settings, login, config).await
}

/// Runs a command whose answer does not matter.
async fn ask(Connection { connection, driver }: &mut Connection, command: &Cmd) -> Result<(), String> {
    let reply: Result<Value, RedisError> = tokio::select! {
        biased;
        reply = command.query_async(connection) => reply,
        reason = driver.ended() => return Err(reason),
    };
    reply.map(drop).map_err(|error| match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    })
}

/// Takes the message out of `[channel, message]`.
fn message(mut data: Vec<Value>) -> Option<ChannelEvent> {
    match data.pop() {
        Some(Value::BulkString(bytes)) => Some(ChannelEvent::Message(bytes.into())),
        _ => None,
    }
}
