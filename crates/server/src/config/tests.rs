//! A file's faults have lines, and the sources their order.

use admission::Mode;
use store::redis::Durability;

use super::*;
use crate::{passes::Algorithm, secret::Secret, stores::CellSettings};

fn refused(text: &str) -> String {
    from_text("w.toml", text).expect_err(text).to_string()
}

const ZONE: &str = "[[zone]]\nid = \"A\"\n";

#[test]
fn a_whole_file() {
    let text = "listen = \"127.0.0.1:0\"\nidle_timeout_s = 90\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n\
                [limit]\ncarrier_nats = [\"100.64.0.0/10\"]\nipv6_prefix = 56\n\
                [pass]\nalgorithm = \"EdDSA\"\nissuer = \"x\"\n[[zone]]\nid = \"A\"\nmode = \"hold\"\n\
                admit_per_minute = 1_000\n[[zone]]\nid = \"B\"\npolling_period_ms = 0x800\n\
                waits_per_minute_per_client = 6\nentries_per_minute_per_client = 600\n";
    let config = from_text("w.toml", text).expect("right");
    assert_eq!(config.zones.len(), 2);
    assert_eq!(
        (config.zones[0].1.policy.mode, config.zones[0].1.policy.admit_per_minute),
        (Mode::Hold, 1_000)
    );
    let policy = config.zones[1].1.policy;
    assert_eq!(policy.polling_period_ms, 2_048);
    assert_eq!((policy.waits_per_minute_per_client, policy.entries_per_minute_per_client), (6, 600));
    assert_eq!((config.limit.carrier_nats.len(), config.limit.ipv6_prefix), (1, 56));
    assert_eq!((config.pass.algorithm, config.trusted_proxies.len()), (Algorithm::EdDsa, 2));
    assert_eq!(config.idle_timeout(3_000), Duration::from_secs(90));
}

#[test]
fn networks_are_read_as_addresses_are_compared() {
    let text = format!(
        "trusted_proxies = [\"::ffff:10.0.0.9\"]\n[limit]\ncarrier_nats = [\"::ffff:10.0.0.0/104\"]\n{ZONE}"
    );
    let config = from_text("w.toml", &text).expect("right");
    let read = [&config.trusted_proxies[..], &config.limit.carrier_nats].concat();
    assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.9/32", "10.0.0.0/8"]);
}

#[test]
fn a_zone_may_have_a_notice() {
    let text = "[[zone]]\nid = \"A\"\n[zone.notice]\nen = \"Back at noon.\"\nko = \"\"\"안내\n둘째 줄\"\"\"\n\
                [[zone]]\nid = \"B\"\nnotice = { pt-br = \"x\" }\n[[zone]]\nid = \"C\"\n";
    let zones = from_text("w.toml", text).expect("right").zones;
    let said = |at: usize| zones[at].1.notice.iter().collect::<Vec<_>>();
    assert_eq!(said(0), [("en", "Back at noon."), ("ko", "안내\n둘째 줄")]);
    assert_eq!((said(1), said(2)), (vec![("pt-br", "x")], vec![]));
    let nine: String = ('a'..='i').map(|c| format!("x{c} = \"x\"\n")).collect();
    let long = format!("en = \"{}\"", "x".repeat(501));
    for (notice, told) in [
        ("EN = \"x\"", "w.toml:4: zone.notice.EN: `EN` is not a language tag; write it in lower case"),
        ("en = 3", "w.toml:4: zone.notice.en: must be a string, and is of type integer"),
        ("en = \"x\"\nko = \"\"", "w.toml:5: zone.notice.ko: the text in `ko` has 0 characters"),
        (&long, "w.toml:4: zone.notice.en: the text in `en` has 501 characters"),
        ("en = \"a\\tb\"", "w.toml:4: zone.notice.en: the text in `en` has the control character"),
        (&nine, "w.toml:3: zone.notice: there are 9 languages, and 8 are the most"),
    ] {
        let fault = refused(&format!("{ZONE}[zone.notice]\n{notice}\n"));
        assert!(fault.starts_with(told), "{fault}");
    }
    let fault = refused(&format!("{ZONE}notice = \"x\"\n"));
    assert!(fault.starts_with("w.toml:3: zone.notice: must be a table of texts by language"), "{fault}");
}

#[test]
fn faults_say_where_what_and_what_to_do() {
    let cases = [
        ("listn = 1\n", "w.toml:1: listn: there is no such field"),
        ("\nlisten = 1\n", "w.toml:2: listen: must be a string, and is of type integer"),
        (
            "listen = \"x\"\n",
            "w.toml:1: listen: `x` is not an address with a port; write one as in 127.0.0.1:8080",
        ),
        ("backlog = 99999999999999999999\n", "w.toml:1: backlog: is 99999999999999999999, and must be"),
        ("a = = 1\n", "w.toml:1: "),
        ("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:1\"\n", "w.toml:2: duplicate key"),
        (
            "store = \"mongo://u:secret@h:1\"\n",
            "w.toml:1: store: `mongo://…@h:1` is not a store; use `memory`",
        ),
        (
            "redis.client = \"jedis\"\n",
            "w.toml:1: redis.client: is `jedis`, and must be one of fred, redis-rs",
        ),
        ("redis.durability = 1\n", "w.toml:1: redis.durability: must be a string, and is of type integer"),
        ("cell = 3\n", "w.toml:1: cell: cells are written as [[cell]] tables"),
        ("pass.algorithm = \"none\"\n", "w.toml:1: pass.algorithm: `none` is not a supported algorithm"),
        ("max_connections = 19800\n", "w.toml:1: max_connections: is 19800, and 20000 open files leave"),
        (
            "trusted_proxies = [\"10.0.0.0/33\"]\n",
            "w.toml:1: trusted_proxies: `10.0.0.0/33` is not a network",
        ),
        (
            "limit.carrier_nats = [\"x\"]\n",
            "w.toml:1: limit.carrier_nats: `x` is not a network; write one as in",
        ),
        (
            "limit.ipv6_prefix = 24\n",
            "w.toml:1: limit.ipv6_prefix: is 24, and must be a whole number from 32 to 128",
        ),
        ("cors_origins = [\"shop.example\"]\n", "w.toml:1: cors_origins: `shop.example` is not an origin"),
        ("idle_timeout_s = 3\n", "w.toml:1: idle_timeout_s: is 3 s, and a zone's apps ask every 3000 ms"),
    ];
    for (text, told) in cases {
        let line = refused(&format!("{text}{ZONE}"));
        assert!(line.starts_with(told) && !line.contains('\n'), "{line}");
    }
    for store in ["redis://u:secret@h:x", "rediss-cluster://:secret@", "mongo://u:secret@h:1"] {
        let line = refused(&format!("store = \"{store}\"\n{ZONE}"));
        assert!(line.starts_with("w.toml:1: store: ") && !line.contains("secret"), "{line}");
    }
}

#[test]
fn targets_of_the_waiting_page() {
    let text = "[wait]\ntemplates_dir = \"pages\"\n[[wait.target]]\nzone = \"A\"\nurl = \"https://a.example/in\"\n\
                [[wait.target]]\nzone = \"*\"\nurl = \"http://127.0.0.1:3000\"\nby = \"fragment\"\n";
    let config = from_text("w.toml", &format!("{text}{ZONE}")).expect("right");
    let shown: Vec<_> = config.shown().into_iter().filter(|(name, _)| name.starts_with("wait.")).collect();
    let targets = "A -> https://a.example/in (form), * -> http://127.0.0.1:3000 (fragment)".to_owned();
    assert_eq!(shown, [("wait.templates_dir", "pages".to_owned()), ("wait.target", targets)]);
    let bare = from_text("w.toml", ZONE).expect("right");
    assert!(bare.needs_restart(&config).is_empty(), "pages are read again");

    let cases = [
        ("[wait]\ntarget = 3\n", "w.toml:2: wait.target: targets are written as [[wait.target]] tables"),
        ("[[wait.target]]\nzone = \"A\"\n", "w.toml:1: wait.target: has no `url`"),
        ("[[wait.target]]\nurl = \"https://a.example\"\n", "w.toml:1: wait.target: has no `zone`"),
        (
            "[[wait.target]]\nzone = \"A\"\nurl = \"javascript:alert(1)\"\n",
            "w.toml:3: wait.target.url: `javascript:alert(1)` is not a target address",
        ),
        (
            "[[wait.target]]\nzone = \"a b\"\nurl = \"https://a.example\"\n",
            "w.toml:2: wait.target.zone: `a b` is not a zone",
        ),
        (
            "[[wait.target]]\nby = \"query\"\n",
            "w.toml:2: wait.target.by: is `query`, and must be one of form, fragment",
        ),
        ("[[wait.target]]\nurl = 3\n", "w.toml:2: wait.target.url: must be a string"),
        ("[[wait.target]]\nto = 3\n", "w.toml:2: wait.target.to: there is no such field"),
        ("[wait]\ntemplates = \"x\"\n", "w.toml:2: wait.templates: there is no such field"),
        (
            "[[wait.target]]\nzone = \"A\"\nurl = \"https://a.example\"\n\
             [[wait.target]]\nzone = \"A\"\nurl = \"https://b.example\"\n",
            "w.toml:4: wait.target: A -> https://b.example (form): these zones have another target already",
        ),
    ];
    for (text, told) in cases {
        let line = refused(&format!("{text}{ZONE}"));
        assert!(line.starts_with(told), "{line}");
    }
}

#[test]
fn routes_of_proxies() {
    let proxies = "trusted_proxies = [\"10.0.0.1\"]\n";
    let routes = "[[route]]\nname = \"staff\"\nbypass = true\ncookie = { staff = \"s3cret\" }\n\
                  [[route]]\ndeny = true\naddress = \"198.51.100.0/24\"\n\
                  [[route]]\nzone = \"A\"\nhost = [\"A.example\", \"*.a.example\"]\npath = \"/x/*\"\neverything = true\n";
    let config = from_text("w.toml", &format!("{proxies}{ZONE}{routes}")).expect("right");
    let shown = config.shown().into_iter().find(|(name, _)| *name == "route").expect("it is shown").1;
    assert_eq!(
        shown,
        "staff: cookie staff, let through; route 2: address 198.51.100.0/24, refused; \
         route 3: host a.example or *.a.example, path /x/*, waits in A, everything"
    );
    let bare = from_text("w.toml", &format!("{proxies}{ZONE}")).expect("right");
    assert!(bare.needs_restart(&config).is_empty(), "routes are read again");

    let zone = "[[route]]\nzone = \"A\"\n";
    let cases = [
        ("[route]\n".to_owned(), 2, "route: routes are written as [[route]] tables"),
        ("[[route]]\npath = \"/x\"\n".to_owned(), 2, "route: needs exactly one of"),
        ("[[route]]\nzone = \"A\"\nbypass = true\n".to_owned(), 2, "route: needs exactly one of"),
        ("[[route]]\nbypass = true\n".to_owned(), 2, "route: lets everybody through"),
        ("[[route]]\nbypass = false\n".to_owned(), 3, "route.bypass: is false"),
        (
            "[[route]]\ndeny = true\neverything = true\n".to_owned(),
            4,
            "route.everything: is for routes with a zone",
        ),
        ("[[route]]\nzone = \"a b\"\n".to_owned(), 3, "route.zone: a zone's id is"),
        ("[[route]]\nzone = \"OTHER\"\n".to_owned(), 2, "route: there is no zone `OTHER`"),
        (format!("{zone}path = \"x\"\n"), 4, "route.path: `x` is no path"),
        (format!("{zone}path = []\n"), 4, "route.path: has 1 to 256 texts"),
        (format!("{zone}host = \"\"\n"), 4, "route.host: a pattern has 1 to 256 characters"),
        (format!("{zone}method = \"get\"\n"), 4, "route.method: `get` is no method"),
        (format!("{zone}address = \"x\"\n"), 4, "route.address: `x` is not a network"),
        (format!("{zone}header = \"x\"\n"), 4, "route.header: must be a table"),
        (
            format!("{zone}header = {{ \"a b\" = \"x\" }}\n"),
            4,
            "route.header: `a b` is not the name of a header",
        ),
        (format!("{zone}paths = \"/x\"\n"), 4, "route.paths: there is no such field"),
        (format!("{zone}{zone}"), 4, "route: the route `route 1` above fits every request"),
        (
            "[[route]]\nname = \"a\"\ndeny = true\npath = \"/a\"\n[[route]]\nname = \"a\"\ndeny = true\n"
                .to_owned(),
            6,
            "route: `a` is the name of two routes",
        ),
    ];
    for (text, line, told) in cases {
        let said = refused(&format!("{proxies}{text}{ZONE}"));
        assert!(
            said.starts_with(&format!("w.toml:{line}: {told}")) && !said.contains('\n'),
            "{text}: {said}"
        );
    }
    let said = refused(&format!("{zone}{ZONE}"));
    assert!(said.starts_with("w.toml:1: route: no proxy may ask about its visitors"), "{said}");
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
        (
            "on_store_failure = \"ajar\"",
            "w.toml:3: zone.on_store_failure: is `ajar`, and must be one of closed, open",
        ),
        (
            "entries_per_minute_per_client = 19",
            "w.toml:3: zone.entries_per_minute_per_client: is 19, and must be a whole number from 20 to",
        ),
        (
            "event = [{ id = \"a\", begins = 2026-12-01T08:30:00Z }]",
            "w.toml:3: zone.event.begins (event a): must be a string, and is of type datetime; an instant is written in quotes, as in \"2026",
        ),
        (
            "[[zone.event]]\nid = \"a\"\nprequeue_from = \"2026-12-01T08:30:00Z\"\nbegins = \"tomorrow\"\nends = \"\"",
            "w.toml:6: zone.event.begins (event a): \"tomorrow\" is not an instant: write",
        ),
        (
            "[[zone.event]]\nprequeue_from = 5\nid = \"a\"",
            "w.toml:4: zone.event.prequeue_from (event a): invalid type: integer `5`, expected an instant",
        ),
        ("[[zone.event]]\nid = \"a\"", "w.toml:3: zone.event (event a): missing field `prequeue_from`"),
        ("[[zone.event]]\nbegins = \"\"\nid = \"a b\"", "w.toml:3: zone.event: missing field"),
        ("event = [1]", "w.toml:3: zone.event: events are written as [[zone.event]] tables"),
        (
            "opens_at = 2026-12-01T08:30:00Z",
            "w.toml:3: zone.opens_at: must be a string, and is of type datetime; an instant is written in quotes, as in",
        ),
        ("opens_at = \"soon\"", "w.toml:3: zone.opens_at: \"soon\" is not an instant: write"),
        (
            "event = [{ id = \"a\", admit_per_minute = \"600\" }]",
            "w.toml:3: zone.event.admit_per_minute (event a): invalid type: string \"600\", expected a whole number",
        ),
        ("speed = 1", "w.toml:3: zone.speed: there is no such field as `speed`"),
        ("polling_period_ms = 60000", "w.toml:1: zone: idle_timeout_s is 60, and must be 180 to 3600"),
        ("[[zone]]\nid = \"A\"", "w.toml:3: zone: `A` is defined twice, first at line 1"),
        ("[[zone]]\nmode = \"auto\"", "w.toml:3: zone: has no `id`"),
    ];
    for (text, told) in cases {
        let line = refused(&format!("{ZONE}{text}\n"));
        assert!(line.starts_with(told), "{line}");
    }
    for (text, told) in [
        ("[zones]\nid = \"A\"", "w.toml:1: zones: there is no such field as `zones`; did you mean `zone`?"),
        ("[[zone]]\nid = \"A\"\nadmit_per_min = 3", "did you mean `admit_per_minute`?"),
        ("log = info", "; a text needs quotes: \"info\"; see https://toml.io"),
        ("data_dir = /var/lib/weir # here", "; a text needs quotes: \"/var/lib/weir\"; see"),
        ("backlog = 08", "; see https://toml.io"),
        ("listen = \"localhost:8080\"\n[[zone]]\nid = \"A\"", "; write 127.0.0.1:8080"),
        ("listen = \"weir.example:8080\"\n[[zone]]\nid = \"A\"", "; names are not looked up"),
    ] {
        assert!(refused(text).contains(told), "{}", refused(text));
    }
    assert!(!refused("backlog = 08").contains("quotes"));
    // What may be a secret is not shown.
    for text in [
        "[redis]\npassword = hunter2hunter2",
        "store = redis://:hunter2hunter2@127.0.0.1",
        "[[route]]\nbypass = true\n[route.header.x-staff]\nsecret = hunter2hunter2",
    ] {
        let line = refused(text);
        assert!(line.contains("; a text needs quotes; see") && !line.contains("hunter2"), "{line}");
    }
    assert!(refused("").starts_with("w.toml: has no zone"));
    assert!(refused("zone = 3").starts_with("w.toml:1: zone: zones are written as [[zone]]"));
}

const REDIS: &str = "store = \"rediss-cluster://u:p4ss@a:1,b:2\"\n[redis]\npassword = \"s3cret\"\n\
                     durability = \"replicated\"\nmax_in_flight = 7\ncommand_timeout_ms = 900\n";

#[test]
fn one_redis_is_a_cell_for_everybody() {
    let config = from_text("w.toml", REDIS).expect("no zone needed: the store keeps them");
    let StoreSettings::Redis(redis) = &config.store else { panic!("{:?}", config.store) };
    let [CellSettings { name, address, tenants }] = &redis.cells[..] else { panic!("{:?}", redis.cells) };
    assert_eq!((name.as_str(), &tenants[..]), ("redis", &["*".to_owned()][..]));
    assert_eq!((address.hosts.len(), address.tls), (2, true));
    assert_eq!((redis.durability, redis.max_in_flight), (Durability::Replicated, 7));
    assert_eq!(redis.command_timeout, Duration::from_millis(900));
    assert_eq!(redis.password.as_ref().map(Secret::reveal), Some("s3cret"));
    let shown = format!("{:?} {:?}", config.shown(), config);
    assert!(shown.contains("a:1") && !shown.contains("s3cret") && !shown.contains("p4ss"), "{shown}");
}

#[test]
fn cells_have_names_stores_and_tenants_of_their_own() {
    let cell = |name, tenants| {
        format!("[[cell]]\nname = \"{name}\"\nstore = \"redis://h:1\"\ntenants = {tenants}\n")
    };
    let two = cell("one", "[\"shop\", \"\"]") + &cell("two", "[\"*\"]");
    let config = from_text("w.toml", &format!("{two}{ZONE}")).expect("right");
    let StoreSettings::Redis(redis) = &config.store else { panic!("{:?}", config.store) };
    assert_eq!(redis.cells.iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let one = cell("one", "[\"shop\"]");
    let cases = [
        (format!("{one}{one}"), "w.toml:5: cell: `one` is the name of two cells"),
        (
            one.clone() + &cell("two", "[\"x\", \"shop\"]"),
            "w.toml:5: cell: the tenant `shop` has another cell",
        ),
        (cell("a b", "[\"x\"]"), "w.toml:2: cell.name: a cell's name is"),
        (cell("a", "[]"), "w.toml:1: cell: has no `tenants`"),
        (cell("a", "[\"x:y\"]"), "w.toml:4: cell.tenants: `x:y` is not a tenant"),
        (cell("a", "[\"x\"]\ncolour = 1"), "w.toml:5: cell.colour: there is no such field"),
        (format!("store = \"memory\"\n{one}"), "w.toml:1: store: each cell has its own store"),
        (format!("{one}{ZONE}"), "w.toml:5: zone: `A`: no cell has the tenant ``; name it"),
        (format!("{one}[[zone]]\nid = \"gov:a\"\n"), "w.toml:5: zone: `gov:a`: no cell has the tenant `gov`"),
        (
            "[[cell]]\nname = \"a\"\ntenants = [\"\"]\nstore = \"memory\"\n".to_owned(),
            "w.toml:4: cell.store: `memory`",
        ),
    ];
    for (text, told) in cases {
        let line = refused(&text);
        assert!(line.starts_with(told), "{line}");
    }
}

#[test]
fn servers_talk_by_their_store_unless_said_otherwise() {
    let shown = |text: &str| {
        let config = from_text("w.toml", &format!("{text}{ZONE}")).expect("right");
        config.shown().into_iter().find(|(name, _)| *name == "fanout").expect("it is a setting").1
    };
    const STORE: &str = "store = \"redis://h:1\"\n";
    assert_eq!(shown(""), "none");
    assert_eq!(shown("fanout = \"none\"\n"), "none");
    assert_eq!(shown(STORE), "redis");
    assert_eq!(shown(&format!("{STORE}fanout = \"none\"\n")), "none");
    assert_eq!(shown(&format!("{STORE}fanout = \"nats://u:s3cret@h:1,i:2\"\n")), "nats://u:***@h:1,i:2");
    for (text, told) in [
        ("fanout = \"redis\"\n".to_owned(), "w.toml:1: fanout: the embedded store has no other servers"),
        (
            "fanout = \"nats://u:s3cret@h:1\"\n".to_owned(),
            "w.toml:1: fanout: the embedded store has no other",
        ),
        (
            format!("{STORE}fanout = \"nats://u:s3cret@h\"\n"),
            "w.toml:2: fanout: an address of NATS has the form",
        ),
        (
            format!("{STORE}fanout = \"s3cret@h:1\"\n"),
            "w.toml:2: fanout: must be redis, none, or the address of NATS",
        ),
    ] {
        let line = refused(&format!("{text}{ZONE}"));
        assert!(line.starts_with(told) && !line.contains("s3cret"), "{line}");
    }
}

#[test]
fn a_certificate_has_two_files_and_may_be_replaced() {
    let with = |certificate: &str| {
        from_text("w.toml", &format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"k\"\n{ZONE}"))
            .expect("right")
    };
    let (plain, one, other) = (from_text("w.toml", ZONE).expect("right"), with("a"), with("b"));
    assert!(plain.tls.is_none() && one.tls != other.tls);
    assert!(one.needs_restart(&other).is_empty());
    assert_eq!(plain.needs_restart(&one), ["tls.certificate", "tls.key"]);
    assert_eq!(one.needs_restart(&plain), ["tls.certificate", "tls.key"]);
    for (text, told) in [
        ("[tls]\ncertificate = \"a\"\n", "w.toml:2: tls.certificate: tls.key is not set"),
        ("[tls]\nkey = \"k\"\n", "w.toml:2: tls.key: tls.certificate is not set"),
        ("[tls]\nkey = \"\"\n", "w.toml:2: tls.key: is empty"),
        ("\nlog = \"\"\n", "w.toml:2: log: is empty; set it, or take it away"),
        ("[pass]\naudience = \"\"\n", "w.toml:2: pass.audience: is empty"),
        ("[draw]\ndrand = []\n", "w.toml:2: draw.drand: has no relay"),
        (
            "[draw]\ndrand = [\"https://u:s3cret@a.example\"]\n",
            "w.toml:2: draw.drand: `https://…@a.example` is no address of a relay",
        ),
        (
            "[pass]\nissuer = \"a\\u001b[31m\"\n",
            "w.toml:2: pass.issuer: has the control character '\\u{1b}'; take it away",
        ),
        ("[tls]\ncert = \"a\"\n", "w.toml:2: tls.cert: there is no such field"),
    ] {
        let fault = refused(&format!("{text}{ZONE}"));
        assert!(fault.starts_with(told), "{fault}");
    }
}

#[test]
fn an_address_for_grpc_needs_proxies_that_may_ask() {
    let config = from_text("w.toml", ZONE).expect("right");
    assert_eq!(config.gate_grpc_listen, None, "off unless it is asked for");
    let text = format!("gate_grpc_listen = \"127.0.0.1:1\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n{ZONE}");
    let with = from_text("w.toml", &text).expect("right");
    assert_eq!(with.gate_grpc_listen.map(|at| at.port()), Some(1));
    assert_eq!(
        with.max_connections + GRPC_CONNECTIONS,
        config.max_connections,
        "they come out of the same files"
    );
    assert_eq!(config.needs_restart(&with), ["gate_grpc_listen", "max_connections", "trusted_proxies"]);
    for (text, told) in [
        (
            "gate_grpc_listen = \"127.0.0.1:1\"\n",
            "w.toml:1: gate_grpc_listen: there are no `trusted_proxies`",
        ),
        ("gate_grpc_listen = \"8082\"\n", "w.toml:1: gate_grpc_listen: `8082` is not an address with a port"),
        (
            "gate_grpc_listen = \"127.0.0.1:8081\"\n",
            "w.toml:1: gate_grpc_listen: 127.0.0.1:8081 is the address of",
        ),
    ] {
        let fault = refused(&format!("{text}{ZONE}"));
        assert!(fault.starts_with(told), "{fault}");
    }
}

#[test]
fn who_may_use_the_admin_api_is_said_whole() {
    let token = |name: &str, role: &str, sha256: &str| {
        format!("[[admin_token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n")
    };
    let (one, two) = ("1a".repeat(32), "2b".repeat(32));
    let both = token("ada", "admin", &one) + &token("vera", "viewer", &two);
    let text = format!("admin_listen = \"0.0.0.0:1\"\nadmin_hosts = [\"Weir.example\"]\n{both}{ZONE}");
    let config = from_text("w.toml", &text).expect("right");
    assert_eq!(config.admin_hosts, ["weir.example"]);
    let shown = config.shown().into_iter().find(|(name, _)| *name == "admin_token").expect("it is shown").1;
    assert_eq!(shown, "ada (admin), vera (viewer)");
    assert!(!format!("{config:?}").contains(&one), "what is kept of a token is not shown");
    let other = from_text("w.toml", &text.replace(&two, &"3c".repeat(32))).expect("right");
    assert!(config.needs_restart(&other).is_empty() && config.admin_tokens != other.admin_tokens);
    for (text, told) in [
        (
            "admin_listen = \"0.0.0.0:1\"\n".to_owned(),
            "w.toml:1: admin_listen: 0.0.0.0:1 is reachable from beyond",
        ),
        ("admin_listen = \"[::]:1\"\n".to_owned(), "w.toml:1: admin_listen: [::]:1 is reachable from beyond"),
        ("admin_hosts = [\"http://h\"]\n".to_owned(), "w.toml:1: admin_hosts: `http://h` is not a host name"),
        ("admin_hosts = [\"h:80\"]\n".to_owned(), "w.toml:1: admin_hosts: `h:80` is not a host name"),
        (
            "admin_token = 3\n".to_owned(),
            "w.toml:1: admin_token: tokens are written as [[admin_token]] tables",
        ),
        (token("local", "admin", &one), "w.toml:2: admin_token.name: a token's name is"),
        (token("ada", "root", &one), "w.toml:3: admin_token.role: is `root`, and must be one of shop,"),
        (token("ada", "admin", "weir_s3cret"), "w.toml:4: admin_token.sha256: is not the SHA-256 of a token"),
        (
            token("ada", "admin", &one) + &token("ada", "viewer", &two),
            "w.toml:5: admin_token: `ada` is the name of two",
        ),
        (
            token("ada", "admin", &one) + &token("otto", "viewer", &one),
            "w.toml:5: admin_token: `ada` and `otto` have the same token",
        ),
        ("[[admin_token]]\nname = \"ada\"\n".to_owned(), "w.toml:1: admin_token: has no `role`"),
        (
            "[[admin_token]]\ncolour = \"red\"\n".to_owned(),
            "w.toml:2: admin_token.colour: there is no such field",
        ),
    ] {
        let line = refused(&format!("{text}{ZONE}"));
        assert!(line.starts_with(told) && !line.contains("s3cret"), "{line}");
    }
}

#[test]
fn a_collector_is_checked_and_its_headers_are_not_shown() {
    let given = |text: &str| from_text("w.toml", &format!("{text}\n{ZONE}"));
    assert_eq!(given("").expect("right").otlp.map(|_| ()), None);
    let text =
        "[otlp]\nendpoint = \"https://otlp.example/base\"\nsample = 0.000001\nheaders = \"key=s3cret\"";
    let config = given(text).expect("right");
    let otlp = config.otlp.as_ref().expect("set");
    assert_eq!((otlp.sample, otlp.max_traces_per_s), (1, 100));
    assert!(!format!("{config:?}{:?}", config.shown()).contains("s3cret"));
    assert_eq!(config.dangers, <[String; 0]>::default());
    let whole = given("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\nsample = 1").expect("right");
    assert_eq!(whole.otlp.map(|otlp| otlp.sample), Some(1_000_000));
    let plain =
        given("[otlp]\nendpoint = \"http://otlp.example:4318\"\nheaders = \"key=s3cret\"").expect("right");
    let [danger] = &plain.dangers[..] else { panic!("one: {:?}", plain.dangers) };
    assert!(danger.contains("plain text") && !danger.contains("s3cret"), "{danger}");

    let at = "endpoint = \"http://127.0.0.1:4318\"\n";
    for (fields, line, says) in [
        ("sample = 0.5", 2, "otlp.endpoint is not set"),
        ("headers = \"a=s3cret\"", 2, "otlp.endpoint is not set"),
        ("endpoint = \"127.0.0.1:4318\"", 2, "http://127.0.0.1:4318"),
        ("endpoint = \"http://u:s3cret@h:4318\"", 2, "without /v1/traces, a query, or a user"),
        ("endpoint = \"http://h:4318/v1/traces\"", 2, "without /v1/traces"),
        (&format!("{at}sample = 1.5"), 3, "a number from 0 to 1"),
        (&format!("{at}sample = -0.1"), 3, "a number from 0 to 1"),
        (&format!("{at}sample = nan"), 3, "a number from 0 to 1"),
        (&format!("{at}sample = 0.0000001"), 3, "at most six digits"),
        (&format!("{at}sample = \"0.1\""), 3, "must be a number from 0 to 1"),
        (&format!("{at}max_traces_per_s = 0"), 3, "from 1 to 1000000"),
        (&format!("{at}headers = \"s3cret\""), 3, "header 1 has no `=`"),
        (&format!("{at}headers = \"a=s3cret\"\nheaders_file = \"f\""), 3, "remove one of the two"),
    ] {
        let fault = refused(&format!("[otlp]\n{fields}\n{ZONE}"));
        assert!(fault.starts_with(&format!("w.toml:{line}: ")) && fault.contains(says), "{fields}: {fault}");
        assert!(!fault.contains("s3cret"), "{fault}");
    }
}

/// Somebody may give any file. The line says where and why, and does not print the file.
#[test]
fn a_fault_shows_little_of_a_long_value() {
    let long = "a b=".repeat(5_000);
    let word = "x".repeat(20_000);
    let number = "9".repeat(20_000);
    let event = "[[zone.event]]\nid = \"e\"\n";
    for (text, begin, end) in [
        (format!("\"{long}\" = 1"), "w.toml:1: a b=", ", cell, admin_token, wait.target"),
        (format!("{word} = 1"), "w.toml:1: xxx", ", cell, admin_token, wait.target"),
        (format!("[limit]\n{word} = 1"), "w.toml:2: limit.xxx", ", cell, admin_token, wait.target"),
        (
            format!("data_dir = {word}"),
            "w.toml:1: string values must be quoted",
            " see https://toml.io for the syntax",
        ),
        (format!("max_connections = {number}"), "w.toml:1: max_connections: is 999", " 1 to 1000000"),
        (
            format!("{ZONE}admit_per_minute = {number}"),
            "w.toml:3: zone.admit_per_minute: is 999",
            "1 to 600000",
        ),
        (format!("{ZONE}mode = \"{long}\""), "w.toml:3: zone.mode: is `a b=", "auto, hold, open, closed"),
        (format!("{ZONE}\"{long}\" = 1"), "w.toml:3: zone.a b=", ", notice, event"),
        (format!("{ZONE}opens_at = \"{long}\""), "w.toml:3: zone.opens_at: \"a b=", ""),
        (format!("{ZONE}[zone.notice]\n\"{long}\" = \"x\""), "w.toml:4: zone.notice.a b=", ""),
        (
            format!("{ZONE}{event}admit_per_minute = \"{long}\""),
            "w.toml:5: zone.event.admit_per_minute (event e): ",
            "from 0 on",
        ),
        (format!("{ZONE}{event}\"{long}\" = 1"), "w.toml:5: zone.event.a b=", ""),
        (format!("{ZONE}[[route]]\nbypass = true\nhost = \"{long}\""), "w.toml:5: route.host: `a b=", ""),
        (format!("{ZONE}[[route]]\nbypass = true\npath = \"{long}\""), "w.toml:5: route.path: `a b=", ""),
        (format!("{ZONE}listen = \"{long}\""), "w.toml:3: zone.listen: ", ""),
        (format!("listen = \"{long}\"\n{ZONE}"), "w.toml:1: listen: ", ""),
        (format!("store = \"{long}\"\n{ZONE}"), "w.toml:1: store: ", ""),
        (format!("log = \"{long}\"\n{ZONE}"), "w.toml:1: log: ", ""),
        (format!("trusted_proxies = [\"{long}\"]\n{ZONE}"), "w.toml:1: trusted_proxies: ", ""),
    ] {
        let said = refused(&text);
        assert!(
            said.starts_with(begin) && said.ends_with(end) && said.len() < 2_500,
            "{} bytes: {said:.3000}",
            said.len()
        );
        for long in [&long[..1_000], &word[..1_000], &number[..1_000]] {
            assert!(!said.contains(long), "{said:.3000}");
        }
    }
}

/// People put an address with a password where none belongs, and errors get into logs.
#[test]
fn no_fault_of_a_wrong_value_shows_a_password() {
    let mut told = 0;
    let mut check = |faulty: Result<(), ConfigFault>, what: &str| {
        if let Err(fault) = faulty {
            let said = fault.to_string();
            assert!(!said.contains("s3cret"), "{what}: {said}");
            told += usize::from(said.contains("…@h"));
        }
    };
    for given in ["http://u:s3cret@h", "u:s3cret@h", "http://u:s3`cret s3cret@h?s3cret", "https://s3cret@h/"]
    {
        for setting in SETTINGS {
            let name = setting.name;
            for value in [format!("\"{given}\""), format!("[\"{given}\"]"), given.to_owned()] {
                let text = format!("{name} = {value}\n{ZONE}");
                check(from_text("w.toml", &text).map(drop), &text);
            }
            let read = setting.read(given, Origin::Flag(setting.flag()));
            check(read.map(drop), name);
        }
        for table in ["zone", "route", "cell", "admin_token", "wait.target"] {
            for field in [
                "id",
                "mode",
                "opens_at",
                "event",
                "name",
                "zone",
                "url",
                "by",
                "host",
                "path",
                "method",
                "header.a",
                "cookie.a",
                "header",
                "address",
                "token",
                "store",
                "tenants",
                "role",
                "sha256",
                "notice.en",
            ] {
                let text = format!("{ZONE}[[{table}]]\nid = \"B\"\n{field} = \"{given}\"\n").replace(
                    "id = \"B\"\n",
                    match table {
                        "zone" if field != "id" => "id = \"B\"\n",
                        "route" if field != "zone" => "zone = \"A\"\n",
                        "wait.target" if field != "zone" => "zone = \"A\"\n",
                        _ => "",
                    },
                );
                check(from_text("w.toml", &text).map(drop), &text);
                check(
                    from_text("w.toml", &text.replace(&format!("\"{given}\""), &format!("[\"{given}\"]")))
                        .map(drop),
                    &text,
                );
            }
        }
    }
    assert!(told > 20, "{told} faults quote the value");
}

/// An editor finds a byte by its line and column.
#[test]
fn a_file_that_is_not_utf_8_is_refused_with_line_and_column() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("w.toml");
    std::fs::write(&path, b"[[zone]]\nid = \"A\" # \xec\x98\xa4 caf\xe9\n").expect("written");
    let said = file::read(&path).map(|_| ()).expect_err("refused").to_string();
    let place = "2: the byte at column 17 is not UTF-8; save the file as UTF-8";
    assert_eq!(said, format!("{}:{place}", path.display()));
}

/// /dev/zero has no length, and no end.
#[test]
fn no_more_of_a_file_is_read_than_a_configuration_may_have() {
    let said = file::read(Path::new("/dev/zero")).map(|_| ()).expect_err("refused").to_string();
    assert_eq!(said, "/dev/zero: is too long: the largest configuration has 4194304 bytes");
}
