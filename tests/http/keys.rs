//! Keys of running servers: a rotation loses nobody, and a mistake in it is refused or reported.

use std::{
    fs, iter,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use server::{
    keys::{IfMissing, Keys, SealSettings},
    passes::{Algorithm, PassSettings},
};

use crate::{
    app::{Answer, body},
    client::Client,
    clock::eventually,
    passes::JwkSet,
    redis::Standalone,
    sse::{Stream, request},
    weir::{Setup, Weir, zone},
};

/// The keys of a data directory, as a server has them that no file is configured for.
pub(crate) fn keys_in(data_dir: &Path, if_missing: IfMissing) -> Keys {
    let seal = SealSettings { key_file: None, next_key_file: None, previous_key_file: None };
    let pass = PassSettings {
        algorithm: Algorithm::Es256,
        audience: String::new(),
        issuer: None,
        key_file: None,
        next_key_file: None,
        previous_key_file: None,
    };
    Keys::read(&seal, &pass, data_dir, if_missing).expect("the keys")
}

/// Files of the keys that seal tokens and sign passes.
pub(crate) struct KeyFiles(Setup);

impl KeyFiles {
    /// The keys of today.
    pub(crate) fn old() -> Self {
        Self::with_seal("1")
    }

    /// Other keys. The two seals have different ids, which random ones would not always have.
    pub(crate) fn new() -> Self {
        Self::with_seal("2")
    }

    fn with_seal(digit: &str) -> Self {
        let keys = Self(Setup::new("").start().stop());
        fs::write(keys.seal(), digit.repeat(64)).expect("the file is ours");
        keys
    }

    fn seal(&self) -> PathBuf {
        self.0.data().join("seal.key")
    }

    fn pass(&self) -> PathBuf {
        self.0.data().join("pass-es256.pem")
    }

    /// Settings that name the keys. `which` is `key_file`, `next_key_file` or `previous_key_file`.
    pub(crate) fn named(&self, which: &str) -> String {
        format!("seal.{which} = {:?}\npass.{which} = {:?}\n", self.seal(), self.pass())
    }
}

/// Changes the configuration of a running server, and waits until it is in force.
pub(crate) fn reload(weir: &Weir, config: &str) {
    let done = || weir.log().matches("the configuration was read again").count();
    let before = done();
    weir.setup().write_config(config);
    weir.signal(Signal::HUP);
    eventually("the configuration is read again", || (done() > before).then_some(()));
}

/// What a user has.
struct Held {
    zone: &'static str,
    token: String,
    pass: Option<String>,
}

/// A new user of each zone at this server.
fn users_of(client: &mut Client) -> [Held; 2] {
    ["WAIT", "ENTER"].map(|zone| {
        let answer = Answer::of(&client.post("/traffic/wait", &body(zone, None)).expect("a reply"));
        Held { zone, token: answer.token, pass: answer.pass }
    })
}

/// Asks each server with each token, and checks each pass with the keys that each server publishes. Returns what the
/// users have then.
fn ask_everywhere(servers: &[Weir], clients: &mut [Client], held: &[Held], moment: &str) -> Vec<Held> {
    let mut last = Vec::new();
    for (at, (server, client)) in iter::zip(servers, clients).enumerate() {
        let keys = JwkSet::of(server);
        let mut ask = |(number, Held { zone, token, pass }): (usize, &Held)| {
            let reply = client.post("/traffic/entry", &body(zone, Some(token))).expect("a reply");
            assert_eq!(reply.status, 200, "{moment}: server {at} refuses token {number}: {reply:?}");
            let again = Answer::of(&reply);
            let entry = |pass: &String| keys.verify(pass);
            assert_eq!(again.pass.as_ref().map(entry), pass.as_ref().map(entry), "{moment}: the same entry");
            Held { zone, token: again.token, pass: again.pass }
        };
        last = held.iter().enumerate().map(&mut ask).collect();
    }
    last
}

/// Whether the new seal made this token. A token begins with the id of its key.
fn is_new(token: &str) -> bool {
    match token.as_bytes()[0] {
        b'A' => false,
        b'n' => true,
        _ => panic!("another key: {token}"),
    }
}

/// People in line before the streams.
const CROWD: usize = 200;

/// Three servers of one store announce new keys, switch to them, and forget the old ones. They reload one after another, in
/// another order in each step. At every moment every server accepts the tokens of every other one and publishes the keys of
/// its passes. A user on a stream gets a token of the new key without asking.
pub(crate) fn a_rotation_in_three_steps_loses_nobody() {
    let redis = Standalone::start();
    let (old, new) = (KeyFiles::old(), KeyFiles::new());
    let zones = zone("WAIT", 60, "mode = \"hold\"\nidle_timeout_s = 3600\npolling_period_ms = 500")
        + &zone("ENTER", 10_000, "");
    let start = |_| Setup::new(&(old.named("key_file") + &zones)).arg("--store").arg(redis.url()).start();
    let servers: Vec<Weir> = (0..3).map(start).collect();
    let mut clients: Vec<Client> = servers.iter().map(Weir::connect).collect();
    let mut held: Vec<Held> = clients.iter_mut().flat_map(users_of).collect();
    // Streams behind the front are told without a claim, and get a token only when they need one.
    for _ in 0..CROWD {
        users_of(&mut clients[0]);
    }
    let mut streams: Vec<Stream> = iter::zip(&servers, &mut clients)
        .map(|(server, client)| Stream::open(server, "WAIT", &users_of(client)[0].token))
        .collect();

    let mut step = |name: &str, keys: &str, order: [usize; 3], held: &mut Vec<Held>| {
        for at in order {
            reload(&servers[at], &format!("{keys}{zones}"));
            held.extend(clients.iter_mut().flat_map(users_of));
            let moment = format!("{name}, after server {at}");
            let newer = ask_everywhere(&servers, &mut clients, held, &moment);
            if at == order[2] {
                return newer;
            }
        }
        unreachable!("the last server of the order has reloaded");
    };
    step("announce", &(old.named("key_file") + &new.named("next_key_file")), [0, 1, 2], &mut held);
    let newer =
        step("switch", &(new.named("key_file") + &old.named("previous_key_file")), [2, 0, 1], &mut held);
    // The longest life of a token and a pass goes by: users who are still there have polled, or are on a stream.
    held = newer;
    assert!(held.iter().all(|held| is_new(&held.token)), "each poll returns a token of the new key");
    for stream in &mut streams {
        eventually("the stream has a token of the new key", || {
            stream.wait();
            is_new(stream.token()).then_some(())
        });
    }
    step("forget", &new.named("key_file"), [1, 2, 0], &mut held);
    for (stream, other) in iter::zip(streams, servers.iter().cycle().skip(1)) {
        let last = stream.token().to_owned();
        drop(stream);
        Stream::over(other.connect(), &request("WAIT", "old", Some(&last))).wait();
    }
    for server in &servers {
        let log = server.log();
        let is_warning = |line: &&str| line.contains("reload") && !line.contains("INFO");
        assert_eq!(log.lines().find(is_warning), None, "no step is reported as a mistake");
    }
}

/// A key file that is missing or repeated changes nothing and is named. A step that is left out is reported. No key is in
/// the log.
pub(crate) fn mistakes_in_a_rotation_are_refused_or_reported() {
    let (old, new) = (KeyFiles::old(), KeyFiles::new());
    let zone = zone("Z", 60, "mode = \"hold\"");
    let present = old.named("key_file");
    let weir = Setup::new(&format!("{present}{zone}")).start();
    let token = Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token;
    let jwks = weir.get("/.well-known/jwks.json").body;
    for (keys, told) in [
        (
            format!("{present}seal.next_key_file = \"/no/such.key\"\n"),
            "/no/such.key: cannot be read: No such file",
        ),
        (format!("{present}pass.next_key_file = {:?}\n", new.seal()), "seal.key: is not a key for passes"),
        (present.clone() + &old.named("next_key_file"), "has the same key as"),
        (present.clone() + &old.named("previous_key_file"), "has the same key as"),
        (String::new(), "seal.key"),
    ] {
        let before = weir.log().len();
        weir.setup().write_config(&format!("{keys}{zone}"));
        weir.signal(Signal::HUP);
        let refused = |log: &str| log.contains(told) && log.contains("(the configuration stays as it was)");
        eventually(told, || refused(&weir.log()[before..]).then_some(()));
        assert_eq!(weir.post("/traffic/entry", &body("Z", Some(&token))).status, 200);
        assert_eq!(weir.get("/.well-known/jwks.json").body, jwks);
    }
    reload(&weir, &(new.named("key_file") + &old.named("previous_key_file") + &zone));
    weir.logs("pass.key_file is a key that was not announced");
    assert_eq!(weir.post("/traffic/entry", &body("Z", Some(&token))).status, 200);
    reload(&weir, &(old.named("key_file") + &zone));
    weir.logs("all users who hold a token lose their place");
    for file in [old.seal(), new.seal(), old.pass(), new.pass()] {
        let text = fs::read_to_string(file).expect("a key");
        let secret = text.lines().find(|line| !line.contains("-----")).expect("a secret");
        assert!(!weir.log().contains(secret), "a key in the log: {}", weir.log());
    }
}
