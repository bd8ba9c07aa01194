//! A plan as a list of events: a small text that people can read, and that a run is made from again.
//!
//! A seed's plan changes with the generator of plans, a list does not. `mended/` has the lists of faults that were found, and
//! `scripts/explore` keeps the reduced list of each new one in the same form. Invariant: the plan that is read from a plan's list
//! is the same plan.

use std::{fmt::Display, str::SplitWhitespace};

use admission::{Mode, Policy};

use crate::plan::{Copied, Cut, Fault, Kind, Plan, Stay, User, set_name};

/// The list of a plan: one line each for the policy, the cluster, its nodes, its servers, each user and each fault.
pub(crate) fn written(plan: &Plan) -> String {
    let policy = &plan.policy;
    let mut lines = vec![
        format!(
            "policy {} {} {} {} {} {} {}",
            policy.admit_per_minute,
            policy.sub_windows,
            policy.polling_period_ms,
            policy.idle_timeout_s,
            policy.pass_ttl_s,
            policy.max_active,
            policy.visit_idle_s,
        ),
        format!(
            "cluster {} {} {} {} {} {}",
            plan.seed, plan.data_nodes, plan.voters, plan.delay_ms, plan.repeats, plan.ends_ms
        ),
        format!("servers {} {}", plan.servers, words(&plan.server_sides)),
        format!("sides {}", words(&plan.node_sides)),
        format!("clocks {}", words(&plan.clock_offsets_ms)),
    ];
    let traits = [
        (plan.persistent, "on-disk"),
        (plan.replicated, "replicated"),
        (plan.from_file, "of-a-file"),
        (plan.checked, "checked"),
    ];
    lines.extend(traits.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_owned()));
    if plan.policy.opens_at.unix_s > 0 {
        lines.push(format!("opens {}", plan.policy.opens_at.unix_s));
    }
    if plan.draw_s > 0 {
        lines.push(format!("draw {}", plan.draw_s));
    }
    if plan.in_turn_ms > 0 {
        lines.push(format!("in-turn {}", plan.in_turn_ms));
    }
    let busy = |(server, (from, to), cost_ms): &(usize, (u64, u64), f64)| {
        format!("busy {server} {from} {to} {cost_ms:?}")
    };
    lines.extend(plan.busy.iter().map(busy));
    lines.extend(plan.users.iter().map(user));
    lines.extend(plan.faults.iter().map(|(at, what)| format!("at {at} {}", fault(*what))));
    lines.join("\n") + "\n"
}

fn words(numbers: &[impl Display]) -> String {
    let words: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn user(user: &User) -> String {
    let kind = match user.kind {
        Kind::Stays => "stays".to_owned(),
        Kind::Returns => "returns".to_owned(),
        Kind::Insists => "insists".to_owned(),
        Kind::NeverClaims => "never-claims".to_owned(),
        Kind::Leaves(after) => format!("leaves {after}"),
        Kind::Naps(after, length) => format!("naps {after} {length}"),
    };
    let Stay { for_ms, every_ms, says } = user.stay;
    let inside = match (for_ms, says) {
        (0, _) => String::new(),
        (_, false) => format!(" inside {for_ms} {every_ms}"),
        (_, true) => format!(" inside {for_ms} {every_ms} says"),
    };
    let copied = user.copied.map_or_else(String::new, |Copied { after_ms, every_ms, side }| {
        format!(" copied {after_ms} {every_ms} {side}")
    });
    format!("user {} {} {} {kind}{inside}{copied}", user.joins_ms, user.side, user.seed)
}

fn fault(fault: Fault) -> String {
    match fault {
        Fault::Kill { node, for_ms } => format!("kill {node} {for_ms}"),
        Fault::KillPrimary { for_ms } => format!("kill-primary {for_ms}"),
        Fault::Freeze { node, for_ms } => format!("freeze {node} {for_ms}"),
        Fault::FreezePrimary { for_ms } => format!("freeze-primary {for_ms}"),
        Fault::Cut { cut, for_ms } => {
            let (what, number) = match cut {
                Cut::Sides => ("sides", 0),
                Cut::Bus(node) => ("bus", node),
                Cut::Clients(node) => ("clients", node),
                Cut::From(node) => ("from", node),
                Cut::Server(server) => ("server", server),
            };
            format!("cut {what} {number} {for_ms}")
        }
        Fault::Lag { lag_ms, for_ms } => format!("lag {lag_ms} {for_ms}"),
        Fault::Flush => "flush".to_owned(),
        Fault::LoseKey { number } => format!("lose-key {number}"),
        Fault::ClockJump { node, by_ms } => format!("clock {node} {by_ms}"),
        Fault::KillServer { server, for_ms } => format!("kill-server {server} {for_ms}"),
        Fault::StopServer { server, for_ms } => format!("stop-server {server} {for_ms}"),
        Fault::FreezeServer { server, for_ms } => format!("freeze-server {server} {for_ms}"),
        Fault::Change { n, mode } => {
            format!("change {n} {}", mode.word())
        }
        Fault::Set { name, value } => format!("set {name} {value}"),
        Fault::Recreate { for_ms } => format!("recreate {for_ms}"),
        Fault::HalfMove { number, for_ms } => format!("half-move {number} {for_ms}"),
        Fault::Demote { by_force, for_ms } => {
            format!("demote {} {for_ms}", if by_force { "by-force" } else { "in-order" })
        }
        Fault::WrongKey { server, for_ms } => format!("wrong-key {server} {for_ms}"),
        Fault::ChangeKey { every_ms } => format!("change-key {every_ms}"),
        Fault::ForgetKey { every_ms } => format!("forget-key {every_ms}"),
    }
}

/// A list that was read: the plan, and the guard without which it breaks a promise, if it says so.
pub(crate) struct List {
    pub(crate) plan: Plan,
    /// The names of the guard and of the promise.
    pub(crate) without: Option<(String, String)>,
}

/// The words of a line.
struct Line<'a> {
    text: &'a str,
    words: SplitWhitespace<'a>,
}

impl<'a> Line<'a> {
    fn next(&mut self) -> &'a str {
        self.words.next().unwrap_or_else(|| panic!("`{}` ends too early", self.text))
    }
    fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.next();
        word.parse().unwrap_or_else(|_| panic!("`{word}` of `{}` is no number", self.text))
    }
    fn rest<T: std::str::FromStr>(&mut self) -> Vec<T> {
        let mut numbers = Vec::new();
        while let Some(word) = self.words.next() {
            numbers.push(word.parse().unwrap_or_else(|_| panic!("`{word}` of `{}` is no number", self.text)));
        }
        numbers
    }
}

/// Reads a list. Lines that begin with `#` are comments.
///
/// # Panics
/// If it is no list.
pub(crate) fn read(text: &str) -> List {
    let mut plan = Plan::empty();
    let mut without = None;
    for text in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut line = Line { text, words: text.split_whitespace() };
        match line.next() {
            "without" => without = Some((line.next().to_owned(), line.next().to_owned())),
            "policy" => {
                plan.policy = Policy {
                    admit_per_minute: line.number(),
                    sub_windows: line.number(),
                    polling_period_ms: line.number(),
                    idle_timeout_s: line.number(),
                    pass_ttl_s: line.number(),
                    max_active: line.number(),
                    visit_idle_s: line.number(),
                    ..Policy::default()
                }
            }
            "cluster" => {
                (plan.seed, plan.data_nodes, plan.voters) = (line.number(), line.number(), line.number());
                (plan.delay_ms, plan.repeats, plan.ends_ms) = (line.number(), line.number(), line.number());
            }
            "servers" => (plan.servers, plan.server_sides) = (line.number(), line.rest()),
            "sides" => plan.node_sides = line.rest(),
            "clocks" => plan.clock_offsets_ms = line.rest(),
            "on-disk" => plan.persistent = true,
            "replicated" => plan.replicated = true,
            "of-a-file" => plan.from_file = true,
            "checked" => plan.checked = true,
            "opens" => plan.policy.opens_at = line.number::<u32>().into(),
            "draw" => plan.draw_s = line.number(),
            "in-turn" => plan.in_turn_ms = line.number(),
            "busy" => plan.busy.push((line.number(), (line.number(), line.number()), line.number())),
            "user" => plan.users.push(read_user(&mut line)),
            "at" => plan.faults.push((line.number(), read_fault(&mut line))),
            other => panic!("a list has no `{other}`"),
        }
        assert_eq!(line.words.next(), None, "`{text}` has more words than it means");
    }
    List { plan, without }
}

fn read_user(line: &mut Line<'_>) -> User {
    let (joins_ms, side, seed) = (line.number(), line.number(), line.number());
    let kind = match line.next() {
        "stays" => Kind::Stays,
        "returns" => Kind::Returns,
        "insists" => Kind::Insists,
        "never-claims" => Kind::NeverClaims,
        "leaves" => Kind::Leaves(line.number()),
        "naps" => Kind::Naps(line.number(), line.number()),
        other => panic!("no user `{other}`"),
    };
    let (mut stay, mut copied) = (Stay::default(), None);
    while let Some(word) = line.words.next() {
        match word {
            "inside" => stay = Stay { for_ms: line.number(), every_ms: line.number(), says: false },
            "says" => stay.says = true,
            "copied" => {
                let (after_ms, every_ms, side) = (line.number(), line.number(), line.number());
                copied = Some(Copied { after_ms, every_ms, side });
            }
            other => panic!("no user has `{other}`"),
        }
    }
    User { seed, joins_ms, kind, side, stay, copied }
}

fn read_mode(word: &str) -> Mode {
    let found = Mode::ALL.into_iter().find(|(_, name)| *name == word);
    found.unwrap_or_else(|| panic!("no mode `{word}`")).0
}

fn read_fault(line: &mut Line<'_>) -> Fault {
    match line.next() {
        "kill" => Fault::Kill { node: line.number(), for_ms: line.number() },
        "kill-primary" => Fault::KillPrimary { for_ms: line.number() },
        "freeze" => Fault::Freeze { node: line.number(), for_ms: line.number() },
        "freeze-primary" => Fault::FreezePrimary { for_ms: line.number() },
        "cut" => {
            let (what, number) = (line.next(), line.number());
            let cut = match what {
                "sides" => Cut::Sides,
                "bus" => Cut::Bus(number),
                "clients" => Cut::Clients(number),
                "from" => Cut::From(number),
                "server" => Cut::Server(number),
                other => panic!("no cut `{other}`"),
            };
            Fault::Cut { cut, for_ms: line.number() }
        }
        "lag" => Fault::Lag { lag_ms: line.number(), for_ms: line.number() },
        "flush" => Fault::Flush,
        "lose-key" => Fault::LoseKey { number: line.number() },
        "clock" => Fault::ClockJump { node: line.number(), by_ms: line.number() },
        "kill-server" => Fault::KillServer { server: line.number(), for_ms: line.number() },
        "stop-server" => Fault::StopServer { server: line.number(), for_ms: line.number() },
        "freeze-server" => Fault::FreezeServer { server: line.number(), for_ms: line.number() },
        "change" => Fault::Change { n: line.number(), mode: read_mode(line.next()) },
        "set" => {
            let name = set_name(line.next()).unwrap_or_else(|| panic!("`{}` names no field", line.text));
            Fault::Set { name, value: line.number() }
        }
        "recreate" => Fault::Recreate { for_ms: line.number() },
        "half-move" => Fault::HalfMove { number: line.number(), for_ms: line.number() },
        "demote" => Fault::Demote { by_force: line.next() == "by-force", for_ms: line.number() },
        "wrong-key" => Fault::WrongKey { server: line.number(), for_ms: line.number() },
        "change-key" => Fault::ChangeKey { every_ms: line.number() },
        "forget-key" => Fault::ForgetKey { every_ms: line.number() },
        other => panic!("no fault `{other}`"),
    }
}

#[test]
fn a_plan_is_the_same_after_its_list_is_read() {
    for seed in 1..60 {
        let plan = || Plan::of(seed);
        let plans = [
            plan(),
            plan().with_a_file(),
            plan().with_long_periods(),
            plan().with_busy_servers(),
            plan().with_people_inside(),
            plan().with_keys_lost(),
            plan().with_moves(),
            plan().with_one_asked(),
            plan().with_tickets_misused(),
            plan().with_a_draw(),
            plan().with_changes(),
            plan().mixed(),
        ];
        for plan in plans {
            let list = written(&plan);
            assert_eq!(format!("{:?}", read(&list).plan), format!("{plan:?}"), "seed {seed}:\n{list}");
        }
    }
}
