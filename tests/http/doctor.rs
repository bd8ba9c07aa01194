//! `weir doctor` over real servers: each danger is provoked and reported, a sound store has no problem, and the doctor
//! changes nothing.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
    thread,
    time::Duration,
};

use server::keys::IfMissing;

use crate::{
    app::body,
    clock::eventually,
    https::Root,
    keys::keys_in,
    redis::{Cluster, Options, Standalone},
    weir::{Setup, Weir, binary, without_variables, zone},
};

/// What the doctor printed in a pipe.
struct Report {
    code: Option<i32>,
    lines: Vec<[String; 5]>,
}

impl Report {
    /// What was found in this state.
    fn found(&self, state: &str) -> Vec<&str> {
        self.lines.iter().filter(|line| line[0] == state).map(|line| line[2].as_str()).collect()
    }

    /// Asserts that a problem contains this text, and that it says why it matters and what to do.
    #[track_caller]
    fn has_problem(&self, text: &str) {
        let is_it = |line: &&[String; 5]| line[0] == "problem" && line[2].contains(text);
        let line =
            self.lines.iter().find(is_it).unwrap_or_else(|| panic!("no problem {text:?}: {:#?}", self.lines));
        assert!(line.iter().all(|part| part.len() > 1), "{line:?}");
        assert_eq!(self.code, Some(1));
    }

    #[track_caller]
    fn has_no_problem(&self, text: &str) {
        let found = self.found("problem");
        assert!(!found.iter().any(|found| found.contains(text)), "{found:#?}");
    }
}

/// Settings under which the configuration and the machine are no problem.
fn sound(setup: &Setup) -> Vec<String> {
    keys_in(setup.dir(), IfMissing::Make);
    let dir = setup.dir().to_str().expect("UTF-8");
    let keys = [format!("--seal-key-file={dir}/seal.key"), format!("--pass-key-file={dir}/pass-es256.pem")];
    ["--backlog=16".to_owned(), "--listen=127.0.0.1:0".to_owned(), "--admin-listen=127.0.0.1:0".to_owned()]
        .into_iter()
        .chain(keys)
        .collect()
}

fn examine(setup: &Setup, args: &[String], shell: &str) -> Report {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{shell} exec \"$@\"")).arg("sh").arg(binary()).arg("doctor").args(args);
    without_variables(&mut command).current_dir(setup.dir()).env("WEIR_DATA_DIR", setup.data());
    if setup.config_path().exists() {
        command.env("WEIR_CONFIG", setup.config_path());
    }
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    assert_eq!(String::from_utf8_lossy(&stderr), "");
    let text = String::from_utf8(stdout).expect("UTF-8");
    let line = |line: &str| -> [String; 5] {
        let parts: Vec<String> = line.split('\t').map(str::to_owned).collect();
        parts.try_into().unwrap_or_else(|_| panic!("five parts: {line:?}"))
    };
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("STATE\tWHERE\tFOUND\tWHY\tTO DO"), "a heading");
    Report { code: status.code(), lines: lines.map(line).collect() }
}

/// The report about one Redis, with a sound configuration.
fn about(url: &str) -> Report {
    let setup = Setup::new("");
    let mut args = sound(&setup);
    args.push(format!("--store={url}"));
    examine(&setup, &args, "")
}

/// Options of a server that saves.
fn saving() -> Options {
    Options::new().arg(&["--save", "3600 1"])
}

fn replica_of(primary: &Standalone, options: Options) -> Standalone {
    let replica =
        Standalone::start_with(&options.arg(&["--replicaof", "127.0.0.1", &primary.port().to_string()]));
    primary.wait_replicas(1);
    replica
}

/// A cluster, and a primary with replicas: no problem, and nothing was written.
pub(crate) fn a_sound_store_has_no_problem() {
    let cluster = Cluster::start_with(3, 1, &saving());
    let before: Vec<String> =
        (0..3).map(|at| cluster.info(at, "persistence", "rdb_changes_since_last_save")).collect();
    let report = about(&cluster.url());
    assert_eq!((report.code, report.found("problem")), (Some(0), vec![]), "{:#?}", report.lines);
    assert_eq!(report.lines.iter().filter(|line| line[2].contains("1 replica in sync")).count(), 3);
    assert!(report.found("ok").iter().any(|found| found.starts_with("cluster-node-timeout is 1500 ms")));
    let after: Vec<String> =
        (0..3).map(|at| cluster.info(at, "persistence", "rdb_changes_since_last_save")).collect();
    assert_eq!(before, after, "the doctor changes nothing");
    assert!((0..3).all(|at| cluster.command(at, &["DBSIZE"]).int() == 0));

    let primary = Standalone::start_with(&saving().arg(&["--min-replicas-to-write", "1"]));
    let replicas = [(); 2].map(|()| replica_of(&primary, saving()));
    primary.wait_replicas(2);
    let report = about(&primary.url());
    assert_eq!((report.code, report.found("problem")), (Some(0), vec![]), "{:#?}", report.lines);
    drop(replicas);
}

/// What is dangerous at servers.
pub(crate) fn dangers_of_servers_are_found() {
    let mut alone = Standalone::start_with(&Options::new().arg(&["--maxmemory-policy", "allkeys-lru"]));
    let report = about(&alone.url());
    for problem in ["no replica in sync", "maxmemory-policy is allkeys-lru", "neither it nor a replica saves"]
    {
        report.has_problem(problem);
    }
    report.has_no_problem("clocks");
    report.has_no_problem("may not");
    report.has_no_problem("of maxmemory");
    alone.command(&["CONFIG", "SET", "maxmemory", "1"]);
    about(&alone.url()).has_problem("% of maxmemory is used");
    alone.command(&["CONFIG", "SET", "maxmemory", "10gb"]);
    assert!(about(&alone.url()).found("ok").contains(&"0 % of maxmemory is used"));
    alone.command(&["CONFIG", "SET", "maxmemory", "0"]);
    alone.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    about(&alone.url()).has_problem("min-replicas-to-write is 1, and 0 in sync");

    // A user who lacks one command of a script, and one who may not run scripts.
    for (user, rights, problem) in [
        ("poor", &["~*", "&*", "+@all", "-setbit"][..], "the user may not: SETBIT"),
        ("poorer", &["~weir:v1:*", "&*", "+@all"], "the user may not: GET weir:limit"),
        ("poorest", &["~*", "&*", "+@all", "-@scripting"], "the user may not run scripts"),
    ] {
        alone.command(&[&["ACL", "SETUSER", user, "on", ">word"], rights].concat());
        about(&alone.url().replace("://", &format!("://{user}:word@"))).has_problem(problem);
    }
    // A user who may not even ask how the server is.
    alone.command(&["ACL", "SETUSER", "blind", "on", ">word", "~*", "&*", "+@all", "-info"]);
    let report = about(&alone.url().replace("://", "://blind:word@"));
    report.has_problem("INFO is refused: NOPERM");
    report.has_problem("the user may not: INFO");
    // Weir's own user has all rights, and cannot read the configuration.
    let rules = fs_rules();
    let words: Vec<&str> =
        ["ACL", "SETUSER", "weir", "on", ">word"].into_iter().chain(rules.split_whitespace()).collect();
    alone.command(&words);
    let report = about(&alone.url().replace("://", "://weir:word@"));
    report.has_no_problem("may not");
    assert!(report.found("unknown").iter().any(|found| found.contains("min-replicas-to-write is on")));

    let replica = replica_of(&alone, Options::new());
    about(&replica.url()).has_problem("is a replica");
    alone.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    about(&alone.url()).has_problem("min-replicas-to-write is 0");
    let url = alone.url();
    alone.kill();
    about(&url).has_problem("does not answer");
}

/// A store that does not work is a problem, and the report says of what: a script that never ends, a command that is not there, a
/// certificate that is wanted.
pub(crate) fn a_store_that_does_not_work_is_a_problem() {
    let renamed = saving().arg(&["--rename-command", "SETRANGE", "", "--rename-command", "GETBIT", "other"]);
    let report = about(&Standalone::start_with(&renamed).url());
    report.has_problem("the server does not have: GETBIT");
    report.has_problem("SETRANGE");

    let full = Standalone::start_with(&saving().arg(&["--maxclients", "8"]));
    let mut clients: Vec<TcpStream> = Vec::new();
    // A connection of its start may end only now, and leave room for the doctor.
    let report = eventually("the server is full", || {
        let more =
            (0..16).map(|_| TcpStream::connect(("127.0.0.1", full.port())).expect("the kernel accepts"));
        clients.extend(more);
        let report = about(&full.url());
        let is_full =
            report.found("problem").iter().any(|found| found.contains("does not answer: 127.0.0.1:"));
        is_full.then_some(report)
    });
    report.has_problem("ERR max number of clients reached");
    report.has_no_problem("perhaps");
    drop(clients);

    let busy = Standalone::start_with(&saving().arg(&["--busy-reply-threshold", "1"]));
    let mut looping = TcpStream::connect(("127.0.0.1", busy.port())).expect("the server listens");
    looping.write_all(b"EVAL \"while true do end\" 0\r\n").expect("the server reads");
    eventually("the script runs", || {
        let report = about(&busy.url());
        let found =
            report.found("problem").into_iter().any(|found| found.starts_with("INFO is refused: BUSY"));
        (found && report.code == Some(1)).then_some(())
    });
    drop(busy);

    let root = Root::new();
    let (dir, pair) = (tempfile::tempdir().expect("a directory"), root.certify(2_099));
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("the directory takes files");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (ca, chain, key) = (file("ca", &root.pem()), file("crt", &pair.chain), file("key", &pair.key));
    let files = ["--tls-cert-file", &chain, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let server = Standalone::start_with(&saving().arg(&files).tls());
    let setup = Setup::new("");
    let with = |ca: &str| {
        let mut args = sound(&setup);
        args.extend([format!("--store={}", server.url()), format!("--redis-ca-file={ca}")]);
        (examine(&setup, &args, ""), args)
    };
    with(&ca).0.has_problem("perhaps it demands a client certificate");

    // A file of authorities without one is refused wherever it is named.
    let empty = file("empty", "");
    let (report, args) = with(&empty);
    report.has_problem("holds no certificate of an authority");
    for word in ["check-config", "serve"] {
        let mut command = Command::new(binary());
        let Output { status, stderr, .. } = without_variables(command.arg(word).args(&args))
            .current_dir(dir.path())
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&stderr);
        assert!(
            !status.success() && said.contains("holds no certificate of an authority"),
            "{word}: {status} {said}"
        );
    }
}

/// The rules of Weir's user, without comments.
fn fs_rules() -> String {
    let text = include_str!("../../deploy/redis/weir.acl");
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
}

/// What is dangerous in a cluster, behind a Sentinel, and in one of several cells.
pub(crate) fn dangers_of_topologies_are_found() {
    let mut cluster = Cluster::start_with(3, 0, &saving().arg(&["--cluster-node-timeout", "15000"]));
    let report = about(&cluster.url());
    report.has_problem("cluster-node-timeout is 15000 ms, and a loss holds the shortest zone for 4000 ms");
    report.has_problem("no replica in sync");
    for at in 0..3 {
        cluster.command(at, &["CONFIG", "SET", "cluster-node-timeout", "1000"]);
    }
    about(&cluster.url()).has_no_problem("cluster-node-timeout");
    about(&format!("redis://127.0.0.1:{}", cluster.port(0))).has_problem("belongs to a cluster");
    cluster.kill(2);
    eventually("the dead primary's slots are missed", || {
        let report = about(&cluster.url());
        report.found("problem").iter().any(|found| found.contains("of 16384 slots")).then_some(())
    });

    let primary = Standalone::start_with(&saving());
    let sentinel = Standalone::sentinel("weir", &primary);
    let url = format!("redis-sentinel://127.0.0.1:{}?service=weir", sentinel.port());
    let report = about(&url);
    report.has_problem("1 Sentinels know each other");
    // The same, written as one server: with one host, and with several.
    let at = format!("127.0.0.1:{}", sentinel.port());
    about(&format!("redis://{at}"))
        .has_problem("is a Sentinel, and store names it as a server; it knows these services: weir");
    about(&format!("redis://{at},{at}")).has_problem("write store = \"redis-sentinel://");
    // Other kinds of servers than the address says, and another service. What the text says is what to do.
    let of_sentinel = "write store = \"redis-sentinel://";
    let server = format!("127.0.0.1:{}", primary.port());
    let of_cluster = format!("127.0.0.1:{}", cluster.port(0));
    for (url, problem) in [
        (format!("redis-cluster://{at}"), of_sentinel.to_owned()),
        (
            format!("redis-sentinel://{server}?service=weir"),
            "is no Sentinel (ERR unknown command 'SENTINEL'".to_owned(),
        ),
        (format!("redis-sentinel://{server}?service=weir"), format!("write store = \"redis://{server}\"")),
        (
            format!("redis-sentinel://{of_cluster}?service=weir"),
            format!("write store = \"redis-cluster://{of_cluster}\""),
        ),
        (format!("redis-cluster://{server}"), format!("write store = \"redis://{server}\"")),
        (
            format!("redis-sentinel://{at}?service=nope"),
            format!(
                "does not know the service nope; it knows weir: write store = \"redis-sentinel://{at}?service=weir\""
            ),
        ),
    ] {
        let report = about(&url);
        report.has_problem(&problem);
        let line = report.lines.iter().find(|line| line[2].contains(&problem)).expect("it was found");
        assert!(line[4].contains("as the text says"), "{line:?}");
    }
    report.has_problem("no replica in sync");

    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound")
    };
    let cells = format!(
        "[[cell]]\nname = \"one\"\nstore = \"{}\"\ntenants = [\"a\"]\n[[cell]]\nname = \"two\"\nstore = \"redis://{gone}\"\ntenants = [\"*\"]\n",
        primary.url()
    );
    let setup = Setup::new(&format!("{cells}{}", zone("Z", 60, "")));
    let report = examine(&setup, &sound(&setup), "");
    assert!(report.lines.iter().any(|line| line[0] == "problem"
        && line[1].starts_with("cell two")
        && line[2].contains("does not answer")));
    assert!(report.lines.iter().any(|line| line[0] == "ok" && line[1].starts_with("cell one")));
}

/// The way to the store is part of each join and each entry, so a far one is named. It is no problem: only the operator can judge.
pub(crate) fn a_far_store_is_named() {
    let server = Standalone::start_with(&saving().proxied());
    let near = about(&server.url());
    assert!(
        near.found("ok").iter().any(|found| found.contains("an answer of its farthest server takes")),
        "{:?}",
        near.lines
    );
    server.proxy().delay(Duration::from_millis(40));
    let far = about(&server.url());
    let way = far
        .found("unknown")
        .into_iter()
        .find(|found| found.contains("an answer of its farthest server takes"));
    let ms: u64 =
        way.expect("it is named").split(' ').rev().nth(1).and_then(|ms| ms.parse().ok()).expect("a time");
    assert!((80..1_000).contains(&ms), "{ms} ms");
    far.has_no_problem("farthest server");
}

/// A clock that is wrong, as seen through a connection that changes the answers to `TIME`.
pub(crate) fn wrong_clocks_are_found() {
    let redis = Standalone::start_with(&saving());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("bound"));
    let to = redis.port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else { return };
            let (mut from_client, mut to_server) =
                (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            thread::spawn(move || {
                drop(std::io::copy(&mut from_client, &mut to_server));
                drop(to_server.shutdown(Shutdown::Write));
            });
            thread::spawn(move || change_time(server, client));
        }
    });
    let report = about(&url);
    report.has_problem("ms from this machine's");
    about(&redis.url()).has_no_problem("ms from this machine's");
}

/// Passes on what a server says; in the answer to `TIME`, the digit of the tens of seconds is another one.
fn change_time(mut server: TcpStream, mut client: TcpStream) {
    const HEAD: &[u8] = b"*2\r\n$10\r\n";
    let mut bytes = [0; 65_536];
    while let Ok(n @ 1..) = server.read(&mut bytes) {
        if bytes[..n].starts_with(HEAD) {
            let digit = &mut bytes[HEAD.len() + 8];
            *digit = if *digit < b'5' { *digit + 5 } else { *digit - 5 };
        }
        if client.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
    drop(client.shutdown(Shutdown::Both));
}

/// What is dangerous in the configuration and on this machine, with the embedded store.
pub(crate) fn dangers_of_the_machine_are_found() {
    let setup = Setup::zone(60, "");
    let report = examine(&setup, &sound(&setup), "");
    assert_eq!((report.code, report.found("problem")), (Some(0), vec![]), "{:#?}", report.lines);
    assert!(report.lines.iter().any(|line| line[1] == "embedded store"));
    assert!(!setup.data().exists(), "the doctor makes nothing");

    examine(&setup, &sound(&setup), "ulimit -n 1000;").has_problem("max_connections is 744");
    let setup_open = Setup::zone(60, "on_store_failure = \"open\"");
    let mut args = sound(&setup_open);
    args.push("--cors-origins=*".to_owned());
    let report = examine(&setup_open, &args, "");
    for found in ["on_store_failure is open, in zone", "cors_origins has *"] {
        assert!(
            report.found("unknown").iter().any(|line| line.contains(found)),
            "{found}: {:#?}",
            report.lines
        );
    }
    let root = Root::new();
    for (from, to, problem) in [(1_990, 2_000, "has expired"), (2_090, 2_100, "is not valid yet")] {
        let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        let setup = Setup::new(&format!("{tls}{}", zone("Z", 60, "")));
        root.certify_between(from, to).write(setup.dir());
        examine(&setup, &sound(&setup), "").has_problem(problem);
    }
    examine(&setup, &["--trusted-proxies=192.0.2.1,10.0.0.0/8".to_owned()], "")
        .has_problem("trusted_proxies has 10.0.0.0/8");
    let redis = Standalone::start();
    examine(&setup, &[format!("--store={}", redis.url())], "").has_problem("seal.key_file is not set");
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux");
    let somaxconn: u32 = somaxconn.trim().parse().expect("a number");
    let report = examine(&setup, &[format!("--backlog={}", (somaxconn + 1).min(65_535))], "");
    if somaxconn < 65_535 {
        report.has_problem("net.core.somaxconn is");
    }
}

/// What a start would refuse is found before it: keys, addresses, directories, names.
pub(crate) fn what_a_start_needs_is_there() {
    let target = "[[wait.target]]\nzone = \"SALE\"\nurl = \"https://shop.example/in\"\n";
    let routes = "trusted_proxies = [\"127.0.0.1\"]\n";
    let setup = Setup::new(&format!("{routes}{}{target}[[route]]\nzone = \"Z\"\n", zone("Z", 60, "")));
    let args = sound(&setup);
    let with = |more: &str| {
        let flag = more.split_inclusive('=').next().unwrap_or_default();
        let mut args: Vec<String> = args.iter().filter(|arg| !arg.starts_with(flag)).cloned().collect();
        args.push(more.to_owned());
        examine(&setup, &args, "")
    };
    let report = examine(&setup, &args, "");
    assert_eq!((report.code, report.found("problem")), (Some(0), vec![]), "{:#?}", report.lines);
    let unknown = report.found("unknown").join("\n");
    for found in ["the zone SALE, which", "1 routes: proxies ask", "data_dir"] {
        assert!(unknown.contains(found), "{found}: {unknown}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let in_use = TcpListener::bind(taken).expect("it was free");
    let report = with(&format!("--listen={taken}"));
    assert!(report.found("unknown").contains(&&*format!("listen {taken} is in use")), "{:#?}", report.lines);
    drop(in_use);
    with("--listen=192.0.2.1:8081").has_problem("listen 192.0.2.1:8081: ");
    let file = setup.dir().join("file");
    fs::write(&file, "").expect("the directory takes files");
    with(&format!("--data-dir={}", file.display())).has_problem("is not a directory");
    with(&format!("--data-dir={}/x", file.display())).has_problem("data_dir");
    with(&format!("--audit-dir={}", file.display())).has_problem("audit.dir");
    // A right to write is no room. A limit of the size of files stands for a full disk.
    let no_room = "trap '' XFSZ; ulimit -f 0;";
    examine(&setup, &args, no_room).has_problem("and cannot be made in");
    fs::create_dir(setup.data()).expect("it was not there");
    examine(&setup, &args, no_room).has_problem("cannot be written: File too large");
    let report = examine(&setup, &args, "");
    assert!(report.found("ok").iter().any(|found| found.contains("can be written; ")), "{:#?}", report.lines);
    assert_eq!(fs::read_dir(setup.data()).expect("listed").count(), 0, "nothing is left behind");
    with(&format!("--wait-templates-dir={}/nowhere", setup.dir().display())).has_problem("nowhere");
    with("--seal-key-file=nowhere.key").has_problem("nowhere.key: cannot be read");
    let key = setup.dir().join("seal.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("our own file");
    examine(&setup, &args, "").has_problem("other users may read or change this key");
    let report = examine(&setup, &args, "export WEIR_LISTN=127.0.0.1:1;");
    assert!(report.found("unknown").contains(&"WEIR_LISTN is not a setting of weir"), "{:#?}", report.lines);
}

/// Servers of one store whose seal keys differ refuse each other's places. Log, admin API and doctor say so.
pub(crate) fn servers_with_other_keys_are_found() {
    let redis = Standalone::start_with(&saving());
    let config = format!("store = \"{}\"\n{}", redis.url(), zone("Z", 60, ""));
    let one = Setup::new(&config).start();
    // It makes keys of its own.
    let other = Setup::new(&config).start();
    for weir in [&other, &one] {
        eventually("the log names the other server", || {
            let log = weir.log();
            let line = log.lines().find(|line| line.contains("have different seal keys"))?;
            (line.contains("ERROR") && line.contains("seal.key_file")).then_some(())
        });
    }
    // The first start on an empty store says why nobody enters, and what to do.
    assert!(
        one.log().contains("`weir zones apply FILE` opens the zones of a new store at once"),
        "{}",
        one.log()
    );
    let listed = one.admin_ask("GET", "/admin/v1/servers", &[], None).json();
    let agree: Vec<_> =
        listed["servers"].as_array().expect("a list").iter().map(|server| &server["keys_agree"]).collect();
    assert!(agree.contains(&&true.into()) && agree.contains(&&false.into()), "{listed}");
    let report = |weir: &Weir| {
        let key = format!("--seal-key-file={}/seal.key", weir.setup().data().display());
        let setup = Setup::new("");
        let mut args: Vec<_> =
            sound(&setup).into_iter().filter(|arg| !arg.starts_with("--seal-key-file")).collect();
        args.extend([key, format!("--store={}", redis.url())]);
        examine(&setup, &args, "")
    };
    report(&one).has_problem("has other seal keys");
}

/// What a server knows of its zones, the doctor says as well, without a token: it reads it in Redis's list of servers.
pub(crate) fn zones_that_servers_call_away_are_found() {
    let redis = Standalone::start_with(&saving());
    let may = |keys: &[&str]| {
        let rules =
            ["ACL", "SETUSER", "weir", "on", ">word", "resetkeys", "~weir:v1:{zones}*", "&*", "+@all"];
        redis.command(&[&rules[..], keys].concat());
    };
    may(&["~*"]);
    let url = redis.url().replace("://", "://weir:word@");
    let zones = [zone("Z", 60, "mode = \"hold\""), zone("OTHER", 60, "")].concat();
    let token = format!("[[admin_token]]\nname = \"a\"\nrole = \"admin\"\nsha256 = \"{}\"\n", "0".repeat(64));
    let weir = Setup::new(&format!("store = \"{url}\"\n{zones}{token}")).start();
    let key = format!("--seal-key-file={}/seal.key", weir.setup().data().display());
    let report = || {
        let setup = Setup::new("");
        let mut args: Vec<_> =
            sound(&setup).into_iter().filter(|arg| !arg.starts_with("--seal-key-file")).collect();
        args.extend([key.clone(), format!("--store={}", redis.url())]);
        examine(&setup, &args, "")
    };
    eventually("the server registers", || {
        report().found("ok").iter().any(|found| found.contains("none says that a zone is away")).then_some(())
    });
    // Somebody waits, so the server calls the store about this zone.
    assert_eq!(weir.post("/traffic/wait", &body("Z", None)).status, 200);
    // The keys of one zone only.
    may(&["~weir:v1:{OTHER}*"]);
    let (code, [state, place, said, why, advice]) =
        eventually("the doctor says what the server says", || {
            let report = report();
            let line = report.lines.iter().find(|line| line[2].contains("zone Z is away since"))?.clone();
            Some((report.code, line))
        });
    assert_eq!((code, state.as_str()), (Some(1), "problem"));
    assert!(place.starts_with("server ") && place.contains(&format!("({})", weir.public)), "{place}");
    assert!(said.contains(" UTC: denied: "), "{said}");
    assert!(why.contains("nobody joins or enters") && advice.contains("weir.acl"), "{why} {advice}");
    assert!(!report().found("problem").iter().any(|found| found.contains("zone OTHER")));
    may(&["~*"]);
    eventually("it is over", || {
        report().found("ok").iter().any(|found| found.contains("none says that a zone is away")).then_some(())
    });
}
