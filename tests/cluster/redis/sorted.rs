//! Sorted sets, and their commands.
//!
//! Scores are integers of at most 2^53, because the scripts use no others; another score is a panic.
//!
//! Invariant: members with the same score are in the order of their bytes, as in Redis.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    arguments::{Arguments, parse_int},
    commands::{Answer, Refusal, Reply, length},
    data::Content,
    keys::Keys,
};

#[derive(Clone, Default)]
pub(super) struct SortedSet {
    scores: BTreeMap<Bytes, i64>,
    order: BTreeSet<(i64, Bytes)>,
}

impl SortedSet {
    /// The members with their scores, in order.
    pub(super) fn members(&self) -> Vec<(Bytes, i64)> {
        self.order.iter().map(|(score, member)| (member.clone(), *score)).collect()
    }

    /// Returns whether the member is new, and whether anything changed.
    fn put(&mut self, member: &[u8], score: i64) -> (bool, bool) {
        if self.scores.get(member) == Some(&score) {
            return (false, false);
        }
        let name = Bytes::copy_from_slice(member);
        let before = self.scores.insert(name.clone(), score);
        if let Some(before) = before {
            self.order.remove(&(before, name.clone()));
        }
        self.order.insert((score, name));
        (before.is_none(), true)
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let Some((name, score)) = self.scores.remove_entry(member) else { return false };
        self.order.remove(&(score, name))
    }
}

fn parse_score(text: &[u8]) -> Result<i64, Refusal> {
    let score = match parse_int(text) {
        Some(score) => score,
        None if text.iter().any(u8::is_ascii_digit) || text.eq_ignore_ascii_case(b"inf") => {
            panic!("the model has integer scores only, not {}", text.escape_ascii())
        }
        None => return Err(Refusal::NOT_A_FLOAT),
    };
    assert!(score.unsigned_abs() <= 1 << 53, "a score of {score} is not exact");
    Ok(score)
}

/// The set; `None` if there is no such key.
fn set<'a>(keys: &'a mut Keys, key: &[u8]) -> Result<Option<&'a mut Arc<SortedSet>>, Refusal> {
    match keys.get(key).map(|entry| &mut entry.value) {
        None => Ok(None),
        Some(Content::Sorted(set)) => Ok(Some(set)),
        Some(_) => Err(Refusal::WRONG_TYPE),
    }
}

pub(super) fn add<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let key = &arguments[1];
    assert!(
        !["NX", "XX", "GT", "LT", "CH", "INCR"].iter().any(|option| arguments.is(2, option)),
        "the model has no options of ZADD: {arguments:?}"
    );
    if !arguments.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
    }
    for i in (2..arguments.len()).step_by(2) {
        parse_score(&arguments[i])?;
    }
    if set(keys, key)?.is_none() {
        keys.put(key, Content::Sorted(Arc::default()));
    }
    let members = Arc::make_mut(set(keys, key)?.expect("just put"));
    let (mut created, mut changed) = (0, false);
    for i in (2..arguments.len()).step_by(2) {
        let (is_new, differs) = members.put(&arguments[i + 1], parse_score(&arguments[i])?);
        created += i64::from(is_new);
        changed |= differs;
    }
    if changed {
        keys.changed(arguments);
    }
    Ok(Reply::Int(created))
}

pub(super) fn remove<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let key = &arguments[1];
    let Some(members) = set(keys, key)? else { return Ok(Reply::Int(0)) };
    let members = Arc::make_mut(members);
    let removed = arguments.from(2).filter(|member| members.remove(member)).count();
    if members.scores.is_empty() {
        keys.remove(key);
    }
    if removed > 0 {
        keys.changed(arguments);
    }
    Ok(Reply::Int(length(removed)))
}

pub(super) fn score<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let score = set(keys, &arguments[1])?.and_then(|members| members.scores.get(&arguments[2]));
    Ok(score.map_or(Reply::Nil, |score| Reply::Text(score.to_string())))
}

pub(super) fn range<'a>(keys: &'a mut Keys, arguments: &'a Arguments) -> Answer<'a> {
    let (skip, most) = match arguments.len() {
        4 => (0, -1),
        7 if arguments.is(4, "LIMIT") => (arguments.int(5)?, arguments.int(6)?),
        5 | 6 if arguments.is(4, "LIMIT") => return Err(Refusal::SYNTAX),
        _ => panic!("the model does not have the options of {arguments:?}"),
    };
    let (low, high) = (parse_end(&arguments[2])?, parse_end(&arguments[3])?);
    let Some(members) = set(keys, &arguments[1])? else { return Ok(Reply::List(Vec::new())) };
    let Ok(skip) = usize::try_from(skip) else { return Ok(Reply::List(Vec::new())) };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    // Scores are integers, so an open end is the next integer.
    let low = match low {
        End::Least => Bound::Unbounded,
        End::Most => return Ok(Reply::List(Vec::new())),
        End::Closed(score) => Bound::Included((score, Bytes::new())),
        End::Open(score) => Bound::Included((score + 1, Bytes::new())),
    };
    let high = match high {
        End::Least => i64::MIN,
        End::Most => i64::MAX,
        End::Closed(score) => score,
        End::Open(score) => score - 1,
    };
    let found = members.order.range((low, Bound::Unbounded)).take_while(|(score, _)| *score <= high);
    Ok(Reply::List(found.skip(skip).take(most).map(|(_, member)| Some(&**member)).collect()))
}

/// An end of a range of scores.
enum End {
    Least,
    Most,
    Closed(i64),
    Open(i64),
}

fn parse_end(text: &[u8]) -> Result<End, Refusal> {
    match text {
        b"-inf" => Ok(End::Least),
        b"+inf" | b"inf" => Ok(End::Most),
        b"" => Ok(End::Closed(0)),
        b"(" => Ok(End::Open(0)),
        [b'(', b'-' | b'+', b'i', ..] => panic!("the model has no open infinite ends"),
        [b'(', score @ ..] => parse_score(score).map(End::Open).map_err(|_| Refusal::RANGE_NOT_A_FLOAT),
        score => parse_score(score).map(End::Closed).map_err(|_| Refusal::RANGE_NOT_A_FLOAT),
    }
}
