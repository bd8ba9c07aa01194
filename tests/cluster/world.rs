//! Runs a plan: servers over the simulated cluster, users, operators and faults.
//!
//! Everything runs on one thread with a paused clock that jumps from one event to the next. Invariant: the same plan gives
//! the same run.

mod copies;
mod draws;
mod inject;
mod seals;

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, LazyLock, Mutex, Weak},
    time::Duration,
};

use admission::{Claim, Definition, FIELDS, JoinKey, Leaver, Policy, Proof, Visit, VisitState, ZoneId};
use events::Bus;
use gate::{
    Gate, Refusal, Reply, Token, Trips, WaitStatus, Watcher,
    cells::{Cell, Cells},
    pace::{Load, Pace},
};
use store::{
    Defined, Expected, Store as _,
    redis::{Durability, Redis},
};
use tokio::{
    sync::{Notify, oneshot},
    task::{JoinHandle, JoinSet, LocalSet},
    time::sleep,
};

use crate::{
    auditor::{Auditor, Call, Figures, Promise, Ticket},
    client::{Net, Shared, SimClient, lock},
    panics,
    plan::{Cut, Kind, Plan, QUIET_FIELDS, Stay, User},
    seed::Random,
};

/// The event bus, without listeners.
static BUS: LazyLock<Arc<Bus>> = LazyLock::new(|| Arc::new(Bus::with_rings(|_| 2).expect("a thread")));

/// A server's process.
struct Server {
    client: SimClient,
    gate: Arc<Gate<Cells<Redis<SimClient>>>>,
    cells: Arc<Cells<Redis<SimClient>>>,
    _watching: JoinSet<()>,
}

struct World {
    plan: Plan,
    zone: ZoneId,
    seals: seals::Keys,
    net: Shared,
    servers: RefCell<Vec<Option<Rc<Server>>>>,
    policy: RefCell<Policy>,
    /// One operator makes all changes, one after another: of two changes at once, either may be the last.
    operator: tokio::sync::Mutex<()>,
    /// Users, faults and visits. A panic in one of them fails the run.
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

/// What a run came to.
pub(crate) struct Run {
    pub(crate) broken: Vec<(Promise, String)>,
    pub(crate) story: Vec<(u64, String)>,
    pub(crate) figures: Figures,
    pub(crate) failovers: u64,
    pub(crate) scripts: u64,
}

/// How long an app waits before it asks again after an error.
const RETRY_MS: u64 = 2_000;

/// How long an app waits for an answer.
const PATIENCE_MS: u64 = 6_000;

/// A story with at most so many users tells each answer.
const FEW: usize = 6;

/// Runs a plan to its end.
pub(crate) fn run(plan: &Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    panics::none_in(|| runtime.block_on(LocalSet::new().run_until(play(plan.clone()))))
}

async fn play(plan: Plan) -> Run {
    let zone = ZoneId::parse("ZONE").expect("a name");
    let net: Shared = Arc::new(Mutex::new(Net::new(&plan)));
    let world = Rc::new(World {
        seals: seals::Keys::new(&plan, &zone),
        servers: RefCell::new(plan.servers_empty()),
        policy: RefCell::new(plan.policy),
        operator: tokio::sync::Mutex::new(()),
        tasks: RefCell::default(),
        net: Arc::clone(&net),
        zone,
        plan,
    });
    let definition = world.plan.definition(world.plan.policy);
    let file = [(world.zone.clone(), definition.clone())];
    for server in 0..world.plan.servers {
        world.start(server, if world.plan.from_file { &file } else { &[] }).await;
    }
    if !world.plan.from_file {
        world.define(&Expected::Absent, Some(&definition)).await;
    }
    let cron = tokio::task::spawn_local({
        let net = Arc::clone(&net);
        async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                let mut net = lock(&net);
                let now = net.now();
                net.cluster.cron(now);
                if net.cluster.has_led_empty() {
                    net.auditor.wipe(now);
                }
            }
        }
    });
    world.beside(Rc::clone(&world).inject_faults());
    for (number, user) in world.plan.users.iter().enumerate() {
        world.beside(Rc::clone(&world).live(number, user.clone()));
    }
    sleep(Duration::from_millis(world.plan.ends_ms)).await;
    cron.abort();
    for task in world.tasks.take() {
        if task.is_finished() {
            task.await.expect("a task that checks promises");
        }
        // Whoever still waits does so for ever.
    }
    world.servers.borrow_mut().clear();
    let mut net = lock(&net);
    let ends = net.now();
    let figures = net.auditor.finish(ends);
    let net = &mut *net;
    Run {
        broken: std::mem::take(&mut net.auditor.broken),
        story: std::mem::take(&mut net.cluster.story),
        figures,
        failovers: net.cluster.failovers,
        scripts: net.scripts,
    }
}

impl Plan {
    fn servers_empty<T>(&self) -> Vec<Option<T>> {
        (0..self.servers).map(|_| None).collect()
    }
}

/// Tells a server how busy it is, until it ends.
async fn pace(gate: Weak<Gate<Cells<Redis<SimClient>>>>, plan: Plan, server: usize, net: Shared) {
    let mut before = 0;
    loop {
        sleep(Duration::from_millis(250)).await;
        let Some(gate) = gate.upgrade() else { return };
        let (answered, now) = (gate.pace().answered(), lock(&net).now());
        let calls = u32::try_from(answered - before).expect("few");
        before = answered;
        let cpu_s = f64::from(calls) * plan.cost_s(server, now);
        gate.pace().update(Load { elapsed_s: 0.25, cpu_s, ..Load::default() });
    }
}

/// What a user shows to a server.
enum Shows {
    Token(Token),
    /// A newcomer, perhaps with a key for the place.
    Key(Option<JoinKey>),
}

/// The key of a user's place after so many others. Three of four users make none.
fn key_of(user: &User, places: u64) -> Option<JoinKey> {
    let number = u128::from(user.seed) << 64 | u128::from(places);
    ((user.seed >> 8) % 4 == 1).then(|| JoinKey(number.to_be_bytes()))
}

impl World {
    fn now(&self) -> u64 {
        lock(&self.net).now()
    }

    fn beside(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push(tokio::task::spawn_local(task));
    }

    fn audit<T>(&self, tell: impl FnOnce(&mut Auditor) -> T) -> T {
        tell(&mut lock(&self.net).auditor)
    }

    /// Starts a server as `weir serve` does.
    async fn start(&self, server: usize, file: &[(ZoneId, Definition)]) {
        let client = {
            let mut net = lock(&self.net);
            let now = net.now();
            let process = &mut net.servers[server];
            (process.number, process.up, process.frozen_until) = (process.number + 1, true, 0);
            let number = process.number;
            net.auditor.server_starts(now, server);
            net.auditor.set_keys(now, server, self.seals.of_server(server));
            SimClient { net: Arc::clone(&self.net), server, number }
        };
        let durability = if self.plan.replicated { Durability::Replicated } else { Durability::Async };
        let connect = {
            let client = client.clone();
            let name = format!("{server}.{}", client.number);
            move || std::future::ready(Ok(Redis::new(client.clone(), durability).named(&name)))
        };
        let cells = Arc::new(Cells::new(vec![Cell::new("only", vec!["*".to_owned()], connect)]));
        let gate = Arc::new(
            Gate::new(Arc::clone(&cells), self.seals.seals_of(server), Arc::clone(&BUS))
                .with_pace(Pace::new(1.0)),
        );
        let watcher = Watcher::new(Arc::clone(&gate), Arc::clone(&cells), 0, file);
        let (told, first) = oneshot::channel();
        let mut watching = JoinSet::new();
        watching.spawn(watcher.run(told, Arc::new(Notify::new())));
        // The server serves after 5 s at the latest.
        drop(tokio::time::timeout(Duration::from_secs(5), first).await);
        let is_current = lock(&self.net).servers[server].number == client.number;
        if is_current {
            // The files may have changed while it started.
            let (now, keys) = (self.now(), self.seals.of_server(server));
            self.audit(|auditor| auditor.set_keys(now, server, keys));
            gate.set_seals(self.seals.seals_of(server)).await;
            if !self.plan.busy.is_empty() {
                tokio::task::spawn_local(pace(
                    Arc::downgrade(&gate),
                    self.plan.clone(),
                    server,
                    Arc::clone(&self.net),
                ));
            }
            if self.plan.draw_s > 0 {
                let (gate, client) = (Arc::downgrade(&gate), client.clone());
                tokio::task::spawn_local(draws::follow(gate, client, self.zone.clone()));
            }
            self.servers.borrow_mut()[server] =
                Some(Rc::new(Server { client, gate, cells, _watching: watching }));
        }
    }

    fn stop(&self, server: usize) {
        let mut net = lock(&self.net);
        let now = net.now();
        net.servers[server].up = false;
        net.auditor.server_ends(now, server);
        let number = net.servers[server].number;
        net.auditor.visitors.process_ends(now, server, number);
        net.cluster.tell(now, format!("the process of server {server} ends"));
        drop(net);
        self.servers.borrow_mut()[server] = None;
    }

    /// An operator changes the zone, at any server that takes the change.
    async fn change(&self, with: impl Fn(Policy) -> Policy) {
        let _one_at_a_time = self.operator.lock().await;
        let before = *self.policy.borrow();
        let policy = with(before);
        let now = self.now();
        *self.policy.borrow_mut() = policy;
        let [was, definition] = [before, policy].map(|policy| self.plan.definition(policy));
        let changes = was.changes(&definition).join(", ");
        lock(&self.net).cluster.tell(now, format!("an operator changes the zone: {changes}"));
        let mut changed = FIELDS.iter().filter(|field| field.number(&before) != field.number(&policy));
        if changed.any(|field| !QUIET_FIELDS.contains(&field.name)) {
            self.audit(|auditor| auditor.change(now, &policy));
        }
        self.define(&Expected::Any, Some(&definition)).await;
    }

    /// An operator deletes the zone, and defines it again after a pause.
    async fn recreate(&self, pause: Duration) {
        let _one_at_a_time = self.operator.lock().await;
        let now = self.now();
        lock(&self.net).cluster.tell(now, "an operator deletes the zone".to_owned());
        self.audit(|auditor| auditor.deletes(now));
        self.define(&Expected::Any, None).await;
        sleep(pause).await;
        let (now, policy) = (self.now(), *self.policy.borrow());
        lock(&self.net).cluster.tell(now, "an operator defines the zone again".to_owned());
        self.audit(|auditor| auditor.change(now, &policy));
        self.define(&Expected::Absent, Some(&self.plan.definition(policy))).await;
    }

    /// Defines or deletes the zone, at any server that takes the change, until one says so or the operator gives up.
    async fn define(&self, expected: &Expected, definition: Option<&Definition>) {
        for attempt in 0..30 {
            let server = self.servers.borrow()[attempt % self.plan.servers].clone();
            if let Some(server) = server {
                let cells = Arc::clone(&server.cells);
                let define = cells.define(&self.zone, expected, definition);
                let changed = tokio::time::timeout(Duration::from_millis(PATIENCE_MS), define).await;
                // A change that was made may be asked for again, because its answer was lost.
                let is_done = match changed {
                    Ok(Ok(Defined::Done(_))) => true,
                    Ok(Ok(Defined::Otherwise(found))) => found.is_some() == definition.is_some(),
                    _ => false,
                };
                if is_done {
                    let mut net = lock(&self.net);
                    let now = net.now();
                    net.cluster.tell(now, format!("server {} changed the zone", attempt % self.plan.servers));
                    net.auditor.changed(now);
                    return;
                }
            }
            sleep(Duration::from_millis(1_000)).await;
        }
        self.audit(Auditor::keep_policy_before);
    }

    /// A server that the load balancer of somebody on this side finds.
    fn reach(&self, side: usize, random: &mut Random) -> Option<Rc<Server>> {
        let (cut, still) = {
            let net = lock(&self.net);
            let now = net.now();
            let still: Vec<_> =
                net.servers.iter().map(|of| self.plan.checked && of.frozen_until > now).collect();
            (net.cluster.cuts.contains(&Cut::Sides), still)
        };
        let servers = self.servers.borrow();
        let found: Vec<_> = servers
            .iter()
            .enumerate()
            .filter(|(i, server)| {
                server.is_some() && !still[*i] && (!cut || self.plan.server_sides[*i] == side)
            })
            .filter_map(|(_, server)| server.clone())
            .collect();
        let any = |random: &mut Random| Rc::clone(&found[random.below(found.len())]);
        match self.plan.asked_at(self.now()) {
            _ if found.is_empty() => None,
            None => Some(any(random)),
            Some(first) => {
                let in_turn = (first..servers.len()).chain(0..first);
                let reached =
                    |at: usize| servers[at].as_ref().filter(|of| found.iter().any(|one| Rc::ptr_eq(one, of)));
                in_turn.into_iter().find_map(reached).cloned()
            }
        }
    }

    fn ticket(&self, token: &Token) -> Option<Ticket> {
        self.open(token).map(|(_, ticket)| ticket)
    }

    /// The key that sealed a token, and the ticket as it was given out: a draw gives it another number.
    fn open(&self, token: &Token) -> Option<(usize, Ticket)> {
        self.seals.open(token).map(|(key, ticket)| (key, lock(&self.net).given_out(ticket)))
    }

    /// One call of a user. `None` if no answer came.
    async fn call(
        &self,
        number: usize,
        user: &User,
        shows: Shows,
        random: &mut Random,
    ) -> Option<Result<Reply, Refusal>> {
        let server = self.reach(user.side, random)?;
        self.ask(&server, (number, false), shows, random).await
    }

    /// One call at a server, by the user who has this number or by a copy of that user's ticket.
    async fn ask(
        &self,
        server: &Server,
        (number, by_copy): (usize, bool),
        shows: Shows,
        random: &mut Random,
    ) -> Option<Result<Reply, Refusal>> {
        let asked = self.now();
        let (out, back) = (20 + random.bits() % 40, 20 + random.bits() % 40);
        // One message in a hundred is lost on the way there, and one on the way back.
        if random.below(100) == 0 {
            return None;
        }
        if matches!(shows, Shows::Key(_)) {
            self.audit(|auditor| auditor.tries(number, asked));
        }
        sleep(Duration::from_millis(out)).await;
        let (arrived, mut taken) = (self.now(), 0);
        let answer = async {
            server.client.runs().await;
            taken = self.now();
            let answer = match &shows {
                Shows::Key(key) => match server.gate.newcomer(self.zone.as_str()).await {
                    Ok(newcomer) => newcomer.join(*key, &mut Trips::unwatched()).await,
                    Err(refusal) => Err(refusal),
                },
                Shows::Token(token) => server.gate.poll(self.zone.as_str(), token).await,
            };
            server.client.runs().await;
            answer
        };
        let patience = Duration::from_millis(PATIENCE_MS);
        let mut answer = tokio::time::timeout(patience, answer).await.ok()?;
        sleep(Duration::from_millis(back)).await;
        if random.below(100) == 0 {
            return None;
        }
        let (is_join, shown) = match &shows {
            Shows::Key(_) => (true, None),
            Shows::Token(token) => (false, self.open(token)),
        };
        let told = match &answer {
            Ok(Reply::Waiting { token, .. } | Reply::Entered { token, .. }) => self.open(token),
            Err(_) => None,
        };
        if let Ok(Reply::Entered { pass, .. }) = &mut answer {
            (pass.epoch, pass.seq) = lock(&self.net).given_out((pass.epoch, pass.seq));
        }
        let ticket = if is_join { told } else { shown }.map(|(_, ticket)| ticket);
        let now = self.now();
        let at = (server.client.server, server.client.number);
        let call = Call {
            asked,
            stood_ms: taken - arrived,
            now,
            user: number,
            at,
            ticket,
            key: shown.map(|(key, _)| key),
            sealed: told.map(|(key, _)| key),
            is_join,
            by_copy,
        };
        self.audit(|auditor| auditor.answered(&call, &answer));
        if let (Some((_, shown)), Some((_, told))) = (shown, told) {
            self.audit(|auditor| auditor.reads(&call, shown, told));
        }
        if self.plan.users.len() <= FEW {
            let answer = match &answer {
                Ok(Reply::Waiting { status: WaitStatus { rank, stale, polling_period_ms, .. }, .. }) => {
                    format!(
                        "rank {rank}, again in {polling_period_ms} ms{}",
                        if *stale { ", stale" } else { "" }
                    )
                }
                Ok(Reply::Entered { pass, .. }) => format!("{pass:?}"),
                Err(refusal) => format!("{refusal:?}"),
            };
            let who = if by_copy { "a copy of user" } else { "user" };
            let line =
                format!("{who} {number}, ticket {ticket:?}, asked server {} at {asked} ms: {answer}", at.0);
            lock(&self.net).cluster.tell(now, line);
        }
        Some(answer)
    }

    /// The life of one user.
    async fn live(self: Rc<Self>, number: usize, user: User) {
        let mut random = Random::of(user.seed);
        sleep(Duration::from_millis(user.joins_ms)).await;
        let mut token: Option<Token> = None;
        // How many places the user has given up for another one.
        let mut places = 0;
        let mut joined = self.now();
        let mut stays = None;
        // Every token of the place, for those who copy them.
        let had = Rc::new(RefCell::new(Vec::new()));
        let mut repeats = match user.kind {
            Kind::Insists => usize::MAX,
            Kind::Returns => 60,
            _ => 2,
        };
        let mut has_entered = false;
        let mut nap = match user.kind {
            Kind::Naps(after, length) => Some((after, length)),
            _ => None,
        };
        loop {
            if let Kind::Leaves(after) = user.kind
                && self.now() > joined + after
            {
                // Some close the app, and some say that they go. Whoever is inside says so at the end of the visit.
                if let (true, Some(token)) = (number.is_multiple_of(2) && stays.is_none(), token) {
                    self.give_up(number, &user, token, &mut random).await;
                }
                return;
            }
            if let Some((after, length)) = nap
                && self.now() > joined + after
            {
                nap = None;
                sleep(Duration::from_millis(length)).await;
            }
            if let (Kind::NeverClaims, Some(token)) = (user.kind, &token) {
                // The server refuses the poll because of a client limit, and notes it.
                if let Some(server) = self.reach(user.side, &mut random) {
                    server.client.runs().await;
                    if let Ok(holder) = server.gate.holder(self.zone.as_str(), token).await {
                        holder.note_rate_limited(1);
                    }
                }
                sleep(Duration::from_millis(1_000)).await;
                continue;
            }
            let shows = token.map_or_else(|| Shows::Key(key_of(&user, places)), Shows::Token);
            let pause_ms = match self.call(number, &user, shows, &mut random).await {
                Some(Ok(Reply::Waiting { token: newer, status })) => {
                    if token.is_none() {
                        joined = self.now();
                    }
                    self.hand_out(number, &user, newer, &had);
                    token = Some(newer);
                    u64::from(status.polling_period_ms) * (900 + random.bits() % 201) / 1_000
                }
                Some(Ok(Reply::Entered { token: newer, .. })) => {
                    let ticket = self.ticket(&newer);
                    if self.plan.policy.max_active > 0
                        && stays.replace(ticket) != Some(ticket)
                        && let Some(ticket) = ticket
                    {
                        self.beside(Rc::clone(&self).stay(user.clone(), ticket));
                    }
                    self.hand_out(number, &user, newer, &had);
                    (token, has_entered) = (Some(newer), true);
                    if repeats == 0 {
                        return;
                    }
                    repeats -= 1;
                    1_000 + random.bits() % 3_000
                }
                Some(Err(Refusal::Gone)) if has_entered && user.kind == Kind::Insists => {
                    1_000 + random.bits() % 3_000
                }
                // A user whose place is gone gives up: the auditor judges whether it had to be.
                Some(Err(Refusal::Gone)) => return,
                // The server has other keys than the one that sealed the token. Some apps take a new place, and others ask again,
                // and so another server.
                Some(Err(Refusal::BadToken)) => {
                    if random.below(2) == 0 {
                        (token, places) = (None, places + 1);
                    }
                    RETRY_MS
                }
                Some(Err(_)) | None => RETRY_MS,
            };
            sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// A user gives up the place, or the entry of an app that keeps its ticket, and tries the ticket again later, by any server.
    async fn give_up(&self, number: usize, user: &User, token: Token, random: &mut Random) {
        let (Some(server), Some(ticket)) = (self.reach(user.side, random), self.ticket(&token)) else {
            return;
        };
        let asked = server.client.runs();
        if tokio::time::timeout(Duration::from_millis(PATIENCE_MS), asked).await.is_err() {
            return;
        }
        self.audit(|auditor| auditor.gives_up(ticket));
        let mut trips = Trips::unwatched();
        let left = async { server.gate.holder(self.zone.as_str(), &token).await?.leave(0, &mut trips).await };
        let answer = left.await;
        let now = self.now();
        self.audit(|auditor| auditor.gave_up(now, ticket, &answer));
        for _ in 0..2 {
            sleep(Duration::from_millis(3_500 + random.bits() % 10_000)).await;
            self.call(number, user, Shows::Token(token), random).await;
        }
    }

    /// The visit of a user who entered.
    async fn stay(self: Rc<Self>, user: User, ticket: Ticket) {
        let Stay { for_ms, every_ms, says } = user.stay;
        let mut random = Random::of(user.seed ^ 0x57A7);
        let (began_s, ends) = (self.now() / 1_000, self.now() + for_ms);
        let (epoch, seq) = ticket;
        let mut visit = Visit { epoch, seq, began_s, seen_s: began_s, address: 0 };
        loop {
            sleep(Duration::from_millis(every_ms.min(ends.saturating_sub(self.now())))).await;
            let is_last = self.now() >= ends;
            if is_last && !says {
                return;
            }
            let Some(server) = self.reach(user.side, &mut random) else {
                sleep(Duration::from_millis(RETRY_MS)).await;
                continue;
            };
            let asked = server.client.runs();
            if tokio::time::timeout(Duration::from_millis(PATIENCE_MS), asked).await.is_err() {
                continue;
            }
            let now = self.now();
            let (epoch, seq) = lock(&self.net).dealt(ticket);
            visit = Visit { epoch, seq, ..visit };
            let sealed = server.gate.seal_visit(&self.zone, &visit);
            let found = server.gate.visit(&self.zone, &sealed, now / 1_000);
            let Some((_, VisitState::Open | VisitState::Renew)) = found else {
                self.audit(|auditor| auditor.visitors.leaves(now, ticket));
                return;
            };
            if is_last {
                let leaver = Leaver { claim: Claim { epoch, seq }, proof: Proof::Visit, address: 0 };
                // A visitor is outside from the word on: the next one may enter before the answer is heard. If nobody answers, the visit
                // counts until it is idle.
                self.audit(|auditor| {
                    auditor.visitors.leaves(now, ticket);
                    auditor.gives_up(ticket);
                });
                let answer = server.gate.leave(&self.zone, leaver).await;
                let now = self.now();
                self.audit(|auditor| auditor.gave_up(now, ticket, &answer));
                return;
            }
            server.gate.note_visit(&self.zone, &visit);
            visit = visit.seen_at(now / 1_000);
            let by = (server.client.server, server.client.number);
            self.audit(|auditor| auditor.visitors.active(now, ticket, by));
        }
    }
}
