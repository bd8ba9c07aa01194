//! The seal keys of the servers, and of whom a token is.
//!
//! Invariant: the auditor hears of a server's keys before the server has them.

use std::{cell::RefCell, rc::Rc};

use admission::{SealKey, Sealer, Seals, ZoneId};
use gate::Token;
use tokio::time::{Duration, sleep};

use super::{Server, World};
use crate::{auditor::Ticket, client::lock, plan::Plan};

/// The numbers of the keys that the servers have, and of the one that an operator takes for theirs by mistake.
const FIRST: usize = 0;
const NEXT: usize = 1;
const WRONG: usize = 2;

/// What the key files of one server hold.
#[derive(Clone, Debug)]
struct Held {
    /// In the order of [`Seals`]: the first one seals.
    right: Vec<usize>,
    is_wrong: bool,
}

/// All keys of a run.
pub(super) struct Keys {
    keys: [SealKey; 3],
    sealers: [Sealer; 3],
    held: RefCell<Vec<Held>>,
}

impl Keys {
    pub(super) fn new(plan: &Plan, zone: &ZoneId) -> Self {
        // The id is one byte of a digest, so two keys may have the same one.
        let id_of_wrong = if plan.seed.is_multiple_of(2) { 1 } else { 3 };
        let key = |id: u8, secret: u8| SealKey { id, secret: [secret; 32] };
        let keys = [key(1, 1), key(2, 2), key(id_of_wrong, 3)];
        let sealers = keys.clone().map(|key| Seals::only(key).sealer(zone));
        let held = Held { right: vec![FIRST], is_wrong: false };
        Self { keys, sealers, held: RefCell::new(vec![held; plan.servers]) }
    }

    /// The key that sealed a token, and the ticket that it holds.
    pub(super) fn open(&self, token: &Token) -> Option<(usize, Ticket)> {
        let open = |(key, sealer): (usize, &Sealer)| {
            let ticket = sealer.open(token).ok()?;
            Some((key, (ticket.epoch, ticket.seq)))
        };
        self.sealers.iter().enumerate().find_map(open)
    }

    /// The keys in the files of a server. The first one seals.
    pub(super) fn of_server(&self, server: usize) -> Vec<usize> {
        let held = &self.held.borrow()[server];
        if held.is_wrong { vec![WRONG] } else { held.right.clone() }
    }

    pub(super) fn seals_of(&self, server: usize) -> Seals {
        let key = |number: usize| self.keys[number].clone();
        let held = self.of_server(server);
        let current = Seals::only(key(held[0]));
        match held[..] {
            [FIRST, NEXT] => Seals { next: Some(key(NEXT)), ..current },
            [NEXT, FIRST] => Seals { previous: Some(key(FIRST)), ..current },
            _ => current,
        }
    }
}

impl World {
    /// A server starts again with the wrong key file, and later with the right one.
    pub(super) async fn start_with_wrong_key(&self, server: usize, pause: Duration) {
        for is_wrong in [true, false] {
            self.seals.held.borrow_mut()[server].is_wrong = is_wrong;
            let (is_up, now) = {
                let net = lock(&self.net);
                (net.servers[server].up, net.now())
            };
            let what = if is_wrong { "another" } else { "the right" };
            lock(&self.net).cluster.tell(now, format!("server {server} is given {what} seal key"));
            // A server that does not run reads the file when it starts.
            if is_up {
                self.replace(server, Duration::from_millis(300)).await;
            }
            if is_wrong {
                sleep(pause).await;
            }
        }
    }

    /// The servers read these keys in turn, as on SIGHUP.
    async fn give_keys(self: &Rc<Self>, keys: &[usize], every_ms: u64) {
        for server in 0..self.plan.servers {
            self.seals.held.borrow_mut()[server].right = keys.to_vec();
            let now = self.now();
            lock(&self.net).cluster.tell(now, format!("server {server} is given the seal keys {keys:?}"));
            let process = self.servers.borrow()[server].clone();
            if let Some(process) = process {
                self.beside(Rc::clone(self).reload(process));
            }
            sleep(Duration::from_millis(every_ms)).await;
        }
    }

    async fn reload(self: Rc<Self>, process: Rc<Server>) {
        let server = process.client.server;
        // One that stands still may answer with the keys before until it has read the file.
        for is_done in [false, true] {
            let (now, keys) = (self.now(), self.seals.of_server(server));
            self.audit(|auditor| auditor.set_keys(now, server, keys));
            if !is_done {
                process.client.runs().await;
                process.gate.set_seals(self.seals.seals_of(server)).await;
            }
        }
    }

    /// The servers go from the first key to the next one.
    pub(super) async fn change_key(self: Rc<Self>, every_ms: u64) {
        let begins = self.now();
        self.audit(|auditor| auditor.keys_change(begins));
        self.give_keys(&[FIRST, NEXT], every_ms).await;
        self.give_keys(&[NEXT, FIRST], every_ms).await;
        let ends = self.now();
        self.audit(|auditor| auditor.keys_changed(ends));
    }

    pub(super) async fn forget_key(self: Rc<Self>, every_ms: u64) {
        self.give_keys(&[NEXT], every_ms).await;
    }
}
