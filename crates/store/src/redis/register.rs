//! The register: the zones that one Redis keeps, with their definitions, and the routes that operators set. It is one hash, changed
//! by compare-and-set.
//!
//! Each server remembers the register as it last saw it. A server that finds an older register in Redis writes back the
//! whole register that it remembers, in one step.
//!
//! Invariants: of several changes that expect the same definition of a zone, or the same routes, one is made. A deleted zone comes
//! back only by a change. What a server remembers has one revision.

use std::{
    cmp::Ordering::{self, Equal, Greater, Less},
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use admission::{Definition, ZoneId};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Redis, Result,
    client::{Client, Script},
    lock, scripts, text,
    wire::{self, Garbled, Reply},
};
use crate::{Defined, Expected, RegisterContents, RoutesDefined, StoreError, clock::unix_ms};

const REGISTER: &str = "weir:v1:{zones}";

/// The field of the routes. No zone has such a name.
const ROUTES: &str = "#routes";

/// The field that says when the register was created.
const BORN: &str = "#born";

/// The field that says which revision was written back. A reply has it if nothing changed since.
const FROM: &str = "#from";

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
    /// When it was created, in microseconds since 1970; 0 if that is not known, because an older version created it.
    born: u64,
    /// The revision with the same content that was written back first; 0 if there is none.
    from: u64,
    pub(super) zones: BTreeMap<ZoneId, Definition>,
    routes: Option<Arc<str>>,
    /// What the clock of its node showed, in milliseconds since 1970, and when the answer came.
    clock: Option<(u64, Instant)>,
}

/// Why a reply with the register cannot be used.
enum Fault {
    /// A field has a text that no server wrote, or that a later version wrote.
    Spoiled {
        rev: u64,
        born: u64,
        field: Bytes,
        text: Bytes,
    },
    Other(Garbled),
}

impl From<Garbled> for Fault {
    fn from(garbled: Garbled) -> Self {
        Self::Other(garbled)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Spoiled { field, text, .. } => Self::Away(format!(
                "the register of zones did not answer with a definition: its field `{}` has the value `{}`; upgrade this server if a \
                 newer one wrote it, otherwise correct it, or remove it by HDEL {REGISTER} and define the zone again",
                shown(&field),
                shown(&text)
            )),
            Fault::Other(garbled) => garbled.into(),
        }
    }
}

/// The beginning of what Redis has, without control characters.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(64)].escape_ascii().to_string()
}

/// The answer of Redis to a change of one field.
enum Tried {
    /// It is made, now as this revision or by an earlier call.
    Made(Option<u64>),
    /// The field has another text.
    Found(Bytes),
    /// It came too late.
    Late,
    /// The server should read the register again.
    Again,
}

impl Register {
    pub(super) fn kept(self) -> RegisterContents {
        // What the clock showed as it answered: this server may have stood still since then.
        let unix_ms = self.clock.map_or(0, |(unix_ms, _)| unix_ms);
        RegisterContents {
            zones: self.zones.into_iter().collect(),
            routes: self.routes,
            is_new: self.rev == 0,
            unix_ms,
            began_ms: self.born / 1_000,
        }
    }

    /// The time by the clock of its node, in milliseconds since 1970. Without an answer, this server's clock has to do.
    pub(super) fn unix_ms(&self) -> u64 {
        let passed = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(0);
        self.clock.map_or_else(unix_ms, |(unix_ms, at)| unix_ms + passed(at))
    }

    /// Whether the life of this register began before, with or after the life of another one. Revisions tell lives apart that began in
    /// different minutes.
    fn began(&self, other: &Self) -> Ordering {
        match (self.rev / LIFE).cmp(&(other.rev / LIFE)) {
            Equal if self.born != 0 && other.born != 0 => self.born.cmp(&other.born),
            by_minute => by_minute,
        }
    }

    /// Whether this counts and not `other`: an earlier revision of the same life, or a later life. Such an answer came late.
    fn is_after(&self, other: &Self) -> bool {
        let counts = match self.began(other) {
            Less => true,
            Equal => self.rev > other.rev,
            Greater => false,
        };
        self.rev != 0 && counts
    }

    /// What changes if `earlier` takes the place of this one.
    fn changes(&self, earlier: &Self) -> Vec<String> {
        let zones =
            self.zones.keys().chain(earlier.zones.keys().filter(|zone| !self.zones.contains_key(*zone)));
        let changes = zones.filter_map(|zone| match (self.zones.get(zone), earlier.zones.get(zone)) {
            (Some(now), Some(then)) if now == then => None,
            (Some(now), Some(then)) => Some(format!("{zone} has {}", now.changes(then).join(", "))),
            (_, None) => Some(format!("{zone} is not in it")),
            (None, _) => Some(format!("{zone} is in it again")),
        });
        let mut changes: Vec<String> = changes.collect();
        if self.routes != earlier.routes {
            changes.push("the routes differ".to_owned());
        }
        changes
    }

    /// Says that `earlier` takes the place of this one, if it began before: a backup was restored, or a server of Redis is back that was
    /// replaced by an empty one. It is right by the rule, and it may be what nobody wants any more.
    fn warn_of_earlier(&self, earlier: &Self) {
        const NAMED: usize = 10;
        if self.began(earlier) != Greater {
            return;
        }
        let mut changes = self.changes(earlier);
        let more = changes.len().saturating_sub(NAMED);
        changes.truncate(NAMED);
        if more > 0 {
            changes.push(format!("and {more} more"));
        }
        let changes = if changes.is_empty() { "no zone differs".to_owned() } else { changes.join("; ") };
        tracing::error!(
            "the register of zones in Redis went back to one that began earlier, as when a backup is restored, and that one is in \
             force now: {changes}. If that is not meant, change the zones: in the console, or by weir zones apply FILE"
        );
    }

    fn args(&self, wanted: &'static str, zones: &[(ZoneId, Definition)]) -> Vec<Bytes> {
        let mut args = vec![text(self.rev), text(self.born), Bytes::from_static(wanted.as_bytes())];
        for (zone, definition) in zones {
            args.push(Bytes::copy_from_slice(zone.as_str().as_bytes()));
            args.push(wire::definition_text(definition).into());
        }
        args
    }

    /// The arguments that write all of it back.
    fn again(&self) -> Vec<Bytes> {
        let zones: Vec<_> = self.zones.clone().into_iter().collect();
        let mut args = self.args("again", &zones);
        if let Some(routes) = &self.routes {
            args.extend([ROUTES.as_bytes(), routes.as_bytes()].map(Bytes::copy_from_slice));
        }
        if self.from != 0 {
            args.extend([Bytes::from_static(FROM.as_bytes()), text(self.from)]);
        }
        args
    }

    /// Parses the reply to a question that was asked with `self`.
    fn read(&self, mut reply: Reply, whole: bool) -> std::result::Result<Self, Fault> {
        let rev = reply.number()?;
        let clock = (reply.number()?, Instant::now());
        if rev == self.rev && reply.is_empty() && !whole {
            return Ok(Self { clock: Some(clock), ..self.clone() });
        }
        let mut read = Self { rev, clock: Some(clock), ..Self::default() };
        let mut spoiled = None;
        while !reply.is_empty() {
            let (field, text) = (reply.bytes()?, reply.bytes()?);
            if !read.put(&field, &text) {
                spoiled = Some((field, text));
            }
        }
        match spoiled {
            None => Ok(read),
            Some((field, text)) => Err(Fault::Spoiled { rev, born: read.born, field, text }),
        }
    }

    /// Takes in one field. Returns whether it can be read.
    fn put(&mut self, field: &[u8], text: &[u8]) -> bool {
        let utf8 = std::str::from_utf8(text);
        if field.starts_with(b"#") {
            if field == ROUTES.as_bytes() {
                self.routes = utf8.ok().map(Into::into);
                return self.routes.is_some();
            }
            let number = || utf8.ok().and_then(|number| number.parse().ok()).unwrap_or(0);
            if field == BORN.as_bytes() {
                self.born = number();
            }
            if field == FROM.as_bytes() {
                self.from = number();
            }
            // Other such fields are those of a later version.
            return true;
        }
        let zone = std::str::from_utf8(field).ok().and_then(|zone| ZoneId::parse(zone).ok());
        match (zone, wire::parse_definition(text)) {
            (Some(zone), Ok(definition)) => {
                self.zones.insert(zone, definition);
                true
            }
            _ => false,
        }
    }

    /// The text of a field as this register has it; empty if it has none.
    fn text_of(&self, field: &[u8]) -> Bytes {
        if field == ROUTES.as_bytes() {
            return self.routes.as_deref().unwrap_or_default().to_owned().into();
        }
        let zone = self.zones.iter().find(|(zone, _)| zone.as_str().as_bytes() == field);
        zone.map(|(_, definition)| wire::definition_text(definition)).unwrap_or_default().into()
    }
}

impl<C: Client> Redis<C> {
    /// Reads the register. If there never was one, it is created with the zones of `first`, if there are any.
    pub(super) async fn registered(&self, first: &[(ZoneId, Definition)]) -> Result<Register> {
        let is_turn = self.register_reads.fetch_add(1, Relaxed) % WHOLE_EVERY == WHOLE_EVERY - 1;
        let wanted = match first {
            [] if is_turn => "all",
            [] => "",
            _ => "first",
        };
        for _ in 0..MAX_TRIES {
            let before = lock(&self.register).clone();
            let mut whole = wanted == "all";
            let args = before.args(wanted, first);
            let mut reply = self.of_register(&scripts::ZONES, &[], args).await?;
            if reply.is(b"-1") {
                tracing::warn!(
                    zones = before.zones.len(),
                    "the register of zones in Redis is older than what this server has seen; it is written back"
                );
                reply = self.of_register(&scripts::ZONES, &[], before.again()).await?;
                // Another process may have answered now, and have the register as this server has seen it.
                whole = false;
            }
            let register = match before.read(reply, whole) {
                Ok(register) => register,
                Err(fault) => {
                    self.put_right(before, fault).await?;
                    continue;
                }
            };
            let mut kept = lock(&self.register);
            if kept.is_after(&register) {
                kept.clock = register.clock;
            } else {
                kept.warn_of_earlier(&register);
                kept.clone_from(&register);
            }
            return Ok(register);
        }
        Err(StoreError::Busy)
    }

    /// Writes a field of the register as this server remembers it, if the register has a text there that cannot be read, and
    /// has the revision that the server has seen. So no server wrote that text, not even a newer one: its change would have
    /// another revision.
    async fn put_right(&self, before: Register, fault: Fault) -> Result<()> {
        let (field, text) = match &fault {
            Fault::Spoiled { rev, born, field, text } if (*rev, *born) == (before.rev, before.born) => {
                (field, text)
            }
            _ => return Err(fault.into()),
        };
        let (Ok(name), remembered) = (std::str::from_utf8(field), before.text_of(field)) else {
            return Err(fault.into());
        };
        if remembered == text {
            return Err(fault.into());
        }
        let (was, texts) = (shown(text), (text.clone(), remembered));
        if let Tried::Made(rev) = self.try_change(&before, name, texts, 0, &mut mark(name)).await? {
            tracing::warn!(
                "the field `{name}` of the register of zones in Redis had the value `{was}`, which no server wrote; it is written back \
                 as this server remembers it"
            );
            self.remember_change(before, rev, |_| {});
        }
        Ok(())
    }

    /// Changes a zone that is as expected to what `new` returns.
    pub(super) async fn define_in_register(
        &self,
        zone: &ZoneId,
        expected: &Expected,
        new: impl Fn(Option<&Definition>) -> Option<Definition>,
    ) -> Result<Defined> {
        let mut made = mark(zone.as_str());
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
            let texts =
                (found.take().filter(same).unwrap_or_else(|| written(before)), written(after.as_ref()));
            let schedule = after.as_ref().map(|after| after.schedule.clone()).unwrap_or_default();
            let draw = before.and_then(|before| {
                before.schedule.first_draw_changed(&schedule, register.unix_ms() / 1_000).cloned()
            });
            let until_ms = draw.as_ref().map_or(0, |draw| u64::from(draw.begins.unix_s()) * 1_000);
            match self.try_change(&register, zone.as_str(), texts, until_ms, &mut made).await? {
                Tried::Made(rev) => {
                    let before = before.cloned();
                    self.remember_change(register, rev, |register| match after {
                        Some(definition) => drop(register.zones.insert(zone.clone(), definition)),
                        None => drop(register.zones.remove(zone)),
                    });
                    return Ok(Defined::Done(before));
                }
                Tried::Found(text) => found = Some(text),
                Tried::Late => {
                    return draw.map(|draw| Defined::Frozen(draw.id)).ok_or(StoreError::Busy);
                }
                Tried::Again => {}
            }
        }
        Err(StoreError::Busy)
    }

    /// Replaces the routes if they are as expected.
    pub(super) async fn define_routes_in_register(
        &self,
        expected: Option<&str>,
        new: &str,
    ) -> Result<RoutesDefined> {
        let mut made = mark(ROUTES);
        for _ in 0..MAX_TRIES {
            let register = self.registered(&[]).await?;
            if register.routes.as_deref() != expected {
                return Ok(RoutesDefined::Otherwise(register.routes));
            }
            let texts =
                [expected.unwrap_or_default(), new].map(|text| Bytes::copy_from_slice(text.as_bytes()));
            if let Tried::Made(rev) = self.try_change(&register, ROUTES, texts.into(), 0, &mut made).await? {
                self.remember_change(register, rev, |register| register.routes = Some(new.into()));
                return Ok(RoutesDefined::Done);
            }
        }
        Err(StoreError::Busy)
    }

    /// Asks Redis to change one field from one text to another, before its clock shows `until_ms` (milliseconds since 1970, 0 for whenever).
    /// `register` is what the server has; `made` marks the change, however often it is sent.
    async fn try_change(
        &self,
        register: &Register,
        field: &str,
        (before, after): (Bytes, Bytes),
        until_ms: u64,
        made: &mut Vec<Bytes>,
    ) -> Result<Tried> {
        let field = Bytes::copy_from_slice(field.as_bytes());
        let args = vec![
            text(register.rev),
            text(register.born),
            field,
            before,
            after,
            text(REMEMBERED_S),
            text(until_ms),
        ];
        let mut reply = match self.of_register(&scripts::DEFINE, made, args).await {
            // The slot is being moved and the script did not run. With a single key it can run.
            Err(StoreError::Away(why)) if why.contains("TRYAGAIN") && !made.is_empty() => {
                made.clear();
                return Ok(Tried::Again);
            }
            other => other?,
        };
        match &*reply.bytes()? {
            b"1" if reply.is_empty() => Ok(Tried::Made(None)),
            b"1" => Ok(Tried::Made(Some(reply.number()?))),
            b"0" => Ok(Tried::Found(reply.bytes()?)),
            b"2" => Ok(Tried::Late),
            // The register lost something. The next read writes it back.
            _ => Ok(Tried::Again),
        }
    }

    /// Notes a change that made `register` revision `rev`, so that this server can write it back if Redis loses it now. If other
    /// changes came between, the next read has all of them.
    fn remember_change(&self, mut register: Register, rev: Option<u64>, change: impl FnOnce(&mut Register)) {
        let Some(rev) = rev.filter(|rev| register.rev != 0 && *rev == register.rev + 1) else { return };
        (register.rev, register.from) = (rev, 0);
        change(&mut register);
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

/// The key that marks one change of a field.
fn mark(field: &str) -> Vec<Bytes> {
    let random = RandomState::new();
    let [a, b] = [0, 1].map(|half| random.hash_one((field, half)));
    vec![Bytes::from(format!("{REGISTER}:made:{a:016x}{b:016x}"))]
}
