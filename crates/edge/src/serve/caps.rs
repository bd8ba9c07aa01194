//! The caps on connections: which new connection gets in, and which older one gives way to it.
//!
//! Invariants: there are never more connections than the caps allow; a connection from an address with a reserve never gives way
//! to one from an address without.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use super::Edge;
use crate::{
    Held, PerClient, Refusal,
    connection::{Connection, Phase},
};

/// Which addresses are the same client, where room is made.
const SAME_CLIENT: PerClient = PerClient { most: 0, ipv6_prefix: 64 };

impl<M> Edge<M> {
    /// Lets a new connection from this address in, which may end another one. Returns its part of what its client may hold, where that
    /// is counted.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn let_in(&self, address: IpAddr, has_reserve: bool) -> Result<Option<Held>, Refusal> {
        // Only the accept loop increases the numbers, so they cannot pass the caps between these lines.
        if self.is_full(has_reserve) && !self.make_room(has_reserve) {
            return Err(Refusal::Overloaded);
        }
        match &self.per_client {
            Some(per_client) if !self.shared.observer.is_exempt(address) => {
                per_client.hold(address).map(Some).ok_or(Refusal::TooManyOfClient(address))
            }
            _ => Ok(None),
        }
    }

    /// Whether there is no room for another connection from an address with or without a reserve.
    fn is_full(&self, has_reserve: bool) -> bool {
        let without_reserve = self.shared.open_without_reserve.load(Relaxed);
        self.shared.open.load(Relaxed) >= self.max_open
            || !has_reserve && without_reserve >= self.max_without_reserve
    }

    /// Ends a connection whose client is not known, if that is how this listener makes room. If there is none, ends one of a
    /// known client that serves nothing: a client may have to connect again, but cannot keep others out by holding
    /// connections. It takes one of the address that has most of them, so that an address with many loses its own: one that
    /// serves no request now, if there is one, and the oldest of these. A connection from an address that has a reserve makes
    /// no room for one from an address that has none.
    fn make_room(&self, has_reserve: bool) -> bool {
        if self.unknown_ticks.is_none() {
            return false;
        }
        let connections = self.connections();
        let of_clients = |ends: fn(&Connection) -> bool| -> Vec<_> {
            let gives_way = |connection: &Arc<Connection>| has_reserve || !connection.has_reserve();
            let ending = connections.iter().filter_map(Weak::upgrade).filter(gives_way);
            let ending = ending.filter(|connection| ends(connection));
            ending.map(|connection| (SAME_CLIENT.client(connection.peer.ip()), connection)).collect()
        };
        let mut ending = of_clients(Connection::is_stranger);
        if ending.is_empty() {
            ending = of_clients(Connection::is_unused);
        }
        let mut of_client = HashMap::<_, usize>::new();
        for (client, _) in &ending {
            *of_client.entry(*client).or_default() += 1;
        }
        // The list is in the order of arrival, and `max_by_key` takes the last of equals.
        let serves = |connection: &Connection| matches!(connection.phase().0, Phase::Busy | Phase::Reply);
        let worst = ending
            .iter()
            .rev()
            .max_by_key(|(client, connection)| (of_client.get(client).copied(), !serves(connection)));
        if let Some((_, connection)) = worst {
            connection.give_way();
        }
        worst.is_some()
    }
}
