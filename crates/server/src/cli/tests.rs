//! What commands mean, and which source of a setting wins.

use std::ffi::OsString;

use admission::Definition;
use gate::definitions::ApplyOptions;

use super::{Order, arguments::TOKEN_VARIABLE, is_unknown};
use crate::{
    access::Role,
    config::ConfigFault,
    remote::{Call, Format},
    secret::Secret,
    stores::StoreSettings,
};

const ZONE: &str = "[[zone]]\nid = \"A\"\n";
const REDIS: &str = "store = \"redis://h:1\"\n";

fn read_with(args: &[&str], variable: impl Fn(&str) -> Option<String>) -> Result<Order, ConfigFault> {
    super::read(["weir"].iter().chain(args).map(OsString::from), variable, 20_000)
}

fn read(args: &[&str]) -> Result<Order, ConfigFault> {
    read_with(args, |name| (name == TOKEN_VARIABLE).then(|| "s3cret".to_owned()))
}

fn call(args: &[&str]) -> Call {
    match read(args) {
        Ok(Order::Call(call, ..)) => call,
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn a_server_is_asked_unless_a_store_is_named() {
    assert_eq!(call(&["zones", "list"]), Call::List);
    assert!(matches!(read(&["zones", "list", "--store", "redis://h:1"]), Ok(Order::ListZones(_))));
    assert!(matches!(read(&["zones", "list", "--config", "weir.toml"]), Ok(Order::ListZones(_))));
    assert_eq!(call(&["zones", "show", "A"]), Call::Show("A".to_owned()));
    let fields = vec![("mode".to_owned(), "hold".to_owned()), ("notice.en".to_owned(), "a=b".to_owned())];
    let set = Call::Set { zone: "A".to_owned(), fields, dry_run: true };
    assert_eq!(call(&["zones", "set", "--dry-run", "A", "mode=hold", "notice.en=a=b"]), set);
    let create = Call::Create { zone: "A".to_owned(), fields: vec![], dry_run: false };
    assert_eq!(call(&["zones", "create", "A"]), create);
    assert_eq!(call(&["zones", "delete", "A"]), Call::Delete { zone: "A".to_owned(), dry_run: false });
    assert_eq!(call(&["stock", "show", "A"]), Call::Stock("A".to_owned()));
    let numbers = vec![("floor".to_owned(), "0".to_owned()), ("gold".to_owned(), "unknown".to_owned())];
    let set = Call::SetStock { zone: "A".to_owned(), numbers, dry_run: true };
    assert_eq!(call(&["stock", "set", "--dry-run", "A", "floor=0", "gold=unknown"]), set);
    let apply = Call::ApplyStock { zone: "A".to_owned(), file: "tiers.json".into(), dry_run: false };
    assert_eq!(call(&["stock", "apply", "A", "tiers.json"]), apply);
    assert!(read(&["stock", "set", "A"]).is_err() && read(&["stock", "set", "A", "floor"]).is_err());
    assert_eq!(call(&["stats", "--watch"]), Call::Stats { zone: None, watch: true });
    assert_eq!(call(&["changes"]), Call::Changes(None));
    assert_eq!(call(&["changes", "A"]), Call::Changes(Some("A".to_owned())));
    assert_eq!(call(&["servers"]), Call::Servers);
    assert_eq!(call(&["drain"]), Call::Drain { draining: true });
    assert_eq!(call(&["drain", "--undo"]), Call::Drain { draining: false });
    let asked = read(&["stats", "A", "--admin", "http://h:1", "--token-file", "f"]);
    let Ok(Order::Call(_, server, _)) = &asked else { panic!("{asked:?}") };
    assert_eq!((server.url.as_str(), server.token_file.as_deref()), ("http://h:1", Some("f".as_ref())));
    assert!(!format!("{asked:?}").contains("s3cret"));
}

/// Every command that talks to a server prints its reply as JSON where that is asked for.
#[test]
fn a_servers_reply_is_printed_as_json() {
    for args in [
        &["zones", "list"][..],
        &["zones", "show", "A"],
        &["zones", "set", "A", "mode=hold"],
        &["zones", "create", "A"],
        &["zones", "delete", "A"],
        &["route", "list"],
        &["route", "explain", "/", "--admin", "http://h:1"],
        &["stats"],
        &["changes"],
        &["servers"],
        &["drain"],
    ] {
        let format = |more: &[&str]| match read(&[args, more].concat()) {
            Ok(Order::Call(_, _, format)) => format,
            other => panic!("{args:?}: {other:?}"),
        };
        assert_eq!((format(&[]), format(&["-o", "json"])), (Format::Text, Format::Json), "{args:?}");
    }
    for args in [
        &["zones", "list", "--store", "redis://h:1", "-o", "json"][..],
        &["route", "explain", "/", "-o", "json"],
    ] {
        let line = read(args).expect_err("refused").to_string();
        assert!(line.starts_with("--output is for the reply of a server"), "{line}");
    }
}

#[test]
fn what_means_nothing_is_refused() {
    for (args, told) in [
        (&["zones", "set", "A"][..], "the following required arguments were not provided"),
        (&["zones", "set", "A", "mode"], "`mode` is not FIELD=VALUE; write it as in admit_per_minute=600"),
        (&["zones", "create", "A", "mode"], "`mode` is not FIELD=VALUE; write it as in admit_per_minute=600"),
        (&["stock", "set", "A", "floor"], "`floor` is not TIER=NUMBER; write it as in floor=12"),
        (&["zones", "show"], "the following required arguments were not provided"),
        (&["token", "new", "--name", "a b", "--role", "viewer"], "--name: `a b` is not a valid name"),
        (&["token", "new", "--name", "local", "--role", "viewer"], "--name: `local` is not a valid name"),
        (
            &["token", "new", "--name", "a", "--role", "root"],
            "invalid value 'root' for '--role <role>': one of shop, viewer, operator, admin",
        ),
        (&["openapi", "private"], "invalid value 'private' for '<API>'"),
        (
            &["--admin", "http://h:1", "zones", "set", "Z", "mode=hold"],
            "unexpected argument '--admin' found: it goes behind the command, as in `weir zones set --admin`; see weir zones set --help",
        ),
        (
            &["zones", "--admin=http://h:1", "list"],
            "unexpected argument '--admin' found: it goes behind the command, as in `weir zones list --admin`; see weir zones list --help",
        ),
        (
            &["zones", "-o", "json"],
            "unexpected argument '-o' found: it goes behind the command, as in `weir zones list -o`; see weir zones --help",
        ),
        (
            &["zones", "list", "--nonsense"],
            "unexpected argument '--nonsense' found; see weir zones list --help",
        ),
        (
            &["--config", "f", "--log", "warn", "zones", "list"],
            "the subcommand 'zones' cannot be used with: --config <FILE>: it goes behind the command, as in `weir zones list --config`; see weir zones list --help",
        ),
        (
            &["--config", "f", "zones", "list"],
            "the subcommand 'zones' cannot be used with '--config <FILE>': it goes behind the command, as in `weir zones list --config`; see weir zones list --help",
        ),
        (&["zones", "events", "Z"], "unrecognized subcommand 'events'; see weir zones --help"),
        (
            &["serve", "weir.toml"],
            "unexpected argument 'weir.toml' found: a configuration file is named with --config, as in `--config weir.toml`; see weir serve --help",
        ),
        (
            &["weir.toml"],
            "unrecognized subcommand 'weir.toml': a configuration file is named with --config, as in `--config weir.toml`; see weir --help",
        ),
        (
            &["u:s3cret@h.example"],
            "unrecognized subcommand '…@h.example': a configuration file is named with --config, as in `--config …@h.example`; see weir --help",
        ),
        (
            &["zones", "list", "http://u:s3cret@h"],
            "unexpected argument 'http://…@h' found; see weir zones list --help",
        ),
        (&["http://u:s3cret@h"], "unrecognized subcommand 'http://…@h'; see weir --help"),
        (
            &["token", "new", "--name", "a", "--role", "http://u:s3cret@h"],
            "invalid value 'http://…@h' for '--role <role>': one of shop, viewer, operator, admin",
        ),
        (
            &["route", "token", "--name", "a", "--valid", "1h", "--only-from", "http://u:s3cret@h"],
            "invalid value 'http://…@h' for '--only-from <",
        ),
    ] {
        let line = read(args).expect_err("refused").to_string();
        assert!(line.starts_with(told) && !line.contains("s3cret"), "{line}");
    }
    let made = read(&["token", "new", "--name", "ada", "--role", "operator"]);
    assert!(matches!(made, Ok(Order::NewToken { role: Role::Operator, .. })));
}

/// Where standard output is closed, nothing is lost: what only shows something is not done, and a change is made.
#[test]
fn what_only_shows_something_is_told_from_changes() {
    for (args, shows) in [
        (&["serve"][..], false),
        (&["--version"], true),
        (&["token", "new", "--name", "ada", "--role", "viewer"], true),
        (&["route", "token", "--name", "a", "--valid", "1h"], true),
        (&["check-config"], true),
        (&["doctor"], true),
        (&["audit", "verify", "log"], true),
        (&["openapi", "admin"], true),
        (&["zones", "apply", "f"], false),
        (&["zones", "apply", "f", "--dry-run"], true),
        (&["zones", "list"], true),
        (&["zones", "set", "A", "mode=hold"], false),
        (&["zones", "set", "A", "mode=hold", "--dry-run"], true),
        (&["drain"], false),
        (&["event", "report", "A", "e", "--out", "f"], false),
        (&["event", "report", "A", "e", "--out", "f", "--json", "-"], true),
    ] {
        assert_eq!(read(args).expect("right").only_shows(), shows, "{args:?}");
    }
}

#[test]
fn a_password_is_no_flag() {
    let told = read(&["--redis-password", "x"]).expect_err("refused").to_string();
    assert!(told.starts_with("unexpected argument '--redis-password'"), "{told}");
    let by_variable = read_with(&["--store", "redis://h:1"], |name| {
        (name == "WEIR_REDIS_PASSWORD").then(|| "s3cret".to_owned())
    });
    let Ok(Order::Serve(sources)) = by_variable else { panic!("{by_variable:?}") };
    assert!(!format!("{sources:?}").contains("s3cret"));
    let StoreSettings::Redis(redis) = sources.load().expect("right").store else { panic!("no Redis") };
    assert_eq!(redis.password.as_ref().map(Secret::reveal), Some("s3cret"));
}

#[test]
fn zones_are_applied_from_their_own_file_or_that_of_the_settings() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (settings, zones) = (file("weir.toml", REDIS), file("zones.toml", ZONE));
    let both = file("both.toml", &format!("store = \"redis://h:1\"\n{ZONE}"));
    let applied = |args: &[&str]| {
        let args = [&["zones", "apply"], args].concat();
        let Ok(Order::ApplyZones(sources, options)) = read(&args) else { panic!("not `zones apply`") };
        assert_eq!(options, ApplyOptions::default());
        sources.load()
    };
    for args in [&[both.as_str()][..], &[&zones, "--config", &settings], &[&zones, "--store", "redis://h:1"]]
    {
        let config = applied(args).expect("right");
        assert!(matches!(config.store, StoreSettings::Redis(_)), "{args:?}");
        assert_eq!((config.zones.len(), config.zones[0].0.as_str()), (1, "A"), "{args:?}");
    }
    let both = ["zones", "apply", &both, "--dry-run", "--replace"];
    let Ok(Order::ApplyZones(_, options)) = read(&both) else { panic!("not `zones apply`") };
    assert_eq!(options, ApplyOptions { dry_run: true, replace: true });
    for (args, told) in [
        (&["zones"][..], "'weir zones' requires a subcommand"),
        (&["zones", "apply"], "the following required arguments were not provided: <FILE>; see"),
    ] {
        let line = read(args).expect_err("refused").to_string();
        assert!(line.starts_with(told), "{line}");
    }
}

#[test]
fn the_beginning_of_a_reported_event_is_an_instant() {
    let report = |begins| read(&["event", "report", "A", "sale", "--out", "a.html", "--begins", begins]);
    assert!(matches!(report("2026-12-01T09:00[Europe/Berlin]"), Ok(Order::ReportEvent(..))));
    let line = report("noon").expect_err("refused").to_string();
    assert!(line.starts_with("--begins: \"noon\" is not an instant: write"), "{line}");
}

#[test]
fn flags_win_over_variables_over_file_over_defaults() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("listen = \"127.0.0.1:1\"\nbacklog = 64\nlog = \"warn\"\n{ZONE}"))
        .expect("written");
    let load = |args: &[&str], variables: &'static [(&str, &str)]| {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        match read_with(args, variable)? {
            Order::Serve(sources) | Order::Check(sources) | Order::VerifyAudit(sources, ..) => sources.load(),
            Order::Print(text) => Err(ConfigFault::new(text)),
            other => panic!("{other:?}"),
        }
    };
    let path = file.path().to_str().expect("a plain path");
    let both = &[("WEIR_LISTEN", "127.0.0.1:2"), ("WEIR_BACKLOG", "128")];
    let config = load(&["serve", "--config", path, "--listen", "127.0.0.1:3"], both).expect("right");
    assert_eq!((config.listen.port(), config.backlog, config.log.as_str()), (3, 128, "warn"));
    let bare = load(&[], &[]).expect("bare");
    assert_eq!((bare.zones[0].0.as_str(), &bare.zones[0].1), ("TEST_ZONE", &Definition::default()));
    assert_eq!(bare.max_connections, 19_744);
    let told = |args: &[&str], variables| load(args, variables).expect_err("refused").to_string();
    assert!(told(&["--backlog", "1"], &[]).starts_with("--backlog: is 1, and must be"));
    assert!(told(&[], &[("WEIR_BACKLOG", "x")]).starts_with("WEIR_BACKLOG: is x, and must be"));
    assert!(told(&["--nonsense"], &[]).starts_with("unexpected argument '--nonsense' found; see"));
    assert!(
        told(&["check-config", "/nonexistent.toml"], &[]).starts_with("/nonexistent.toml: can't be read")
    );
    assert!(
        told(&["audit", "verify", "--head", "7:x"], &[])
            .starts_with("--head: `7:x` is not a head; write it as")
    );
    assert!(told(&["serve"], &[("WEIR_CONFIG", "")]).starts_with("WEIR_CONFIG: is empty"));
    assert!(told(&["serve", "--config="], &[]).starts_with("--config: is empty"));
    let audited = load(&["audit", "verify", "log", "--audit-dir", "log"], &[]).expect("right").audit;
    assert_eq!(audited.map(|audit| audit.file_bytes), Some(100_000_000));
    assert!(told(&["--version"], &[]).starts_with("weir 0."));
    assert_eq!(bare.needs_restart(&config), ["listen", "backlog", "log"]);
}

#[test]
fn variables_that_are_no_settings_are_noticed() {
    for (name, unknown) in [
        ("WEIR_LISTN", true),
        ("WEIR_LISTEN", false),
        ("WEIR_CONFIG", false),
        (TOKEN_VARIABLE, false),
        ("WEIR_SERVICE_HOST", false),
        ("WEIR_PORT_8080_TCP", false),
        ("PATH", false),
    ] {
        assert_eq!(is_unknown(name), unknown, "{name}");
    }
}

#[test]
fn a_draw_is_verified_with_or_without_a_key() {
    let read = |args: &[&str]| read(&[&["draw", "verify"], args].concat());
    let key = "shop.example/weir+c77d8173+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";
    assert!(matches!(read(&["record.json"]), Ok(Order::VerifyDraw(_))));
    assert!(matches!(
        read(&["record.json", "a.json", "b.json", "--key", key, "-o", "json"]),
        Ok(Order::VerifyDraw(_))
    ));
    assert!(read(&[]).is_err());
    let fault =
        read(&["record.json", "--key", &key.replace("c77d", "c77e")]).expect_err("its ID does not fit");
    assert!(fault.to_string().contains("--key") && fault.to_string().contains("does not fit"), "{fault}");
}
