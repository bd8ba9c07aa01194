//! A rolling restart, as the runbook describes it: one server after another is drained, stopped, started, and ready before the
//! next one is.

use rustix::process::Signal;

use crate::{
    admin::weir,
    app::{Answer, body},
    clock::eventually,
    keys::KeyFiles,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

/// People in line before the restart.
const PEOPLE: u64 = 30;

/// Somebody in line, who knows the place.
struct Person {
    token: String,
    rank: u64,
}

impl Person {
    fn join(server: &Weir) -> Self {
        let answer = Answer::of(&server.post("/traffic/wait", &body("Z", None)));
        Self { rank: answer.waiting().rank, token: answer.token }
    }

    /// Asks a server. Any reply but 200 fails the test.
    fn ask(&mut self, server: &Weir) -> Answer {
        let answer = Answer::of(&server.post("/traffic/entry", &body("Z", Some(&self.token))));
        self.token.clone_from(&answer.token);
        answer
    }
}

/// Everybody asks, spread over these servers, and has the place of before.
fn all_wait(people: &mut [Person], servers: &[&Weir], moment: &str) {
    for (at, person) in people.iter_mut().enumerate() {
        let rank = person.ask(servers[at % servers.len()]).waiting().rank;
        assert_eq!(rank, person.rank, "{moment}: person {at}");
    }
}

/// What the command line says about one server, asked of another.
fn state_of(address: &str, asked: &Weir) -> Option<String> {
    let (code, said, complaint) = weir(&["servers"], Some(asked));
    assert_eq!(code, Some(0), "{complaint}");
    let mut lines = said.lines().filter(|line| line.split('\t').nth(1) == Some(address));
    let state = lines.next()?.split('\t').nth(3)?.to_owned();
    assert_eq!(lines.next(), None, "it is listed once: {said}");
    Some(state)
}

/// Three servers on one Redis are restarted, one after another. Nobody loses a place, and no call fails.
pub(crate) fn a_rolling_restart_loses_nobody() {
    let redis = Standalone::start();
    let zones = zone("Z", 600, "mode = \"hold\"\nidle_timeout_s = 3600\npolling_period_ms = 500");
    let keys = KeyFiles::old();
    let config = format!("store = {:?}\n{}{zones}", redis.url(), keys.named("key_file"));
    // So nobody waits because the store is new.
    let file = Setup::new(&config);
    let path = file.config_path();
    let (code, _, complaint) = weir(&["zones", "apply", path.to_str().expect("UTF-8")], None);
    assert_eq!(code, Some(0), "{complaint}");

    let mut servers: Vec<Weir> = (0..3).map(|_| Setup::new(&config).start()).collect();
    let mut people: Vec<Person> =
        (0..PEOPLE).map(|at| Person::join(&servers[usize::try_from(at % 3).expect("small")])).collect();
    assert!(people.iter().map(|person| person.rank).eq(1..=PEOPLE));

    for restarted in 1..=3 {
        let old = servers.remove(0);
        let address = old.public.to_string();
        let [one, other] = &servers[..] else { panic!("two stay") };

        let (code, said, complaint) = weir(&["drain"], Some(&old));
        assert!(code == Some(0) && said.starts_with("the server is out of service"), "{said}{complaint}");
        assert_eq!(old.get("/readyz").status, 503);
        for asked in [one, other] {
            eventually("the others see it drain", || {
                (state_of(&address, asked)? == "draining").then_some(())
            });
        }
        all_wait(&mut people, &[&old, one, other], "drained, and asked by those who still have a connection");
        all_wait(&mut people, &[one, other], "the load balancer has moved everybody");

        let setup = old.stop();
        let listed = redis.command(&["HVALS", "weir:v1:{Z}:srv"]);
        let retired = listed.parts().iter().filter(|row| row.text().ends_with(" retired")).count();
        assert_eq!(retired, restarted, "it has said that it stops: {listed:?}");
        all_wait(&mut people, &[one, other], "stopped");
        people.push(Person::join(one));

        let new = setup.start();
        eventually("it is ready", || (new.get("/readyz").status == 200).then_some(()));
        all_wait(&mut people, &[&new], "started");
        let address = new.public.to_string();
        for asked in [one, other] {
            eventually("the others see it", || (state_of(&address, asked)? == "ok").then_some(()));
        }
        let told = format!("waiting={}", people.len());
        eventually("the log says whom the store knew", || {
            new.log()
                .lines()
                .any(|line| line.contains("the store has these zones") && line.contains(&told))
                .then_some(())
        });
        let log = new.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "nothing was wrong: {log}");
        servers.push(new);
    }

    let (code, _, complaint) = weir(&["zones", "set", "Z", "mode=auto"], Some(&servers[0]));
    assert_eq!(code, Some(0), "{complaint}");
    for (at, person) in people.iter_mut().enumerate() {
        let server = &servers[at % 3];
        eventually("everybody enters, in order", || person.ask(server).can_enter.then_some(()));
    }
}

/// The store is emptied while one server stands still, and another one starts, which defines its own zone anew. It cannot know of the zone
/// that an operator had made. To newcomers it says that the store is away: an unknown zone would send them away for good.
pub(crate) fn a_server_that_starts_on_an_emptied_store_sends_no_newcomer_away() {
    let redis = Standalone::start();
    let keys = KeyFiles::old();
    let config = format!("store = {:?}\n{}{}", redis.url(), keys.named("key_file"), zone("OWN", 600, ""));
    let mut knows = Setup::new(&config).start();
    let (code, _, complaint) = weir(&["zones", "create", "MADE", "mode=hold"], Some(&knows));
    assert_eq!(code, Some(0), "{complaint}");
    let joins = |server: &Weir| {
        let reply = server.post("/traffic/wait", &body("MADE", None));
        if reply.status == 200 { "200".to_owned() } else { reply.problem() }
    };
    assert_eq!(joins(&knows), "200");
    knows.freeze();
    redis.command(&["FLUSHALL"]);
    let starts = Setup::new(&config).start();
    eventually("it serves its own zone", || {
        (starts.post("/traffic/wait", &body("OWN", None)).status == 200).then_some(())
    });
    assert_eq!(joins(&starts), "store_away");
    assert_eq!(starts.get("/wait/MADE").status, 200, "the page waits, too");
    knows.signal(Signal::CONT);
    eventually("the zone is back", || match joins(&starts).as_str() {
        "200" => Some(()),
        "store_away" => None,
        other => panic!("{other}"),
    });
    knows.signal(Signal::TERM);
    assert!(knows.wait_for_end().success());
}
