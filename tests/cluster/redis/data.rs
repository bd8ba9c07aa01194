//! The data of one node: keys, their values, and when they expire.
//!
//! Invariant: a copy is independent of its original. Both share the values until one of them changes.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use foldhash::fast::FixedState;

use super::{keys::Effect, sorted::SortedSet};

/// The data of one node. A clone is what a full resync sends.
#[derive(Clone, Default)]
pub(crate) struct Data {
    /// Keyed by name. The hash is fixed, and its order is never visible.
    pub(super) entries: std::collections::HashMap<Bytes, Entry, FixedState>,
}

/// A key's value, and when it expires.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) value: Content,
    /// In milliseconds since the Unix epoch. The key exists up to and including this instant.
    pub(super) expires_ms: Option<u64>,
}

impl Entry {
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at_ms| now_ms > at_ms)
    }
}

/// The value of a key.
#[derive(Clone)]
pub(super) enum Content {
    Text(Arc<Vec<u8>>),
    Hash(Arc<BTreeMap<Bytes, Bytes>>),
    Sorted(Arc<SortedSet>),
}

impl Content {
    /// The bytes of a string that no copy of the data shares.
    pub(super) fn own_text(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Text(text) => Arc::get_mut(text),
            _ => None,
        }
    }
}

/// A key as [`Data::dump`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dumped {
    /// A string.
    Text(Vec<u8>),
    /// A hash, sorted by field.
    Hash(Vec<(Bytes, Bytes)>),
    /// A sorted set, by score and member.
    Sorted(Vec<(Bytes, i64)>),
}

impl Data {
    /// Runs an effect of this node's primary. A replica does not look at its own clock then: its primary decides what
    /// expires, and sends the deletion.
    pub(crate) fn apply(&mut self, effect: &Effect, _unix_us: u64) {
        effect.apply(self);
    }

    /// How many keys are stored, expired ones included.
    pub(crate) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// The keys that have expired, in the order of their names.
    pub(crate) fn expired(&self, unix_us: u64) -> Vec<Bytes> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.is_expired(unix_us / 1_000));
        let mut expired: Vec<Bytes> = entries.map(|(key, _)| key.clone()).collect();
        expired.sort_unstable();
        expired
    }

    /// The keys whose names contain `part`, in the order of names. Those of joins are not among them: they are many, and none of the line.
    fn with_part(&self, part: &str) -> Vec<Bytes> {
        let has = |key: &Bytes, part: &str| key.windows(part.len()).any(|bytes| bytes == part.as_bytes());
        let is_one = |key: &&Bytes| has(key, part) && !has(key, ":key:");
        let mut keys: Vec<Bytes> = self.entries.keys().filter(is_one).cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Removes one of the keys whose names contain `part`: the `number`th in the order of names, modulo how many there are. Returns its
    /// name, if there is one.
    pub(crate) fn lose(&mut self, part: &str, number: u64) -> Option<Bytes> {
        let mut keys = self.with_part(part);
        let at = number.checked_rem(keys.len() as u64).and_then(|at| usize::try_from(at).ok())?;
        self.entries.remove(&keys[at]);
        Some(keys.swap_remove(at))
    }

    /// The string of a key; empty where there is none.
    pub(crate) fn text(&self, key: &str) -> &[u8] {
        match self.entries.get(key.as_bytes()).map(|entry| &entry.value) {
            Some(Content::Text(text)) => text,
            _ => &[],
        }
    }

    /// The hash of a key, if there is one.
    pub(crate) fn hash(&self, key: &str) -> Option<&BTreeMap<Bytes, Bytes>> {
        match &self.entries.get(key.as_bytes())?.value {
            Content::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    /// Whether a key exists at an instant.
    pub(crate) fn has(&self, key: &[u8], unix_us: u64) -> bool {
        self.entries.get(key).is_some_and(|entry| !entry.is_expired(unix_us / 1_000))
    }

    /// Moves keys whose names contain `part` away, as `MIGRATE` does: those whose places in the order of names are bits of `number`.
    /// Returns them, and the deletions for replicas.
    pub(crate) fn move_some(&mut self, part: &str, number: u64) -> (Self, Vec<Effect>) {
        let keys = self.with_part(part);
        let (mut moved, mut effects) = (Self::default(), Vec::new());
        for (place, key) in keys.into_iter().enumerate() {
            if number >> (place % 64) & 1 == 1
                && let Some(entry) = self.entries.remove(&key)
            {
                effects.push(Effect::deletion(&key));
                moved.entries.insert(key, entry);
            }
        }
        (moved, effects)
    }

    /// Takes in keys that come back. Those that exist are not replaced.
    pub(crate) fn take_back(&mut self, moved: Self) {
        for (key, entry) in moved.entries {
            self.entries.entry(key).or_insert(entry);
        }
    }

    /// Removes the keys that have expired, as a primary does from time to time. Returns the deletions for its replicas.
    pub(crate) fn expire(&mut self, unix_us: u64) -> Vec<Effect> {
        let expired = self.expired(unix_us);
        for key in &expired {
            self.entries.remove(key);
        }
        expired.iter().map(|key| Effect::deletion(key)).collect()
    }

    /// All keys in the order of their names: name, value, and when it expires in milliseconds since the Unix epoch.
    pub(crate) fn dump(&self) -> Vec<(Bytes, Dumped, Option<u64>)> {
        let shown = |entry: &Entry| match &entry.value {
            Content::Text(text) => Dumped::Text(text.to_vec()),
            Content::Hash(hash) => {
                Dumped::Hash(hash.iter().map(|(field, value)| (field.clone(), value.clone())).collect())
            }
            Content::Sorted(set) => Dumped::Sorted(set.members()),
        };
        let mut keys: Vec<_> =
            self.entries.iter().map(|(key, entry)| (key.clone(), shown(entry), entry.expires_ms)).collect();
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        keys
    }
}
