//! Random traces of the real scripts. Stores call a server and the model with the same keys and arguments, and meet lost,
//! older and restarted states, and clocks that jump.
//!
//! The scripts on the server begin with [`PINNED`]. It makes the instants of the trace visible to them in place of the
//! server's clock, so that a seed repeats a trace, and all replies and keys can be compared byte by byte. Expiries become
//! absolute, in the far future of the server; the test deletes on the server what has expired at the instants of the trace.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Write as _, stderr},
    sync::{Arc, LazyLock, Mutex, MutexGuard},
    time::Duration,
};

use admission::{Claim, Definition, JoinKey, Mode, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, ZoneId};
use bytes::Bytes;
use redis_script::client::{Client, ClientError, Confirm, Script, Value};
use store::{
    Expected, JoinedOnce, Line as _, Store as _,
    redis::{Durability, Redis, scripts},
};

use super::{Key, Real, calls, same_keys, sorted};
use crate::{
    plain::Plain,
    redis::{Data, Interpreter, Process},
    seed::Random,
};

/// Begins each script on the server, on its first line. Takes the instant and the ids of the process from the end of `ARGV`.
const PINNED: &str = "local redis, tostring = (function(real) \
    local reign, run = table.remove(ARGV), table.remove(ARGV); local us = tonumber(table.remove(ARGV)); \
    local function int(n) return string.format('%.0f', n) end; \
    local function at(ms) return int(math.floor(us / 1000) + ms) end; \
    local function call(name, key, ...) \
      if name == 'TIME' then return { int(math.floor(us / 1000000)), int(us % 1000000) } end; \
      if name == 'INFO' then return 'run_id:' .. run .. '\\r\\nmaster_replid:' .. reign .. '\\r\\n' end; \
      if name == 'PEXPIRE' then return real.call('PEXPIREAT', key, at((...))) end; \
      if name == 'SET' and select('#', ...) > 1 then \
        local value, unit, count = ...; \
        return real.call('SET', key, value, 'PXAT', at(count * (unit == 'EX' and 1000 or 1))) \
      end; \
      return real.call(name, key, ...) \
    end; \
    local function text_of() return 'table: 0x' .. string.sub(run, 1, 12) end; \
    return setmetatable({ call = call }, { __index = real }), text_of end)(redis); ";

/// Deletes keys.
static DELETE: LazyLock<Script> =
    LazyLock::new(|| Script::new("delete", "return redis.call('DEL', unpack(KEYS))"));

/// The first instant of a trace, in microseconds: in the future of every server.
const START_US: u64 = 4_000_000_000_000_000;

/// The server, the model and its replica, and what the trace does to both.
struct World {
    real: Real,
    data: Data,
    replica: Data,
    unix_us: u64,
    run_id: String,
    replid: String,
    /// The scripts of the server, by the digest of those of the model.
    pinned: HashMap<String, Script>,
    seed: u64,
    calls: usize,
    kinds: BTreeMap<String, u64>,
}

/// The keys of the server, to go back to.
struct Snapshot {
    real: Vec<(Key, Bytes)>,
    data: Data,
}

impl World {
    fn reset(&mut self, seed: u64, dice: &mut Random) {
        self.seed = seed;
        self.unix_us = START_US + dice.bits() % 1_000_000_000;
        self.wipe();
        self.restart(dice);
    }

    /// A kind of call that no trace has made yet.
    fn lacks(&self) -> Option<&'static str> {
        let all = [&scripts::JOIN, &scripts::ENTER, &scripts::BEAT, &scripts::POLICY, &scripts::LEARNED];
        let names = all.map(|script| script.name).into_iter().chain(["zones", "define", "servers"]);
        let others =
            ["restore: Some(Int(1))", "restore: Some(Int(0))", "enter: WEIR_LOST", "join: WEIR_NONE"];
        names.chain(others).find(|&kind| !self.kinds.contains_key(kind))
    }

    fn restart(&mut self, dice: &mut Random) {
        let mut id = || (0..40).map(|_| char::from(b"0123456789abcdef"[dice.below(16)])).collect();
        (self.run_id, self.replid) = (id(), id());
    }

    fn wipe(&mut self) {
        self.real.command(&[b"FLUSHALL"]);
        (self.data, self.replica) = Default::default();
    }

    /// Runs a script on both. Fails if the replies differ.
    fn run(&mut self, script: &Script, keys: &[Bytes], args: &[Bytes]) -> Result<Value, String> {
        self.unix_us += 37;
        self.expire();
        let pinned = self.pinned.entry(script.sha1.clone());
        let pinned = pinned.or_insert_with(|| Script::new(script.name, &format!("{PINNED}{}", script.text)));
        let mut with_instant = args.to_vec();
        with_instant.extend([
            self.unix_us.to_string().into(),
            self.run_id.clone().into(),
            self.replid.clone().into(),
        ]);
        let real = self.real.run(pinned, keys, &with_instant);
        let process = Process {
            unix_us: self.unix_us,
            run_id: &self.run_id,
            replid: &self.replid,
            replicas: 1,
            is_primary: true,
        };
        let (model, effects) = Interpreter::with(|lua| lua.run(&mut self.data, script, keys, args, &process));
        for effect in &effects {
            self.replica.apply(effect, self.unix_us);
        }
        let kind = match &model {
            Ok(Value::Array(parts)) if script.name == "restore" => format!("restore: {:?}", parts.last()),
            Ok(_) => script.name.to_owned(),
            Err(text) => format!("{}: {}", script.name, text.split(' ').next().unwrap_or_default()),
        };
        *self.kinds.entry(kind).or_default() += 1;
        self.calls += 1;
        // How many parts are before the fields of a hash, which come in any order.
        let before_fields = match script.name {
            "zones" => Some(2),
            "servers" => Some(1),
            _ => None,
        };
        let comparable = |reply: Result<Value, String>| match (reply, before_fields) {
            (Ok(value), Some(count)) => Ok(sorted(value, count)),
            (Err(text), _) if !self.real.has_our_texts => Err(text.split(' ').take(2).collect::<String>()),
            (Err(text), _) => Err(text.replace(&pinned.sha1, &script.sha1)),
            (other, None) => other,
        };
        let (real, shown) = (comparable(real), comparable(model.clone()));
        assert!(
            real == shown,
            "seed {}, call {}: {} at {}\nkeys {keys:?}\nargs {args:?}\nRedis: {real:?}\nmodel: {shown:?}",
            self.seed,
            self.calls,
            script.name,
            self.unix_us
        );
        model
    }

    /// Deletes on both what has expired. A key that is only hidden would come back when the clock is set back.
    fn expire(&mut self) {
        for key in self.data.expired(self.unix_us) {
            self.real.command(&[b"DEL", &key]);
        }
        for effect in self.data.expire(self.unix_us) {
            self.replica.apply(&effect, self.unix_us);
        }
    }

    fn delete(&mut self, key: &str) {
        self.run(&DELETE, &[Bytes::from(key.to_owned())], &[]).expect("deletes");
    }

    /// Deletes the marks that a process holds the state of the zones: another one goes on, with the same data.
    fn forget_process(&mut self) {
        let keys: Vec<Bytes> = self.data.dump().into_iter().map(|(key, ..)| key).collect();
        for key in keys.iter().filter(|key| key.ends_with(b":on")) {
            self.run(&DELETE, std::slice::from_ref(key), &[]).expect("deletes");
        }
    }

    fn snapshot(&self) -> Snapshot {
        let with_content = |key: Key| match self.real.command(&[b"DUMP", &key.0]) {
            Value::Bytes(content) => (key, content),
            other => panic!("DUMP returns {other:?}"),
        };
        Snapshot { real: self.real.dump().into_iter().map(with_content).collect(), data: self.data.clone() }
    }

    /// Goes back to older data, as a replica that lacks the last writes does when it is promoted.
    fn go_back(&mut self, to: &Snapshot) {
        self.wipe();
        for ((name, _, at_ms), content) in &to.real {
            let at_ms = at_ms.unwrap_or(0).to_string();
            self.real.command(&[b"RESTORE", name, at_ms.as_bytes(), content, b"ABSTTL"]);
        }
        (self.data, self.replica) = (to.data.clone(), to.data.clone());
    }

    /// Fails if the keys differ.
    fn compare_keys(&mut self) {
        let what = format!("seed {}, call {}", self.seed, self.calls);
        self.expire();
        same_keys(&what, &self.real.dump(), &self.data.dump(), 0);
        // No replica is told which process holds the state.
        let mut model = self.data.dump();
        model.retain(|(name, ..)| !name.ends_with(b":on"));
        let replica = self.replica.dump();
        same_keys(&format!("{what}, the replica"), &model, &replica, 0);
        *self.kinds.entry("keys compared".to_owned()).or_default() += 1;
    }
}

/// The client of several stores.
#[derive(Clone)]
struct Both(Arc<Mutex<World>>);

impl Both {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("nothing failed before")
    }
}

impl Client for Both {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        _: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        self.world().run(script, &keys, &args).map_err(ClientError::Script)
    }
}

fn policy(dice: &mut Random) -> Policy {
    let policy = Policy {
        mode: if dice.below(8) == 0 {
            [Mode::Hold, Mode::Open, Mode::Closed][dice.below(3)]
        } else {
            Mode::Auto
        },
        admit_per_minute: [1, 3, 10, 60, 100, 600, 5_000][dice.below(7)],
        sub_windows: [1, 3, 10, 10, 60][dice.below(5)],
        polling_period_ms: [500, 1_000, 3_000, 7_000][dice.below(4)],
        idle_timeout_s: [30, 60, 90][dice.below(3)],
        pass_ttl_s: [60, 300][dice.below(2)],
        ..Policy::default()
    };
    policy.check().expect("in range")
}

fn polls(seqs: impl Iterator<Item = u64>) -> Vec<PagePolls> {
    let mut pages = BTreeMap::new();
    for seq in seqs {
        let ticket = usize::try_from(seq % PAGE_TICKETS as u64).expect("small");
        let page = pages.entry(seq / PAGE_TICKETS as u64).or_insert_with(|| Box::new([0_u64; PAGE_WORDS]));
        page[ticket / 64] |= 1 << (ticket % 64);
    }
    pages.into_iter().map(|(page, words)| PagePolls { page, words }).collect()
}

/// One trace: two stores, one zone, and a register with a few more.
struct Trace<'a> {
    dice: Random,
    both: &'a Both,
    stores: [Arc<Redis<Both>>; 2],
    zone: ZoneId,
    others: Vec<ZoneId>,
    /// Tickets that were given out, and some of states that were lost.
    tickets: Vec<Claim>,
    is_held: bool,
    now_ms: u64,
    older: Option<Snapshot>,
}

impl Trace<'_> {
    fn store(&mut self) -> usize {
        self.dice.below(2)
    }

    async fn pass(&mut self, time_ms: u64) {
        tokio::time::advance(Duration::from_millis(time_ms)).await;
        self.both.world().unix_us += time_ms * 1_000;
        self.now_ms += time_ms;
        self.hold();
    }

    fn hold(&self) {
        for store in &self.stores {
            store.hold_clock(if self.is_held { self.now_ms } else { 0 });
        }
    }

    async fn step(&mut self) {
        let pause = match self.dice.below(40) {
            0 => 1_500 + self.dice.below(3_000),
            1 => 4_000 + self.dice.below(70_000),
            2..14 => 0,
            14..22 => 1_000,
            _ => self.dice.below(400),
        };
        self.pass(pause as u64).await;
        let at = self.store();
        match self.dice.below(100) {
            0..3 => {
                let policy = policy(&mut self.dice);
                drop(self.stores[at].line(&self.zone).put(policy).await);
            }
            3..20 => self.join(at).await,
            20..55 => self.claim(at).await,
            55..85 => self.beat(at).await,
            85..95 => self.change_the_register(at).await,
            _ => self.fail().await,
        }
    }

    async fn join(&mut self, at: usize) {
        let count = if self.dice.below(20) == 0 { 1_024 } else { 1 + self.dice.below(12) };
        // Every fourth has a key, which somebody else may have had.
        let key = |dice: &mut Random| {
            let number = u8::try_from(dice.below(40)).expect("small");
            (dice.below(4) == 0).then_some(JoinKey([number; 16]))
        };
        let keys = (0..count).map(|_| key(&mut self.dice)).collect();
        if let Ok(JoinedOnce { joined, .. }) = self.stores[at].line(&self.zone).join_once(keys).await {
            let seqs = joined.first..joined.first + joined.verdicts.len() as u64;
            self.tickets.extend(seqs.map(|seq| Claim { epoch: joined.epoch, seq }));
        }
    }

    async fn claim(&mut self, at: usize) {
        let any = |dice: &mut Random, tickets: &[Claim]| match tickets {
            [] => Claim { epoch: 1, seq: 0 },
            // Mostly of the first half, where the front is.
            tickets => {
                let end = if dice.below(3) == 0 { tickets.len() } else { tickets.len() / 2 + 1 };
                tickets[dice.below(end)]
            }
        };
        let mut claims: Vec<Claim> =
            (0..=self.dice.below(20)).map(|_| any(&mut self.dice, &self.tickets)).collect();
        for claim in &mut claims {
            if self.dice.below(60) == 0 {
                claim.epoch = claim.epoch.wrapping_add([1, 2, u32::MAX][self.dice.below(3)]);
            }
            if self.dice.below(60) == 0 {
                claim.seq += self.dice.below(70_000) as u64;
            }
        }
        drop(self.stores[at].line(&self.zone).enter(claims).await);
    }

    async fn beat(&mut self, at: usize) {
        let share = [0, 1, 3, 10][self.dice.below(4)];
        let seqs: Vec<u64> = self.tickets.iter().map(|ticket| ticket.seq).collect();
        let marks = polls(seqs.into_iter().filter(|_| self.dice.below(10) < share));
        let longest_period_ms = [0, 0, 4_000, 8_000, 20_000][self.dice.below(5)];
        if self.dice.below(40) == 0 {
            let new = (self.dice.below(2) == 0).then(|| b"what a server learnt".to_vec());
            drop(self.stores[at].line(&self.zone).exchange_learned(new).await);
        }
        if let Ok(view) = self.stores[at].line(&self.zone).beat(marks, longest_period_ms).await {
            // The base has passed most of the first tickets.
            if self.dice.below(10) == 0 && self.tickets.len() > 3_000 {
                self.tickets.retain(|ticket| ticket.seq >= view.base);
                let from = self.tickets.len().saturating_sub(3_000);
                self.tickets.drain(..from);
            }
        }
    }

    async fn change_the_register(&mut self, at: usize) {
        let other = self.others[self.dice.below(self.others.len())].clone();
        let store = &self.stores[at];
        match self.dice.below(6) {
            0 => {
                let definition = Definition::from(policy(&mut self.dice));
                drop(store.define(&other, &Expected::Absent, Some(&definition)).await);
            }
            1 => {
                let definition = Definition::from(policy(&mut self.dice));
                drop(store.define(&other, &Expected::Any, Some(&definition)).await);
            }
            2 => drop(store.define(&other, &Expected::Any, None).await),
            3 => {
                let name = format!("server-{}", self.dice.below(5));
                drop(store.say_here(&name, "a \u{e9}").await);
            }
            _ => drop(store.zones().await),
        }
    }

    /// Something is lost, restarted or set.
    async fn fail(&mut self) {
        let mut world = self.both.world();
        let kind = self.dice.below(14);
        *world.kinds.entry(format!("failure {kind:2}")).or_default() += 1;
        match kind {
            0 | 1 => {
                world.forget_process();
                world.restart(&mut self.dice);
            }
            // The replica is promoted with all effects.
            2 => {
                world.forget_process();
                world.compare_keys();
                world.data = world.replica.clone();
                world.restart(&mut self.dice);
            }
            3 | 4 => {
                if let Some(older) = &self.older {
                    world.go_back(older);
                    world.forget_process();
                    world.restart(&mut self.dice);
                }
            }
            5 | 6 => self.older = Some(world.snapshot()),
            7 => {
                world.wipe();
                world.restart(&mut self.dice);
            }
            8 => world.delete(&format!("weir:v1:{{{}}}:z", self.zone)),
            9 => world.delete(&format!("weir:v1:{{{}}}:due", self.zone)),
            10 => world.delete("weir:v1:{zones}"),
            11 => world.unix_us += self.dice.below(20_000_000) as u64,
            12 => world.unix_us -= self.dice.below(20_000_000) as u64,
            _ => {
                drop(world);
                // The zone's clock follows the server's, or is that of the trace.
                self.is_held = !self.is_held && self.dice.below(2) == 0;
                self.now_ms = self.now_ms.max(self.both.world().unix_us / 1_000);
                self.hold();
            }
        }
    }

    async fn run(mut self, steps: usize) {
        let policy = policy(&mut self.dice);
        self.hold();
        self.stores[0].line(&self.zone).put(policy).await.expect("puts");
        self.stores[1].line(&self.zone).open(policy).await.expect("opens");
        if self.dice.below(6) == 0 {
            // The line reaches the next segment.
            for _ in 0..63 {
                self.stores[0].line(&self.zone).join(1_024).await.expect("joins");
            }
        }
        for step in 0..steps {
            self.step().await;
            if step % 100 == 0 {
                self.both.world().compare_keys();
            }
        }
        self.both.world().compare_keys();
    }
}

#[test]
fn the_model_and_redis_run_the_scripts_alike() {
    let mut dice = Random::seeded("the_model_and_redis_run_the_scripts_alike");
    let wanted = calls(6_000);
    let plain = Plain::start();
    let both = Both(Arc::new(Mutex::new(World {
        real: Real::new(plain.connect()),
        data: Data::default(),
        replica: Data::default(),
        unix_us: START_US,
        run_id: String::new(),
        replid: String::new(),
        pinned: HashMap::new(),
        seed: 0,
        calls: 0,
        kinds: BTreeMap::new(),
    })));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        // Chance may leave a kind out for long. Without it, the test would show less than it says.
        while both.world().calls < wanted
            || (wanted >= 6_000 && both.world().calls < 5 * wanted && both.world().lacks().is_some())
        {
            let seed = dice.bits();
            let mut dice = Random::of(seed);
            both.world().reset(seed, &mut dice);
            let max_segments = [2, 3, 16][dice.below(3)];
            let store =
                || Arc::new(Redis::new(both.clone(), Durability::Async).with_max_segments(max_segments));
            let named = |name: &str| ZoneId::parse(name).expect("a name");
            let trace = Trace {
                both: &both,
                stores: [store(), store()],
                zone: named("Z"),
                others: ["A", "B", "C"].map(named).to_vec(),
                tickets: Vec::new(),
                is_held: dice.below(2) == 0,
                now_ms: START_US / 1_000 + 10_000_000,
                older: None,
                dice,
            };
            trace.run(600.min(wanted)).await;
        }
    });
    let world = both.world();
    drop(writeln!(stderr(), "{} calls: {:?}", world.calls, world.kinds));
    if world.calls >= 6_000 {
        assert_eq!(world.lacks(), None, "in {:?}", world.kinds);
    }
}
