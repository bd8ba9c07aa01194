//! What is true of a zone's state in Redis between two scripts: the twin of `zone/invariants.rs` in the crate `admission`.
//!
//! The state is judged after some scripts of a zone that succeeded, in runs in which no key vanishes: then every sum is that of its
//! parts, and every set is within the one that it belongs to.

use std::collections::BTreeMap;

use crate::{header, redis::Data};

/// How many slots of the minute people took, as the log says: without those that are only presumed to be taken.
pub(crate) fn taken(data: &Data, prefix: &str) -> u64 {
    let numbers = header::numbers(data.text(&format!("{prefix}z")));
    let number = |name: &str| numbers.get(name).map_or(0, |number| number.cast_unsigned());
    let count = number("total") - number("minute_before");
    let passed = usize::try_from(number("minute_from") - number("first")).expect("few");
    let log = data.text(&format!("{prefix}log")).chunks_exact(12);
    let in_minute = log.skip(passed);
    let instant = |record: &[u8]| record[..6].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let instants: Vec<u64> = in_minute.map(instant).collect();
    let presumed = |at: &str, of: &str| if instants.contains(&number(at)) { number(of) } else { 0 };
    count - presumed("presumed_at", "presumed") - presumed("earlier_at", "earlier")
}

/// What is not so, if anything.
pub(crate) fn fault(data: &Data, prefix: &str) -> Option<String> {
    let text = |key: &str| data.text(&format!("{prefix}{key}"));
    let header = text("z");
    if header.is_empty() {
        return None;
    }
    let numbers = header::numbers(header);
    let number = |name: &str| numbers.get(name).map_or(0, |number| number.cast_unsigned());
    let mut faults = Vec::new();
    let mut is_so = |so: bool, what: &dyn Fn() -> String| {
        if !so {
            faults.push(what());
        }
    };
    for spare in ["t1", "t2"] {
        is_so(text(spare).is_empty(), &|| format!("{spare} is left"));
    }
    let log = text("log");
    let records = number("records").saturating_sub(number("first"));
    is_so(log.len() as u64 == records * 12, &|| format!("{records} records have {} bytes", log.len()));
    if let Some(last) = log.last_chunk::<6>() {
        let total = last.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        is_so(total == number("total"), &|| {
            format!("the log ends with {total}, the header has {}", number("total"))
        });
    }

    let (mut live, mut present, mut inside) = (0, 0, 0);
    for (field, row) in data.hash(&format!("{prefix}seg")).unwrap_or(&BTreeMap::new()) {
        let (Ok(field), Ok(row)) = (std::str::from_utf8(field), std::str::from_utf8(row)) else { continue };
        if let Some(segment) = field.strip_prefix('v') {
            // Whoever left may be inside again after a loss, as far as servers know that were not told of it: one place less is free.
            let is_in = text(&format!("{segment}:in"));
            inside += ones(is_in);
            for plane in 0..4 {
                let ages = text(&format!("{segment}:i{plane}"));
                is_so(is_within(ages, is_in), &|| format!("{segment}: i{plane} has more than is inside"));
            }
        }
        if field.parse::<u64>().is_err() {
            continue;
        }
        let mut counts = row.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let of_row = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
        let (waits, here) = (text(&format!("{field}:live")), text(&format!("{field}:here")));
        let of_bits = (ones(waits), ones(here));
        is_so(of_row == of_bits, &|| format!("segment {field} counts {of_row:?}, its bits are {of_bits:?}"));
        is_so(is_within(here, waits), &|| format!("segment {field}: somebody is present and does not wait"));
        let ages: Vec<&[u8]> = (0..4).map(|plane| text(&format!("{field}:a{plane}"))).collect();
        for plane in &ages {
            is_so(is_within(plane, waits), &|| format!("segment {field}: an age of nobody who waits"));
        }
        let words = words(ages[1]).zip(words(ages[2])).zip(words(ages[3]));
        let is_young = words.fold(0, |old, ((one, two), three)| old | one & two & three) == 0;
        is_so(is_young, &|| format!("segment {field}: somebody is of age 14 or more"));
        live += of_row.0;
        present += of_row.1;
    }
    let sums = (number("live"), number("present"));
    is_so((live, present) == sums, &|| {
        format!("the header counts {sums:?}, the segments {:?}", (live, present))
    });
    if number("max_active") > 0 {
        is_so(inside == number("inside"), &|| {
            format!("{inside} are inside, the header counts {}", number("inside"))
        });
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The bits, 64 at a time; the last ones with zeros behind them.
fn words(bits: &[u8]) -> impl Iterator<Item = u64> {
    bits.chunks(8).map(|part| {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(bytes)
    })
}

fn ones(bits: &[u8]) -> u64 {
    words(bits).map(|word| u64::from(word.count_ones())).sum()
}

/// Whether the second set has everything that the first one has.
fn is_within(part: &[u8], whole: &[u8]) -> bool {
    let mut of_whole = words(whole);
    words(part).all(|word| word & !of_whole.next().unwrap_or(0) == 0)
}
