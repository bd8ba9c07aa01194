//! The logins at a store in Redis, and a store whose past changes.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rustix::process::Signal;

use crate::{
    app::body,
    clock::eventually,
    https::Root,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

/// Writes a file that only this user may read.
fn private(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::write(&path, text).expect("the temporary directory takes files");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("our own file");
}

fn join(weir: &Weir) -> u16 {
    weir.post("/traffic/wait", &body("Z", None)).status
}

/// Redis gets another password, and the file is changed afterwards. Connections of before go on; new ones use the new password after
/// SIGHUP. A file that cannot be used changes nothing.
pub(crate) fn a_password_file_is_read_again() {
    let redis = Standalone::start();
    let sets = |password: &str| {
        redis.command(&[
            "ACL",
            "SETUSER",
            "weir",
            "reset",
            "on",
            &format!(">{password}"),
            "~*",
            "&*",
            "+@all",
        ]);
    };
    sets("word-of-before");
    let file = "[redis]\nuser = \"weir\"\npassword_file = \"redis.password\"\n";
    let setup = Setup::new(&format!("store = \"{}\"\n{file}{}", redis.url(), zone("Z", 60, "")));
    private(setup.dir(), "redis.password", "word-of-before\n");
    let weir = setup.start();
    assert_eq!(join(&weir), 200);
    let reload = |wanted: &str| {
        let before = weir.log().len();
        weir.signal(Signal::HUP);
        eventually(wanted, || weir.log()[before..].contains(wanted).then_some(()));
    };
    private(weir.setup().dir(), "redis.password", "\n");
    reload("redis.password: is empty; write the password into it (the configuration stays as it was)");
    sets("word-of-now");
    redis.command(&["CLIENT", "KILL", "USER", "weir"]);
    eventually("it is refused", || (join(&weir) == 503).then_some(()));
    eventually("why is told", || weir.admin_get("/readyz").text().contains("denied: ").then_some(()));
    private(weir.setup().dir(), "redis.password", "word-of-now\n");
    reload("new connections to the store use another password");
    eventually("people join again", || (join(&weir) == 200).then_some(()));
    assert!(!weir.log().contains("needs a restart"), "{}", weir.log());
    assert!(!weir.log().contains("word-of-now"), "{}", weir.log());
}

/// Certificates and logins that do not fit end the start, with their file and what to do.
pub(crate) fn wrong_logins_end_the_start() {
    let (root, z) = (Root::new(), zone("Z", 60, ""));
    let (pair, other) = (root.certify(2_100), root.certify(2_100));
    let setup = Setup::new("");
    private(setup.dir(), "cert.pem", &pair.chain);
    private(setup.dir(), "other.pem", &other.key);
    private(setup.dir(), "empty", "\n");
    let both = "certificate_file = \"cert.pem\"\nkey_file";
    for (store, of_redis, exit, wanted) in [
        ("rediss://127.0.0.1:1", "certificate_file = \"cert.pem\"", 64, "redis.key_file is not set"),
        ("rediss://127.0.0.1:1", &format!("{both} = \"other.pem\""), 64, "other.pem: is not the key"),
        ("rediss://127.0.0.1:1", &format!("{both} = \"none.pem\""), 64, "none.pem: cannot be read"),
        ("redis://127.0.0.1:1", "password_file = \"empty\"", 64, "empty: is empty"),
        ("redis://127.0.0.1:1", "password = \"\"", 64, "redis.password: is empty"),
        ("redis://127.0.0.1:1", "user = \"\"", 64, "redis.user: is empty"),
        // Files of TLS without TLS: none is ignored in silence.
        ("redis://127.0.0.1:1", "ca_file = \"cert.pem\"", 64, "write rediss://127.0.0.1:1 in store"),
        (
            "redis-cluster://127.0.0.1:1",
            &format!("{both} = \"other.pem\""),
            64,
            "write rediss-cluster://127.0.0.1:1",
        ),
        ("redis://127.0.0.1:1", "sentinel_password_file = \"empty\"", 64, "no store is found by Sentinels"),
        (
            "redis-sentinel://127.0.0.1:1?service=main",
            "sentinel_user = \"weir\"",
            64,
            "redis.sentinel_password_file is not set",
        ),
        (
            "redis-sentinel://127.0.0.1:1?service=main",
            "sentinel_password_file = \"empty\"",
            64,
            "empty: is empty",
        ),
    ] {
        setup.write_config(&format!("store = \"{store}\"\n[redis]\n{of_redis}\n{z}"));
        let ended = setup.fail();
        assert!(ended.log.contains(wanted), "{wanted} is not in {}", ended.log);
        assert_eq!(ended.status.code(), Some(exit), "{}", ended.log);
        assert_eq!(ended.log.lines().count(), 1, "{}", ended.log);
    }
}

/// A backup of an earlier life of Redis is restored. Its zones are in force by the rule, and the log says loudly what went back.
pub(crate) fn a_register_that_goes_back_is_reported() {
    const REGISTER: &str = "weir:v1:{zones}";
    const LIFE: u64 = 1 << 28;
    let redis = Standalone::start();
    let setup = Setup::new(&format!("store = \"{}\"\n{}", redis.url(), zone("Z", 120, "mode = \"hold\"")));
    let weir = setup.start();
    assert_eq!(join(&weir), 200);
    let rev: u64 = redis.command(&["HGET", REGISTER, "#rev"]).text().parse().expect("a revision");
    let earlier = ((rev / LIFE - 5) * LIFE + 7).to_string();
    let (z, old) = ("1 30 10 3000 60 300 0", "1 600 10 3000 60 300 0");
    let born = redis.command(&["HGET", REGISTER, "#born"]).text();
    // In one step, so that no server finds it missing in between.
    let restore = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], unpack(ARGV))";
    let fields = ["#rev", &earlier, "Z", z, "OLD", old];
    let restored = redis.command(&[&["EVAL", restore, "1", REGISTER], &fields[..]].concat());
    assert_eq!(restored.int(), 3);
    let told = "went back to one that began earlier";
    eventually("the log says it", || weir.log().contains(told).then_some(()));
    let log = weir.log();
    let line = log.lines().find(|line| line.contains(told)).expect("it is there");
    assert!(line.contains("ERROR"), "{line}");
    for wanted in ["Z has admit_per_minute 120 -> 30", "OLD is in it again", "weir zones apply FILE"] {
        assert!(line.contains(wanted), "{wanted} is not in {line}");
    }
    eventually("it is in force", || {
        let zone = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
        (zone["policy"]["admit_per_minute"] == 30).then_some(())
    });
    assert_eq!(weir.log().matches(told).count(), 1);

    // The earlier life began in the same minute, and had more changes.
    let setup = Setup::new(&format!("store = \"{}\"\n{}", redis.url(), zone("Z", 120, "mode = \"hold\"")));
    drop(weir);
    redis.command(&["DEL", REGISTER]);
    let weir = setup.start();
    assert_eq!(join(&weir), 200);
    let [rev, now]: [u64; 2] = ["#rev", "#born"]
        .map(|field| redis.command(&["HGET", REGISTER, field]).text().parse().expect("a number"));
    assert!(now > born.parse().expect("a number"), "it is another life");
    let (rev, born) = ((rev + 7).to_string(), (now - 1_000_000).to_string());
    let fields = ["#rev", &rev, "#born", &born, "Z", z];
    redis.command(&[&["EVAL", restore, "1", REGISTER], &fields[..]].concat());
    eventually("the log says it", || weir.log().contains(told).then_some(()));
    assert!(weir.log().contains("Z has admit_per_minute 120 -> 30"), "{}", weir.log());
}
