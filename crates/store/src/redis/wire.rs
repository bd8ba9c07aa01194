//! Converts arguments and replies of scripts. `lua/zone.lua` describes the layouts.
//!
//! Invariant: a reply that does not parse is refused as a whole, and every length is checked.

mod policy;

use std::sync::Arc;

use admission::{EarlierEpoch, Entry, LastDeal, Occupancy, Policy, Position, RULE_FIELDS, Verdict};
use bytes::Bytes;

use super::client::Value;

/// How long a window is.
pub(super) const MINUTE_MS: u64 = 60_000;

pub(super) use policy::{POLICY_NUMBERS, definition_text, parse_definition, policy_numbers};

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
    /// Nobody enters before this instant, by the policy; 0 for none.
    pub(super) opens_ms: u64,
    /// The wall clock, in milliseconds since 1970; see [`admission::Snapshot::unix_ms`].
    pub(super) unix_ms: u64,
    /// When the line was created. It tells lines of the same name apart.
    pub(super) born: u64,
    /// The first number of the line.
    pub(super) floor: u64,
    /// The first number of this epoch. The numbers between the last epoch's and this one were never given out.
    pub(super) start: u64,
    /// How many slots of the last minute are presumed to be taken because the state was lost in it.
    pub(super) presumed: u64,
    /// At which instant they are in the log.
    pub(super) presumed_at: u64,
    /// The longest polling period that people may keep to beside the policy's, in milliseconds.
    pub(super) longest_period_ms: u32,
    /// The people inside, where their number is limited.
    pub(super) inside: Inside,
    /// The part of the policy that the rules read. The register has the rest.
    pub(super) policy: Policy,
    /// By which draw the line was dealt last.
    pub(super) drawn: LastDeal,
    /// Slots that an earlier loss presumed to be taken: at which instant they are in the log, and how many.
    pub(super) earlier: (u64, u64),
    /// The leaps of the zone's clock.
    pub(super) leaps: Leaps,
    /// Until when servers or tickets may say what a lost state knew; 0 if none was lost.
    pub(super) recover_until: u64,
}

/// The leaps of a zone's clock in the last minutes, in the order of FIELDS in `lua/zone.lua`.
pub(super) type Leaps = [u64; 5];

/// The people inside, as a header has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) count: u64,
    pub(super) ended: u64,
    /// How many may be inside at this instant.
    pub(super) most: u64,
    /// Until when nobody knows how many are inside, in milliseconds on the zone's clock; 0 if it is known.
    pub(super) blind_until_ms: u64,
    /// The segments in which anybody is inside, or left lately.
    pub(super) from: u64,
    pub(super) end: u64,
}

/// How many numbers the header has, in the order of FIELDS in `lua/zone.lua`: of a zone that does not count the people inside, of one
/// that does, of one with an opening, of one with a draw, and of one whose clock leapt lately.
const PLAIN_NUMBERS: usize = 48;
const INSIDE_NUMBERS: usize = 55;
const OPENING_NUMBERS: usize = 57;
const DRAW_NUMBERS: usize = 61;
const HEADER_NUMBERS: usize = 68;

/// The past epochs behind a header's numbers, as `lua/zone.lua` writes them.
pub(super) fn past(header: &Bytes) -> Bytes {
    let end = header.len().saturating_sub(1);
    header.slice((numbers_of(header) * 8).min(end)..end)
}

/// The rows of [`past`]: epoch, revision, first number and the first number behind.
fn past_rows(past: &[u8]) -> impl Iterator<Item = (u32, i64, u64, u64)> {
    past.chunks_exact(32).filter_map(|row| {
        let epoch = u32::try_from(number(&row[..8])).ok()?;
        Some((epoch, number(&row[8..16]).cast_signed(), number(&row[16..24]), number(&row[24..])))
    })
}

/// The epochs of [`past`], each with the number that its tickets are below. An epoch without tickets is left out.
pub(super) fn past_epochs(past: &[u8]) -> Vec<(u32, u64)> {
    past_rows(past).map(|(epoch, _, _, end)| (epoch, end)).filter(|of| of.1 > 0).collect()
}

/// The revision of an epoch in [`past`] whose tickets proved themselves.
const PROVED: i64 = -1;

/// Which numbers of the epochs of [`past`] are of the line, as `is_of_line` in `lua/zone.lua` says.
pub(super) fn earlier_epochs(past: &[u8]) -> Arc<[EarlierEpoch]> {
    let mut epochs: Vec<EarlierEpoch> = Vec::new();
    let mut whole: Vec<u32> = Vec::new();
    for (epoch, rev, from, end) in past_rows(past) {
        // Only tickets that proved themselves have several rows. The other row of an epoch, which is one, says all of it.
        if whole.contains(&epoch) {
            continue;
        }
        if rev != PROVED {
            whole.push(epoch);
        }
        // Where no revision is known, the state has no number before the first one.
        epochs.push(EarlierEpoch { epoch, from: if rev > 0 { 0 } else { from }, end });
    }
    epochs.into()
}

/// How many numbers a header has. Behind the numbers and the past epochs, one byte says it.
fn numbers_of(header: &[u8]) -> usize {
    header.last().map_or(0, |count| usize::from(*count))
}

impl Header {
    /// How many may be inside; nothing where nobody counts, or where nobody knows it yet.
    pub(super) fn known_inside(&self) -> Option<u64> {
        (self.policy.max_active > 0 && self.inside.blind_until_ms == 0).then_some(self.inside.most)
    }

    /// The people inside, where their number is limited.
    pub(super) fn occupancy(&self) -> Option<Occupancy> {
        let (people, max_active) = (self.inside, self.policy.max_active);
        (max_active > 0).then_some(Occupancy {
            inside: people.count,
            most: people.most,
            ended: people.ended,
            max_active,
            blind_until_ms: people.blind_until_ms,
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Garbled> {
        let fault = Garbled("the header");
        let count = numbers_of(bytes);
        if ![PLAIN_NUMBERS, INSIDE_NUMBERS, OPENING_NUMBERS, DRAW_NUMBERS, HEADER_NUMBERS].contains(&count)
            || bytes.len() < count * 8
            || bytes.len() % 8 != 1
        {
            return Err(fault);
        }
        let mut numbers = bytes.chunks_exact(8).take(count).map(|number| {
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
        let (epoch, rev, now, offset) = (small(next!())?, next!(), next!(), signed()?);
        let (next, base, first, total_first, records, total) =
            (next!(), next!(), next!(), next!(), next!(), next!());
        let _windows = (next!(), next!(), next!(), next!());
        let (paused, seen_all, lateness, due_base, appointed) =
            (next!(), next!(), signed()?, next!(), next!());
        let (live, present, joined, entered, evicted, used) =
            (next!(), next!(), next!(), next!(), next!(), next!());
        let (hold_until, _run, recover_until) = (next!(), next!(), next!());
        let mut numbers = [0; POLICY_NUMBERS];
        for number in &mut numbers[..policy::FIRST_RULES] {
            *number = small(next!())?;
        }
        let (_policy_rev, _keep_until, born, floor, start) = (next!(), next!(), next!(), next!(), next!());
        let (presumed_at, presumed) = (next!(), next!());
        let (_spare_until, longest_period_ms, _told_until, _told_next) =
            (next!(), small(next!())?, next!(), next!());
        for number in &mut numbers[policy::FIRST_RULES..policy::SECOND_RULES] {
            *number = small(next!())?;
        }
        let inside = if count == PLAIN_NUMBERS {
            Inside::default()
        } else {
            let (count, ended, unseen, unseen_until, unseen_told) =
                (next!(), next!(), next!(), next!(), next!());
            let counts = now < unseen_until;
            let most = count + if counts { unseen } else { 0 };
            let blind_until_ms = if counts && unseen_told == 0 { unseen_until } else { 0 };
            Inside { count, ended, most, blind_until_ms, from: next!(), end: next!() }
        };
        let (mut opens_ms, mut drawn) = (0, LastDeal::default());
        if count >= OPENING_NUMBERS {
            for number in &mut numbers[policy::SECOND_RULES..RULE_FIELDS] {
                *number = small(next!())?;
            }
            opens_ms = next!();
        }
        if count >= DRAW_NUMBERS {
            numbers[RULE_FIELDS] = small(next!())?;
            drawn = LastDeal { draw: small(next!())?, from: next!(), end: next!() };
        }
        let (mut leaps, mut earlier) = (Leaps::default(), (0, 0));
        if count == HEADER_NUMBERS {
            for number in &mut leaps {
                *number = next!();
            }
            earlier = (next!(), next!());
        }
        let policy = policy::of_rule_numbers(&numbers).ok_or(fault)?;
        // The state keeps the number; after a minute no window counts these slots any more.
        let presumed = if now < ends_ms(&leaps, presumed_at, MINUTE_MS) { presumed } else { 0 };
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
            born,
            floor,
            start,
            presumed,
            presumed_at,
            longest_period_ms,
            inside,
            policy,
            drawn,
            leaps,
            earlier,
            recover_until,
            opens_ms,
            unix_ms: policy.opens_at.unix_ms(opens_ms, now).unwrap_or(now.saturating_add_signed(offset)),
        })
    }
}

impl Header {
    /// When something is over that began at `at_ms` and lasts so long: what the clock leapt since does not count.
    pub(super) fn ends_ms(&self, at_ms: u64, lasts_ms: u64) -> u64 {
        ends_ms(&self.leaps, at_ms, lasts_ms)
    }
}

/// The twin of `free_at` in `lua/zone.lua`.
fn ends_ms(&[_, leapt, leap, leapt_before, leap_before]: &Leaps, at_ms: u64, lasts_ms: u64) -> u64 {
    let since = |leapt: u64, leap: u64| leap.min(leapt.saturating_sub(at_ms));
    at_ms + since(leapt, leap) + since(leapt_before, leap_before) + lasts_ms
}

/// Bytes of a verdict.
pub(super) const VERDICT: usize = 21;

/// A number in bytes, of which the first is the highest.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// What Redis keeps of an entry, in 12 bytes: when it was by the zone's clock (6) and in seconds since 1970 (4), and the life of the pass (2).
pub(super) fn entry(bytes: &[u8]) -> Entry {
    let life_s = u32::try_from(number(&bytes[10..12])).expect("two bytes");
    Entry { at_ms: number(&bytes[..6]), unix_s: number(&bytes[6..10]), life_s }
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
            1 => Ok(Verdict::Entered(entry(&verdict[1..13]))),
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
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| {
        u64::from_be_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
            .reverse_bits()
    })
}

/// Converts words to a bitmap of Redis.
pub(super) fn bitmap_of(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.reverse_bits().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{policy::policy_numbers, *};

    /// The numbers of a state at `now` that presumed 60 slots at `presumed_at`. The state keeps both when the minute is over.
    fn header(now: i64, presumed_at: i64) -> Vec<u8> {
        let rules: Vec<i64> = policy_numbers(&Policy::default()).into_iter().map(i64::from).collect();
        let (first, rest) = rules.split_at(policy::FIRST_RULES);
        // Up to `recover_until`, then up to `start`.
        let (before, between) = ([1, 1, now].into_iter().chain([0; 25]), [0; 5]);
        let numbers = before
            .chain(first.iter().copied())
            .chain(between)
            .chain([presumed_at, 60, 0, 3_000, 0, 0])
            .chain(rest[..policy::SECOND_RULES - policy::FIRST_RULES].iter().copied());
        let mut bytes: Vec<u8> = numbers.flat_map(i64::to_be_bytes).collect();
        assert_eq!(bytes.len(), PLAIN_NUMBERS * 8);
        bytes.push(48);
        bytes
    }

    #[test]
    fn a_presumption_ends_after_a_minute() {
        let presumed = |now| Header::parse(&header(now, 100_000)).expect("a header").presumed;
        assert_eq!([100_000, 159_999, 160_000, 9_000_000].map(presumed), [60, 60, 0, 0]);
    }

    #[test]
    fn the_numbers_of_earlier_epochs_are_those_of_the_script() {
        let rows = |rows: &[[i64; 4]]| -> Vec<u8> {
            rows.iter().flatten().flat_map(|number| number.to_be_bytes()).collect()
        };
        let found = earlier_epochs(&rows(&[
            [9, 40, 0, 700],
            [8, PROVED, 65_536, 131_072],
            [8, PROVED, 262_144, 327_680],
            [7, -5, 100, 200],
            [7, PROVED, 900, 1_000],
        ]));
        let found: Vec<_> = found.iter().map(|of| (of.epoch, of.from..of.end)).collect();
        // Behind a row that says all of its epoch, the script does not look for another one.
        assert_eq!(found, [(9, 0..700), (8, 65_536..131_072), (8, 262_144..327_680), (7, 100..200)]);
    }
}
