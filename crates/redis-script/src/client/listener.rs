//! Listens to one sharded channel (`SSUBSCRIBE`), at the server that has its slot.
//!
//! A connection of its own, by redis-rs with RESP3, whatever library the calls go by. Its cluster client is not used (a
//! frozen server is never given up there), nor is fred's, whose router holds up all servers for one that is away. Whatever
//! happens to the subscription, the connection is given up with it: redis-rs takes a `SUNSUBSCRIBE` that nobody asked for, as comes
//! when the slot moves, for the reply to whatever was asked last.
//!
//! Invariants: who listens hears of each stretch in which a message may have been missed, by [`Heard::Listening`] after
//! it or by [`Heard::Missed`]; a listener that is not taken from is not waited for, and keeps twice [`QUEUE`] messages at
//! most.

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
    aio::MultiplexedConnection,
};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use super::{
    link::Link,
    redis_rs::connect,
    routes::{Shared, redirected},
    server::{PAUSES, Place},
};

/// Messages that wait to be heard, behind the connection and again behind the keeper; more are lost, and counted.
const QUEUE: usize = 256;

/// How often the server is asked whether it is still there, and the map whether it still has the slot.
const CHECK: Duration = Duration::from_secs(1);

/// What is heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// From now on the channel is listened to; what was said before may have been missed.
    Listening,
    /// A message.
    Message(Bytes),
    /// So many messages more came than were taken.
    Missed(u64),
    /// The channel is not listened to, for this reason; it is tried again.
    Silent(String),
}

/// A subscription that is kept up. It ends when it is dropped.
#[derive(Debug)]
pub struct Listener {
    heard: mpsc::Receiver<Heard>,
    keeper: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Listener {
    pub(super) fn start<L: Link>(shared: Arc<Shared<L>>, channel: Bytes, max_len: usize) -> Self {
        let (hears, heard) = mpsc::channel(QUEUE);
        let keeper = tokio::spawn(keep(shared, Channel { name: channel, max_len }, hears)).abort_handle();
        Self { heard, keeper }
    }

    /// Waits for what is heard next; none once the runtime stops. Nothing is lost where it is not waited for to the end.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}

struct Channel {
    name: Bytes,
    max_len: usize,
}

/// Why a subscription ended.
struct Ended {
    reason: String,
    /// Where the channel was said to be.
    told: Option<Place>,
    /// It had begun.
    listened: bool,
}

async fn keep<L: Link>(shared: Arc<Shared<L>>, channel: Channel, hears: mpsc::Sender<Heard>) {
    let slot = redis_keyslot(&channel.name);
    let mut pause = *PAUSES.start();
    let mut told = None;
    loop {
        let since = Instant::now();
        let place = match told.take() {
            Some(place) => Ok(place),
            None => shared.owner(slot),
        };
        let ended = match place {
            Ok(place) => listen(&shared, &place, slot, &channel, &hears).await,
            Err(error) => Ended { reason: error.to_string(), told: None, listened: false },
        };
        shared.stale.notify_one();
        // A server that lets us in and out again is not asked faster than one that does not answer.
        if ended.listened && since.elapsed() > *PAUSES.end() {
            pause = *PAUSES.start();
        }
        told = ended.told;
        if hears.send(Heard::Silent(ended.reason)).await.is_err() {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(*PAUSES.end());
    }
}

/// Listens at one server for as long as that is the right one.
async fn listen<L: Link>(
    shared: &Shared<L>,
    place: &Place,
    slot: u16,
    channel: &Channel,
    hears: &mpsc::Sender<Heard>,
) -> Ended {
    let settings = &shared.access.settings;
    let named = |reason: &str| format!("{}:{}: {reason}", place.0, place.1);
    let ended = |reason: &str, listened| Ended { reason: named(reason), told: None, listened };
    let (pushes, mut pushed) = mpsc::channel(QUEUE);
    let missed = Arc::new(AtomicU64::new(0));
    let (missing, max_len) = (Arc::clone(&missed), channel.max_len);
    let push = move |mut info: PushInfo| {
        // However long it is, no more is kept than shows that it is too long.
        if let Some(Value::BulkString(bytes)) = info.data.get_mut(1)
            && bytes.len() > max_len
        {
            bytes.truncate(max_len + 1);
            bytes.shrink_to_fit();
        }
        match pushes.try_send(info) {
            // Were it the subscription's end, the next check would see it.
            Err(mpsc::error::TrySendError::Full(_)) => {
                missing.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    };
    let opened = timeout(settings.connect_timeout, async {
        let mut connection = open(shared, place, AsyncConnectionConfig::new().set_push_sender(push)).await?;
        ask(&mut connection, Cmd::new().arg("SSUBSCRIBE").arg(&channel.name[..])).await?;
        Ok::<_, String>(connection)
    });
    let mut connection = match opened.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(reason)) => {
            let told = reason.starts_with("MOVED ").then(|| redirected(&reason, place)).flatten();
            return Ended { reason: named(&reason), told, listened: false };
        }
        Err(_) => return ended("no subscription in time", false),
    };
    if hears.send(Heard::Listening).await.is_err() {
        return ended("nobody listens", true);
    }
    // Not at once: the map may be older than what a server said of where the slot is.
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
                if shared.owner(slot).is_ok_and(|owner| owner != *place) {
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
        for heard in heard.into_iter().chain((lost > 0).then_some(Heard::Missed(lost))) {
            if hears.send(heard).await.is_err() {
                return ended("nobody listens", true);
            }
        }
    }
}

async fn open<L: Link>(
    shared: &Shared<L>,
    (host, port): &Place,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, String> {
    let access = &shared.access;
    let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    if let Some(user) = &access.address.user {
        login = login.set_username(user);
    }
    if let Some(password) = &access.address.password {
        login = login.set_password(password);
    }
    let connected = connect((host, *port), &access.address, &access.settings, login, config).await;
    connected.map_err(|error| error.to_string())
}

/// Asks for something whose answer does not matter.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<(), String> {
    let reply: Result<Value, RedisError> = command.query_async(connection).await;
    reply.map(drop).map_err(|error| match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    })
}

/// The message in `[channel, message]`.
fn message(mut data: Vec<Value>) -> Option<Heard> {
    match data.pop() {
        Some(Value::BulkString(bytes)) => Some(Heard::Message(bytes.into())),
        _ => None,
    }
}
