//! The commands of hashes. `HGETALL` answers in the order of the fields' names; Redis promises no order.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    arguments::Arguments,
    commands::{Answer, Refusal, Reply, length},
    data::Content,
    keys::Keys,
};

/// The fields of a hash; `None` if there is no such key.
fn fields<'a>(
    keys: &'a mut Keys,
    key: &[u8],
) -> Result<Option<&'a mut Arc<BTreeMap<Bytes, Bytes>>>, Refusal> {
    match keys.get(key).map(|entry| &mut entry.value) {
        None => Ok(None),
        Some(Content::Hash(fields)) => Ok(Some(fields)),
        Some(_) => Err(Refusal::WRONG_TYPE),
    }
}

pub(super) fn set<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let key = &arguments[1];
    if !arguments.len().is_multiple_of(2) {
        return Err(Refusal::HSET_COUNT);
    }
    if fields(keys, key)?.is_none() {
        keys.put(key, Content::Hash(Arc::default()));
    }
    let fields = Arc::make_mut(fields(keys, key)?.expect("just put"));
    let mut created = 0;
    for i in (2..arguments.len()).step_by(2) {
        let value = Bytes::copy_from_slice(&arguments[i + 1]);
        match fields.get_mut(&arguments[i]) {
            Some(before) => *before = value,
            None => {
                fields.insert(Bytes::copy_from_slice(&arguments[i]), value);
                created += 1;
            }
        }
    }
    keys.changed(arguments);
    Ok(Reply::Int(created))
}

pub(super) fn get<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let value = fields(keys, &arguments[1])?.and_then(|fields| fields.get(&arguments[2]));
    Ok(value.map_or(Reply::Nil, |value| Reply::Bytes(value)))
}

pub(super) fn get_many<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let fields = fields(keys, &arguments[1])?.map(|fields| &**fields);
    let value = |field: &[u8]| fields.and_then(|fields| fields.get(field)).map(|value| &**value);
    Ok(Reply::List(arguments.from(2).map(value).collect()))
}

pub(super) fn delete<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let key = &arguments[1];
    let Some(fields) = fields(keys, key)? else { return Ok(Reply::Int(0)) };
    let fields = Arc::make_mut(fields);
    let removed = arguments.from(2).filter(|field| fields.remove(*field).is_some()).count();
    if fields.is_empty() {
        keys.remove(key);
    }
    if removed > 0 {
        keys.changed(arguments);
    }
    Ok(Reply::Int(length(removed)))
}

pub(super) fn get_all<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let Some(fields) = fields(keys, &arguments[1])? else { return Ok(Reply::List(Vec::new())) };
    let parts = fields.iter().flat_map(|(field, value)| [Some(&**field), Some(&**value)]);
    Ok(Reply::List(parts.collect()))
}
