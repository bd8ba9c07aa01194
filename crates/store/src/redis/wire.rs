//! Converts arguments and replies of scripts. `lua/zone.lua` describes the layouts.
//!
//! Invariant: a reply that does not parse is refused as a whole, and every length is checked.

use admission::{Definition, Entry, Mode, Notice, OnStoreFailure, Policy, Position, Verdict};
use bytes::Bytes;

use super::client::Value;

/// Tickets of a segment, as in the scripts.
pub(super) const SEGMENT: u64 = 65_536;
/// Bytes of a segment's bitmap.
pub(super) const SEGMENT_BYTES: usize = 8_192;

/// A reply that none of our scripts gives: it does not hold what this names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Garbled(pub(super) &'static str);

/// The part of a zone's header that a server reads. Instants are those of the zone's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) epoch: u32,
    pub(super) rev: u64,
    pub(super) now: u64,
    pub(super) next: u64,
    /// The first segment.
    pub(super) base: u64,
    /// The number of the first record in the log.
    pub(super) first: u64,
    /// The running total before that record.
    pub(super) total_first: u64,
    /// The number of the record after the last.
    pub(super) records: u64,
    pub(super) total: u64,
    pub(super) paused: u64,
    pub(super) seen_all: u64,
    pub(super) lateness: i64,
    pub(super) due_base: u64,
    /// One more than the highest ticket that was given an appointment; 0 for none.
    pub(super) appointed: u64,
    pub(super) live: u64,
    pub(super) present: u64,
    pub(super) joined: u64,
    pub(super) entered: u64,
    pub(super) evicted: u64,
    pub(super) used: u64,
    pub(super) hold_until: u64,
    /// The part of the policy that the rules read. The register has the rest.
    pub(super) policy: Policy,
}

/// How many numbers the header has, in the order of FIELDS in `lua/zone.lua`.
const FIELDS: usize = 36;

/// The modes by their number in `lua/zone.lua`.
const MODES: [Mode; 4] = [Mode::Auto, Mode::Hold, Mode::Open, Mode::Closed];

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Garbled> {
        let fault = Garbled("the header");
        if bytes.len() < FIELDS * 8 || !bytes.len().is_multiple_of(8) {
            return Err(fault);
        }
        let mut numbers = bytes.chunks_exact(8).take(FIELDS).map(|number| {
            i64::from_be_bytes([
                number[0], number[1], number[2], number[3], number[4], number[5], number[6], number[7],
            ])
        });
        let mut signed = || numbers.next().ok_or(Garbled("the header"));
        macro_rules! next {
            () => {
                u64::try_from(signed()?).map_err(|_| Garbled("the header"))?
            };
        }
        let small = |number: u64| u32::try_from(number).map_err(|_| Garbled("the header"));
        let (epoch, rev, now, _offset) = (small(next!())?, next!(), next!(), signed()?);
        let (next, base, first, total_first, records, total) =
            (next!(), next!(), next!(), next!(), next!(), next!());
        let _windows = (next!(), next!(), next!(), next!());
        let (paused, seen_all, lateness, due_base, appointed) =
            (next!(), next!(), signed()?, next!(), next!());
        let (live, present, joined, entered, evicted, used) =
            (next!(), next!(), next!(), next!(), next!(), next!());
        let (hold_until, _run, _recover_until) = (next!(), next!(), next!());
        let mode = usize::try_from(next!()).ok().and_then(|mode| MODES.get(mode)).copied();
        let policy = Policy {
            mode: mode.ok_or(fault.clone())?,
            admit_per_minute: small(next!())?,
            sub_windows: small(next!())?,
            polling_period_ms: small(next!())?,
            idle_timeout_s: small(next!())?,
            pass_ttl_s: small(next!())?,
            on_store_failure: if next!() == 0 { OnStoreFailure::Closed } else { OnStoreFailure::Open },
            ..Policy::default()
        };
        let policy = policy.check().map_err(|_| fault)?;
        Ok(Self {
            epoch,
            rev,
            now,
            next,
            base,
            first,
            total_first,
            records,
            total,
            paused,
            seen_all,
            lateness,
            due_base,
            appointed,
            live,
            present,
            joined,
            entered,
            evicted,
            used,
            hold_until,
            policy,
        })
    }
}

/// The numbers of a policy that the rules read, in the order of POLICY in `lua/zone.lua`.
pub(super) fn policy_numbers(policy: &Policy) -> [u32; 7] {
    let mode = MODES.iter().zip(0..).find(|(mode, _)| **mode == policy.mode).map_or(0, |(_, number)| number);
    [
        mode,
        policy.admit_per_minute,
        policy.sub_windows,
        policy.polling_period_ms,
        policy.idle_timeout_s,
        policy.pass_ttl_s,
        u32::from(policy.on_store_failure == OnStoreFailure::Open),
    ]
}

/// A policy as the register keeps it: the numbers above, then the limits of a client if there are any. So an older
/// server can read the zones that have no such limits.
pub(super) fn policy_text(policy: &Policy) -> String {
    let mut text = policy_numbers(policy).map(|number| number.to_string()).join(" ");
    let limits = [policy.waits_per_minute_per_client, policy.entries_per_minute_per_client];
    if limits != [0, 0] {
        text.extend(limits.map(|limit| format!(" {limit}")));
    }
    text
}

/// A definition as the register keeps it: the policy, then languages and texts, each after a tab. No text contains a tab.
/// So an older server can read the zones that have no notice.
pub(super) fn definition_text(definition: &Definition) -> String {
    let mut text = policy_text(&definition.policy);
    for (language, said) in definition.notice.iter() {
        text.extend(["\t", language, "\t", said]);
    }
    text
}

/// Parses the text of [`definition_text`].
pub(super) fn parse_definition(text: &[u8]) -> Result<Definition, Garbled> {
    let fault = Garbled("a definition of the register");
    let text = std::str::from_utf8(text).map_err(|_| fault.clone())?;
    let mut parts = text.split('\t');
    let policy = parse_policy(parts.next().unwrap_or_default().as_bytes())?;
    let mut said = Vec::new();
    while let Some(language) = parts.next() {
        said.push((language, parts.next().ok_or_else(|| fault.clone())?));
    }
    Ok(Definition { policy, notice: Notice::new(said).map_err(|_| fault)? })
}

/// Parses the text of [`policy_text`].
pub(super) fn parse_policy(text: &[u8]) -> Result<Policy, Garbled> {
    let fault = Garbled("a policy of the register");
    let text = std::str::from_utf8(text).map_err(|_| fault.clone())?;
    let numbers: Vec<u32> =
        text.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| fault.clone())?;
    let Some((
        &[mode, admit_per_minute, sub_windows, polling_period_ms, idle_timeout_s, pass_ttl_s, failure],
        limits,
    )) = numbers.split_first_chunk()
    else {
        return Err(fault);
    };
    let (waits_per_minute_per_client, entries_per_minute_per_client) = match *limits {
        [] => (0, 0),
        [waits, entries] => (waits, entries),
        _ => return Err(fault),
    };
    let policy = Policy {
        mode: MODES.get(mode as usize).copied().ok_or(fault.clone())?,
        admit_per_minute,
        sub_windows,
        polling_period_ms,
        idle_timeout_s,
        pass_ttl_s,
        on_store_failure: if failure == 0 { OnStoreFailure::Closed } else { OnStoreFailure::Open },
        waits_per_minute_per_client,
        entries_per_minute_per_client,
    };
    policy.check().map_err(|_| fault)
}

/// Bytes of a verdict.
pub(super) const VERDICT: usize = 21;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Parses the verdicts of a reply, without estimates.
pub(super) fn verdicts(bytes: &[u8]) -> Result<Vec<Verdict>, Garbled> {
    let fault = Garbled("the verdicts");
    if !bytes.len().is_multiple_of(VERDICT) {
        return Err(fault);
    }
    let short = |bytes: &[u8]| u32::try_from(number(bytes)).map_err(|_| Garbled("the verdicts"));
    bytes
        .chunks_exact(VERDICT)
        .map(|verdict| match verdict[0] {
            0 => Ok(Verdict::Gone),
            1 => {
                Ok(Verdict::Entered(Entry { at_ms: number(&verdict[1..7]), unix_s: number(&verdict[7..11]) }))
            }
            2 => {
                let slot_in = short(&verdict[17..21])?;
                Ok(Verdict::Waiting(Position {
                    rank: number(&verdict[1..7]),
                    present_ahead: number(&verdict[7..13]),
                    estimate: None,
                    poll_in_ms: short(&verdict[13..17])?,
                    slot_in_ms: (slot_in != u32::MAX).then_some(slot_in),
                }))
            }
            _ => Err(fault.clone()),
        })
        .collect()
}

/// Parses the log's records of a reply: instant and running total.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<(u64, u64)>, Garbled> {
    if !bytes.len().is_multiple_of(12) {
        return Err(Garbled("the log"));
    }
    Ok(bytes.chunks_exact(12).map(|record| (number(&record[..6]), number(&record[6..]))).collect())
}

/// The counts of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) live: u32,
    pub(super) present: u32,
    pub(super) generation: u64,
    pub(super) seen_all: u64,
    pub(super) rev: u64,
}

impl Counts {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Garbled> {
        let fault = Garbled("a segment's counts");
        if text.is_empty() {
            return Ok(Self::default());
        }
        let text = std::str::from_utf8(text).map_err(|_| fault.clone())?;
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(fault.clone());
        let (live, present) = (next()?, next()?);
        let small = |number: u64| {
            u32::try_from(number)
                .ok()
                .filter(|&n| u64::from(n) <= SEGMENT)
                .ok_or(Garbled("a segment's counts"))
        };
        Ok(Self {
            live: small(live)?,
            present: small(present)?,
            generation: next()?,
            seen_all: next()?,
            rev: next()?,
        })
    }
}

/// The parts of a reply that are still to be parsed.
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self, Garbled> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            _ => Err(Garbled("the reply")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Garbled> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(Value::Int(number)) => Ok(number.to_string().into()),
            _ => Err(Garbled("the reply")),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, Garbled> {
        let bytes = self.bytes()?;
        std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).ok_or(Garbled("a number"))
    }

    pub(super) fn list(&mut self) -> Result<Self, Garbled> {
        self.0.next().map_or(Err(Garbled("the reply")), Self::new)
    }

    /// Whether the next part is `first`.
    pub(super) fn is(&self, first: &[u8]) -> bool {
        matches!(self.0.as_slice().first(), Some(Value::Bytes(bytes)) if bytes == first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Converts a bitmap of Redis to words. Redis numbers the bits of a byte from the highest, the rules from the lowest.
pub(super) fn turn(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| {
        u64::from_be_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
            .reverse_bits()
    })
}

/// Converts words to a bitmap of Redis.
pub(super) fn turn_back(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.reverse_bits().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_survive_a_round_trip() {
        let policy = Policy::default();
        for said in [&[][..], &[("en", "One.\n\nTwo. ")], &[("en", "a"), ("ko", "안내 \u{1f44b}")]] {
            let notice = Notice::new(said.iter().copied()).expect("a notice");
            let definition = Definition { policy, notice };
            let text = definition_text(&definition);
            assert_eq!(parse_definition(text.as_bytes()), Ok(definition));
            assert!(text.starts_with(&policy_text(&policy)));
        }
        let before = policy_text(&policy);
        assert_eq!(parse_definition(before.as_bytes()), Ok(policy.into()));
        for bad in ["\ten", "\ten\t", "\tEN\ta", "\ten\ta\tko", "\ten\ta\r"] {
            assert!(parse_definition(format!("{before}{bad}").as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn policies_without_limits_keep_the_old_format() {
        let before = "1 600 10 3000 60 300 1";
        let policy = parse_policy(before.as_bytes()).expect("a policy");
        assert_eq!((policy.mode, policy.on_store_failure), (Mode::Hold, OnStoreFailure::Open));
        assert_eq!((policy.waits_per_minute_per_client, policy.entries_per_minute_per_client), (0, 0));
        assert_eq!(policy_text(&policy), before);
        for (waits, entries) in [(5, 0), (0, 60), (7, 600)] {
            let limited = Policy {
                waits_per_minute_per_client: waits,
                entries_per_minute_per_client: entries,
                ..policy
            };
            let text = policy_text(&limited);
            assert_eq!(text, format!("{before} {waits} {entries}"));
            assert_eq!(parse_policy(text.as_bytes()), Ok(limited));
        }
        for bad in ["", "1 600 10 3000 60 300", "1 600 10 3000 60 300 1 5", "1 600 10 3000 60 300 1 5 60 7"] {
            assert!(parse_policy(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
