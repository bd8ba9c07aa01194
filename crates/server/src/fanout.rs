//! What the servers of a cell tell each other: that a zone is otherwise than it was.
//!
//! A message is a hint and no more: who hears one that is news asks the store, at once. So it does no harm that
//! messages get lost, come twice, or are forged; what nobody was told is seen when the store is next asked anyway
//! (see [`crate::watch`]). Whoever changes a zone says so, and so does a server that sees a change of which it was not
//! told. Invariants: messages are as many as changes, and don't grow with users; who says something waits for nobody;
//! the store is asked no more often for many messages than [`crate::watch`] allows.

pub mod message;
pub mod nats;
mod redis;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use admission::{Definition, ZoneId};
use aws_lc_rs::rand;
use bytes::Bytes;
use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{Gate, cells::Cell, definitions::ZONES_MAX};
use store::{Store, redis::Redis};
use tokio::sync::{Notify, mpsc};

use crate::metrics::FanoutMeter;
use message::{MAX_LEN, Message, State};

/// Messages that wait to be heard, at most; more are lost, and counted.
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

/// What comes from a carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// From now on messages come; some may have been missed before.
    Listening,
    /// A message of somebody, of any length: what is longer than [`MAX_LEN`] bytes may have been cut, to more than that.
    Message(Bytes),
    /// So many messages were missed, or more.
    Missed(u64),
    /// No messages come at present, for this reason.
    Silent(String),
}

/// The port: what carries messages between the servers of a cell.
pub trait Carrier: Send + Sync + 'static {
    /// Says a message to all who listen now. Ends within some seconds.
    ///
    /// # Errors
    /// Why it was perhaps not said.
    fn say(&self, message: Bytes) -> impl Future<Output = Result<(), String>> + Send;

    /// Passes on what is heard, for ever. Reconnects by itself.
    fn listen(&self, hears: mpsc::Sender<Heard>) -> impl Future<Output = ()> + Send;
}

/// The carrier that is configured.
pub enum AnyCarrier {
    /// The cell's own Redis.
    Redis(Arc<Cell<Redis>>),
    /// A subject in NATS.
    Nats(nats::Subject),
}

impl Carrier for AnyCarrier {
    async fn say(&self, message: Bytes) -> Result<(), String> {
        match self {
            Self::Redis(cell) => redis::say(cell, message).await,
            Self::Nats(subject) => subject.say(message).await,
        }
    }

    async fn listen(&self, hears: mpsc::Sender<Heard>) {
        match self {
            Self::Redis(cell) => redis::listen(cell, hears).await,
            Self::Nats(subject) => subject.listen(hears).await,
        }
    }
}

/// This process, among those that talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker(u64);

impl Speaker {
    /// One that no other process is.
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
impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Default for Speaker {
    fn default() -> Self {
        Self::new()
    }
}

/// One server's part in what the servers of one cell tell each other.
pub struct Fanout<C> {
    cell: String,
    carrier: C,
    speaker: Speaker,
    meter: FanoutMeter,
    /// What was last said of each zone, by others or here.
    said: Mutex<HashMap<ZoneId, State>>,
}

/// Subscribes to what other servers may hear of.
///
/// # Errors
/// The bus's.
pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
    let kinds = Kinds::of(&[Kind::PolicyChanged, Kind::NoticeChanged, Kind::ZoneAdded, Kind::ZoneRemoved]);
    bus.subscribe("fanout", Scope::Federated, kinds)
}

impl<C: Carrier> Fanout<C> {
    /// In the cell of this name, over `carrier`. Nothing is said or heard before [`Fanout::run`].
    #[must_use]
    pub fn new(cell: &str, carrier: C, speaker: Speaker, meter: FanoutMeter) -> Self {
        Self { cell: cell.to_owned(), carrier, speaker, meter, said: Mutex::default() }
    }

    /// Says what happens on `bus` to zones that are `mine`, as [`subscribe`]d to by `told`, and hears what others say, for
    /// ever. Of what is otherwise than what `gate` serves, `news` is told.
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
        tokio::join!(self.carrier.listen(hears), self.say_all(gate, &mine, bus, told), hear);
    }

    /// The bus keeps what happens while something is being said, and drops the oldest where that takes too long.
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
                Event::PolicyChanged(changed) => bus.zone_id(changed.zone),
                Event::NoticeChanged(changed) => bus.zone_id(changed.zone),
                Event::ZoneAdded(added) => bus.zone_id(added.zone),
                Event::ZoneRemoved(removed) => bus.zone_id(removed.zone),
                _ => None,
            };
            let zones: BTreeSet<ZoneId> = batch.events.iter().filter_map(zone).filter(mine).collect();
            for zone in zones {
                // The event may be older than what is in force by now.
                let state = State::of(in_force(gate, &zone).as_ref());
                // Those who said it know it, and so do the others whom they told.
                if self.note(&zone, state) == Some(state) {
                    continue;
                }
                let message = Message { speaker: self.speaker, zone, state };
                match self.carrier.say(message.to_bytes()).await {
                    Ok(()) => self.meter.said.inc(),
                    Err(reason) => {
                        tracing::debug!(cell = self.cell, reason, "the other servers were not told");
                        self.meter.unsaid.inc();
                    }
                }
            }
        }
    }

    /// Takes in what is heard; tells whether the store is to be asked.
    fn hear<S: Store>(
        &self,
        heard: Heard,
        silent: &mut bool,
        gate: &Gate<S>,
        mine: &impl Fn(&ZoneId) -> bool,
    ) -> bool {
        let cell = &self.cell;
        match heard {
            Heard::Listening => {
                self.meter.connected.set(1);
                if std::mem::take(silent) {
                    tracing::info!(cell, "the other servers are heard again");
                }
                true
            }
            Heard::Silent(reason) => {
                self.meter.connected.set(0);
                if !std::mem::replace(silent, true) {
                    tracing::warn!(
                        cell,
                        reason,
                        "the other servers are not heard; what they change is seen within a second"
                    );
                }
                false
            }
            Heard::Missed(count) => {
                self.meter.missed.inc_by(count);
                true
            }
            Heard::Message(bytes) => match Message::parse(&bytes) {
                Some(message) if message.speaker == self.speaker => false,
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

    /// Notes what is said of a zone; tells what was said before. Of more zones than there may be, all is forgotten together.
    fn note(&self, zone: &ZoneId, state: State) -> Option<State> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= ZONES_MAX && !said.contains_key(zone) {
            said.clear();
        }
        said.insert(zone.clone(), state)
    }
}

/// Says on `carrier` what became of a zone: for who changes it and serves nothing.
///
/// # Errors
/// Why it was perhaps not said.
pub async fn say(
    carrier: &impl Carrier,
    speaker: Speaker,
    zone: &ZoneId,
    definition: Option<&Definition>,
) -> Result<(), String> {
    let message = Message { speaker, zone: zone.clone(), state: State::of(definition) };
    carrier.say(message.to_bytes()).await
}

/// A zone with the policy in force, if it is served: what is defined and not in force yet is still news.
fn in_force<S: Store>(gate: &Gate<S>, zone: &ZoneId) -> Option<Definition> {
    let policy = gate.policy(zone.as_str())?;
    Some(Definition { policy, ..gate.definition(zone.as_str())? })
}

/// Cuts what is too long anyway.
fn cut(bytes: Bytes) -> Bytes {
    if bytes.len() <= MAX_LEN { bytes } else { Bytes::copy_from_slice(&bytes[..=MAX_LEN]) }
}
