//! Runs a scenario: users with their networks, one server over the simulated store, and faults.
//!
//! Everything runs on one thread with a paused clock that jumps from one event to the next, so the same seed gives the
//! same run.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{Claim, Leaver, Mode, Proof, SealKey, Sealer, Seals, Ticket, Visit, VisitState, ZoneId};
use events::Bus;
use gate::{
    Gate, PassClaims, Refusal, Reply, Token, Trips,
    pace::{Load, Pace},
};
use tokio::{
    sync::Notify,
    task::{JoinHandle, LocalSet},
    time::sleep,
};

use crate::{
    auditor::Auditor,
    panics,
    scenario::{Plan, Scenario, Stay},
    seed::Random,
    store::{Clocks, Disk, SimStore},
};

/// A server that lives until it is killed.
struct Server {
    gate: Gate<SimStore>,
    killed: Notify,
    /// The flag that the store reads.
    dead: Arc<AtomicBool>,
}

/// The event bus, without listeners.
static BUS: LazyLock<Arc<Bus>> = LazyLock::new(|| Arc::new(Bus::with_rings(|_| 2).expect("a thread")));

struct World {
    scenario: Scenario,
    zone: ZoneId,
    other: ZoneId,
    seals: Seals,
    sealer: Sealer,
    disk: Disk,
    clocks: Arc<Clocks>,
    auditor: Arc<Mutex<Auditor>>,
    server: RefCell<Option<Rc<Server>>>,
    mode: Cell<Mode>,
    polling_period_ms: Cell<u32>,
    starts: Cell<u64>,
    /// What runs beside the users until the end.
    beside: RefCell<Vec<JoinHandle<()>>>,
}

/// How long a run may take in addition to the time that its line needs.
const PATIENCE_MS: u64 = 240_000;

/// How long an app waits for an answer before it asks again.
const RETRY_MS: u64 = 2_000;

/// Runs a scenario to its end. The seed decides only details within the plans of the scenario.
pub(crate) fn run(scenario: Scenario, seed: u64) -> Auditor {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    panics::none_in(|| runtime.block_on(LocalSet::new().run_until(play(scenario, seed))))
}

async fn play(scenario: Scenario, seed: u64) -> Auditor {
    let zone = ZoneId::parse("ZONE").expect("a name");
    let key = |id| SealKey { id, secret: [id; 32] };
    let seals = Seals { previous: Some(key(2)), ..Seals::only(key(1)) };
    let auditor = Arc::new(Mutex::new(Auditor::new(zone.clone(), scenario.policy)));
    let world = Rc::new(World {
        sealer: seals.sealer(&zone),
        disk: Disk::with_line(&zone, scenario.tickets_before),
        clocks: Arc::new(Clocks::new()),
        auditor: Arc::clone(&auditor),
        other: ZoneId::parse("OTHER").expect("a name"),
        server: RefCell::new(None),
        mode: Cell::new(Mode::Auto),
        polling_period_ms: Cell::new(scenario.policy.polling_period_ms),
        starts: Cell::new(seed),
        beside: RefCell::default(),
        zone,
        seals,
        scenario,
    });
    world.start().await;
    world.beside(Rc::clone(&world).fill_disk());
    world.beside(Rc::clone(&world).inject_faults());
    let mut random = Random::of(seed ^ 0xA5A5);
    let users: Vec<_> = (0..world.scenario.users.len())
        .map(|user| tokio::task::spawn_local(Rc::clone(&world).live(user, Random::of(random.bits()))))
        .collect();
    for user in users {
        user.await.expect("a user's task");
    }
    // A task that panicked checks nothing any more.
    for task in world.beside.take() {
        if task.is_finished() {
            task.await.expect("a task beside the users");
        }
    }
    world.server.borrow_mut().take();
    drop(world);
    std::mem::replace(
        &mut *lock(&auditor),
        Auditor::new(ZoneId::parse("-").expect("a name"), admission::Policy::default()),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics here")
}

impl World {
    fn now_ms(&self) -> u64 {
        self.clocks.true_ms()
    }

    /// Runs a task beside the users. Its panic fails the run.
    fn beside(&self, task: impl Future<Output = ()> + 'static) {
        self.beside.borrow_mut().push(tokio::task::spawn_local(task));
    }

    async fn start(&self) {
        let starts = self.starts.get() + 1;
        self.starts.set(starts);
        let clocks = Arc::clone(&self.clocks);
        let dead = Arc::new(AtomicBool::new(false));
        let store = SimStore::open(
            self.disk.clone(),
            clocks,
            Arc::clone(&self.auditor),
            &self.scenario,
            starts,
            Arc::clone(&dead),
        );
        let gate = Gate::new(Arc::new(store), self.seals.clone(), Arc::clone(&BUS)).with_pace(Pace::new(1.0));
        let server = Rc::new(Server { gate, killed: Notify::new(), dead });
        // A server does not start while the disk is full.
        while self.serve(&server.gate).await.is_err() {
            sleep(Duration::from_millis(500)).await;
        }
        self.beside(self.pace(Rc::downgrade(&server)));
        *self.server.borrow_mut() = Some(server);
    }

    /// Tells a server how busy it is, until it ends.
    fn pace(&self, server: Weak<Server>) -> impl Future<Output = ()> + use<> {
        let (scenario, clocks) = (self.scenario.clone(), Arc::clone(&self.clocks));
        async move {
            let mut before = 0;
            loop {
                sleep(Duration::from_millis(250)).await;
                let Some(server) = server.upgrade() else { return };
                let answered = server.gate.pace().answered();
                let calls = u32::try_from(answered - before).expect("few");
                before = answered;
                let cpu_s = f64::from(calls) * scenario.cost_s(clocks.true_ms());
                server.gate.pace().update(Load { elapsed_s: 0.25, cpu_s, ..Load::default() });
            }
        }
    }

    async fn serve(&self, gate: &Gate<SimStore>) -> Result<(), store::StoreError> {
        let (mode, polling_period_ms) = (self.mode.get(), self.polling_period_ms.get());
        let policy = admission::Policy { mode, polling_period_ms, ..self.scenario.policy };
        gate.serve_zones(vec![(self.zone.clone(), policy.into()), (self.other.clone(), policy.into())]).await
    }

    /// Fills the disk and makes room again. A server that starts waits for that, so this is not one of the faults below.
    async fn fill_disk(self: Rc<Self>) {
        for &(from, to) in &self.scenario.full_disks {
            for (at, full) in [(from, true), (to, false)] {
                sleep(Duration::from_millis(at.saturating_sub(self.now_ms()))).await;
                self.disk.set_full(full);
                lock(&self.auditor).trouble(self.now_ms() + RETRY_MS);
            }
        }
    }

    /// Applies all other faults in order of time.
    async fn inject_faults(self: Rc<Self>) {
        enum Fault {
            Down(u64),
            Mode(Mode),
            Period(u32),
            Step(i64),
            Stall(u64),
        }
        let mut events = Vec::new();
        for &(from, to) in &self.scenario.downs {
            events.push((from, Fault::Down(to)));
        }
        events.extend(self.scenario.stalls.iter().map(|&(from, to)| (from, Fault::Stall(to))));
        for &(from, to) in &self.scenario.holds {
            events.extend([(from, Fault::Mode(Mode::Hold)), (to, Fault::Mode(Mode::Auto))]);
        }
        events.extend(self.scenario.periods.iter().map(|&(at, period_ms)| (at, Fault::Period(period_ms))));
        events.extend(self.scenario.clock_steps.iter().map(|&(at, by_s)| (at, Fault::Step(by_s))));
        events.sort_by_key(|&(at, _)| at);
        for (at, fault) in events {
            sleep(Duration::from_millis(at.saturating_sub(self.now_ms()))).await;
            match fault {
                Fault::Down(until_ms) => {
                    lock(&self.auditor).down(until_ms + RETRY_MS);
                    if let Some(server) = self.server.borrow_mut().take() {
                        server.dead.store(true, Ordering::Relaxed);
                        server.killed.notify_waiters();
                    }
                    sleep(Duration::from_millis(until_ms.saturating_sub(self.now_ms()))).await;
                    self.start().await;
                    lock(&self.auditor).down(self.now_ms() + RETRY_MS);
                }
                Fault::Mode(_) | Fault::Period(_) => {
                    match fault {
                        Fault::Mode(mode) => self.mode.set(mode),
                        Fault::Period(period_ms) => self.polling_period_ms.set(period_ms),
                        _ => {}
                    }
                    let (world, from_ms) = (Rc::clone(&self), self.now_ms());
                    // The operator tries again while other faults come and go, for example while the disk is full.
                    self.beside(async move {
                        let server = world.server.borrow().clone();
                        while let Some(server) = &server
                            && world.serve(&server.gate).await.is_err()
                        {
                            sleep(Duration::from_millis(500)).await;
                        }
                        lock(&world.auditor).hold_ends(from_ms, world.now_ms());
                    });
                }
                Fault::Stall(until_ms) => lock(&self.auditor).trouble(until_ms + RETRY_MS),
                Fault::Step(by_s) => *lock(&self.clocks.stepped_s) += by_s,
            }
        }
    }

    /// The life of one user.
    async fn live(self: Rc<Self>, user: usize, mut random: Random) {
        let plan = self.scenario.users[user].clone();
        sleep(Duration::from_millis(plan.joins_ms)).await;
        let born_ms = self.now_ms();
        let end_ms = born_ms
            + PATIENCE_MS
            + 60_000 * (1 + self.scenario.users.len() as u64)
                / u64::from(self.scenario.policy.admit_per_minute).max(1)
            + self.scenario.longest_turnover_ms();
        let leaves_ms = plan.leaves_after_ms.map(|after| born_ms + after);
        let mut nap = plan.nap.map(|(after, length)| (born_ms + after, length));
        let (mut token, mut entered) = (None::<Token>, false);
        let mut repeats = plan.repeats;
        loop {
            let now_ms = self.now_ms();
            if now_ms > end_ms {
                if !entered {
                    lock(&self.auditor).never_admitted(user);
                }
                return;
            }
            if leaves_ms.is_some_and(|at| at <= now_ms) {
                if let Some((token, ticket)) =
                    token.and_then(|token| Some((token, self.sealer.open(&token).ok()?)))
                {
                    lock(&self.auditor).left(ticket.seq);
                    // Some close the app, and some say that they go. Whoever is inside says so at the end of the visit.
                    if user.is_multiple_of(2) && !(entered && self.scenario.policy.max_active > 0) {
                        self.give_up(&plan, user, token, ticket.seq, &mut random).await;
                    }
                }
                return;
            }
            if let Some((at, length)) = nap
                && at <= now_ms
            {
                nap = None;
                sleep(Duration::from_millis(length)).await;
                continue;
            }
            if plan.cheats && random.below(8) == 0 {
                self.cheat(token, &mut random).await;
            }
            let pause_ms = match self.call(&plan, user, token, &mut random).await {
                None => RETRY_MS,
                Some(Ok(Reply::Waiting { token: newer, status })) => {
                    if token.is_none() || !plan.keeps_first_token {
                        token = Some(newer);
                    }
                    u64::from(status.polling_period_ms) * (900 + random.bits() % 201) / 1_000
                }
                Some(Ok(Reply::Entered { token: newer, pass, age_s })) => {
                    if !entered && self.scenario.policy.max_active > 0 {
                        let ticket = self.sealer.open(&newer).expect("the server's token");
                        self.beside(Rc::clone(&self).stay(ticket, plan.stay));
                        // An exchange shows that the visitor is there. The others go sooner.
                        if plan.stay.for_ms >= 10_000 {
                            self.beside(Rc::clone(&self).exchange(pass, age_s));
                        }
                    }
                    entered = true;
                    if repeats == 0 {
                        return;
                    }
                    repeats -= 1;
                    token = Some(newer);
                    random.bits() % 100_000
                }
                // The visit has ended. Whoever took another place would be inside twice.
                Some(Err(Refusal::Gone)) if entered && self.scenario.policy.max_active > 0 => return,
                Some(Err(Refusal::Gone)) => {
                    token = None;
                    0
                }
                Some(Err(
                    Refusal::StoreAway { retry_after_s }
                    | Refusal::Busy { retry_after_s }
                    | Refusal::Closed { retry_after_s }
                    | Refusal::Full { retry_after_s },
                )) => u64::from(retry_after_s) * 1_000,
                Some(Err(refusal @ (Refusal::UnknownZone | Refusal::BadToken | Refusal::Elsewhere))) => {
                    panic!("user {user} with an honest token: {refusal}")
                }
            };
            // The pause ends early if the user leaves.
            let pause_ms = leaves_ms.map_or(pause_ms, |at| pause_ms.min(at.saturating_sub(self.now_ms())));
            sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// A user gives up the place, or the visit of an app that keeps its ticket, and then tries the ticket again.
    async fn give_up(&self, plan: &Plan, user: usize, token: Token, seq: u64, random: &mut Random) {
        let Some(server) = self.server.borrow().clone() else { return };
        lock(&self.auditor).gives_up(seq);
        let mut trips = Trips::unwatched();
        let left = async { server.gate.holder(self.zone.as_str(), &token).await?.leave(0, &mut trips).await };
        let answer = left.await;
        lock(&self.auditor).gave_up(self.now_ms(), seq, &answer);
        // By then another process may serve.
        sleep(Duration::from_millis(1 + random.bits() % 20_000)).await;
        self.call(plan, user, Some(token), random).await;
    }

    /// A proxy exchanges the entry for a visit, and later once more.
    async fn exchange(self: Rc<Self>, pass: PassClaims, age_s: u64) {
        let mut first = None;
        for later_s in [0, 3] {
            let Some(server) = self.server.borrow().clone() else { return };
            let unix_s = self.now_ms() / 1_000;
            let visit = server.gate.visit_of(&self.zone, &pass, age_s + later_s, 0, unix_s).await;
            let Ok(visit) = visit else { return };
            match first {
                None => first = visit,
                Some(first) => lock(&self.auditor).exchanged(pass.seq, &first, visit.as_ref()),
            }
            sleep(Duration::from_millis(3_000)).await;
        }
    }

    /// The visit of a user who entered.
    async fn stay(self: Rc<Self>, ticket: Ticket, stay: Stay) {
        let (began_s, end_ms) = (self.now_ms() / 1_000, self.now_ms() + stay.for_ms);
        let mut visit = Visit { epoch: ticket.epoch, seq: ticket.seq, began_s, seen_s: began_s, address: 0 };
        loop {
            let next_ms = (self.now_ms() + stay.every_ms).min(end_ms);
            // The end may have passed while the server was away.
            sleep(Duration::from_millis(next_ms.saturating_sub(self.now_ms()))).await;
            let (now_ms, server) = (self.now_ms(), self.server.borrow().clone());
            if now_ms >= end_ms && !stay.says {
                return;
            }
            let Some(server) = server else {
                if now_ms >= end_ms {
                    return;
                }
                sleep(Duration::from_millis(RETRY_MS)).await;
                continue;
            };
            if now_ms >= end_ms {
                let claim = Claim { epoch: visit.epoch, seq: visit.seq };
                let leaver = Leaver { claim, proof: Proof::Visit, address: 0 };
                // A visitor is outside from the word on, whatever becomes of it: the next one may enter before the answer is heard.
                lock(&self.auditor).leaves(now_ms, visit.seq);
                lock(&self.auditor).gives_up(visit.seq);
                let answer = server.gate.leave(&self.zone, leaver).await;
                lock(&self.auditor).gave_up(self.now_ms(), visit.seq, &answer);
                return;
            }
            let sealed = server.gate.seal_visit(&self.zone, &visit);
            let found = server.gate.visit(&self.zone, &sealed, now_ms / 1_000);
            let Some((_, VisitState::Open | VisitState::Renew)) = found else {
                lock(&self.auditor).visit_ended(now_ms, visit.seq);
                return;
            };
            server.gate.note_visit(&self.zone, &visit);
            visit = visit.seen_at(now_ms / 1_000);
            lock(&self.auditor).active(now_ms, visit.seq);
        }
    }

    /// One call over the user's network; none if the app receives no answer.
    async fn call(
        &self,
        plan: &Plan,
        user: usize,
        token: Option<Token>,
        random: &mut Random,
    ) -> Option<Result<Reply, Refusal>> {
        let one_way = Duration::from_millis(plan.network_ms * (80 + random.bits() % 41) / 100);
        let lost = |random: &mut Random| random.bits() % 100 < plan.lost_percent;
        sleep(one_way).await;
        if lost(random) {
            return None;
        }
        let asked_ms = self.now_ms();
        let server = self.server.borrow().clone()?;
        if plan.never_claims
            && let Some(token) = &token
        {
            if let Ok(holder) = server.gate.holder(self.zone.as_str(), token).await {
                holder.note_rate_limited(1);
            }
            if let Ok(ticket) = self.sealer.open(token) {
                lock(&self.auditor).refused(asked_ms, ticket.seq);
            }
            return None;
        }
        let answer = {
            let zone = self.zone.as_str();
            let asked = async {
                match &token {
                    Some(token) => server.gate.poll(zone, token).await,
                    None => server.gate.join(zone).await,
                }
            };
            tokio::select! {
                biased;
                () = server.killed.notified() => return None,
                answer = asked => answer,
            }
        };
        let shown = match &answer {
            Ok(Reply::Waiting { token, .. } | Reply::Entered { token, .. }) => Some(*token),
            Err(_) => token,
        };
        if let Some(Ok(Ticket { seq, .. })) = shown.map(|token| self.sealer.open(&token)) {
            lock(&self.auditor).answered(self.now_ms(), asked_ms, user, seq, token, &answer);
        }
        sleep(one_way).await;
        (!lost(random)).then_some(answer)
    }

    /// Calls with a token that this zone did not issue.
    async fn cheat(&self, token: Option<Token>, random: &mut Random) {
        let Some(server) = self.server.borrow().clone() else {
            return;
        };
        if let Some(Ticket { epoch, seq, .. }) = token.and_then(|token| self.sealer.open(&token).ok()) {
            let claim = Claim { epoch: epoch.wrapping_add([1, u32::MAX][random.below(2)]), seq };
            let proof = [Proof::Name, Proof::Token, Proof::Visit][random.below(3)];
            let answer = server.gate.leave(&self.zone, Leaver { claim, proof, address: 0 }).await;
            lock(&self.auditor).stranger_left(seq, &answer);
        }
        let answer = match (random.below(3), token) {
            (0, Some(token)) => server.gate.poll(self.other.as_str(), &token).await,
            (1, Some(mut token)) => {
                let at = random.below(token.len());
                token[at] = if token[at] == b'A' { b'B' } else { b'A' };
                server.gate.poll(self.zone.as_str(), &token).await
            }
            _ => {
                let ahead = Ticket::new(77, 0, 0);
                let stranger = Seals::only(SealKey { id: 1, secret: [9; 32] });
                let token = stranger.sealer(&self.zone).seal(&ahead);
                server.gate.poll(self.zone.as_str(), &token).await
            }
        };
        lock(&self.auditor).forged(&answer);
    }
}
