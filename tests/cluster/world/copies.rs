//! Those who show a copy of somebody's ticket: another device of the same person, or another person.
//!
//! Invariant: a copy never leaves. Leaving is an act of the holder, and a copy's would be taken for one.

use std::{cell::RefCell, rc::Rc, time::Duration};

use gate::{PassClaims, Reply, Token};
use tokio::time::sleep;

use super::{PATIENCE_MS, RETRY_MS, Server, Shows, World};
use crate::{
    auditor::Exchange,
    client::lock,
    plan::{Copied, User},
    seed::Random,
};

/// All tokens that a user has had, the first one first.
pub(super) type Had = Rc<RefCell<Vec<Token>>>;

impl World {
    /// A user got a token. The first one begins the life of its copy, if there is one.
    pub(super) fn hand_out(self: &Rc<Self>, number: usize, user: &User, token: Token, had: &Had) {
        let Some(copied) = user.copied else { return };
        had.borrow_mut().push(token);
        if had.borrow().len() == 1 {
            self.beside(Rc::clone(self).live_as_copy(number, user.seed, copied, Rc::clone(had)));
        }
    }

    /// The life of a copy. It goes on to the end of the run: after the entry, after the visit, and after the place was given up.
    async fn live_as_copy(self: Rc<Self>, number: usize, seed: u64, copied: Copied, had: Had) {
        let mut random = Random::of(seed ^ 0xC0_91ED);
        let Copied { after_ms, every_ms, side } = copied;
        sleep(Duration::from_millis(after_ms)).await;
        loop {
            let any = |random: &mut Random| {
                let had = had.borrow();
                // The last one most often. The others are older tokens of the same place, or of one before it.
                if random.below(3) > 0 { had[had.len() - 1] } else { had[random.below(had.len())] }
            };
            let (one, other) = (any(&mut random), any(&mut random));
            let pause_ms = match self.reach(side, &mut random) {
                None => RETRY_MS,
                Some(first) if random.below(2) == 0 => {
                    let told = self.show(&first, number, one, &mut random).await;
                    // Some keep to what they are told, as another device of the user would.
                    told.filter(|_| random.below(2) == 0).unwrap_or(every_ms)
                }
                Some(first) => {
                    // Two at the same time, at two servers if the second one is another.
                    let second = self.reach(side, &mut random).unwrap_or_else(|| Rc::clone(&first));
                    let mut others = Random::of(random.bits());
                    tokio::join!(
                        self.show(&first, number, one, &mut random),
                        self.show(&second, number, other, &mut others),
                    );
                    every_ms
                }
            };
            sleep(Duration::from_millis(pause_ms.max(100))).await;
        }
    }

    /// Shows a token. A pass is exchanged for a visit at once, as a server does that checks requests. Returns when to ask again, if that
    /// was told.
    async fn show(&self, server: &Server, number: usize, token: Token, random: &mut Random) -> Option<u64> {
        match self.ask(server, (number, true), Shows::Token(token), random).await {
            Some(Ok(Reply::Waiting { status, .. })) => Some(status.polling_period_ms.into()),
            Some(Ok(Reply::Entered { pass, age_s, .. })) => {
                self.exchange(server, &pass, age_s).await;
                None
            }
            _ => None,
        }
    }

    async fn exchange(&self, server: &Server, pass: &PassClaims, age_s: u64) {
        let asked = self.now();
        let (_, seq) = lock(&self.net).dealt((pass.epoch, pass.seq));
        let by_store = PassClaims { seq, ..*pass };
        let visit = async {
            server.client.runs().await;
            let visit = server.gate.visit_of(&self.zone, &by_store, age_s, 0, asked / 1_000).await;
            server.client.runs().await;
            visit
        };
        let Ok(Ok(visit)) = tokio::time::timeout(Duration::from_millis(PATIENCE_MS), visit).await else {
            return;
        };
        let (now, at) = (self.now(), (server.client.server, server.client.number));
        let exchange = Exchange { asked, now, at, ticket: (pass.epoch, pass.seq), visit };
        self.audit(|auditor| auditor.exchanged(&exchange));
    }
}
