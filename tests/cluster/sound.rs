//! What is true of a zone's state in Redis between two scripts: the twin of `zone/invariants.rs` in the crate `admission`.
//!
//! The state is judged after some scripts of a zone that succeeded, in runs in which no key vanishes: then every sum is that of its
//! parts, and every set is within the one that it belongs to.

use std::collections::BTreeMap;

use crate::{header, redis::Data};

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
    let mut is_so = |so: bool, what: String| {
        if !so {
            faults.push(what);
        }
    };
    for spare in ["t1", "t2"] {
        is_so(text(spare).is_empty(), format!("{spare} is left"));
    }
    let log = text("log");
    let records = number("records").saturating_sub(number("first"));
    is_so(log.len() as u64 == records * 12, format!("{records} records have {} bytes", log.len()));
    if let Some(last) = log.last_chunk::<6>() {
        let total = last.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        is_so(
            total == number("total"),
            format!("the log ends with {total}, the header has {}", number("total")),
        );
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
                is_so(
                    overlap(ages, is_in) == ones(ages),
                    format!("{segment}: i{plane} has more than is inside"),
                );
            }
        }
        if field.parse::<u64>().is_err() {
            continue;
        }
        let mut counts = row.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let of_row = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
        let (waits, here) = (text(&format!("{field}:live")), text(&format!("{field}:here")));
        let of_bits = (ones(waits), ones(here));
        is_so(of_row == of_bits, format!("segment {field} counts {of_row:?}, its bits are {of_bits:?}"));
        is_so(
            overlap(here, waits) == ones(here),
            format!("segment {field}: somebody is present and does not wait"),
        );
        let ages: Vec<&[u8]> = (0..4).map(|plane| text(&format!("{field}:a{plane}"))).collect();
        for plane in &ages {
            is_so(
                overlap(plane, waits) == ones(plane),
                format!("segment {field}: an age of nobody who waits"),
            );
        }
        let bytes = ages[1].iter().zip(ages[2]).zip(ages[3]);
        let too_old =
            bytes.map(|((one, two), three)| u64::from((one & two & three).count_ones())).sum::<u64>();
        is_so(too_old == 0, format!("segment {field}: {too_old} are of age 14 or more"));
        live += of_row.0;
        present += of_row.1;
    }
    let sums = (number("live"), number("present"));
    is_so((live, present) == sums, format!("the header counts {sums:?}, the segments {:?}", (live, present)));
    if number("max_active") > 0 {
        is_so(
            inside == number("inside"),
            format!("{inside} are inside, the header counts {}", number("inside")),
        );
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn ones(bits: &[u8]) -> u64 {
    bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

fn overlap(one: &[u8], other: &[u8]) -> u64 {
    one.iter().zip(other).map(|(one, other)| u64::from((one & other).count_ones())).sum()
}
