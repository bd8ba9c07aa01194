//! The draws of this server's zones: each is held when its event begins.
//!
//! 1. *Frozen*: when the event has begun by the zone's own clock, and this server has read it since then, it lists who waits, signs the
//!    checkpoint of the list, and keeps both beside the line. The store changes no draw that has begun, so what was read stays. Of several
//!    servers the first one counts, and all go on from what is kept.
//! 2. *Drawn*: when the announced randomness is there, any server adds it. It cannot be chosen: a round of drand has one signature.
//! 3. The line is dealt anew by the order that follows, and this server reads tickets by it.
//!
//! Each step can be repeated by any server, at any time: a server that was away goes on from what is kept, and what the store lost is
//! given back. Invariants: nothing secret goes into the order; the list never changes once a checkpoint is kept; a step that fails is
//! logged and tried again, and until then nobody enters. What takes long for a long list is computed beside the threads that serve, and
//! without a lock.

mod drand;
mod kept;
mod progress;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::draw::{Announced, Fallback, QUICKNET, Randomness, Receipt, Signer, Statement, Terms, VerifierKey};
use admission::{Census, Dealt, DrawFallback, Event, Lots, SealKey, ZoneId};
use gate::{AnyStore, Gate, ZoneDraw, definitions::EventJson};
use metrics::Gauge;
use serde_json::{Value, json};
use store::StoreError;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use drand::{Relay, RelayFault};
pub use kept::KeptDraw;
use progress::stage_of;
pub use progress::{Progress, WaitsFor};

/// How often the draws are looked at.
const TICK: Duration = Duration::from_millis(200);

/// How often a draw that waits for something is looked for in the store again, so that all servers have it and a lost one is given back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often the record of a draw that took place is given to the store again: it may have lost it while nobody asked for the zone.
const KEEP_AGAIN: Duration = Duration::from_secs(60);

/// How often the store is asked for the record of an event whose draw is not due: it may have been held before this server started.
const LOOK_FOR_OLD: Duration = Duration::from_secs(5);

/// How long after its beginning an event may be unread, in milliseconds, until that is a trouble.
const UNREAD_MS: u64 = 5_000;

/// How long after the freeze the announced round of drand comes at the earliest, in seconds. Everybody can have the checkpoint by then.
const ROUND_AFTER_S: u64 = 4;

/// How often a list is taken again because people left meanwhile, before they keep their places until they are idle.
const CENSUSES: u32 = 3;

/// How draws are signed, and where rounds of drand come from.
#[derive(Clone, Debug)]
pub struct DrawSettings {
    /// The name of the key that signs: the first part of each checkpoint.
    pub name: String,
    /// Where rounds of drand are asked for, in this order.
    pub drand: Vec<Relay>,
}

/// Why a draw failed so far.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the store does not answer: {0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Draw(#[from] ::draw::Fault),
    #[error("{0}")]
    Lots(#[from] admission::LotsFault),
    #[error("what is kept of it cannot be read: {0}")]
    Kept(String),
    #[error(
        "the state of the zone was lost a moment ago; the list is frozen once everybody had the time to show the own place, an idle time after that"
    )]
    Unsettled,
    #[error("the register of zones was not read since the event began, so it may have been moved before")]
    Unread,
    #[error("no relay of drand has round {0} yet: {1}")]
    NoRound(u64, String),
    #[error(
        "no operator has stated the value yet ({0:?}), and nobody enters until then: POST /admin/v1/zones/ZONE/draws/EVENT"
    )]
    NoValue(String),
}

/// Why an operator's statement is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStated {
    /// There is no such draw, or its list is not frozen yet.
    NotFrozen,
    /// The randomness is there already, or the draw needs none that an operator states.
    NotAsked,
    /// The event is over: people enter as its `after` says.
    Over,
    /// The value cannot be one.
    Wrong(String),
    /// The store does not answer.
    Away(StoreError),
}

type Key = (ZoneId, u32);

fn key_of(draw: &ZoneDraw) -> Key {
    (draw.zone.clone(), draw.event.draw_number())
}

type OverdueGauges = [Gauge; WaitsFor::ALL.len()];

/// What this server knows of one draw.
#[derive(Default)]
struct KnownDraw {
    /// What the store keeps, and its bytes.
    kept: Option<(Arc<KeptDraw>, Vec<u8>)>,
    /// When the store said so last, or was asked while the draw was not due.
    asked: Option<Instant>,
    /// In which epoch of the zone the store was last given it.
    given_in: Option<u32>,
    /// How often the line was to be dealt.
    censuses: u32,
    /// What was logged last, so that a trouble is logged once.
    trouble: Option<String>,
}

/// Holds the draws of a gate's zones.
pub struct Draws {
    gate: Arc<Gate<AnyStore>>,
    settings: DrawSettings,
    known: Mutex<HashMap<Key, KnownDraw>>,
    /// How many are overdue, in the order of [`WaitsFor::ALL`].
    overdue: OverdueGauges,
}

impl Draws {
    /// Draws of the zones that `gate` serves. `overdue` shows how many should have taken place, in the order of
    /// [`WaitsFor::ALL`].
    #[must_use]
    pub fn new(gate: Arc<Gate<AnyStore>>, settings: DrawSettings, overdue: OverdueGauges) -> Arc<Self> {
        Arc::new(Self { gate, settings, known: Mutex::default(), overdue })
    }

    /// Holds each draw that is due, until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let draws = self.gate.draws();
            for draw in &draws {
                let key = key_of(draw);
                if draw.is_known && !draw.is_due && self.is_kept(draw, &key) {
                    continue;
                }
                let trouble = self.step(draw, &key).await.err().map(|fault| fault.to_string());
                let mut known = self.known();
                let known = known.entry(key).or_default();
                // Before it is due, nobody waits for it. It is asked again.
                let trouble = trouble.filter(|_| draw.is_due);
                if let Some(text) = trouble.as_ref().filter(|_| known.trouble != trouble) {
                    tracing::warn!(zone = %draw.zone, event = %draw.event.id, "the draw waits: {text}");
                }
                known.trouble = trouble;
            }
            let mut known = self.known();
            known.retain(|key, _| {
                draws.iter().any(|draw| draw.zone == key.0 && draw.event.draw_number() == key.1)
            });
            let due = draws
                .iter()
                .filter(|draw| draw.is_due)
                .map(|draw| Progress::of(draw, known.get(&key_of(draw))));
            let overdue: Vec<_> = due.filter(|of| of.overdue_s > 0).filter_map(|of| of.waits_for).collect();
            for (gauge, (waits_for, _)) in self.overdue.iter().zip(WaitsFor::ALL) {
                gauge.set(overdue.iter().filter(|of| **of == waits_for).count() as f64);
            }
        }
    }

    /// Where the draw is that decides who enters first in a zone; `None` where that is the order of arrival.
    #[must_use]
    pub fn progress(&self, zone: &ZoneId) -> Option<Progress> {
        let draw = self.gate.draw_that_decides(zone.as_str())?;
        Some(Progress::of(&draw, self.known().get(&key_of(&draw))))
    }

    /// Whether the store was given the record of a draw since it may last have lost it.
    fn is_kept(&self, draw: &ZoneDraw, key: &Key) -> bool {
        self.known().get(key).is_some_and(|known| {
            known.given_in == Some(draw.epoch) && known.asked.is_some_and(|at| at.elapsed() < KEEP_AGAIN)
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, KnownDraw>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key that signs now: it follows from the key that seals tokens, so all servers of a store have the same one.
    ///
    /// # Panics
    /// If the name of the settings was not checked.
    #[must_use]
    pub fn signer(&self) -> Signer {
        signer_by(&self.gate.seals().current, &self.settings.name)
    }

    /// The key that signed the list of a draw, if this server has it. The key that seals may have changed since then.
    fn signer_of(&self, kept: &KeptDraw) -> Option<Signer> {
        let seals = self.gate.seals();
        let seals = [Some(&seals.current), seals.previous.as_ref(), seals.next.as_ref()];
        let signers = seals.into_iter().flatten().map(|seal| signer_by(seal, kept.key().name()));
        signers.into_iter().find(|signer| signer.key() == kept.key())
    }

    /// What is kept of a draw, as far as this server knows it.
    #[must_use]
    pub fn kept(&self, zone: &ZoneId, event: &Event) -> Option<Arc<KeptDraw>> {
        let known = self.known();
        let (kept, _) = known.get(&(zone.clone(), event.draw_number()))?.kept.as_ref()?;
        Some(Arc::clone(kept))
    }

    /// The event of a zone whose order is drawn.
    #[must_use]
    pub fn event(&self, zone: &str, event: &str) -> Option<Event> {
        self.gate.definition(zone)?.schedule.get(event).filter(|event| event.draw.is_some()).cloned()
    }

    /// What is published of a draw before its record: what it will be decided by, and, once the list is frozen, the signed checkpoint.
    #[must_use]
    pub fn announcement(&self, zone: &ZoneId, event: &Event) -> Value {
        let kept = self.kept(zone, event);
        let stage = stage_of(kept.as_deref());
        let written = EventJson::from(event);
        json!({
            "zone": zone.as_str(),
            "event": event.id.as_str(),
            "stage": stage,
            "begins": event.begins.unix_s(),
            "opens": event.opens_s(),
            "randomness": written.randomness,
            "fallback": written.fallback,
            "key": kept.as_ref().map_or_else(|| self.key().to_string(), |kept| kept.key().to_string()),
            "checkpoint": kept.as_ref().map(|kept| kept.note()),
        })
    }

    /// The receipt of a ticket; `None` if the draw has not taken place, or the ticket was not given out before the freeze.
    #[must_use]
    pub fn receipt(&self, zone: &ZoneId, event: &Event, seq: u64) -> Option<Receipt> {
        let kept = self.kept(zone, event)?;
        let lots = self.gate.lots(zone, event.draw_number())?;
        kept.receipt(&lots, self.gate.number_before(zone, &lots, seq))
    }

    /// An operator states the value that decides a draw, or that the announced randomness did not come (`None`).
    ///
    /// # Errors
    /// [`NotStated`].
    pub async fn state(&self, zone: &ZoneId, event: &Event, value: Option<&str>) -> Result<(), NotStated> {
        let key = (zone.clone(), event.draw_number());
        let kept = self.kept(zone, event).ok_or(NotStated::NotFrozen)?;
        if kept.randomness().is_some() {
            return Err(NotStated::NotAsked);
        }
        if !self.gate.draws().iter().any(|draw| key_of(draw) == key && draw.is_due) {
            return Err(NotStated::Over);
        }
        let checkpoint = kept.checkpoint();
        let signer = self.signer_of(&kept).ok_or_else(|| {
            let key = "the key that signed the list is not here; name the seal of that time as `seal.previous_key_file`, and reload";
            NotStated::Wrong(key.to_owned())
        })?;
        let sign = |statement: Statement| {
            let text = statement.text(checkpoint).map_err(|fault| NotStated::Wrong(fault.to_string()))?;
            Ok::<_, NotStated>(signer.sign(&text))
        };
        let randomness = match (value, &checkpoint.terms().announced, checkpoint.terms().fallback) {
            (Some(value), Announced::Stated { .. }, _) => {
                Randomness::Stated { statement: sign(Statement::Value(value.to_owned()))? }
            }
            (None, _, Fallback::Arrival) => Randomness::Arrival { statement: sign(Statement::Missing)? },
            _ => return Err(NotStated::NotAsked),
        };
        let drawn =
            draw_by(&kept, randomness.clone()).await.map_err(|fault| NotStated::Wrong(fault.to_string()))?;
        let kept = self.keep(&key, drawn.to_bytes()).await.map_err(|fault| match fault {
            Fault::Store(error) => NotStated::Away(error),
            other => NotStated::Wrong(other.to_string()),
        })?;
        // Of several operators at the same time, one decides, and the others hear that.
        if kept.randomness() == Some(&randomness) { Ok(()) } else { Err(NotStated::NotAsked) }
    }

    /// Does the next step of one draw.
    async fn step(&self, draw: &ZoneDraw, key: &Key) -> Result<(), Fault> {
        let Some(kept) = self.look(draw, key).await? else { return Ok(()) };
        if kept.randomness().is_none() {
            // The event may have ended first. An order that comes then would be published, and nobody would enter by it.
            return if draw.is_due { self.ask_for_randomness(draw, key, &kept).await } else { Ok(()) };
        }
        let lots = match self.gate.lots(&draw.zone, key.1) {
            Some(lots) => lots,
            None => {
                let number = key.1;
                let lots = Arc::new(aside(move || kept.lots(number)).await?);
                self.gate.add_lots(&draw.zone, Arc::clone(&lots));
                lots
            }
        };
        if draw.is_due {
            self.deal(draw, key, &lots).await?;
        }
        Ok(())
    }

    /// What is kept of a draw. If nothing is and the draw is due, its list is frozen.
    async fn look(&self, draw: &ZoneDraw, key: &Key) -> Result<Option<Arc<KeptDraw>>, Fault> {
        let mine = {
            let mut known = self.known();
            let known = known.entry(key.clone()).or_default();
            let asked_within = |time| known.asked.is_some_and(|at| at.elapsed() < time);
            match &known.kept {
                Some((kept, _)) if asked_within(LOOK_AGAIN) && known.given_in == Some(draw.epoch) => {
                    return Ok(Some(Arc::clone(kept)));
                }
                None if !draw.is_due && asked_within(LOOK_FOR_OLD) => return Ok(None),
                _ => {}
            }
            if known.kept.is_none() && !draw.is_due {
                known.asked = Some(Instant::now());
            }
            known.kept.as_ref().map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = mine {
            // It is given back if the store lost it, and another server may have added the randomness.
            let kept = self.keep(key, bytes).await?;
            self.known().entry(key.clone()).or_default().given_in = Some(draw.epoch);
            return Ok(Some(kept));
        }
        if let Some(bytes) = self.gate.keep_draw(&draw.zone, key.1, None).await? {
            if draw.unix_ms / 1_000 < u64::from(draw.event.begins.unix_s()) {
                tracing::warn!(
                    zone = %draw.zone, event = %draw.event.id,
                    "an event of this name had a draw already, and its record stays, so there will be none: give this event another name"
                );
            }
            return self.note(key, bytes).await.map(Some);
        }
        if !draw.is_due {
            return Ok(None);
        }
        if !draw.is_fixed {
            // The register is read twice a second.
            let is_late =
                draw.unix_ms > (u64::from(draw.event.begins.unix_s()) * 1_000).saturating_add(UNREAD_MS);
            return if is_late { Err(Fault::Unread) } else { Ok(None) };
        }
        let census = self.gate.census(&draw.zone).await?;
        if census.settled_ms > census.now_ms || census.is_recovering {
            return Err(Fault::Unsettled);
        }
        let frozen = self.freeze(draw, census).await?;
        tracing::info!(
            zone = %draw.zone, event = %draw.event.id, people = frozen.checkpoint().in_line(),
            "the list of the draw is frozen"
        );
        self.keep(key, frozen.to_bytes()).await.map(Some)
    }

    async fn freeze(&self, draw: &ZoneDraw, census: Census) -> Result<KeptDraw, Fault> {
        let Some(terms) = &draw.event.draw else { return Err(Fault::Kept("it has no terms".to_owned())) };
        // The announced round must not be known yet, whichever of the clocks is behind.
        let now_s = (census.unix_ms.max(store::unix_ms())).div_ceil(1_000);
        let announced = match &terms.randomness {
            admission::RandomnessSource::Drand => {
                Announced::Drand { round: QUICKNET.first_round_from(now_s + ROUND_AFTER_S) }
            }
            admission::RandomnessSource::Stated(source) => Announced::Stated { source: source.to_string() },
        };
        let fallback = match terms.fallback {
            DrawFallback::Wait => Fallback::Wait,
            DrawFallback::Arrival => Fallback::Arrival,
        };
        let terms = Terms {
            key_name: self.settings.name.clone(),
            event: draw.event.id.to_string(),
            zone: draw.zone.to_string(),
            frozen_unix_s: now_s,
            // After a loss, the list is frozen late.
            start_unix_s: u64::from(draw.event.opens_s()).max(now_s),
            announced,
            fallback,
        };
        let signer = self.signer();
        Ok(aside(move || KeptDraw::frozen(&signer, terms, &census)).await?)
    }

    /// Keeps it in the store, and takes in what is kept there then.
    async fn keep(&self, key: &Key, new: Vec<u8>) -> Result<Arc<KeptDraw>, Fault> {
        let bytes = self.gate.keep_draw(&key.0, key.1, Some(new)).await?;
        let bytes = bytes.ok_or_else(|| Fault::Kept("the store does not keep it".to_owned()))?;
        self.note(key, bytes).await
    }

    async fn note(&self, key: &Key, bytes: Vec<u8>) -> Result<Arc<KeptDraw>, Fault> {
        let before = self.known().get(key).and_then(|known| known.kept.clone());
        let (kept, bytes) = match before.filter(|(_, before)| *before == bytes) {
            Some(same) => same,
            None => aside(move || KeptDraw::read(&bytes).map(|kept| (Arc::new(kept), bytes)))
                .await
                .map_err(Fault::Kept)?,
        };
        let mut known = self.known();
        let known = known.entry(key.clone()).or_default();
        known.asked = Some(Instant::now());
        // An operator's statement may have been kept while this was read.
        if known.kept.as_ref().is_none_or(|(_, had)| had.first() <= bytes.first()) {
            known.kept = Some((Arc::clone(&kept), bytes));
        }
        Ok(kept)
    }

    /// Fetches the announced round, once it is due. A value that an operator states comes by [`Draws::state`].
    async fn ask_for_randomness(
        &self,
        draw: &ZoneDraw,
        key: &Key,
        kept: &Arc<KeptDraw>,
    ) -> Result<(), Fault> {
        let terms = kept.checkpoint().terms();
        let round = match &terms.announced {
            Announced::Drand { round } => *round,
            Announced::Stated { source } if draw.unix_ms / 1_000 > terms.start_unix_s => {
                return Err(Fault::NoValue(source.clone()));
            }
            Announced::Stated { .. } => return Ok(()),
        };
        let due_ms = QUICKNET.round_unix_s(round) * 1_000;
        if store::unix_ms() < due_ms {
            return Ok(());
        }
        let mut troubles = Vec::new();
        for relay in &self.settings.drand {
            match relay.fetch(round).await {
                Ok(signature) => match draw_by(kept, Randomness::Drand { round, signature }).await {
                    Ok(drawn) => {
                        tracing::info!(zone = %draw.zone, event = %draw.event.id, round, "the round of drand is there");
                        return self.keep(key, drawn.to_bytes()).await.map(drop);
                    }
                    Err(fault) => troubles.push(format!("{relay}: {fault}")),
                },
                Err(fault) => troubles.push(format!("{relay}: {fault}")),
            }
        }
        Err(Fault::NoRound(round, troubles.join("; ")))
    }

    /// Deals the line anew.
    async fn deal(&self, draw: &ZoneDraw, key: &Key, lots: &Lots) -> Result<(), Fault> {
        let census = self.gate.census(&draw.zone).await?;
        if census.is_recovering || census.drawn.draw == key.1 {
            return Ok(());
        }
        let tries = {
            let mut known = self.known();
            let known = known.entry(key.clone()).or_default();
            known.censuses += 1;
            known.censuses
        };
        let dealt = self.gate.deal(&draw.zone, lots.deal(&census), tries >= CENSUSES).await?;
        if dealt == Dealt::Done {
            tracing::info!(zone = %draw.zone, event = %draw.event.id, people = lots.listed(), "the line is dealt by the draw");
        }
        Ok(())
    }

    /// The public key that signs now.
    #[must_use]
    pub fn key(&self) -> VerifierKey {
        self.signer().key().clone()
    }
}

/// The key that signs draws while `seal` seals tokens. `name` was checked: it is the configuration's, or that of a key that was read.
fn signer_by(seal: &SealKey, name: &str) -> Signer {
    let secret = blake3::derive_key("weir 2026-11 key that signs draws", &seal.secret);
    Signer::new(name, &secret).expect("the name was checked")
}

/// A draw with the randomness that came.
async fn draw_by(kept: &Arc<KeptDraw>, randomness: Randomness) -> Result<KeptDraw, ::draw::Fault> {
    let kept = Arc::clone(kept);
    aside(move || kept.drawn(randomness)).await
}

/// Computes something that takes long: 600,000 places are a tree of a million digests.
async fn aside<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(compute).await.expect("it does not panic, and nobody aborts it")
}
