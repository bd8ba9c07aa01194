//! A command's access to the data: what expired, what has the wrong type, and what replicas must be told.
//!
//! Invariant: each change of the data is either recorded as an effect or was made while the script had switched
//! replication off. Running the effects in order on a copy gives the same data.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::{
    arguments::Arguments,
    commands::{self, Refusal},
    data::{Content, Data, Entry},
};

/// One replicated effect: a command with its arguments. It has no clock: expiries are absolute. The effects of one script
/// belong together: a replica gets all of them or none.
#[derive(Clone)]
pub(crate) struct Effect(Arc<Arguments>);

impl Effect {
    pub(super) fn deletion(key: &[u8]) -> Self {
        Self(Arc::new(Arguments::of(&[b"DEL", key])))
    }

    pub(super) fn apply(&self, data: &mut Data) {
        let mut keys = Keys { data: std::mem::take(data), caller: Caller::Primary, ..Keys::default() };
        if let Err(refusal) = commands::execute(&mut keys, &self.0) {
            panic!("a replica refuses {self:?}: {refusal}");
        }
        *data = keys.data;
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who runs a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Caller {
    /// A script on a primary. Expired keys are removed on access, and their deletions are effects.
    #[default]
    ScriptOnPrimary,
    /// A script on a replica. It cannot write; expired keys are hidden.
    ScriptOnReplica,
    /// This node's primary. Expired keys exist until it deletes them.
    Primary,
}

/// The keys as one command sees them.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) data: Data,
    pub(super) caller: Caller,
    /// Microseconds since the Unix epoch.
    pub(super) unix_us: u64,
    pub(super) run_id: String,
    pub(super) replid: String,
    pub(super) replicas: u32,
    /// Set while a script has switched replication off.
    pub(super) is_silent: bool,
    pub(super) effects: Vec<Effect>,
    /// Used again by each operation on bits.
    pub(super) scratch: Vec<u8>,
}

impl Keys {
    pub(super) fn now_ms(&self) -> u64 {
        self.unix_us / 1_000
    }

    /// Whether the key exists for this caller. Removes it if it expired on a primary.
    pub(super) fn exists(&mut self, key: &[u8]) -> bool {
        let now_ms = self.now_ms();
        match self.data.entries.get(key) {
            None => false,
            Some(entry) if self.caller == Caller::Primary || !entry.is_expired(now_ms) => true,
            Some(_) => {
                if self.caller == Caller::ScriptOnPrimary {
                    self.data.entries.remove(key);
                    // This is told even while a script has switched replication off.
                    self.effects.push(Effect::deletion(key));
                }
                false
            }
        }
    }

    /// The key's entry.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.exists(key) { self.data.entries.get_mut(key) } else { None }
    }

    /// The bytes of a string; `None` if there is no such key.
    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// The bytes of a string that is about to change. Creates the key if it does not exist.
    pub(super) fn text_mut(&mut self, key: &[u8]) -> Result<&mut Vec<u8>, Refusal> {
        if !self.exists(key) {
            self.put(key, Content::Text(Arc::default()));
        }
        match self.data.entries.get_mut(key).map(|entry| &mut entry.value) {
            Some(Content::Text(text)) => Ok(Arc::make_mut(text)),
            _ => Err(Refusal::WRONG_TYPE),
        }
    }

    /// Gives the key a value. It no longer expires.
    pub(super) fn put(&mut self, key: &[u8], value: Content) {
        let entry = Entry { value, expires_ms: None };
        match self.data.entries.get_mut(key) {
            Some(before) => *before = entry,
            None => {
                self.data.entries.insert(Bytes::copy_from_slice(key), entry);
            }
        }
    }

    /// Removes the key. Returns whether there was one.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.exists(key) && self.data.entries.remove(key).is_some()
    }

    /// Records that the command changed the data, for replicas.
    pub(super) fn changed(&mut self, arguments: &Arguments) {
        if self.caller == Caller::ScriptOnPrimary && !self.is_silent {
            self.effects.push(Effect(Arc::new(arguments.clone())));
        }
    }

    /// Records another command than the one that ran.
    pub(super) fn changed_by(&mut self, parts: &[&[u8]]) {
        if self.caller == Caller::ScriptOnPrimary && !self.is_silent {
            self.effects.push(Effect(Arc::new(Arguments::of(parts))));
        }
    }
}
