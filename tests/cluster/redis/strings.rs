//! The commands of strings.

use std::sync::Arc;

use super::{
    arguments::Arguments,
    commands::{Answer, Refusal, Reply, length},
    data::Content,
    keys::{Caller, Keys},
};

/// The longest string of Redis, in bytes.
pub(super) const MAX_LEN: u64 = 512 * 1024 * 1024;

pub(super) fn get<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    Ok(keys.text(&arguments[1])?.map_or(Reply::Nil, Reply::Bytes))
}

pub(super) fn get_many<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let are_there: Vec<bool> = arguments.from(1).map(|key| keys.exists(key)).collect();
    let keys = &*keys;
    let value = |(key, is_there): (&[u8], bool)| match keys.data.entries.get(key).map(|entry| &entry.value) {
        Some(Content::Text(text)) if is_there => Some(&text[..]),
        _ => None,
    };
    Ok(Reply::List(arguments.from(1).zip(are_there).map(value).collect()))
}

pub(super) fn set<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (key, value) = (&arguments[1], &arguments[2]);
    let expires_ms = match arguments.len() {
        3 => None,
        5 if arguments.is(3, "PX") || arguments.is(3, "EX") => {
            let number = arguments.int(4)?;
            let now_ms = i64::try_from(keys.now_ms()).expect("a date");
            let in_ms = if arguments.is(3, "EX") { number.checked_mul(1_000) } else { Some(number) };
            let at_ms = in_ms.filter(|&in_ms| in_ms > 0).and_then(|in_ms| now_ms.checked_add(in_ms));
            Some(at_ms.ok_or(Refusal::SET_EXPIRY)?)
        }
        5 if arguments.is(3, "PXAT") && keys.caller == Caller::Primary => Some(arguments.int(4)?),
        4 if ["PX", "EX"].iter().any(|option| arguments.is(3, option)) => return Err(Refusal::SYNTAX),
        _ => panic!("the model does not have the options of {arguments:?}"),
    };
    keys.exists(key);
    match keys.data.entries.get_mut(key) {
        // The common case: the value is written where the last one was.
        Some(entry) => {
            match entry.value.own_text() {
                Some(text) => {
                    text.clear();
                    text.extend_from_slice(value);
                }
                None => entry.value = Content::Text(Arc::new(value.to_vec())),
            }
            entry.expires_ms = None;
        }
        None => keys.put(key, Content::Text(Arc::new(value.to_vec()))),
    }
    match expires_ms {
        None => keys.changed(arguments),
        Some(at_ms) => {
            let entry = keys.data.entries.get_mut(key).expect("just put");
            entry.expires_ms = u64::try_from(at_ms).ok();
            keys.changed_by(&[b"SET", key, value, b"PXAT", at_ms.to_string().as_bytes()]);
        }
    }
    Ok(Reply::Ok)
}

pub(super) fn set_range<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (key, value) = (&arguments[1], &arguments[3]);
    let offset = u64::try_from(arguments.int(2)?).map_err(|_| Refusal::OFFSET)?;
    if value.is_empty() {
        let before = keys.text(key)?.map_or(0, <[u8]>::len);
        return Ok(Reply::Int(length(before)));
    }
    keys.text(key)?;
    if offset.saturating_add(value.len() as u64) > MAX_LEN {
        return Err(Refusal::TOO_LONG);
    }
    let text = keys.text_mut(key)?;
    let start = usize::try_from(offset).expect("checked");
    let end = start + value.len();
    if text.len() < end {
        text.resize(end, 0);
    }
    text[start..end].copy_from_slice(value);
    let len = text.len();
    keys.changed(arguments);
    Ok(Reply::Int(length(len)))
}

pub(super) fn get_range<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (from, to) = (arguments.int(2)?, arguments.int(3)?);
    let text = keys.text(&arguments[1])?.unwrap_or_default();
    let end = length(text.len());
    if from < 0 && to < 0 && from > to {
        return Ok(Reply::Bytes(&[]));
    }
    let absolute = |at: i64| if at < 0 { (at.saturating_add(end)).max(0) } else { at };
    let (from, to) = (absolute(from), absolute(to).min(end - 1));
    let Some(range) = usize::try_from(from).ok().zip(usize::try_from(to).ok()) else {
        return Ok(Reply::Bytes(&[]));
    };
    Ok(Reply::Bytes(text.get(range.0..=range.1).unwrap_or_default()))
}

pub(super) fn append<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let text = keys.text_mut(&arguments[1])?;
    text.extend_from_slice(&arguments[2]);
    let len = text.len();
    keys.changed(arguments);
    Ok(Reply::Int(length(len)))
}
