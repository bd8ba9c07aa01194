//! A slot that is left half moved, and a primary that is demoted and stays up: what an operator's commands do.
//!
//! A half-moved slot answers as the
//! [specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#ask-redirection) says: with a part
//! of a call's keys at each node, neither runs it. Invariant: keys that are at the other node are nowhere else, and come back only
//! to the process that they left.

use bytes::Bytes;

use super::{Cluster, Served};
use crate::redis::{Data, Effect};

/// Where the zone's slot is half moved.
pub(super) struct HalfMoved {
    /// The node that has the slot, and its history then.
    source: usize,
    history: u64,
    /// What the other node has.
    away: Data,
}

/// What Redis answers if some keys of a call are here and others are not.
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

impl Cluster {
    /// Notes what a primary changed, for its disk and its replicas.
    pub(super) fn spread(&mut self, node: usize, now: u64, effects: Vec<Effect>) {
        let at = &mut self.nodes[node];
        for effect in effects {
            if self.persistent {
                at.unsynced.push_back((now, effect.clone()));
            }
            // A later primary may have gone on with this history: what follows is another one.
            self.histories[usize::try_from(at.history).expect("few")].push((now, effect));
            at.offset += 1;
        }
    }

    /// Moves some keys of the zone to another node. Returns whether the slot was whole before.
    pub(crate) fn half_move(&mut self, now: u64, number: u64) -> bool {
        let source = self.primary();
        if self.half_moved.is_some() || !self.runs(source, now) || self.nodes[source].primary != source {
            return false;
        }
        let (away, effects) = self.nodes[source].data.move_some("{ZONE}", number);
        self.tell(now, format!("{} keys are moved away from node {source}, and others are not", away.keys()));
        self.spread(source, now, effects);
        self.half_moved = Some(HalfMoved { source, history: self.nodes[source].history, away });
        true
    }

    /// What a node that has only a part of a call's keys answers. `None` if it has the slot whole.
    pub(super) fn not_whole(&self, node: usize, now: u64, keys: &[Bytes]) -> Option<Served> {
        let moved = self.half_moved.as_ref().filter(|moved| moved.source == node)?;
        let in_slot = |key: &Bytes| key.windows(6).any(|part| part == b"{ZONE}");
        let unix_us = self.unix_us(node, now);
        let here = |key: &Bytes| self.nodes[node].data.has(key, unix_us);
        if !keys.iter().any(in_slot) || keys.iter().all(here) {
            return None;
        }
        // With none of them here the answer is ASK, and the other node runs what it has all keys of. The scripts of a zone name keys
        // that exist nowhere, so it runs none of them. With a single key it would.
        let is_alone = keys.len() == 1 && !moved.away.has(&keys[0], unix_us);
        (keys.len() > 1 || !is_alone).then_some(Served::Refused(TRY_AGAIN))
    }

    /// Whether another process than the one that keys were moved away from has the slot now: it lacks these keys.
    pub(crate) fn lacks_keys(&self, node: usize) -> bool {
        self.half_moved
            .as_ref()
            .is_some_and(|moved| (moved.source, moved.history) != (node, self.nodes[node].history))
    }

    /// The keys come back. Returns whether nothing was lost; `None` if the node that they left cannot be reached now.
    pub(crate) fn move_back(&mut self, now: u64) -> Option<bool> {
        let primary = self.primary();
        if !self.runs(primary, now) || self.nodes[primary].primary != primary {
            return None;
        }
        let lost = self.lacks_keys(primary);
        let moved = self.half_moved.take()?;
        if lost {
            self.tell(
                now,
                "the keys that were moved away are deleted: another process has the slot".to_owned(),
            );
            return Some(false);
        }
        let mut data = self.nodes[primary].data.clone();
        data.take_back(moved.away);
        self.replace_data(primary, data);
        self.tell(now, format!("all keys are back at node {primary}"));
        Some(true)
    }

    /// Makes a replica the primary. The demoted node refuses writes until `read_only_until`, instead of naming the new primary.
    /// Returns whether there was a replica for it.
    pub(crate) fn demote(&mut self, now: u64, by_force: bool, read_only_until: u64) -> bool {
        let old = self.primary();
        let can = |&node: &usize| {
            node != old
                && self.runs(node, now)
                && self.nodes[node].primary == old
                && self.nodes[node].history == self.nodes[old].history
                && self.hears(old, node)
                && self.hears(node, old)
        };
        let is_well = self.runs(old, now) && self.nodes[old].primary == old && self.half_moved.is_none();
        let Some(node) = (0..self.data_nodes).find(can).filter(|_| is_well) else { return false };
        if !by_force {
            let lag_ms = std::mem::take(&mut self.lag_ms);
            self.replicate(node, now);
            self.lag_ms = lag_ms;
        }
        let epoch = 1 + self.nodes.iter().map(|other| other.voted.max(other.epoch)).max().unwrap_or(0);
        self.lead(node, epoch, now);
        let at = &mut self.nodes[old];
        (at.primary, at.epoch, at.read_only_until) = (node, epoch, read_only_until);
        self.tell(now, format!("node {old} is demoted and stays up"));
        true
    }
}
