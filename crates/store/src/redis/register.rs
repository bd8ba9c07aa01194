//! The zones that one Redis keeps, with their definitions: one hash, changed by compare-and-set.
//!
//! Each server remembers the register as it last saw it. Who finds less there than that puts it again whole, in one step.
//! Invariants: of changes that expect the same of a zone, one is made; a zone that was deleted comes back by a change
//! alone; what a server remembers has one revision.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::atomic::Ordering,
};

use admission::{Definition, ZoneId};
use bytes::Bytes;

use super::{
    Redis, Result,
    client::{Client, Script},
    lock, scripts, text,
    wire::{self, Garbled, Reply},
};
use crate::{Defined, Expected, Kept, StoreError};

const REGISTER: &str = "weir:v1:{zones}";

/// Revisions of one register's life, as in `lua/register.lua`.
const LIFE: u64 = 1 << 28;

/// Every so many times, all of the register is asked for: two that lost different changes may have come to the same
/// revision. At two questions a second, that is seen within 10 s.
const WHOLE_EVERY: u64 = 20;

/// How often a change is tried that others come between.
const CHANGES: usize = 32;

/// For how many seconds it is remembered that a change was made: longer than any client asks again.
const REMEMBERED_S: u32 = 60;

/// The register, as last seen.
#[derive(Clone, Default)]
pub(super) struct Register {
    /// 0 where there never was one.
    rev: u64,
    pub(super) zones: BTreeMap<ZoneId, Definition>,
}

impl Register {
    pub(super) fn kept(self) -> Kept {
        Kept { zones: self.zones.into_iter().collect(), is_new: self.rev == 0 }
    }

    /// Whether `other` is an earlier state of the same register, or a younger one: an answer that came late.
    fn is_after(&self, other: &Self) -> bool {
        let [life, of] = [self.rev, other.rev].map(|rev| rev / LIFE);
        self.rev != 0 && (life < of || (life == of && self.rev > other.rev))
    }

    fn args(&self, wanted: &'static str, zones: &[(ZoneId, Definition)]) -> Vec<Bytes> {
        let mut args = vec![text(self.rev), Bytes::from_static(wanted.as_bytes())];
        for (zone, definition) in zones {
            args.push(Bytes::copy_from_slice(zone.as_str().as_bytes()));
            args.push(wire::definition_text(definition).into());
        }
        args
    }

    /// The register that a reply shows to who asked with `self`.
    fn read(self, mut reply: Reply, whole: bool) -> Result<Self> {
        let rev = reply.number()?;
        if rev == self.rev && !whole {
            return Ok(self);
        }
        let mut zones = BTreeMap::new();
        while !reply.is_empty() {
            let (zone, definition) = (reply.bytes()?, reply.bytes()?);
            let zone = std::str::from_utf8(&zone).ok().and_then(|zone| ZoneId::parse(zone).ok());
            zones
                .insert(zone.ok_or(Garbled("a zone of the register"))?, wire::parse_definition(&definition)?);
        }
        Ok(Self { rev, zones })
    }
}

impl<C: Client> Redis<C> {
    /// The register as it is. Where there never was one, it is begun with the zones of `first`, if there are any.
    pub(super) async fn registered(&self, first: &[(ZoneId, Definition)]) -> Result<Register> {
        let whole = self.asked.fetch_add(1, Ordering::Relaxed) % WHOLE_EVERY == WHOLE_EVERY - 1;
        let wanted = match first {
            [] if whole => "all",
            [] => "",
            _ => "first",
        };
        let before = lock(&self.register).clone();
        let args = before.args(wanted, first);
        let mut reply = self.of_register(&scripts::ZONES, &[], args).await?;
        if reply.is(b"-1") {
            tracing::warn!(
                zones = before.zones.len(),
                "the register of zones in Redis is older than this server has seen; it is put again"
            );
            let zones: Vec<_> = before.zones.clone().into_iter().collect();
            reply = self.of_register(&scripts::ZONES, &[], before.args("again", &zones)).await?;
        }
        let register = before.read(reply, wanted == "all")?;
        let mut kept = lock(&self.register);
        if !kept.is_after(&register) {
            kept.clone_from(&register);
        }
        Ok(register)
    }

    /// Makes of a zone that is as expected what `new` says of it.
    pub(super) async fn define_in_register(
        &self,
        zone: &ZoneId,
        expected: &Expected,
        new: impl Fn(Option<&Definition>) -> Option<Definition>,
    ) -> Result<Defined> {
        let random = RandomState::new();
        let [a, b] = [0, 1].map(|half| random.hash_one((zone, half)));
        let mut made = vec![Bytes::from(format!("{REGISTER}:made:{a:016x}{b:016x}"))];
        // How the zone's definition is written there, where that is not how it is written here.
        let mut found: Option<Bytes> = None;
        for _ in 0..CHANGES {
            let register = self.registered(&[]).await?;
            let before = register.zones.get(zone);
            if !expected.holds(before) {
                return Ok(Defined::Otherwise(before.cloned()));
            }
            let written =
                |of: Option<&Definition>| Bytes::from(of.map_or_else(String::new, wire::definition_text));
            let same = |text: &Bytes| wire::parse_definition(text).ok().as_ref() == before;
            let args = vec![
                text(register.rev),
                Bytes::copy_from_slice(zone.as_str().as_bytes()),
                found.take().filter(same).unwrap_or_else(|| written(before)),
                written(new(before).as_ref()),
                text(REMEMBERED_S),
            ];
            let mut reply = match self.of_register(&scripts::DEFINE, &made, args).await {
                // The slot is being moved: it was not run, and one key alone is found wherever it is.
                Err(StoreError::Away(why)) if why.contains("TRYAGAIN") && !made.is_empty() => {
                    made.clear();
                    continue;
                }
                other => other?,
            };
            match &*reply.bytes()? {
                b"1" => return Ok(Defined::Done(before.cloned())),
                b"0" => found = Some(reply.bytes()?),
                // Something is lost, which the next question puts again.
                _ => {}
            }
        }
        Err(StoreError::Busy)
    }

    async fn of_register(&self, script: &'static Script, more: &[Bytes], args: Vec<Bytes>) -> Result<Reply> {
        let mut keys = vec![Bytes::from_static(REGISTER.as_bytes())];
        keys.extend_from_slice(more);
        Ok(Reply::new(self.client.run(script, keys, args, None).await?)?)
    }
}
