//! A file's faults have lines, and the sources their order.

use super::*;
use admission::Mode;

fn refused(text: &str) -> String {
    from_text("w.toml", text).expect_err(text).to_string()
}

const ZONE: &str = "[[zone]]\nid = \"A\"\n";

#[test]
fn a_whole_file() {
    let text = "listen = \"127.0.0.1:0\"\nidle_timeout_s = 90\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n\
                [pass]\nalgorithm = \"EdDSA\"\nissuer = \"x\"\n[[zone]]\nid = \"A\"\nmode = \"hold\"\n\
                admit_per_minute = 1_000\n[[zone]]\nid = \"B\"\npolling_period_ms = 0x800\n";
    let config = from_text("w.toml", text).expect("right");
    assert_eq!(config.zones.len(), 2);
    assert_eq!((config.zones[0].1.mode, config.zones[0].1.admit_per_minute), (Mode::Hold, 1_000));
    assert_eq!(config.zones[1].1.polling_period_ms, 2_048);
    assert_eq!((config.pass.algorithm, config.trusted_proxies.len()), (Algorithm::EdDsa, 2));
    assert_eq!(config.idle_timeout, Duration::from_secs(90));
}

#[test]
fn faults_say_where_what_and_what_to_do() {
    let cases = [
        ("listn = 1\n", "w.toml:1: listn: there is no such field"),
        ("\nlisten = 1\n", "w.toml:2: listen: must be a string, and is of type integer"),
        ("listen = \"x\"\n", "w.toml:1: listen: `x` is no address and port; write one as in 127.0.0.1:8080"),
        ("backlog = 99999999999999999999\n", "w.toml:1: backlog: is 99999999999999999999, and must be"),
        ("a = = 1\n", "w.toml:1: "),
        ("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:1\"\n", "w.toml:2: duplicate key"),
        ("store = \"redis://u:secret@h:1\"\n", "w.toml:1: store: `h:1`: Redis is not served yet"),
        ("pass.algorithm = \"none\"\n", "w.toml:1: pass.algorithm: `none` is no algorithm"),
        ("max_connections = 19800\n", "w.toml:1: max_connections: is 19800, and 20000 open files leave"),
        ("trusted_proxies = [\"10.0.0.0/33\"]\n", "w.toml:1: trusted_proxies: `10.0.0.0/33` is no network"),
        ("idle_timeout_s = 3\n", "w.toml:1: idle_timeout_s: is 3 s, and a zone's apps ask every 3000 ms"),
    ];
    for (text, told) in cases {
        let line = refused(&format!("{text}{ZONE}"));
        assert!(line.starts_with(told) && !line.contains('\n'), "{line}");
    }
    assert!(!refused(&format!("store = \"redis://u:secret@h:1\"\n{ZONE}")).contains("secret"));
}

#[test]
fn zone_faults_have_the_line_of_the_field() {
    let cases = [
        (
            "admit_per_minute = 0",
            "w.toml:3: zone.admit_per_minute: is 0, and must be a whole number from 1 to",
        ),
        ("admit_per_minute = -1", "w.toml:3: zone.admit_per_minute: is -1, and must be"),
        (
            "admit_per_minute = 99999999999999999999",
            "w.toml:3: zone.admit_per_minute: is 99999999999999999999",
        ),
        (
            "admit_per_minute = \"9\"",
            "w.toml:3: zone.admit_per_minute: must be a whole number, and is of type",
        ),
        ("mode = \"shut\"", "w.toml:3: zone.mode: is `shut`, and must be one of auto, hold, open, closed"),
        ("speed = 1", "w.toml:3: zone.speed: there is no such field as `speed`"),
        ("polling_period_ms = 60000", "w.toml:1: zone: idle_timeout_s is 60, and must be 180 to 3600"),
        ("[[zone]]\nid = \"A\"", "w.toml:3: zone: `A` is there twice, first at line 1"),
        ("[[zone]]\nmode = \"auto\"", "w.toml:3: zone: has no `id`"),
    ];
    for (text, told) in cases {
        let line = refused(&format!("{ZONE}{text}\n"));
        assert!(line.starts_with(told), "{line}");
    }
    assert!(refused("").starts_with("w.toml: has no zone"));
    assert!(refused("zone = 3").starts_with("w.toml:1: zone: zones are written as [[zone]]"));
}

#[test]
fn flags_win_over_variables_over_file_over_defaults() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("listen = \"127.0.0.1:1\"\nbacklog = 64\nlog = \"warn\"\n{ZONE}"))
        .expect("written");
    let load = |args: &[&str], variables: &'static [(&str, &str)]| {
        let args = ["weir"].iter().chain(args).map(OsString::from);
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        match order(args, variable, 20_000) {
            Ok(Order::Serve(sources) | Order::Check(sources)) => sources.load(),
            Ok(Order::Print(text)) => Err(ConfigFault(text)),
            Err(fault) => Err(fault),
        }
    };
    let path = file.path().to_str().expect("a plain path");
    let both = &[("WEIR_LISTEN", "127.0.0.1:2"), ("WEIR_BACKLOG", "128")];
    let config = load(&["serve", "--config", path, "--listen", "127.0.0.1:3"], both).expect("right");
    assert_eq!((config.listen.port(), config.backlog, config.log.as_str()), (3, 128, "warn"));
    let bare = load(&[], &[]).expect("bare");
    assert_eq!((bare.zones[0].0.as_str(), bare.zones[0].1), ("TEST_ZONE", Policy::default()));
    assert_eq!(bare.max_connections, 19_744);
    let told = |args: &[&str], variables| load(args, variables).expect_err("refused").to_string();
    assert!(told(&["--backlog", "1"], &[]).starts_with("--backlog: is 1, and must be"));
    assert!(told(&[], &[("WEIR_BACKLOG", "x")]).starts_with("WEIR_BACKLOG: is x, and must be"));
    assert!(told(&["--nonsense"], &[]).starts_with("unexpected argument '--nonsense' found; see"));
    assert!(
        told(&["check-config", "/nonexistent.toml"], &[]).starts_with("/nonexistent.toml: can't be read")
    );
    assert!(told(&["--version"], &[]).starts_with("weir 0."));
    assert_eq!(bare.needs_restart(&config), ["listen", "backlog", "log"]);
}
