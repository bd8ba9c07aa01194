//! What the log's lines contain.

use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex},
};

use admission::{Definition, Mode, Notice, Policy};
use events::Bus;
use gate::definitions::{Author, DefinitionChange};
use serde_json::{Value, value::RawValue};
use tokio::time::timeout;

use super::*;
use crate::{
    record::{ChangeRecord, Event, Record, RoutesRecord, raw},
    writer::HEAD_EVERY,
};

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

/// The lines that a log gets from published events, without `started` and `stopped`.
fn written(publish: impl FnOnce(&Bus), in_force: Vec<(ZoneId, Policy)>) -> Vec<Value> {
    let dir = tempdir().expect("a directory");
    let bus = Bus::with_rings(|_| 4).expect("a thread");
    let settings = Settings { dir: dir.path().to_owned(), file_bytes: 1_000_000 };
    let audit = Audit::start(&bus, &settings, Box::new(move || Some(in_force.clone()))).expect("starts");
    publish(&bus);
    drop(bus);
    audit.finish();
    assert_eq!(report(dir.path()).fault, None);
    let lines = lines(&files(dir.path())[0]);
    let read = |line: &String| serde_json::from_str(line).expect("JSON");
    lines[1..lines.len() - 1].iter().map(read).collect()
}

#[test]
fn each_event_becomes_a_line() {
    let (before, after) = (Policy::default(), Policy { mode: Mode::Hold, ..Policy::default() });
    let lines = written(
        |bus| {
            let z = bus.zone(&zone("Z"));
            bus.publish(events::ZoneAdded { zone: z, policy: before });
            bus.publish(events::PolicyChanged { zone: z, policy: after });
            bus.publish(events::Admitted {
                zone: z,
                epoch: 7,
                entry: events::AdmittedEntry { seq: 1 << 40, entered_unix_s: 1_790_000_000, at_ms: 12 },
                policy: after,
            });
            bus.publish(events::Evicted { zone: z, count: 3, at_ms: 13 });
            bus.publish(events::StoreLost { zone: z });
            bus.publish(events::StoreBack { zone: z, away_ms: 4_000 });
            bus.publish(events::Reloaded { ok: false });
        },
        vec![(zone("Z"), after), (zone("NOT_HEARD_OF"), before)],
    );
    let find = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let entered = find("entered")[0];
    assert_eq!((&entered["zone"], &entered["epoch"]), (&"Z".into(), &7.into()));
    assert_eq!((&entered["seq"], &entered["entered_unix_s"]), (&(1_u64 << 40).into(), &1_790_000_000.into()));
    assert_eq!(
        (&entered["policy"]["mode"], &entered["policy"]["admit_per_minute"]),
        (&"hold".into(), &10_000.into())
    );
    let policies = find("policy");
    assert!(policies[0]["before"].is_null() && policies[0]["after"]["mode"] == "auto", "{policies:?}");
    assert!(
        policies[1]["before"]["mode"] == "auto" && policies[1]["after"]["mode"] == "hold",
        "{policies:?}"
    );
    assert_eq!(policies[2]["zone"], "NOT_HEARD_OF", "the policies in force decide");
    assert_eq!(find("evicted")[0]["count"], 3);
    assert_eq!(find("store_back")[0]["away_ms"], 4_000);
    assert_eq!((find("store_lost").len(), &find("reloaded")[0]["ok"]), (1, &false.into()));
}

/// A thousand events at once in rings of four: the log counts the events that it does not contain.
#[test]
fn missing_events_are_counted() {
    let lines = written(
        |bus| {
            let (zone, policy) = (bus.zone(&zone("Z")), Policy::default());
            let entry = |seq| events::AdmittedEntry { seq, entered_unix_s: 0, at_ms: 0 };
            let entered = |seq| events::Admitted { zone, epoch: 1, entry: entry(seq), policy };
            (0..1_000).for_each(|seq| bus.publish(entered(seq)));
        },
        Vec::new(),
    );
    let entered = lines.iter().filter(|line| line["event"] == "entered").count() as u64;
    let missing: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert!(missing > 0, "{entered} were written");
    assert_eq!(entered + missing, 1_000);
}

/// A change is written with its author, address, and both definitions. While the log cannot be written, changes wait up to
/// a limit; further ones are counted.
#[test]
fn a_change_is_written_with_its_author_and_address() {
    let dir = tempdir().expect("a directory");
    let settings = Settings { dir: dir.path().to_owned(), file_bytes: 1_000_000 };
    let bus = Bus::new().expect("a thread");
    let audit = Audit::start(&bus, &settings, Box::new(|| None)).expect("opens");
    let zone = ZoneId::parse("Z").expect("a name");
    let notice = Notice::new([("en", "Say \"when\".\nNow.")]).expect("a notice");
    let after = Definition { notice, ..Default::default() };
    let author = |name: &str, from: Option<&str>| Author {
        name: name.to_owned(),
        role: "admin".to_owned(),
        from: from.map(|from| from.parse().expect("an address")),
    };
    let recorder = audit.recorder();
    let made = DefinitionChange { before: None, after: Some(after.clone()) };
    recorder.write(&author("ada \"a\"\n", Some("::1")), &zone, &made);
    let gone = DefinitionChange { before: Some(after), after: None };
    recorder.write(&author("local", None), &zone, &gone);
    drop(bus);
    audit.finish();
    let text = fs::read_to_string(dir.path().join(FIRST)).expect("a log");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [.., first, second, _] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&first["event"], &first["zone"], &first["name"]),
        (&"change".into(), &"Z".into(), &"ada \"a\"\n".into())
    );
    assert_eq!(
        (&first["role"], &first["from"], &first["before"]),
        (&"admin".into(), &"::1".into(), &Value::Null)
    );
    assert_eq!(first["after"]["notice"]["en"], "Say \"when\".\nNow.");
    assert_eq!(first["after"]["policy"]["admit_per_minute"], 10_000);
    assert_eq!((&second["before"], &second["after"]), (&first["after"], &Value::Null));
    assert_eq!((&second["name"], &second["from"]), (&"local".into(), &Value::Null));
    assert!(verify(&[dir.path().to_owned()], None).expect("read").fault.is_none());

    let (recorder, mut queue) = Recorder::with_log();
    for _ in 0..2_000 {
        recorder.write(&author("local", None), &zone, &made);
    }
    let waiting = std::iter::from_fn(|| queue.try_next()).count() as u64;
    assert!(waiting >= 1_000, "{waiting}");
    assert_eq!(waiting + queue.take_missing(), 2_000);
    assert_eq!(queue.take_missing(), 0, "counted once");
}

/// The server's log names a line a minute later, even if no line follows.
#[tokio::test(start_paused = true)]
async fn the_last_line_is_logged_although_none_follows() {
    let dir = tempdir().expect("a directory");
    let bus = Bus::with_rings(|_| 4).expect("a thread");
    let subscription = bus.subscribe("audit", Scope::Root, KINDS).expect("room");
    let spill = subscription.spill(100).expect("a thread");
    let (log, found) = Log::open(dir.path(), 1_000_000).expect("opens");
    let policies = Box::new(|| None);
    let names = bus.names();
    let writer = Writer::new(log, names, policies);
    let logged = Logged::default();
    let text = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || text.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (_scribe, changes) = Recorder::with_log();
    let mut writing = pin!(writer.run(spill, changes, &found));
    assert!(timeout(HEAD_EVERY / 2, &mut writing).await.is_err(), "the writer continues");
    bus.publish(events::Reloaded { ok: true });
    // A thread fills the queue. It does not depend on the paused clock.
    while bus.subscribers()[0].spilled == 0 {
        thread::yield_now();
    }
    assert!(timeout(HEAD_EVERY * 3, &mut writing).await.is_err(), "the writer continues");
    let text = String::from_utf8(logged.0.lock().expect("no holder panics").clone()).expect("text");
    let heads: Vec<_> =
        text.lines().filter_map(|line| line.split_once(" head=")).map(|(_, head)| head).collect();
    let last = head(dir.path()).to_string();
    assert_eq!((heads.len(), heads.last()), (2, Some(&&*last)), "{text}");
}

/// The server's log.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no holder panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The records of a log that version 0.1.0 wrote before records were serialized by serde, apart from the fragment of line 7.
fn golden_records(mut each: impl FnMut(u64, Event<'_>)) {
    let policy = |mode: &str, failure: &str| {
        raw(format!(
            r#"{{"mode":"{mode}","admit_per_minute":10,"sub_windows":10,"polling_period_ms":3000,"idle_timeout_s":60,"pass_ttl_s":300,"on_store_failure":"{failure}","waits_per_minute_per_client":0,"entries_per_minute_per_client":0}}"#
        ))
    };
    let (auto, hold) = (policy("auto", "closed"), policy("hold", "open"));
    let old = raw(format!(r#"{{"policy":{auto},"notice":{{}}}}"#));
    let new =
        raw(format!(r#"{{"policy":{hold},"notice":{{"en":"Say \"when\".\nSoon ☕ \\","ko":"잠시만"}}}}"#));
    let change = |before: Option<&Box<RawValue>>, after: Option<&Box<RawValue>>| ChangeRecord {
        zone: zone("GOLDEN"),
        name: "local".to_owned(),
        role: "admin".to_owned(),
        from: Some("127.0.0.1".parse().expect("an address")),
        before: before.cloned(),
        after: after.cloned(),
    };
    let name = "GOLDEN";
    let policy = |before, after| Event::Policy { zone: name, before, after };
    each(1_795_333_454_983, Event::Started { version: "0.1.0", clean: true });
    each(1_795_333_455_422, policy(None, Some(&auto)));
    each(
        1_795_333_455_815,
        Event::Entered {
            zone: Some(name),
            epoch: 1_056_360_554,
            seq: 0,
            entered_unix_s: 1_795_333_455,
            store_ms: 1_795_333_455_566,
            policy: &auto,
        },
    );
    each(1_795_333_455_945, Event::Change(&change(Some(&old), Some(&new))));
    each(1_795_333_456_018, policy(Some(&auto), Some(&hold)));
    each(1_795_333_456_173, Event::Change(&change(Some(&new), Some(&new))));
    each(
        1_795_333_457_342,
        Event::Cut {
            file: FIRST,
            bytes: 187,
            piece: "3c00678b1cc8d5bcdfc95b43cace9f4d283af0b48e4f663415e8d0a9cf868255",
        },
    );
    each(1_795_333_457_342, Event::Started { version: "0.1.0", clean: false });
    each(1_795_333_457_350, policy(None, Some(&hold)));
    each(1_795_333_457_624, policy(Some(&hold), None));
    each(1_795_333_457_665, Event::Change(&change(Some(&new), None)));
    each(1_795_333_458_102, Event::Stopped);
}

/// Both files of the golden log, as text.
fn golden() -> [&'static str; 2] {
    [include_str!("../golden/audit-0000000001.jsonl"), include_str!("../golden/audit-0000000002.jsonl")]
}

#[test]
fn lines_are_written_as_earlier_versions_wrote_them() {
    let (mut head, mut lines) = (Head::NONE, Vec::new());
    golden_records(|at_ms, event| head.seal(&Record { at_ms, event }, &mut lines));
    let [first, second] = golden();
    let fragment = first.rfind('\n').expect("lines") + 1;
    assert_eq!(String::from_utf8(lines).expect("text"), format!("{}{second}", &first[..fragment]));

    // The events that the golden log does not contain.
    let text = |event: Event<'_>| serde_json::to_string(&Record { at_ms: 5, event }).expect("JSON");
    assert_eq!(text(Event::Missing { count: 7 }), r#"{"at_ms":5,"event":"missing","count":7}"#);
    assert_eq!(
        text(Event::Evicted { zone: Some("Z"), count: 3, store_ms: 4 }),
        r#"{"at_ms":5,"event":"evicted","zone":"Z","count":3,"store_ms":4}"#
    );
    assert_eq!(text(Event::StoreLost { zone: None }), r#"{"at_ms":5,"event":"store_lost","zone":null}"#);
    assert_eq!(
        text(Event::StoreBack { zone: Some("Z"), away_ms: 9 }),
        r#"{"at_ms":5,"event":"store_back","zone":"Z","away_ms":9}"#
    );
    assert_eq!(text(Event::Reloaded { ok: false }), r#"{"at_ms":5,"event":"reloaded","ok":false}"#);
    let change = ChangeRecord {
        zone: zone("Z"),
        name: "ada \"a\"\n".to_owned(),
        role: "admin".to_owned(),
        from: None,
        before: None,
        after: None,
    };
    assert_eq!(
        text(Event::Change(&change)),
        r#"{"at_ms":5,"event":"change","zone":"Z","name":"ada \"a\"\n","role":"admin","from":null,"before":null,"after":null}"#
    );
    let routes = RoutesRecord {
        name: "ada".to_owned(),
        role: "operator".to_owned(),
        from: Some([127, 0, 0, 1].into()),
        before: Vec::new(),
        after: vec![serde_json::json!({"name": "staff", "header": {"x-staff": {"secret": true}}})],
    };
    assert_eq!(
        text(Event::Routes(&routes)),
        r#"{"at_ms":5,"event":"routes","name":"ada","role":"operator","from":"127.0.0.1","before":[],"#
            .to_owned()
            + r#""after":[{"header":{"x-staff":{"secret":true}},"name":"staff"}]}"#
    );
}

#[test]
fn a_log_of_an_earlier_version_passes_and_is_continued() {
    let dir = tempdir().expect("a directory");
    for (number, text) in (1..).zip(golden()) {
        fs::write(dir.path().join(format!("audit-{number:010}.jsonl")), text).expect("written");
    }
    let before = head(dir.path());
    assert_eq!(
        before.to_string(),
        "12:398b1892d3e72f11b0a6587e3a9ab3a4d45c0b13f63c9dace7632e5513e4e4a7",
        "as the earlier version reported it"
    );
    let (mut log, found) = Log::open(dir.path(), 1_000_000).expect("opens");
    assert!(found.clean && found.fragments.is_empty());
    log.add(&Record::now(Event::Started { version: "9", clean: true }));
    log.write().expect("written");
    assert_eq!(head(dir.path()).n, before.n + 1);
}

/// Both definitions of a change may have the longest possible notice.
#[test]
fn the_longest_change_fits_a_line() {
    let dir = tempdir().expect("a directory");
    let settings = Settings { dir: dir.path().to_owned(), file_bytes: 1_000_000 };
    let long = |text: char| {
        let languages =
            (b'a'..).take(Notice::LANGUAGES_MAX).map(|b| format!("e{}-{}", char::from(b), "x".repeat(8)));
        let text = text.to_string().repeat(Notice::TEXT_MAX);
        let notice = Notice::new(languages.map(|language| (language, text.clone()))).expect("a notice");
        Some(Definition { notice, ..Definition::default() })
    };
    let author =
        Author { name: "x".repeat(64), role: "operator".to_owned(), from: Some([0xffff_u16; 8].into()) };
    for clean in [true, false] {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let audit = Audit::start(&bus, &settings, Box::new(|| None)).expect("opens");
        audit.recorder().write(
            &author,
            &zone(&"Z".repeat(64)),
            &DefinitionChange { before: long('𓀀'), after: long('😀') },
        );
        drop(bus);
        audit.finish();
        let report = report(dir.path());
        assert_eq!((report.fault, report.notes), (None, vec![]), "clean: {clean}");
    }
    let longest = lines(&files(dir.path())[0]).iter().map(String::len).max().expect("lines");
    assert!(longest > 32_000, "{longest}");
}
