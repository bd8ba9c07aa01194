//! A minute of a zone as the store keeps it: what all servers count alike, and what this server knows alone.
//!
//! Both begin with a version. The counts have the zone's totals at the end of the minute, so what happened in a minute is the difference to
//! the minute before it, whichever servers offered the two. Invariants: a record that is written is read back equal; bytes of another
//! version are no record; without stock, the counts have 73 bytes and a part has 41.

use admission::{Tier, TierId, Totals};
use store::minutes::{COUNTS_LEN_MAX, KeptMinute, OfferedMinute, PART_LEN_MAX};

use super::{Minute, minute_waits::MinuteWaits};

/// The version of both layouts.
const VERSION: u8 = 1;

/// What stands for a number of pieces that nobody knows.
const UNKNOWN: u32 = u32::MAX;

/// How many pieces of each tier were left; none where nobody knew.
pub type PiecesLeft = Vec<(TierId, Option<u32>)>;

/// What all servers count alike in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MinuteCounts {
    /// What happened in the minute, as the server saw it that offered it.
    pub(super) minute: Minute,
    /// The zone's totals at the end of the minute.
    pub(super) totals: Totals,
    /// What was left at its end.
    pub(super) left: PiecesLeft,
}

impl MinuteCounts {
    /// Whether these counts were taken later than others of the same minute.
    pub(super) fn is_later_than(&self, other: &Self) -> bool {
        self.weight() > other.weight()
    }

    /// Later counts are heavier. Far below 2^53, up to which scripts of Redis count.
    fn weight(&self) -> u64 {
        let Totals { joined, entered, evicted, .. } = self.totals;
        joined.saturating_add(entered).saturating_add(evicted)
    }

    /// What happened in the minute: more than in the minute right before, if that is kept.
    pub(super) fn since(&self, before: Option<&Self>) -> Minute {
        let Some(before) = before.filter(|before| before.minute.at_s + 60 == self.minute.at_s) else {
            return self.minute;
        };
        let growth = |new: u64, old: u64| Some(u32::try_from(new.checked_sub(old)?).unwrap_or(u32::MAX));
        let (new, old) = (self.totals, before.totals);
        let all = (|| {
            Some([
                growth(new.joined, old.joined)?,
                growth(new.entered, old.entered)?,
                growth(new.evicted, old.evicted)?,
                growth(new.slots_used, old.slots_used)?,
            ])
        })();
        // A total that decreased belongs to a store that started again.
        let Some([joined, entered, evicted, slots_used]) = all else { return self.minute };
        Minute { joined, entered, evicted, slots_used, ..self.minute }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let Totals { joined, entered, evicted, slots_used } = self.totals;
        let mut bytes = self.weight().to_be_bytes().to_vec();
        bytes.push(VERSION);
        bytes.extend([joined, entered, evicted, slots_used].iter().flat_map(|total| total.to_be_bytes()));
        let minute = &self.minute;
        let counts = [
            minute.waiting,
            minute.present,
            minute.joined,
            minute.entered,
            minute.evicted,
            minute.slots_offered,
            minute.slots_used,
            minute.admit_per_minute,
        ];
        bytes.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        for (tier, left) in &self.left {
            let id = tier.as_str().as_bytes();
            bytes.push(u8::try_from(id.len()).expect("the id of a tier is short"));
            bytes.extend(id);
            bytes.extend(left.unwrap_or(UNKNOWN).to_be_bytes());
        }
        debug_assert!(bytes.len() <= COUNTS_LEN_MAX, "{} bytes", bytes.len());
        bytes
    }

    /// Reads the counts of a minute; `None` for those of another version.
    fn from_bytes(minute: u32, bytes: &[u8]) -> Option<Self> {
        let (_weight, rest) = bytes.split_first_chunk::<8>()?;
        let (version, mut rest) = rest.split_first()?;
        if *version != VERSION {
            return None;
        }
        let mut totals = [0; 4];
        for total in &mut totals {
            *total = u64::from_be_bytes(take(&mut rest)?);
        }
        let mut counts = [0; 8];
        for count in &mut counts {
            *count = u32::from_be_bytes(take(&mut rest)?);
        }
        let [joined, entered, evicted, slots_used] = totals;
        let totals = Totals { joined, entered, evicted, slots_used };
        let [waiting, present, joined, entered, evicted, slots_offered, slots_used, admit_per_minute] =
            counts;
        let minute = Minute {
            at_s: 60 * u64::from(minute),
            waiting,
            present,
            joined,
            entered,
            evicted,
            slots_offered,
            slots_used,
            admit_per_minute,
        };
        let mut left = PiecesLeft::new();
        while let Some((len, after)) = rest.split_first() {
            let (id, mut after) = after.split_at_checked(usize::from(*len))?;
            let id = TierId::parse(std::str::from_utf8(id).ok()?).ok()?;
            let number = u32::from_be_bytes(take(&mut after)?);
            left.push((id, Some(number).filter(|number| *number <= Tier::REMAINING_MAX)));
            rest = after;
        }
        Some(Self { minute, totals, left })
    }
}

impl MinuteWaits {
    fn to_bytes(self) -> Vec<u8> {
        if self.people == 0 {
            return Vec::new();
        }
        let mut bytes = vec![VERSION];
        bytes.extend(self.waited_ms.to_be_bytes());
        let rest = [
            self.people,
            self.p50_ms,
            self.p95_ms,
            self.longest_ms,
            self.told,
            self.told_p50_s,
            self.told_p95_s,
            self.in_range,
        ];
        bytes.extend(rest.iter().flat_map(|number| number.to_be_bytes()));
        debug_assert!(bytes.len() <= PART_LEN_MAX, "{} bytes", bytes.len());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, mut rest) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let waited_ms = u64::from_be_bytes(take(&mut rest)?);
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = u32::from_be_bytes(take(&mut rest)?);
        }
        let [people, p50_ms, p95_ms, longest_ms, told, told_p50_s, told_p95_s, in_range] = numbers;
        Some(Self { people, waited_ms, p50_ms, p95_ms, longest_ms, told, told_p50_s, told_p95_s, in_range })
    }
}

/// What is offered to the store.
pub(super) fn offered(counted: &MinuteCounts, waits: &MinuteWaits) -> OfferedMinute {
    let minute = u32::try_from(counted.minute.at_s / 60).unwrap_or(u32::MAX);
    OfferedMinute { minute, counts: counted.to_bytes(), part: waits.to_bytes() }
}

/// What was kept, with the waits that each server knows; `None` for counts of another version.
pub(super) fn read(kept: &KeptMinute) -> Option<(MinuteCounts, Vec<(u64, MinuteWaits)>)> {
    let counted = MinuteCounts::from_bytes(kept.minute, &kept.counts)?;
    let waits = |(server, part): &(u64, Vec<u8>)| Some((*server, MinuteWaits::from_bytes(part)?));
    Some((counted, kept.parts.iter().filter_map(waits).collect()))
}

/// Takes the first bytes off.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use admission::Stock;

    use super::*;

    fn counted(left: PiecesLeft) -> MinuteCounts {
        let minute = Minute {
            at_s: 60 * 29_000_000,
            waiting: 1,
            present: 2,
            joined: 3,
            entered: 4,
            evicted: 5,
            slots_offered: 6,
            slots_used: 7,
            admit_per_minute: u32::MAX,
        };
        let totals = Totals { joined: 1 << 40, entered: 9, evicted: 10, slots_used: 11 };
        MinuteCounts { minute, totals, left }
    }

    fn waits() -> MinuteWaits {
        MinuteWaits {
            people: 1,
            waited_ms: 1 << 40,
            p50_ms: 3,
            p95_ms: 4,
            longest_ms: 5,
            told: 6,
            told_p50_s: 7,
            told_p95_s: 8,
            in_range: u32::MAX,
        }
    }

    fn kept(OfferedMinute { minute, counts, part }: OfferedMinute) -> KeptMinute {
        KeptMinute { minute, counts, parts: vec![(1, part)] }
    }

    #[test]
    fn a_record_is_read_back_and_bounded() {
        let tier = |at: usize| TierId::parse(&format!("{at:0>32}")).expect("an id");
        let most: PiecesLeft =
            (0..Stock::TIERS_MAX).map(|at| (tier(at), (at > 0).then_some(Tier::REMAINING_MAX))).collect();
        for left in [PiecesLeft::new(), most] {
            let (counted, waits) = (counted(left), waits());
            let offered = offered(&counted, &waits);
            assert!(offered.counts.len() <= COUNTS_LEN_MAX);
            if counted.left.is_empty() {
                assert_eq!((offered.counts.len(), offered.part.len()), (73, 41));
            }
            assert_eq!(read(&kept(offered)), Some((counted, vec![(1, waits)])));
        }
        let nobody = offered(&counted(PiecesLeft::new()), &MinuteWaits::default());
        assert!(nobody.part.is_empty(), "who admitted nobody knows no waits");
    }

    #[test]
    fn other_bytes_are_no_record() {
        let whole = offered(&counted(PiecesLeft::new()), &waits());
        for end in 0..whole.counts.len() {
            let cut = KeptMinute { counts: whole.counts[..end].to_vec(), ..kept(whole.clone()) };
            assert_eq!(read(&cut), None, "{end} bytes");
        }
        let mut newer = kept(whole);
        newer.parts[0].1[0] = 2;
        assert_eq!(read(&newer).map(|(_, waits)| waits), Some(Vec::new()));
        newer.counts[8] = 2;
        assert_eq!(read(&newer), None);
    }

    /// Two servers saw the end of a minute at different instants. What they offer adds up.
    #[test]
    fn minutes_of_several_servers_add_up() {
        let at = |minute: u64, joined: u64, seen: u32| {
            let mut one = counted(PiecesLeft::new());
            (one.minute.at_s, one.minute.joined, one.totals.joined) = (60 * minute, seen, joined);
            one
        };
        let (first, second, third) = (at(1, 100, 100), at(2, 161, 59), at(3, 200, 40));
        let of = |one: &MinuteCounts, before| one.since(before).joined;
        assert_eq!([of(&first, None), of(&second, Some(&first)), of(&third, Some(&second))], [100, 61, 39]);
        assert_eq!(of(&third, Some(&first)), 40, "a minute between them is not kept");
        assert_eq!(of(&at(4, 7, 7), Some(&third)), 7, "the store started again");
    }
}
