//! The register: the zones that one Redis keeps, with their definitions. It is one hash, changed by compare-and-set.
//!
//! Each server remembers the register as it last saw it. A server that finds an older register in Redis writes back the
//! whole register that it remembers, in one step.
//!
//! Invariants: of several changes that expect the same definition of a zone, one is made. A deleted zone comes back only
//! by a change. What a server remembers has one revision.

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

/// How many revisions one life of the register can have, as in `lua/register.lua`.
const LIFE: u64 = 1 << 28;

/// One read in so many fetches the whole register: two registers that lost different changes may have come to the same
/// revision. With two reads a second, the difference is found within 10 s.
const WHOLE_EVERY: u64 = 20;

/// How often a change is tried while other changes come in between.
const MAX_TRIES: usize = 32;

/// How long Redis remembers that a change was made, in seconds: longer than a client repeats a call.
const REMEMBERED_S: u32 = 60;

/// The register, as last seen.
#[derive(Clone, Default)]
pub(super) struct Register {
    /// 0 if there never was a register.
    rev: u64,
    pub(super) zones: BTreeMap<ZoneId, Definition>,
}

impl Register {
    pub(super) fn kept(self) -> Kept {
        Kept { zones: self.zones.into_iter().collect(), is_new: self.rev == 0 }
    }

    /// Whether `other` is older than this: an earlier revision of the same life, or a later life with a smaller number.
    /// Such an answer came late.
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

    /// Parses the reply to a question that was asked with `self`.
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
    /// Reads the register. If there never was one, it is created with the zones of `first`, if there are any.
    pub(super) async fn registered(&self, first: &[(ZoneId, Definition)]) -> Result<Register> {
        let whole = self.register_reads.fetch_add(1, Ordering::Relaxed) % WHOLE_EVERY == WHOLE_EVERY - 1;
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
                "the register of zones in Redis is older than what this server has seen; it is written back"
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

    /// Changes a zone that is as expected to what `new` returns.
    pub(super) async fn define_in_register(
        &self,
        zone: &ZoneId,
        expected: &Expected,
        new: impl Fn(Option<&Definition>) -> Option<Definition>,
    ) -> Result<Defined> {
        let random = RandomState::new();
        let [a, b] = [0, 1].map(|half| random.hash_one((zone, half)));
        let mut made = vec![Bytes::from(format!("{REGISTER}:made:{a:016x}{b:016x}"))];
        // The zone's definition as Redis has it, if another version wrote it in another way.
        let mut found: Option<Bytes> = None;
        for _ in 0..MAX_TRIES {
            let register = self.registered(&[]).await?;
            let before = register.zones.get(zone);
            if !expected.holds(before) {
                return Ok(Defined::Otherwise(before.cloned()));
            }
            let written =
                |of: Option<&Definition>| Bytes::from(of.map_or_else(String::new, wire::definition_text));
            let same = |text: &Bytes| wire::parse_definition(text).ok().as_ref() == before;
            let after = new(before);
            let args = vec![
                text(register.rev),
                Bytes::copy_from_slice(zone.as_str().as_bytes()),
                found.take().filter(same).unwrap_or_else(|| written(before)),
                written(after.as_ref()),
                text(REMEMBERED_S),
            ];
            let mut reply = match self.of_register(&scripts::DEFINE, &made, args).await {
                // The slot is being moved and the script did not run. With a single key it can run.
                Err(StoreError::Away(why)) if why.contains("TRYAGAIN") && !made.is_empty() => {
                    made.clear();
                    continue;
                }
                other => other?,
            };
            match &*reply.bytes()? {
                b"1" => {
                    let before = before.cloned();
                    if !reply.is_empty() {
                        self.remember_change(register, reply.number()?, zone, after);
                    }
                    return Ok(Defined::Done(before));
                }
                b"0" => found = Some(reply.bytes()?),
                // The register lost something. The next read writes it back.
                _ => {}
            }
        }
        Err(StoreError::Busy)
    }

    /// Notes a change that made `register` revision `rev`, so that this server can write it back if Redis loses it now. If other
    /// changes came between, the next read has all of them.
    fn remember_change(&self, mut register: Register, rev: u64, zone: &ZoneId, to: Option<Definition>) {
        if register.rev == 0 || rev != register.rev + 1 {
            return;
        }
        register.rev = rev;
        match to {
            Some(definition) => drop(register.zones.insert(zone.clone(), definition)),
            None => drop(register.zones.remove(zone)),
        }
        let mut kept = lock(&self.register);
        if !kept.is_after(&register) {
            *kept = register;
        }
    }

    async fn of_register(&self, script: &'static Script, more: &[Bytes], args: Vec<Bytes>) -> Result<Reply> {
        let mut keys = vec![Bytes::from_static(REGISTER.as_bytes())];
        keys.extend_from_slice(more);
        Ok(Reply::new(self.client.run(script, keys, args, None).await?)?)
    }
}
