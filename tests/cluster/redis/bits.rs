//! The commands of bits. Redis numbers the bits of a byte from the highest.
//!
//! Invariant: no loop goes over single bits.

use std::sync::Arc;

use super::{
    arguments::Arguments,
    commands::{Answer, Refusal, Reply, length},
    data::Content,
    keys::Keys,
    strings::MAX_LEN,
};

/// A bit's byte, and its mask there.
fn place(offset: &[u8]) -> Result<(usize, u8), Refusal> {
    let offset = super::arguments::parse_int(offset).and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.filter(|&offset| offset < MAX_LEN * 8).ok_or(Refusal::BIT_OFFSET)?;
    Ok((usize::try_from(offset / 8).expect("checked"), 0x80 >> (offset % 8)))
}

pub(super) fn set_bit<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (byte, mask) = place(&arguments[2])?;
    let on = match &arguments[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Refusal::BIT),
    };
    let text = keys.text_mut(&arguments[1])?;
    let grows = text.len() <= byte;
    if grows {
        text.resize(byte + 1, 0);
    }
    let before = text[byte] & mask != 0;
    if on {
        text[byte] |= mask;
    } else {
        text[byte] &= !mask;
    }
    if grows || before != on {
        keys.changed(arguments);
    }
    Ok(Reply::Int(before.into()))
}

pub(super) fn get_bit<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (byte, mask) = place(&arguments[2])?;
    let text = keys.text(&arguments[1])?.unwrap_or_default();
    Ok(Reply::Int(text.get(byte).is_some_and(|byte| byte & mask != 0).into()))
}

pub(super) fn count<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let Some(text) = keys.text(&arguments[1])? else { return Ok(Reply::Int(0)) };
    let (from, to) = match arguments.len() {
        2 => return Ok(Reply::Int(ones(text))),
        4 | 5 => (arguments.int(2)?, arguments.int(3)?),
        _ => return Err(Refusal::SYNTAX),
    };
    let by_bit = arguments.len() == 5 && arguments.is(4, "BIT");
    if arguments.len() == 5 && !by_bit && !arguments.is(4, "BYTE") {
        return Err(Refusal::SYNTAX);
    }
    let end = length(text.len()) * if by_bit { 8 } else { 1 };
    if from < 0 && to < 0 && from > to {
        return Ok(Reply::Int(0));
    }
    let absolute = |at: i64| if at < 0 { at.saturating_add(end).max(0) } else { at };
    let (from, to) = (absolute(from), absolute(to).min(end - 1));
    if from > to {
        return Ok(Reply::Int(0));
    }
    let [from, to] = [from, to].map(|at| usize::try_from(at).expect("not negative"));
    if !by_bit {
        return Ok(Reply::Int(ones(&text[from..=to])));
    }
    let (first, last) = (from / 8, to / 8);
    let before = text[first] & !(0xFF >> (from % 8));
    let after = text[last] & (0x7F_u8 >> (to % 8));
    Ok(Reply::Int(ones(&text[first..=last]) - i64::from(before.count_ones()) - i64::from(after.count_ones())))
}

/// How many bits are set.
fn ones(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: u32 = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).sum();
    let of_rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    i64::from(of_words) + i64::from(of_rest)
}

pub(super) fn combine<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let target = &arguments[2];
    let by: fn(&mut Vec<u8>, &[u8]) = match &arguments[1] {
        b"AND" => |into, from| {
            merge(into, from, |a, b| a & b);
            into[from.len()..].fill(0);
        },
        b"OR" => |into, from| merge(into, from, |a, b| a | b),
        b"XOR" => |into, from| merge(into, from, |a, b| a ^ b),
        other => panic!("the model has no BITOP {}", other.escape_ascii()),
    };
    let mut longest = 0;
    for key in arguments.from(3) {
        longest = longest.max(keys.text(key)?.map_or(0, <[u8]>::len));
    }
    let mut result = std::mem::take(&mut keys.scratch);
    result.clear();
    for (i, key) in arguments.from(3).enumerate() {
        let text = match keys.data.entries.get(key).map(|entry| &entry.value) {
            Some(Content::Text(text)) => text.as_slice(),
            _ => &[],
        };
        if i == 0 {
            result.reserve(longest);
            result.extend_from_slice(text);
            result.resize(longest, 0);
        } else {
            by(&mut result, text);
        }
    }
    if longest == 0 {
        keys.scratch = result;
        if keys.remove(target) {
            keys.changed(arguments);
        }
        return Ok(Reply::Int(0));
    }
    keys.exists(target);
    match keys.data.entries.get_mut(target) {
        Some(entry) => {
            entry.expires_ms = None;
            match entry.value.own_text() {
                Some(text) => keys.scratch = std::mem::replace(text, result),
                None => entry.value = Content::Text(Arc::new(result)),
            }
        }
        None => keys.put(target, Content::Text(Arc::new(result))),
    }
    keys.changed(arguments);
    Ok(Reply::Int(length(longest)))
}

/// Combines the first bytes of `into` with `from`, 16 bytes at a time.
#[inline]
fn merge(into: &mut [u8], from: &[u8], by: impl Fn(u128, u128) -> u128) {
    let into = &mut into[..from.len()];
    let (wide, rest) = into.as_chunks_mut::<16>();
    let (wide_from, rest_from) = from.as_chunks::<16>();
    for (a, b) in wide.iter_mut().zip(wide_from) {
        *a = by(u128::from_ne_bytes(*a), u128::from_ne_bytes(*b)).to_ne_bytes();
    }
    for (a, b) in rest.iter_mut().zip(rest_from) {
        let both = by(u128::from(*a), u128::from(*b)).to_le_bytes();
        *a = both[0];
    }
}

/// `SET` of unsigned fields; the scripts use nothing else.
pub(super) fn field<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    struct Field {
        offset: u64,
        width: u32,
        value: u64,
    }
    let mut fields = Vec::with_capacity(arguments.len() / 4);
    let mut highest = 0;
    for at in (2..arguments.len()).step_by(4) {
        assert!(arguments.is(at, "SET"), "the model has only SET in {arguments:?}");
        if at + 4 > arguments.len() {
            return Err(Refusal::SYNTAX);
        }
        let width = match &arguments[at + 1] {
            [b'u', digits @ ..] => super::arguments::parse_int(digits),
            _ => None,
        };
        let width =
            width.and_then(|width| u32::try_from(width).ok()).filter(|width| (1..=63).contains(width));
        let width = width.unwrap_or_else(|| panic!("the model has no such field: {arguments:?}"));
        let (byte, mask) = place(&arguments[at + 2])?;
        let offset = byte as u64 * 8 + u64::from(mask.leading_zeros());
        let value = arguments.int(at + 3)?.cast_unsigned() & (u64::MAX >> (64 - width));
        highest = highest.max(offset + u64::from(width) - 1);
        fields.push(Field { offset, width, value });
    }
    if fields.is_empty() {
        keys.text(&arguments[1])?;
        return Ok(Reply::Ints(Vec::new()));
    }
    if highest / 8 >= MAX_LEN {
        return Err(Refusal::BIT_OFFSET);
    }
    let text = keys.text_mut(&arguments[1])?;
    let len = usize::try_from(highest / 8).expect("checked") + 1;
    let mut changed = text.len() < len;
    if changed {
        text.resize(len, 0);
    }
    let mut before = Vec::with_capacity(fields.len());
    for Field { offset, width, value } in fields {
        let first = usize::try_from(offset / 8).expect("checked");
        let bits = u32::try_from(offset % 8).expect("small") + width;
        let last = first + bits.div_ceil(8) as usize;
        let mut window = [0; 16];
        let part = &mut text[first..last];
        window[..part.len()].copy_from_slice(part);
        let old = u128::from_be_bytes(window);
        let shift = 128 - bits;
        let mask = u128::from(u64::MAX >> (64 - width)) << shift;
        let new = old & !mask | u128::from(value) << shift;
        part.copy_from_slice(&new.to_be_bytes()[..part.len()]);
        before.push(i64::try_from((old & mask) >> shift).expect("63 bits"));
        changed |= new != old;
    }
    if changed {
        keys.changed(arguments);
    }
    Ok(Reply::Ints(before))
}
