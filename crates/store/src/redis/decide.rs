//! The decisions: joins and claims.
//!
//! Invariant: a verdict comes from one script call; nothing is decided here. Only "gone" is not passed on if the ticket shows that
//! the state is old, and who is in a recovery without a rank is told 1.

use std::collections::{BTreeSet, HashMap};

use admission::{Claim, Decided, JoinKey, Joined, Position, Ticket, Verdict};
use bytes::Bytes;

use super::{
    Redis, Result, Zone,
    call::{ATTEMPTS, Answer, Refused},
    client::Client,
    lock, scripts, text,
    wire::{self, Garbled, Header, Reply, SEGMENT},
    zone_memory::{ZoneMemory, split},
};
use crate::{JoinedOnce, StoreError};

/// How many claims one call decides at most. A claim takes up to 15 us, so this bounds how long a call blocks Redis.
const MAX_CLAIMS: usize = 64;

/// The rank of whoever is told to wait because nobody knows yet, after a loss, whether the ticket waits.
const NOT_YET: u64 = 0;

impl<C: Client> Redis<C> {
    /// Joins `count` holders, some of whom have a key: by their places among the holders.
    pub(super) async fn join_once(
        &self,
        zone: &Zone,
        count: u32,
        keys: &[(u16, JoinKey)],
    ) -> Result<JoinedOnce> {
        self.join_server_list(zone).await?;
        let key_names: Vec<Bytes> = keys.iter().map(|(_, key)| name_of(zone, *key)).collect();
        let places: Bytes = keys.iter().flat_map(|(place, _)| place.to_be_bytes()).collect();
        let own = |_: &ZoneMemory| {
            vec![text(count), places.clone(), text(JoinKey::KEPT_MS), text(JoinKey::MOST_A_MINUTE)]
        };
        let mut next = lock(&zone.memory).as_ref().ok_or(StoreError::UnknownZone)?.header.next;
        for _ in 0..ATTEMPTS {
            // Other servers may have given out numbers meanwhile.
            let segments: BTreeSet<u64> =
                [next, next + u64::from(count) + SEGMENT / 4].into_iter().map(|seq| split(seq).0).collect();
            let segments: Vec<u64> = segments.into_iter().collect();
            match self.run(zone, &scripts::JOIN, (&segments, &key_names), own).await {
                Ok(answer) => return joined(zone, count, keys, answer),
                Err(Refused::Keys(end)) => next = end,
                Err(refused) => return Err(refused.without("a join's reply")),
            }
        }
        Err(StoreError::Away("the end of the line moves faster than this server can follow".to_owned()))
    }

    /// The tickets of those who joined with these keys.
    pub(super) async fn joined_before(&self, zone: &Zone, keys: &[JoinKey]) -> Result<Vec<Option<Ticket>>> {
        let names = keys.iter().map(|key| name_of(zone, *key)).collect();
        let reply = self.client.run(&scripts::FIND, names, Vec::new(), None).await;
        tickets(keys.len(), &Reply::new(reply.map_err(StoreError::from)?)?.bytes()?)
    }

    /// Decides claims, several calls one after the other.
    pub(super) async fn enter(&self, zone: &Zone, claims: &[Claim]) -> Result<Decided> {
        self.join_server_list(zone).await?;
        let order: BTreeSet<(u64, u32)> = claims.iter().map(|claim| (claim.seq, claim.epoch)).collect();
        let order: Vec<(u64, u32)> = order.into_iter().collect();
        let mut verdicts = HashMap::with_capacity(order.len());
        let mut rest = &order[..];
        let last = loop {
            let decided = self.enter_some(zone, rest).await?;
            for (claim, verdict) in rest.iter().zip(&decided.verdicts) {
                verdicts.insert(*claim, *verdict);
            }
            rest = &rest[decided.verdicts.len()..];
            if rest.is_empty() {
                break decided;
            }
        };
        let verdict =
            |claim: &Claim| verdicts.get(&(claim.seq, claim.epoch)).copied().unwrap_or(Verdict::Gone);
        Ok(Decided { verdicts: claims.iter().map(verdict).collect(), ..last })
    }

    /// Decides the first of `claims`: at most [`MAX_CLAIMS`], in as many segments as one call passes.
    async fn enter_some(&self, zone: &Zone, claims: &[(u64, u32)]) -> Result<Decided> {
        let mut segments = BTreeSet::new();
        {
            let memory = lock(&zone.memory);
            let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
            let front_end = memory.header.appointed.max(1) - 1;
            let of_front = memory.header.base..=split(front_end).0;
            segments
                .extend(of_front.filter(|segment| !memory.is_unused(*segment)).take(self.max_segments / 2));
        }
        let mut count = 0;
        for &(seq, _) in &claims[..claims.len().min(MAX_CLAIMS)] {
            let segment = split(seq).0;
            if segments.len() >= self.max_segments.max(2) && !segments.contains(&segment) {
                break;
            }
            segments.insert(segment);
            count += 1;
        }
        let mut bytes = Vec::with_capacity(count * 10);
        for (seq, epoch) in &claims[..count] {
            bytes.extend_from_slice(&epoch.to_be_bytes());
            bytes.extend_from_slice(&seq.to_be_bytes()[2..]);
        }
        let (segments, bytes): (Vec<u64>, Bytes) = (segments.into_iter().collect(), bytes.into());
        let answer = self.run(zone, &scripts::ENTER, (&segments, &[]), |_| vec![bytes.clone()]).await;
        let mut answer = answer.map_err(|refused| refused.without("a claim's reply"))?;
        let mut verdicts = wire::verdicts(&answer.rest.bytes()?)?;
        if verdicts.len() != count {
            return Err(Garbled("the verdicts").into());
        }
        let mut memory = lock(&zone.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        // Of a ticket that the state does not know yet after a loss, this server has learnt nothing. If it took the ticket for one that
        // waits, it would give it back as such after the next loss, also if its holder has entered or left. Nor has it learnt anything
        // from a state that was replaced.
        let mut known = Vec::with_capacity(count);
        for ((seq, epoch), verdict) in claims.iter().zip(&mut verdicts) {
            match verdict {
                Verdict::Waiting(position) if position.rank == NOT_YET => position.rank = 1,
                Verdict::Gone if memory.is_ahead(*epoch, *seq, &answer.header) => {
                    *verdict = Verdict::Waiting(Position {
                        rank: 1,
                        present_ahead: 0,
                        estimate: None,
                        poll_in_ms: answer.header.policy.polling_period_ms,
                        slot_in_ms: None,
                    });
                }
                _ => known.push((*seq, *verdict)),
            }
        }
        memory.note(known);
        let Header { now: at_ms, policy, drawn, .. } = answer.header;
        Ok(Decided { at_ms, policy, verdicts, slots: memory.slots(), drawn })
    }
}

/// Bytes of a ticket that a key has.
const EARLIER: usize = 16;

/// The name in Redis of a key of a join.
fn name_of(zone: &Zone, JoinKey(digest): JoinKey) -> Bytes {
    [zone.prefix.as_bytes(), b"key:", &digest].concat().into()
}

/// Parses the tickets that keys have: so many, each of which may be none.
fn tickets(count: usize, bytes: &[u8]) -> Result<Vec<Option<Ticket>>> {
    if bytes.len() != count * EARLIER {
        return Err(Garbled("the tickets of keys").into());
    }
    let ticket = |bytes: &[u8]| {
        let epoch = u32::try_from(wire::number(&bytes[..4])).expect("four bytes");
        let (seq, issued_ms) = (wire::number(&bytes[4..10]), wire::number(&bytes[10..]));
        (epoch > 0).then_some(Ticket::new(epoch, seq, issued_ms))
    };
    Ok(bytes.chunks_exact(EARLIER).map(ticket).collect())
}

/// Parses a join's reply, and notes it in the memory.
fn joined(zone: &Zone, asked: u32, keys: &[(u16, JoinKey)], mut answer: Answer) -> Result<JoinedOnce> {
    let (first, let_in, unix_s) = (answer.rest.number()?, answer.rest.number()?, answer.rest.number()?);
    let (ahead, present_ahead) = (answer.rest.number()?, answer.rest.number()?);
    let at_front = wire::verdicts(&answer.rest.bytes()?)?;
    let mut earlier = vec![None; asked as usize];
    for ((place, _), ticket) in keys.iter().zip(tickets(keys.len(), &answer.rest.bytes()?)?) {
        earlier[usize::from(*place)] = ticket;
    }
    let count = earlier.iter().filter(|ticket| ticket.is_none()).count();
    let at_ms = answer.header.now;
    let entry = admission::Entry { at_ms, unix_s, life_s: answer.header.policy.pass_ttl_s };
    let let_in = usize::try_from(let_in).ok().filter(|&n| n + at_front.len() <= count);
    let mut verdicts = vec![Verdict::Entered(entry); let_in.ok_or(Garbled("a join's reply"))?];
    let waiting = (count - verdicts.len()) as u64;
    let behind = at_front.len() as u64..waiting;
    verdicts.extend(at_front);
    verdicts.extend(behind.map(|before| {
        Verdict::Waiting(Position {
            rank: 1 + ahead + before,
            present_ahead: present_ahead + before,
            estimate: None,
            poll_in_ms: answer.header.policy.polling_period_ms,
            slot_in_ms: None,
        })
    }));
    let mut memory = lock(&zone.memory);
    let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
    memory.note((first..).zip(verdicts.iter().copied()));
    let Header { epoch, policy, .. } = answer.header;
    let joined = Joined { epoch, first, at_ms, policy, verdicts, slots: memory.slots() };
    Ok(JoinedOnce { earlier, joined })
}
