//! One call of a zone's script: its keys and arguments, its reply, and what to do when the state was lost.
//!
//! Invariant: each call carries the newest revision that this server has seen of the zone; only those that rebuild a state believe any. A
//! script refuses a call whose revision is newer than its own state, so a state that lost something decides nothing before it is rebuilt.
//! And no state decides for a server that has not given it what it remembers.

use std::{fmt, sync::atomic::Ordering};

use bytes::Bytes;
use tokio::time::Instant;

#[cfg(feature = "sabotage")]
use super::sabotage;
use super::{
    Redis, Zone,
    client::{Client, ClientError, Script, Value},
    lock, scripts, text,
    wire::{self, Garbled, Header, Reply},
    zone_memory::ZoneMemory,
};
use crate::StoreError;

/// How often a call is repeated that named the wrong keys, or found the state lost.
pub(super) const ATTEMPTS: usize = 4;

/// A call's reply, after the memory has taken in its header and log.
pub(super) struct Answer {
    pub(super) header: Header,
    /// Whether as many replicas have the change as answers wait for. Only a beat is answered without.
    pub(super) is_confirmed: bool,
    /// What the script returned behind header and log.
    pub(super) rest: Reply,
}

/// Why a call failed.
pub(super) enum Refused {
    /// The call passed the keys of the wrong segments: the next ticket number is this one.
    Keys(u64),
    /// The state lacks a part, or cannot be used.
    Torn(Torn),
    /// Another epoch has begun, and this server has not said yet what it remembers.
    Epoch,
    Other(StoreError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(_) => f.write_str("the call had the keys of other segments"),
            Self::Torn(torn) => f.write_str(&torn.why),
            Self::Epoch => f.write_str("another epoch has begun"),
            Self::Other(error) => error.fmt(f),
        }
    }
}

/// A state that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    /// The epoch that was found so; `None` if the script could not say.
    pub(super) epoch: Option<u32>,
    /// What is wrong with it, as Redis says it.
    pub(super) why: String,
    /// The segment whose key it is, if it is one.
    pub(super) segment: Option<u64>,
}

impl Torn {
    /// The script could not say where the fault is.
    fn of_any_epoch(why: String) -> Refused {
        Refused::Torn(Self { epoch: None, why, segment: None })
    }
}

impl Refused {
    /// The error of a caller that repairs nothing: `what` did not come.
    pub(super) fn without(self, what: &'static str) -> StoreError {
        match self {
            Self::Other(error) => error,
            Self::Keys(_) | Self::Torn(_) | Self::Epoch => Garbled(what).into(),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<Garbled> for StoreError {
    fn from(Garbled(what): Garbled) -> Self {
        Self::Away(format!("Redis did not answer with {what}"))
    }
}

impl From<Garbled> for Refused {
    fn from(garbled: Garbled) -> Self {
        Self::Other(garbled.into())
    }
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Busy => Self::Busy,
            ClientError::Unconfirmed { .. } => Self::Away(format!("no replica has the change: {error}")),
            ClientError::Script(text) => Self::Away(newer(&text).unwrap_or(text)),
            ClientError::Away(_) => Self::Away(error.to_string()),
        }
    }
}

impl<C: Client> Redis<C> {
    /// The name under which this server calls a zone's scripts; empty before its first decision there.
    pub(super) fn name_at(&self, zone: &Zone) -> Bytes {
        if zone.decides.load(Ordering::Relaxed) { self.name.clone() } else { Bytes::new() }
    }

    /// Runs a script of a zone with the keys of these segments, and `more` behind them. `own` makes the arguments behind the
    /// common ones. Rebuilds a lost state, and tries again.
    pub(super) async fn run(
        &self,
        zone: &Zone,
        script: &'static Script,
        (segments, more): (&[u64], &[Bytes]),
        own: impl Fn(&ZoneMemory) -> Vec<Bytes>,
    ) -> std::result::Result<Answer, Refused> {
        for _ in 0..ATTEMPTS {
            let attempt = async {
                // Without what this server remembers, the state would decide otherwise.
                self.give_witnesses(zone).await?;
                let args = {
                    let memory = lock(&zone.memory);
                    let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
                    let mut args =
                        common_args(Some(memory), self.held_clock_ms(), &self.name_at(zone), segments);
                    args.extend(own(memory));
                    args
                };
                let mut keys = keys(&zone.prefix, segments);
                keys.extend_from_slice(more);
                self.call(zone, script, keys, args).await
            };
            match attempt.await {
                Err(Refused::Other(StoreError::UnknownZone)) => self.recover(zone).await?,
                Err(Refused::Torn(torn)) => self.mend(zone, torn).await?,
                Err(Refused::Epoch) => {
                    if let Some(memory) = &mut *lock(&zone.memory) {
                        memory.keep_witness(Instant::now());
                    }
                }
                other => return other,
            }
        }
        Err(StoreError::Away(format!("the state of zone {} could not be rebuilt", zone.id)).into())
    }

    /// Makes one call. If the state was lost, the error is [`StoreError::UnknownZone`].
    pub(super) async fn call(
        &self,
        zone: &Zone,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
    ) -> std::result::Result<Answer, Refused> {
        let confirm = if is_told(script) { self.durability.confirm() } else { None };
        #[cfg(feature = "sabotage")]
        let script = sabotage::script(script);
        let sent = Instant::now();
        let answer = self.client.run(script, keys, args, confirm).await;
        if answer.is_err()
            && let Some(memory) = &mut *lock(&zone.memory)
        {
            memory.note_call(sent, false);
        }
        let mut is_confirmed = true;
        let value = match answer {
            Ok(value) => value,
            // Its entries are not told.
            Err(ClientError::Unconfirmed { reply, .. }) if script.name == scripts::BEAT.name => {
                is_confirmed = false;
                reply
            }
            Err(ClientError::Script(text)) => return Err(refused(&text)),
            Err(error) => {
                // What was decided may last though no replica has it, and nobody was told. The slots are taken.
                if let ClientError::Unconfirmed { reply, .. } = &error {
                    let Seen { header, past, first, log, .. } = Seen::of(reply.clone())?;
                    let mut memory = lock(&zone.memory);
                    if let Some(memory) = memory.as_mut().filter(|memory| memory.header.epoch == header.epoch)
                    {
                        memory.take(header, past, first, &log, sent)?;
                    }
                }
                return Err(StoreError::from(error).into());
            }
        };
        let Seen { header, past, first, log, rest } = Seen::of(value)?;
        warn_of_presumed(zone, &header);
        let owes_witness = {
            let mut memory = lock(&zone.memory);
            match &mut *memory {
                None => {
                    *memory = Some(ZoneMemory::new(header, past, &log, sent)?);
                    false
                }
                Some(memory) => {
                    // Another server began a new epoch. It may lack what only this server remembers.
                    if header.epoch != memory.header.epoch {
                        memory.keep_witness(sent);
                    }
                    memory.note_call(sent, true);
                    memory.take(header, past, first, &log, sent)?;
                    !memory.witnesses.is_empty()
                }
            }
        };
        // The call stands even if this fails. It is tried again before the next one.
        if owes_witness && let Err(why) = self.give_witnesses(zone).await {
            tracing::warn!(zone = %zone.id, %why, "could not give Redis yet what this server remembers");
        }
        Ok(Answer { header, is_confirmed, rest })
    }
}

/// Warns once of an epoch that this server did not know, if slots count as taken in it that nobody may have had.
pub(super) fn warn_of_presumed(zone: &Zone, header: &Header) {
    let is_known = lock(&zone.memory).as_ref().is_some_and(|memory| memory.header.epoch == header.epoch);
    if !is_known && header.presumed > 0 {
        tracing::warn!(
            zone = %zone.id, slots = header.presumed,
            "the zone's state may have lost entries; these slots count as taken until all servers have said what they remember, \
             for a minute at most"
        );
    }
}

/// What each script of a zone answers first, and the rest.
pub(super) struct Seen {
    pub(super) header: Header,
    /// The line's earlier epochs, as they are written.
    pub(super) past: Bytes,
    /// The number of the first record in `log`.
    pub(super) first: u64,
    pub(super) log: Bytes,
    pub(super) rest: Reply,
}

impl Seen {
    pub(super) fn of(value: Value) -> std::result::Result<Self, Refused> {
        let mut rest = Reply::new(value)?;
        let raw = rest.bytes()?;
        let garbled = |Garbled(what)| Torn::of_any_epoch(format!("Redis did not answer with {what}"));
        let (header, past) = (Header::parse(&raw).map_err(garbled)?, wire::past(&raw));
        Ok(Self { header, past, first: rest.number()?, log: rest.bytes()?, rest })
    }
}

/// Whether people are told what a script returns: what it decided, or, from a view, what another call did.
fn is_told(script: &'static Script) -> bool {
    [scripts::JOIN.name, scripts::ENTER.name, scripts::LEAVE.name, scripts::BEAT.name].contains(&script.name)
}

/// What to say if a script refused a state that a newer version wrote.
fn newer(message: &str) -> Option<String> {
    let (_, what) = message.split_once("WEIR_NEWER ")?;
    // Redis may add where in the script it was.
    let what = what.split(" script: ").next().unwrap_or_default();
    Some(format!("a newer version of Weir wrote it: {what}; upgrade this server"))
}

/// Parses a script's error.
pub(super) fn refused(message: &str) -> Refused {
    // Redis adds text before or after the script's.
    let found = |word: &str| message.find(word).map(|at| &message[at + word.len()..]);
    if found("WEIR_LOST").is_some() || found("WEIR_NONE").is_some() {
        return Refused::Other(StoreError::UnknownZone);
    }
    if found("WEIR_OTHER").is_some() {
        return Refused::Epoch;
    }
    if let Some(text) = newer(message) {
        return Refused::Other(StoreError::Away(text));
    }
    if let Some(rest) = found("WEIR_KEYS ") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(next) = digits.parse() {
            return Refused::Keys(next);
        }
    }
    if let Some(rest) = found("WEIR_TORN ") {
        let (epoch, why) = rest.split_once(' ').unwrap_or_default();
        let key = why.split(' ').next().unwrap_or_default();
        let what = if why.contains("was changed") { "was changed" } else { "is missing" };
        let segment = key.rsplit(':').nth(1).and_then(|segment| segment.parse().ok());
        return Refused::Torn(Torn { epoch: epoch.parse().ok(), why: format!("{key} {what}"), segment });
    }
    if is_own_fault(message) {
        return Torn::of_any_epoch(message.to_owned());
    }
    Refused::Other(StoreError::Away(message.to_owned()))
}

/// Whether a script failed because of what it found in the state: a value of another type, or one that it cannot use. Other faults
/// are those of the server: a command that it does not have, or that the user may not run.
fn is_own_fault(message: &str) -> bool {
    const OF_THE_SERVER: [&str; 6] = [
        "can't run this command",
        // The same since Redis 7.2, and in Valkey.
        "ACL failure in script",
        "No permissions",
        "Unknown Redis command",
        "not allowed from script",
        "Write commands are not allowed",
    ];
    let fails = message.starts_with("WRONGTYPE") || message.contains("user_script:");
    fails && !OF_THE_SERVER.iter().any(|text| message.contains(text))
}

/// The keys of a zone and of some of its segments, in the order of `lua/zone.lua`.
pub(super) fn keys(prefix: &str, segments: &[u64]) -> Vec<Bytes> {
    const FIXED: [&str; 8] = ["z", "log", "due", "seg", "on", "t1", "t2", "srv"];
    const OF_SEGMENT: [&str; 9] = ["live", "here", "a0", "a1", "a2", "a3", "entry", "lost", "in"];
    let mut keys = Vec::with_capacity(FIXED.len() + segments.len() * OF_SEGMENT.len());
    keys.extend(FIXED.iter().map(|key| format!("{prefix}{key}").into()));
    keys.extend(keys_of(prefix, segments, &OF_SEGMENT));
    keys
}

/// The keys with these names of each segment, one segment after the other.
pub(super) fn keys_of(prefix: &str, segments: &[u64], names: &[&str]) -> impl Iterator<Item = Bytes> {
    let of_segment = move |segment: &u64| {
        let segment = *segment;
        names.iter().map(move |name| Bytes::from(format!("{prefix}{segment}:{name}")))
    };
    segments.iter().flat_map(of_segment)
}

/// The arguments that each script of a zone takes first. Without a memory, the script believes any state. `name` is that of
/// a server that makes decisions; other callers have an empty one.
pub(super) fn common_args(
    memory: Option<&ZoneMemory>,
    held_ms: u64,
    name: &Bytes,
    segments: &[u64],
) -> Vec<Bytes> {
    let mut args = Vec::with_capacity(9 + segments.len());
    match memory {
        Some(memory) => {
            let (lo, hi) = if held_ms == 0 { memory.bounds() } else { (held_ms, held_ms) };
            #[cfg(feature = "sabotage")]
            let rev = if sabotage::on(sabotage::Rule::Revision) { 0 } else { memory.header.rev };
            #[cfg(not(feature = "sabotage"))]
            let rev = memory.header.rev;
            args.extend([
                text(memory.header.epoch),
                text(rev),
                text(lo),
                text(hi),
                text(memory.known_record()),
            ]);
        }
        None => args.extend([text(0), text(0), text(held_ms), text(held_ms), text(0)]),
    }
    args.push(name.clone());
    args.push(text(segments.len()));
    args.extend(segments.iter().map(text));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the user may not run says nothing about the state. Beginning it anew would end its epoch at each call.
    #[test]
    fn a_forbidden_command_is_no_fault_of_the_state() {
        let at = "script: 16e3b49de4594199a0ca43557ddf6ea6bb072b74, on @user_script:903.";
        for (text, is_own) in [
            ("ERR The user executing the script can't run this command or subcommand", false),
            ("ERR ACL failure in script: User weir has no permissions to run the 'hset' command", false),
            ("ERR bad argument #2 to 'unpack_struct'", true),
        ] {
            assert_eq!(is_own_fault(&format!("{text} {at}")), is_own, "{text}");
        }
    }
}
