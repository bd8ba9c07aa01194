//! Messages between the servers of a cell: which zone changed.
//!
//! A message is only a hint: a server that hears news refreshes from the store at once. Lost, repeated and forged messages
//! do no harm, because every server refreshes regularly anyway (see [`gate::Watcher`]). The server or command that changes
//! a zone sends a message. So does a server that finds a change nobody announced. Invariants: the number of messages
//! depends on the number of changes, not on users; a sender does not wait for receivers; many messages do not make a server
//! ask the store more often than the watcher allows.

pub mod message;
pub mod nats;
mod redis;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use admission::{Definition, ZoneId};
use aws_lc_rs::rand;
use bytes::Bytes;
use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{Gate, cells::Cell, definitions::ZONES_MAX};
pub use store::redis::client::ChannelEvent;
use store::{Store, redis::Redis};
use tokio::sync::{Notify, mpsc};

use crate::metrics::FanoutMeter;
use message::{MAX_LEN, Message, State};

/// The most messages that wait to be handled. More are lost, and counted.
const QUEUE: usize = 256;

/// What carries the messages between servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FanoutSettings {
    /// Nothing: each server only refreshes from its stores.
    None,
    /// Each cell's own Redis.
    Redis,
    /// NATS.
    Nats(nats::Address),
}

/// The port: carries messages between the servers of a cell.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message to all current listeners. Returns within some seconds.
    ///
    /// # Errors
    /// Why the message was perhaps not sent.
    fn say(&self, message: Bytes) -> impl Future<Output = Result<(), String>> + Send;

    /// Passes on what arrives, for ever. Reconnects by itself.
    fn listen(&self, hears: mpsc::Sender<ChannelEvent>) -> impl Future<Output = ()> + Send;
}

/// The configured transport.
pub enum AnyTransport {
    /// The cell's own Redis.
    Redis(Arc<Cell<Redis>>),
    /// A subject in NATS.
    Nats(nats::Subject),
}

impl Transport for AnyTransport {
    async fn say(&self, message: Bytes) -> Result<(), String> {
        match self {
            Self::Redis(cell) => redis::say(cell, message).await,
            Self::Nats(subject) => subject.say(message).await,
        }
    }

    async fn listen(&self, hears: mpsc::Sender<ChannelEvent>) {
        match self {
            Self::Redis(cell) => redis::listen(cell, hears).await,
            Self::Nats(subject) => subject.listen(hears).await,
        }
    }
}

/// The number of a sending process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderId(u64);

impl SenderId {
    /// A random number, which no other process has.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[must_use]
    pub fn new() -> Self {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes).expect("the system has random numbers: the keys are made of them");
        Self(u64::from_be_bytes(bytes))
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Default for SenderId {
    fn default() -> Self {
        Self::new()
    }
}

/// One server's messages in one cell.
pub struct Fanout<C> {
    cell: String,
    transport: C,
    sender: SenderId,
    meter: FanoutMeter,
    /// The state that was last announced for each zone, by others or here.
    said: Mutex<HashMap<ZoneId, State>>,
}

/// Subscribes to the events that are announced to other servers.
///
/// # Errors
/// The bus's.
pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
    let kinds = [
        Kind::PolicyChanged,
        Kind::NoticeChanged,
        Kind::DefinitionChanged,
        Kind::ZoneAdded,
        Kind::ZoneRemoved,
    ];
    bus.subscribe("fanout", Scope::Federated, Kinds::of(&kinds))
}

impl<C: Transport> Fanout<C> {
    /// For the cell of this name, over `transport`. Nothing is sent or received before [`Fanout::run`].
    #[must_use]
    pub fn new(cell: &str, transport: C, sender: SenderId, meter: FanoutMeter) -> Self {
        Self { cell: cell.to_owned(), transport, sender, meter, said: Mutex::default() }
    }

    /// Announces the changes on `bus` of zones that are `mine`, which `told` [`subscribe`]d to, and receives messages, for
    /// ever. Notifies `news` of a message that differs from what `gate` serves.
    pub async fn run<S: Store>(
        &self,
        gate: &Gate<S>,
        mine: impl Fn(&ZoneId) -> bool,
        (bus, told): (&Bus, Subscription),
        news: &Notify,
    ) {
        let (hears, mut heard) = mpsc::channel(QUEUE);
        let hear = async {
            let mut silent = false;
            while let Some(heard) = heard.recv().await {
                if self.hear(heard, &mut silent, gate, &mine) {
                    news.notify_one();
                }
            }
        };
        tokio::join!(self.transport.listen(hears), self.say_all(gate, &mine, bus, told), hear);
    }

    /// The bus keeps events while a message is being sent, and drops the oldest if that takes too long.
    async fn say_all<S: Store>(
        &self,
        gate: &Gate<S>,
        mine: &impl Fn(&ZoneId) -> bool,
        bus: &Bus,
        mut told: Subscription,
    ) {
        while let Some(batch) = told.next().await {
            self.meter.unsaid.inc_by(batch.lost);
            let zone = |event: &Event| match event {
                Event::PolicyChanged(changed) => Some((bus.zone_id(changed.zone)?, false)),
                Event::NoticeChanged(changed) => Some((bus.zone_id(changed.zone)?, true)),
                Event::DefinitionChanged(changed) => Some((bus.zone_id(changed.zone)?, true)),
                Event::ZoneAdded(added) => Some((bus.zone_id(added.zone)?, true)),
                Event::ZoneRemoved(removed) => Some((bus.zone_id(removed.zone)?, true)),
                _ => None,
            };
            // For each zone: whether its definition changed, or only the policy in force.
            let mut zones = BTreeMap::<ZoneId, bool>::new();
            for (zone, is_defined_anew) in batch.events.iter().filter_map(zone).filter(|(zone, _)| mine(zone))
            {
                *zones.entry(zone).or_default() |= is_defined_anew;
            }
            for (zone, is_defined_anew) in zones {
                // The event may be older than what is in force by now. The policy of a new definition comes into force a moment
                // later: the state before that is no news.
                let definition =
                    if is_defined_anew { gate.definition(zone.as_str()) } else { in_force(gate, &zone) };
                let state = State::of(definition.as_ref());
                // This state was announced already, so all servers have heard of it.
                if self.note(&zone, state) == Some(state) {
                    continue;
                }
                let message = Message { sender: self.sender, zone, state };
                match self.transport.say(message.to_bytes()).await {
                    Ok(()) => self.meter.said.inc(),
                    Err(reason) => {
                        tracing::debug!(cell = self.cell, reason, "the other servers were not told");
                        self.meter.unsaid.inc();
                    }
                }
            }
        }
    }

    /// Handles a report; returns whether to refresh from the store.
    fn hear<S: Store>(
        &self,
        heard: ChannelEvent,
        silent: &mut bool,
        gate: &Gate<S>,
        mine: &impl Fn(&ZoneId) -> bool,
    ) -> bool {
        let cell = &self.cell;
        match heard {
            ChannelEvent::Listening => {
                self.meter.connected.set(1);
                if std::mem::take(silent) {
                    tracing::info!(cell, "messages of the other servers arrive again");
                }
                true
            }
            ChannelEvent::Silent(reason) => {
                self.meter.connected.set(0);
                if !std::mem::replace(silent, true) {
                    tracing::warn!(
                        cell,
                        reason,
                        "messages of the other servers do not arrive; their changes are seen within a second"
                    );
                }
                false
            }
            ChannelEvent::Missed(count) => {
                self.meter.missed.inc_by(count);
                true
            }
            ChannelEvent::Message(bytes) => match Message::parse(&bytes) {
                Some(message) if message.sender == self.sender => false,
                Some(message) if mine(&message.zone) => {
                    self.meter.heard.inc();
                    self.note(&message.zone, message.state);
                    State::of(in_force(gate, &message.zone).as_ref()) != message.state
                }
                _ => {
                    self.meter.garbled.inc();
                    false
                }
            },
        }
    }

    /// Notes the announced state of a zone; returns the one before. Forgets all if there are more zones than allowed.
    fn note(&self, zone: &ZoneId, state: State) -> Option<State> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= ZONES_MAX && !said.contains_key(zone) {
            said.clear();
        }
        said.insert(zone.clone(), state)
    }
}

/// Announces the state of a zone on `transport`: for a command that changes zones without serving them.
///
/// # Errors
/// Why the message was perhaps not sent.
pub async fn say(
    transport: &impl Transport,
    sender: SenderId,
    zone: &ZoneId,
    definition: Option<&Definition>,
) -> Result<(), String> {
    let message = Message { sender, zone: zone.clone(), state: State::of(definition) };
    transport.say(message.to_bytes()).await
}

/// The definition of a zone, if it is served, with the policy in force if that is not the one that the definition says for now. Then it
/// counts as news.
fn in_force<S: Store>(gate: &Gate<S>, zone: &ZoneId) -> Option<Definition> {
    let (policy, definition) = (gate.policy(zone.as_str())?, gate.definition(zone.as_str())?);
    let is_in_force = gate.schedule_s(zone.as_str()).is_some_and(|at| definition.policy_at(at) == policy);
    Some(if is_in_force { definition } else { Definition { policy, ..definition } })
}

/// Cuts a message that is too long to be valid.
fn cut(bytes: Bytes) -> Bytes {
    if bytes.len() <= MAX_LEN { bytes } else { Bytes::copy_from_slice(&bytes[..=MAX_LEN]) }
}
