//! Lets the faults of a plan happen, each at its time.
//!
//! Invariant: the auditor knows of each fault before it begins.

use std::{rc::Rc, time::Duration};

use admission::Policy;
use tokio::time::sleep;

use super::World;
use crate::{
    client::lock,
    plan::{Cut, Fault, QUIET_FIELDS, with_value},
};

impl World {
    /// Applies all faults in order of time.
    pub(super) async fn inject_faults(self: Rc<Self>) {
        for &(at, fault) in &self.plan.faults {
            sleep(Duration::from_millis(at.saturating_sub(self.now()))).await;
            self.beside(Rc::clone(&self).inject(fault));
        }
    }

    async fn inject(self: Rc<Self>, fault: Fault) {
        let now = self.now();
        let quiet = match fault {
            Fault::Set { name, .. } => QUIET_FIELDS.contains(&name),
            _ => matches!(fault, Fault::ChangeKey { .. } | Fault::ForgetKey { .. }),
        };
        if !quiet {
            self.audit(|auditor| auditor.disturb(now, now + fault.lasts_ms()));
        }
        for server in 0..self.plan.servers {
            if fault.silences(server) {
                self.audit(|auditor| auditor.silence(now, now + fault.lasts_ms(), server));
            }
        }
        let pause = Duration::from_millis(fault.lasts_ms());
        match fault {
            Fault::Kill { node, .. } => self.restart(node, pause).await,
            Fault::KillPrimary { .. } => {
                let node = lock(&self.net).cluster.primary();
                self.restart(node, pause).await;
            }
            Fault::Freeze { node, for_ms } => lock(&self.net).cluster.freeze(node, now, for_ms),
            Fault::FreezePrimary { for_ms } => {
                let mut net = lock(&self.net);
                let node = net.cluster.primary();
                net.cluster.freeze(node, now, for_ms);
            }
            Fault::Cut { cut, for_ms } => {
                {
                    let mut net = lock(&self.net);
                    if cut == Cut::Sides {
                        net.auditor.divide(now, now + for_ms);
                    }
                    net.cluster.cuts.push(cut);
                    net.cluster.tell(now, format!("cut: {cut:?}"));
                }
                sleep(pause).await;
                let mut net = lock(&self.net);
                if let Some(i) = net.cluster.cuts.iter().position(|other| *other == cut) {
                    net.cluster.cuts.remove(i);
                }
                let now = net.now();
                net.cluster.tell(now, format!("healed: {cut:?}"));
            }
            Fault::Lag { lag_ms, .. } => {
                lock(&self.net).cluster.lag_ms = lag_ms;
                sleep(pause).await;
                lock(&self.net).cluster.lag_ms = 2;
            }
            Fault::Flush => {
                let mut net = lock(&self.net);
                net.cluster.flush(now);
                net.auditor.wipe(now);
            }
            Fault::LoseKey { number } => {
                // A part is lost at most as much as all.
                let mut net = lock(&self.net);
                let key = net.cluster.lose_key(now, number);
                net.auditor.wipe(now);
                if key.is_some_and(|key| key.ends_with(":entry")) {
                    net.auditor.lose_entries(now);
                }
            }
            Fault::ClockJump { node, by_ms } => {
                let mut net = lock(&self.net);
                net.cluster.jump(node, now, by_ms);
                let ahead = by_ms > 0 && net.cluster.is_up(node);
                net.auditor.set_clock(now, ahead);
            }
            Fault::KillServer { server, .. } => {
                if lock(&self.net).servers[server].up {
                    self.replace(server, pause).await;
                }
            }
            Fault::StopServer { server, .. } => {
                let number = |of: &Self| {
                    let net = lock(&of.net);
                    net.servers[server].up.then_some(net.servers[server].number)
                };
                let before = number(&self);
                // Nobody reaches it any more.
                let stopping = self.servers.borrow_mut()[server].take();
                let (Some(stopping), true) = (stopping, before.is_some()) else { return };
                lock(&self.net).cluster.tell(now, format!("server {server} stops"));
                stopping.gate.retire(Duration::from_secs(2)).await;
                drop(stopping);
                // It may have been killed meanwhile.
                if number(&self) == before {
                    self.replace(server, pause).await;
                }
            }
            Fault::FreezeServer { server, for_ms } => {
                let mut net = lock(&self.net);
                let until = net.servers[server].frozen_until;
                net.servers[server].frozen_until = until.max(now + for_ms);
                net.cluster.tell(now, format!("server {server} stops for {for_ms} ms"));
            }
            Fault::Change { n, mode } => {
                self.change(|policy| Policy { admit_per_minute: n, mode, ..policy }).await;
            }
            Fault::Set { name, value } => {
                if name == "pass_ttl_s" {
                    self.audit(|auditor| auditor.change_pass(value));
                }
                self.change(|policy| with_value(policy, name, value)).await;
            }
            Fault::Recreate { .. } => self.recreate(pause).await,
            Fault::HalfMove { number, .. } => {
                if !lock(&self.net).cluster.half_move(now, number) {
                    return;
                }
                self.audit(|auditor| auditor.half_moved.push((now, now + fault.lasts_ms())));
                sleep(pause).await;
                loop {
                    {
                        let mut net = lock(&self.net);
                        let now = net.now();
                        if let Some(whole) = net.cluster.move_back(now) {
                            net.auditor.disturb(now, now);
                            if !whole {
                                net.auditor.wipe(now);
                            }
                            return;
                        }
                    }
                    sleep(Duration::from_millis(500)).await;
                }
            }
            Fault::Demote { by_force, for_ms } => {
                let mut net = lock(&self.net);
                if net.cluster.demote(now, by_force, now + for_ms) {
                    net.auditor.demoted.push((now, now + for_ms));
                }
            }
            Fault::WrongKey { server, .. } => self.start_with_wrong_key(server, pause).await,
            Fault::ChangeKey { every_ms } => self.change_key(every_ms).await,
            Fault::ForgetKey { every_ms } => self.forget_key(every_ms).await,
        }
    }

    /// A server's process ends, and another one starts in its place.
    pub(super) async fn replace(&self, server: usize, pause: Duration) {
        self.stop(server);
        sleep(pause).await;
        let file = [(self.zone.clone(), self.plan.definition(*self.policy.borrow()))];
        self.start(server, &file).await;
        let now = self.now();
        lock(&self.net).cluster.tell(now, format!("server {server} starts again"));
    }

    async fn restart(&self, node: usize, pause: Duration) {
        {
            let mut net = lock(&self.net);
            if !net.cluster.is_up(node) {
                return;
            }
            let now = net.now();
            if net.cluster.view_of(node).0 == node {
                net.auditor.primary_falls(now);
            }
            net.cluster.kill(node, now);
        }
        sleep(pause).await;
        let mut net = lock(&self.net);
        let now = net.now();
        net.cluster.start(node, now);
        if !self.plan.persistent && net.cluster.view_of(node).0 == node {
            net.auditor.wipe(now);
        }
    }
}
