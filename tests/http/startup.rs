//! Starting: a fault is reported once and clearly, before anything is served.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    net::{Ipv4Addr, TcpListener},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
};

use admission::{Delta, Header, MOST_NUMBERS, ZoneId};
use rustix::process::{Signal, geteuid};
use store::{Batch, DiskJournal, Journal as _};

use crate::{
    app::{Answer, body},
    clock::eventually,
    events::patch,
    redis::Standalone,
    weir::{Ended, Setup, Weir, binary, without_variables, zone},
};

/// The single line that reports the fault of the configuration.
fn complaint(ended: &Ended) -> &str {
    assert_eq!(ended.status.code(), Some(64), "{}", ended.log);
    assert_eq!(ended.stdout, "");
    let lines: Vec<&str> = ended.log.lines().collect();
    assert_eq!(lines.len(), 1, "one line: {}", ended.log);
    lines[0]
}

pub(crate) fn faults_exit_64_with_one_line() {
    let good = zone("A", 60, "");
    let files = [
        ("[[zone]\n".to_owned(), &["weir.toml:1"][..]),
        (format!("{good}colour = 3\n"), &["weir.toml:5", "colour"]),
        (format!("colour = 3\n{good}"), &["weir.toml:1", "colour"]),
        (zone("A", 0, ""), &["weir.toml:3", "admit_per_minute", "600000"]),
        (zone("A", 60, "sub_windows = 61"), &["weir.toml:4", "sub_windows", "60"]),
        (zone("A", 60, "mode = \"sideways\""), &["weir.toml:4", "sideways", "hold"]),
        (zone("a b", 60, ""), &["weir.toml:2", "A-Z"]),
        (format!("{good}{good}"), &["weir.toml:5", "`A`"]),
        (zone("A", 60, "polling_period_ms = \"3s\""), &["weir.toml:4", "polling_period_ms"]),
        (format!("backlog = 3\n{good}"), &["weir.toml:1", "backlog", "16"]),
        (format!("log = \"verbose\"\n{good}"), &["weir.toml:1", "`verbose` is not a level"]),
        (format!("log = \"edge=debug, loud\"\n{good}"), &["weir.toml:1", "`loud` is not a level"]),
        (format!("cors_origins = [\"https://a.example:443\"]\n{good}"), &["weir.toml:1", "usual port"]),
        (zone(".", 60, ""), &["weir.toml:2", "neither . nor .."]),
        (format!("idle_timeout_s = 3\n{good}"), &["weir.toml:1", "idle_timeout_s", "3000"]),
        (format!("store = \"redis://127.0.0.1:port\"\n{good}"), &["weir.toml:1", "port"]),
        (
            format!("[[cell]]\nname = \"a\"\nstore = \"redis://127.0.0.1:1\"\ntenants = [\"t\"]\n{good}"),
            &["weir.toml:5", "tenant"],
        ),
        (format!("trusted_proxies = [\"10.0.0.0/99\"]\n{good}"), &["weir.toml:1", "10.0.0.0/99"]),
        (format!("[pass]\nalgorithm = \"HS256\"\n{good}"), &["weir.toml:2", "HS256", "ES256"]),
    ];
    for (config, wanted) in files {
        let ended = Setup::new(&config).fail();
        let line = complaint(&ended);
        for want in wanted {
            assert!(line.contains(want), "{want} is not in {line:?}");
        }
    }
    let missing = Setup::new("").arg("--config").arg("missing.toml");
    let ended = missing.fail();
    assert!(matches!(ended.status.code(), Some(64 | 66)), "{}", ended.log);
    for flags in [&["--listen", "nowhere"][..], &["--colour"], &["--drain-deadline-s", "soon"]] {
        let ended = flags.iter().fold(Setup::new(""), Setup::arg).fail();
        assert_eq!(ended.status.code(), Some(64), "{flags:?}: {}", ended.log);
        assert!(ended.log.contains(flags[0]), "{flags:?}: {}", ended.log);
    }
}

fn weir(args: &[&str], config: &Path) -> (Option<i32>, String, String) {
    run(without_variables(&mut Command::new(binary())).args(args).arg(config))
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A limit as of `ulimit -f` or `LimitFSIZE` would kill a process that does not handle the signal.
pub(crate) fn a_limit_of_file_sizes_is_a_full_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shell = Command::new("sh");
    let limited =
        "ulimit -f 100; exec \"$0\" serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --data-dir \"$1\"";
    without_variables(&mut shell).args(["-c", limited]).arg(binary()).arg(dir.path());
    let output = shell.output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{:?}: {said}", output.status);
    assert!(said.contains("File too large"), "{said}");
}

pub(crate) fn check_config_and_version() {
    let setup = Setup::zone(60, "");
    let (code, said, complaint) = weir(&["check-config"], &setup.config_path());
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("zone Z"), "{said}");
    let target = "[[wait.target]]\nzone = \"SALE\"\nurl = \"https://shop.example/\"\n";
    setup.write_config(&(zone("Z", 60, "") + target));
    let (code, said, complaint) = weir(&["check-config"], &setup.config_path());
    assert_eq!(code, Some(0), "{said}");
    assert!(complaint.contains("the zone SALE, which the configuration does not have"), "{complaint}");
    setup.write_config(&zone("Z", 0, ""));
    let (code, said, complaint) = weir(&["check-config"], &setup.config_path());
    assert_eq!((code, said.as_str()), (Some(64), ""));
    assert!(complaint.contains("weir.toml:3") && complaint.lines().count() == 1, "{complaint}");
    assert!(!setup.data().exists(), "checking leaves nothing behind");
    // A misspelled variable is named.
    setup.write_config(&zone("Z", 60, ""));
    let mut command = Command::new(binary());
    without_variables(&mut command).args(["check-config"]).arg(setup.config_path());
    let (code, _, complaint) = run(command.env("WEIR_LISTN", "127.0.0.1:1"));
    assert!(
        code == Some(0) && complaint.starts_with("weir: warning: WEIR_LISTN is not a setting"),
        "{complaint}"
    );
    // An empty variable is a deployment's mistake, and no setting.
    let texts = ["WEIR_REDIS_PASSWORD", "WEIR_PASS_ISSUER", "WEIR_STORE"].map(|name| (name, ""));
    let lists = [("WEIR_TRUSTED_PROXIES", ""), ("WEIR_DRAW_DRAND", " , "), ("WEIR_CORS_ORIGINS", ",")];
    for (name, value) in texts.into_iter().chain(lists) {
        let mut command = Command::new(binary());
        without_variables(&mut command).args(["check-config"]).arg(setup.config_path());
        let (code, _, complaint) = run(command.env(name, value));
        let told = format!("{name}: is empty; set it, or take it away");
        assert!(code == Some(64) && complaint.contains(&told), "{complaint}");
    }
    // One that is no text would count as not set. Its value may be a secret.
    let mut command = Command::new(binary());
    without_variables(&mut command).args(["check-config"]).arg(setup.config_path());
    let (code, _, complaint) =
        run(command.env("WEIR_STORE", OsStr::from_bytes(b"redis://u:s3cret\xe4@127.0.0.1")));
    assert!(code == Some(64) && complaint.contains("WEIR_STORE: is not UTF-8"), "{complaint}");
    assert!(!complaint.contains("s3cret"), "{complaint}");
    let version = Command::new(binary()).arg("--version").output().expect("the binary starts");
    assert_eq!(version.stdout, format!("weir {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
}

/// A configuration file that others may read is complained of where it holds a secret: at the start, by `check-config` and by the
/// doctor. A secret is never shown.
pub(crate) fn readable_secrets_are_complained_of() {
    const WORD: &str = "hunter2-hunter2-hunter2";
    let route = |field: &str| {
        let route = format!("[[route]]\nname = \"staff\"\nbypass = true\n{field}\n");
        format!("trusted_proxies = [\"127.0.0.1\"]\n{}{route}", zone("Z", 60, ""))
    };
    let files = [
        (format!("{}[redis]\npassword = \"{WORD}\"\n", zone("Z", 60, "")), Some("redis.password")),
        (format!("store = \"redis://:{WORD}@127.0.0.1:1\"\n{}", zone("Z", 60, "")), Some("store")),
        (route(&format!("header = {{ x-staff = {{ secret = \"{WORD}\" }} }}")), Some("route")),
        (route(&format!("cookie = {{ staff = {{ secret = \"{WORD}\" }} }}")), Some("route")),
        (route(&format!("header = {{ x-staff = {{ sha256 = \"{}\" }} }}", "ab".repeat(32))), None),
        (zone("Z", 60, ""), None),
    ];
    for (config, secret) in files {
        let setup = Setup::new(&config);
        let path = setup.config_path();
        for (mode, is_exposed) in
            [(0o644, true), (0o604, true), (0o602, true), (0o640, false), (0o600, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our own file");
            let (code, said, complaint) = weir(&["check-config"], &path);
            assert_eq!(code, Some(0), "{complaint}");
            assert!(![&said, &complaint].iter().any(|text| text.contains(WORD)), "a secret is shown");
            match secret.filter(|_| is_exposed) {
                Some(secret) => {
                    let told =
                        format!("(mode {mode:04o}), and it holds secrets ({secret}); run: chmod 600 '");
                    assert!(
                        complaint.contains(&told) && complaint.lines().count() == 1,
                        "{mode:o}: {complaint}"
                    );
                }
                None => assert_eq!(complaint, "", "{mode:o} of {config}"),
            }
        }
    }
    let setup = Setup::new(&route(&format!("header = {{ x-staff = {{ secret = \"{WORD}\" }} }}")));
    fs::set_permissions(setup.config_path(), Permissions::from_mode(0o644)).expect("our own file");
    let (code, report, _) = weir(&["doctor", "--config"], &setup.config_path());
    let line =
        report.lines().find(|line| line.contains("it holds secrets (route)")).expect("the doctor's line");
    assert!(code == Some(1) && line.starts_with("problem\tconfiguration\t"), "{report}");
    let weir = setup.start();
    eventually("the start warns", || weir.log().contains("it holds secrets (route)").then_some(()));
    assert!(!weir.log().contains(WORD), "a secret is in the log");
    // A reload warns of what is new, and says it once.
    weir.signal(Signal::HUP);
    eventually("the reload is over", || weir.log().contains("was read again").then_some(()));
    assert_eq!(weir.log().matches("it holds secrets").count(), 1, "{}", weir.log());
}

/// A flag overrides the environment, which overrides the file.
pub(crate) fn settings_come_from_the_environment_too() {
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").to_string();
    let taken: Vec<_> =
        (0..2).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
    let setup = Setup::zone(60, "");
    let config = fs::read_to_string(setup.config_path()).expect("just written");
    setup.write_config(&format!("listen = \"{}\"\n{config}", port(&taken[0])));
    let run = |flags: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["serve", "--config"]).arg(setup.config_path()).arg("--data-dir").arg(setup.data());
        command.env("WEIR_LISTEN", port(&taken[1])).env("WEIR_ADMIN_LISTEN", "127.0.0.1:0").args(flags);
        let output = command.output().expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, log) = run(&[]);
    assert!(code != Some(0) && log.contains(&port(&taken[1])), "the environment's address: {log}");
    let (code, log) = run(&["--listen", &port(&taken[0])]);
    assert!(code != Some(0) && log.contains(&port(&taken[0])), "the flag's address: {log}");
    let output = Command::new(binary()).arg("serve").env("WEIR_LISTEN", "nowhere").output();
    let output = output.expect("the binary starts");
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("WEIR_LISTEN"));
}

pub(crate) fn one_server_a_directory() {
    let weir = Setup::zone(60, "").start();
    let second = Setup::zone(60, "").arg("--data-dir").arg(weir.setup().data()).fail();
    assert!(second.status.code().is_some_and(|code| code != 0 && code != 64), "{}", second.log);
    assert!(second.log.contains("in use") && second.log.contains("data"), "{}", second.log);
    assert!(weir.post("/traffic/wait", &body("Z", None)).status == 200, "the first one is not harmed");
}

pub(crate) fn one_server_a_port() {
    let weir = Setup::zone(60, "").start();
    let address = weir.public.to_string();
    let second = Setup::zone(60, "").arg("--listen").arg(&address).fail();
    assert!(second.status.code().is_some_and(|code| code != 0 && code != 64), "{}", second.log);
    assert!(second.log.contains(&address), "{}", second.log);
}

/// If Redis cannot be reached, the server starts, reports it, and never shows the password.
pub(crate) fn a_store_that_is_away_is_no_reason_not_to_start() {
    let nobody =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a free port");
    let store = format!("redis://weir:s3cret@{nobody}");
    let setup = Setup::zone(60, "");
    let zones = setup.config_path();
    let apply = |store: &str| {
        let output = Command::new(binary()).args(["zones", "apply", "--store", store]).arg(&zones).output();
        let output = output.expect("the binary starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, said, complaint) = apply("memory");
    assert_eq!((code, said.as_str()), (Some(64), ""));
    assert!(complaint.contains("SIGHUP") && complaint.lines().count() == 1, "{complaint}");
    let (code, said, complaint) = apply(&store);
    assert_eq!(code, Some(69), "{said}{complaint}");
    assert!(said.starts_with("failed") && said.contains("1 failed"), "{said}");
    assert!(!said.contains("s3cret") && !complaint.contains("s3cret"), "{said}{complaint}");

    // The first words are of the library, and the operator gets them in plain words, with what to do.
    for library in ["fred", "redis-rs"] {
        let weir = Setup::zone(60, "").arg("--store").arg(&store).arg("--redis-client").arg(library).start();
        let line = eventually("the log says why", || {
            weir.log().lines().find(|line| line.contains("the store is away")).map(str::to_owned)
        });
        for part in
            ["Connection refused (os error 111)", "What to do: look whether the store runs", "unreachable"]
        {
            assert!(line.contains(part), "{library}: {part} is not in {line}");
        }
        assert!(!line.contains("kind: ") && !line.contains("Os {"), "{library}: {line}");
        // It is one record: that of the zones has it, too.
        let ready = eventually("the zone says why", || {
            let ready = weir.admin_get("/readyz").text().to_owned();
            ready.contains("Z: unreachable: ").then_some(ready)
        });
        assert!(ready.contains("Connection refused"), "{ready}");
        let zone = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
        assert_eq!(zone["now"]["away"]["cause"], "unreachable", "{zone}");
        eventually("the metric has it", || {
            let counted = "weir_zones_away{kind=\"unreachable\"} 1";
            weir.admin_get("/metrics").text().contains(counted).then_some(())
        });
    }

    let weir = setup.arg("--store").arg(&store).start();
    assert_eq!(weir.get("/healthz").status, 200);
    let ready = weir.get("/readyz");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "store_away"));
    assert!(!ready.text().contains("redis"), "the public does not learn the names of cells: {ready:?}");
    let ready = weir.admin_get("/readyz");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "store_away"));
    assert!(ready.text().contains("cells away: redis"), "{ready:?}");
    for zone in ["Z", "UNKNOWN_YET"] {
        let refused = weir.post("/traffic/wait", &body(zone, None));
        assert_eq!((refused.status, refused.problem().as_str()), (503, "store_away"));
    }
    assert!(weir.admin_get("/metrics").text().contains("weir_store_cell_up{cell=\"redis\"} 0"));
    weir.logs(&nobody.to_string());
    let said = [weir.stdout(), weir.log()].concat();
    assert!(said.contains(&nobody.to_string()) && !said.contains("s3cret"), "{said}");
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("readable").path()).collect()
}

/// Damaged or foreign data is never taken for an empty line.
pub(crate) fn damaged_data_is_refused_by_name() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| *bytes = b"This is a letter to my aunt.\n".repeat(1_000),
        |bytes| bytes.iter_mut().for_each(|b| *b ^= 0x55),
    ];
    for damage in damages {
        let mut weir = Setup::zone(60, "").start();
        assert_eq!(weir.post("/traffic/wait", &body("Z", None)).status, 200);
        weir.signal(Signal::TERM);
        weir.wait_for_end();
        let file = weir.setup().data().join("weir.redb");
        let mut bytes = fs::read(&file).expect("the store's file");
        damage(&mut bytes);
        fs::write(&file, &bytes).expect("our own file");
        let setup = weir.take_setup();
        let ended = setup.fail();
        assert!(ended.status.code().is_some_and(|code| code != 0 && code != 64), "{}", ended.log);
        assert!(ended.log.contains("weir.redb"), "the file is named: {}", ended.log);
        assert!(!ended.log.contains("panicked"), "{}", ended.log);
        assert_eq!(fs::read(&file).expect("still there"), bytes, "the damaged file is left unchanged");
    }
}

/// Without its mark, a journal may be an older copy. The server starts, and its log says so once.
pub(crate) fn a_journal_without_its_mark_is_reported() {
    const SAYS: &str = "an older copy of the journal would not be noticed";
    let changes: [fn(&Path); 3] = [
        |mark| fs::remove_file(mark).expect("our own file"),
        |mark| fs::write(mark, "").expect("our own file"),
        |mark| fs::write(mark, [0; 24]).expect("our own file"),
    ];
    let setup = Setup::zone(60, "mode = \"hold\"");
    let mark = setup.data().join("weir.mark");
    let mut weir = setup.start();
    let token = Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token;
    assert!(!weir.log().contains(SAYS), "a new directory has no mark");
    for change in changes {
        let setup = weir.stop();
        change(&mark);
        weir = setup.start();
        let log = eventually("the log names the mark", || {
            let log = weir.log();
            log.lines().find(|line| line.contains(SAYS)).map(str::to_owned)
        });
        assert!(log.contains("WARN") && log.contains(&mark.display().to_string()), "{log}");
        let place = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&token))));
        assert_eq!(place.waiting().rank, 1, "the place is kept");
        weir = weir.stop().start();
        assert_eq!(weir.post("/traffic/entry", &body("Z", Some(&token))).status, 200);
        assert!(!weir.log().contains(SAYS), "the new mark is there");
    }
}

/// A zone whose state in the journal cannot be used is unavailable alone, and says so. The others work, also after a reload.
pub(crate) fn one_bad_zone_is_unavailable_alone() {
    let held = |id| zone(id, 60, "mode = \"hold\"");
    let config = held("BAD") + &held("GOOD");
    let weir = Setup::new(&config).start();
    let places = ["BAD", "GOOD"].map(|id| Answer::of(&weir.post("/traffic/wait", &body(id, None))).token);
    let setup = weir.stop();
    {
        let mut journal = DiskJournal::open(&setup.data()).expect("its own directory");
        let loaded = journal.load().expect("loads");
        let bad = ZoneId::parse("BAD").expect("a name");
        let header = Header { next: MOST_NUMBERS + 1, ..loaded.images[&bad].header };
        let line = Delta {
            header,
            pages: Vec::new(),
            dropped: 0..0,
            entered: Vec::new(),
            bound: Vec::new(),
            forgotten: Vec::new(),
        };
        journal
            .commit(&Batch { at_ms: loaded.last_ms, zones: vec![(bad, line)], ..Batch::default() })
            .expect("written");
    }
    let weir = setup.start();
    let check = |weir: &Weir| {
        let unavailable = |path, token| {
            let refused = weir.post(path, &body("BAD", token));
            assert_eq!((refused.status, refused.problem().as_str()), (503, "store_away"), "{refused:?}");
            assert!(refused.header("retry-after").is_some(), "{refused:?}");
        };
        unavailable("/traffic/wait", None);
        unavailable("/traffic/entry", Some(&places[0]));
        let polled = weir.post("/traffic/entry", &body("GOOD", Some(&places[1])));
        assert_eq!(Answer::of(&polled).waiting().rank, 1, "nobody lost the place in another zone");
        let ready = weir.admin_get("/readyz");
        assert_eq!(ready.status, 200);
        let told = ready.text();
        assert!(
            told.starts_with("ok\nzones away: BAD\nBAD: unreadable: what the store has of this zone"),
            "{told}"
        );
        assert_eq!(weir.get("/readyz").text(), "ok\n");
    };
    check(&weir);
    for word in ["BAD", "268435457 numbers", "good copy", "another id"] {
        weir.logs(word);
    }
    weir.setup().write_config(&(config + &held("NEW")));
    weir.signal(Signal::HUP);
    eventually("the new zone is served", || {
        (weir.post("/traffic/wait", &body("NEW", None)).status == 200).then_some(())
    });
    check(&weir);
}

/// Only their owner can read the keys, and they never appear in output, log or metrics.
pub(crate) fn secrets_stay_secret() {
    let weir = Setup::zone(60, "").arg("--listen").arg("127.0.0.1:0").start();
    for call in [body("Z", None), body("Z", Some("x")), "{".to_owned()] {
        weir.post("/traffic/wait", &call);
    }
    let metrics = weir.admin_get("/metrics").text().to_owned();
    let said = [weir.stdout(), weir.log(), metrics].concat();
    let data = weir.setup().data();
    assert_eq!(fs::metadata(&data).expect("there").mode() & 0o077, 0, "the directory is private");
    let mut keys = 0;
    for file in files_in(&data) {
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o177, 0, "{}", file.display());
        // Key files are text. A long line that is not a heading is the secret.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for secret in text.lines().filter(|line| line.len() >= 32 && !line.contains("-----")) {
            keys += 1;
            assert!(!said.contains(secret), "{} appears in the output", file.display());
        }
    }
    assert!(keys >= 2, "a key to seal and a key to sign in {:?}", files_in(&data));
}

/// What the refusal of a secret says that others may read, which belongs to whoever runs the tests. Only root's may be read by a group.
pub(crate) fn remedy() -> &'static str {
    if geteuid().is_root() { "chmod 640" } else { "chmod 600" }
}

/// A key that others can read is refused.
pub(crate) fn readable_keys_are_refused() {
    let setup = Setup::zone(60, "").start().stop();
    let is_key = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "key" || kind == "pem");
    let keys: Vec<PathBuf> = files_in(&setup.data()).into_iter().filter(is_key).collect();
    assert_eq!(keys.len(), 2, "a key to seal and a key to sign: {keys:?}");
    for key in keys {
        fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("our own file");
        let ended = setup.fail();
        let name = key.display().to_string();
        assert_ne!(ended.status.code(), Some(0));
        assert!(
            ended.log.contains(&name) && ended.log.contains(&format!("run: {} '{name}'", remedy())),
            "{}",
            ended.log
        );
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("our own file");
    }
}

/// A file without zones changes nothing. It says so, and counts what the store keeps.
pub(crate) fn an_empty_file_is_applied_as_such() {
    let redis = Standalone::start();
    let url = redis.url();
    let setup = Setup::new(&[zone("Z", 60, ""), zone("OTHER", 60, "")].concat());
    let apply = || {
        let mut command = Command::new(binary());
        without_variables(&mut command).args(["zones", "apply", "--store", &url]).arg(setup.config_path());
        run(&mut command)
    };
    assert_eq!(apply().0, Some(0));
    setup.write_config("# nothing yet\n");
    let (code, said, complaint) = apply();
    assert_eq!(code, Some(0), "{complaint}");
    assert_eq!(
        said,
        "0 created, 0 changed, 0 unchanged, 0 refused, 0 failed; 2 more in the store stay as they are\n"
    );
    assert!(complaint.contains("the file has no [[zone]], so nothing is put into the store"), "{complaint}");
    // A store that does not answer is no store to which nothing had to be put.
    drop(redis);
    let (code, _, complaint) = apply();
    assert_eq!(code, Some(69), "{complaint}");
    assert!(complaint.contains("apply the file again"), "{complaint}");
}

/// Without a configuration file, nobody wants the zone to try in a store that keeps others.
pub(crate) fn without_a_file_nothing_differs_from_it() {
    let redis = Standalone::start();
    let setup = Setup::new(&zone("Z", 60, ""));
    let mut command = Command::new(binary());
    without_variables(&mut command)
        .args(["zones", "apply", "--store", &redis.url()])
        .arg(setup.config_path());
    assert_eq!(run(&mut command).0, Some(0));
    let weir = Setup::new("").arg(format!("--store={}", redis.url())).start();
    assert_eq!(weir.post("/traffic/wait", &crate::app::body("Z", None)).status, 200);
    weir.signal(Signal::HUP);
    eventually("it is read again", || weir.log().contains("the configuration was read again").then_some(()));
    assert!(!weir.log().contains("the file differs"), "{}", weir.log());
}

/// Each line of a log in JSON is an object with the same members, also the one of a warning. Texts are as they were, also with quotes
/// within quotes.
pub(crate) fn the_log_may_be_json() {
    let weir = Setup::zone(600, "").arg("--log-format=json").start();
    let notice = r#"They said: "Write \"now\" {or} 'later'\n". \"#;
    assert_eq!(patch(&weir, &serde_json::json!({ "notice": { "en": notice } })).0, 200);
    weir.signal(Signal::HUP);
    eventually("the reload is over", || weir.log().contains("was read again").then_some(()));
    let lines: Vec<serde_json::Value> = weir
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}")))
        .collect();
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
        assert!(["INFO", "WARN"].contains(&line["level"].as_str().unwrap_or_default()), "{line}");
        assert!(line["message"].is_string(), "{line}");
    }
    assert!(
        lines.iter().any(|line| line["message"] == "made a key" && line["file"].is_string()),
        "{lines:?}"
    );
    let changed = lines.iter().find(|line| line["message"] == "a zone was changed").expect("it is logged");
    let after = changed["after"].as_str().expect("a text");
    let after: serde_json::Value = serde_json::from_str(after).unwrap_or_else(|why| panic!("{after}: {why}"));
    assert_eq!(after["notice"]["en"], notice);
}

/// A disk that is full, or a reader of the log that is gone, costs lines of the log and nothing else.
pub(crate) fn a_log_that_cannot_be_written_ends_nothing() {
    for format in ["--log-format=text", "--log-format=json"] {
        let mut weir = Setup::zone(600, "").arg(format).shell("exec 2>/dev/full;").start();
        let notice = serde_json::json!({ "notice": { "en": "This change is said in the log." } });
        assert_eq!(patch(&weir, &notice).0, 200, "{format}");
        assert_eq!(weir.post("/traffic/wait", &crate::app::body("Z", None)).status, 200, "{format}");
        weir.signal(Signal::TERM);
        assert!(weir.wait_for_end().success(), "{format}");
        assert_eq!(weir.log(), "", "nothing was written");
    }
}
