//! What was changed is named; what a crash or a full disk did is told by the log itself.

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex},
};

use admission::{Definition, Mode, Notice};
use gate::definitions::{Author, Change};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::time::timeout;

use super::{chain::Link, files::list, *};

const FIRST: &str = "audit-0000000001.jsonl";

/// Three files with ten lines and a few more, all of different lengths.
fn three_files() -> TempDir {
    let dir = tempdir().expect("a directory");
    let (mut log, _) = Log::open(dir.path(), 2_000).expect("opens");
    for n in 0..25 {
        log.add(&format!(r#""event":"entered","seq":{}"#, 10_u64.pow(n % 7)));
        log.write().expect("written");
    }
    log.add(r#""event":"stopped""#);
    log.write().expect("written");
    drop(log);
    assert_eq!(files(dir.path()).len(), 3);
    dir
}

fn files(dir: &Path) -> Vec<PathBuf> {
    list(dir).expect("listed").into_iter().map(|(_, path)| path).collect()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).expect("text").lines().map(str::to_owned).collect()
}

fn report(dir: &Path) -> Report {
    verify(&[dir.to_owned()], None).expect("readable")
}

fn head(dir: &Path) -> Head {
    let report = report(dir);
    assert_eq!(report.fault, None);
    report.head
}

/// What `verify` says of the log of [`three_files`] after a change: name of the file, line, kind.
fn fault_after(change: impl FnOnce(&[PathBuf])) -> (usize, u64, FaultKind) {
    let dir = three_files();
    let before = files(dir.path());
    change(&before);
    let fault = report(dir.path()).fault.expect("a fault");
    let at = before.iter().position(|file| *file == fault.file).expect("one of the files");
    (at, fault.line, fault.kind)
}

fn with_lines(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let mut changed = lines(path);
    change(&mut changed);
    fs::write(path, changed.join("\n") + "\n").expect("written");
}

#[test]
fn a_log_passes_and_its_head_is_told() {
    let dir = three_files();
    let report = report(dir.path());
    assert_eq!((report.fault, report.head.n, report.notes), (None, 26, vec![]));
    let paths = files(dir.path());
    let later = verify(&paths[1..], Some(report.head)).expect("readable");
    assert_eq!(later.fault, None);
    assert!(later.notes[0].contains("the files with those before are not here"), "{later}");
    let empty = tempdir().expect("a directory");
    assert!(
        verify(&[empty.path().to_owned()], None).is_err() && verify(&[dir.path().join("no")], None).is_err()
    );
}

/// Any byte of any line, whatever it becomes.
#[test]
fn an_edited_byte_is_found_where_it_is() {
    let dir = three_files();
    for file in files(dir.path()) {
        let whole = fs::read(&file).expect("readable");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&file, &bytes).expect("written");
            let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
            let fault = report(dir.path()).fault.unwrap_or_else(|| panic!("byte {at}"));
            // Without its end the last line is none.
            let is_end = at + 1 == whole.len();
            let kind = if is_end { FaultKind::CutTail } else { FaultKind::Edited };
            assert_eq!((&fault.file, fault.line, fault.kind), (&file, line, kind), "byte {at}");
        }
        fs::write(&file, &whole).expect("written");
    }
}

/// Who edits can make the line's own hash fit, and the next one's does not.
#[test]
fn a_line_sealed_anew_does_not_fit_the_next() {
    let fault = fault_after(|files| {
        with_lines(&files[0], |lines| {
            let first = Link::read(lines[0].as_bytes()).expect("sealed");
            let (mut head, mut line) = (first.head, Vec::new());
            head.seal(r#""event":"entered","seq":666"#, &mut line);
            lines[1] = String::from_utf8(line).expect("text").trim_end().to_owned();
        });
    });
    assert_eq!(fault, (0, 3, FaultKind::Edited));
}

#[test]
fn lines_that_are_gone_swapped_or_doubled_are_found() {
    let gone = fault_after(|files| with_lines(&files[1], |lines| drop(lines.remove(2))));
    assert_eq!(gone, (1, 3, FaultKind::Gap));
    let swapped = fault_after(|files| with_lines(&files[1], |lines| lines.swap(2, 3)));
    assert_eq!(swapped, (1, 3, FaultKind::Gap));
    let doubled = fault_after(|files| with_lines(&files[1], |lines| lines.insert(2, lines[1].clone())));
    assert_eq!(doubled, (1, 3, FaultKind::Gap));
    let first = fault_after(|files| with_lines(&files[1], |lines| drop(lines.remove(0))));
    assert_eq!(first, (1, 1, FaultKind::Gap));
}

#[test]
fn a_file_that_is_gone_is_found() {
    assert_eq!(
        fault_after(|files| fs::remove_file(&files[1]).expect("gone")),
        (2, 1, FaultKind::MissingFile)
    );
}

#[test]
fn a_tail_that_is_gone_is_found() {
    let in_a_line = |files: &[PathBuf], at: usize| {
        let bytes = fs::read(&files[at]).expect("readable");
        fs::write(&files[at], &bytes[..bytes.len() - 30]).expect("written");
        lines(&files[at]).len() as u64
    };
    for at in [0, 2] {
        let mut line = 0;
        let fault = fault_after(|files| line = in_a_line(files, at));
        assert_eq!(fault, (at, line, FaultKind::CutTail));
    }
    // Whole lines leave no trace but in a head that was kept.
    let dir = three_files();
    let kept = head(dir.path());
    with_lines(&files(dir.path())[2], |lines| lines.truncate(1));
    let cut = report(dir.path());
    assert!(cut.fault.is_none() && cut.notes[0].contains("the end was taken away"), "{cut}");
    let fault = verify(&[dir.path().to_owned()], Some(kept)).expect("readable").fault.expect("a fault");
    assert_eq!((fault.line, fault.kind), (1, FaultKind::CutTail));
    // And one that was replaced by another of the same number has another hash.
    let (mut log, _) = Log::open(dir.path(), 1_000_000).expect("opens");
    while log.head().n < kept.n + 1 {
        log.add(r#""event":"forged""#);
    }
    log.write().expect("written");
    let forged = verify(&[dir.path().to_owned()], Some(kept)).expect("readable").fault.expect("a fault");
    assert_eq!(forged.kind, FaultKind::Edited);
    assert!(report(dir.path()).fault.is_none(), "the chain alone can't tell");
}

#[test]
fn a_restart_goes_on_and_says_whether_the_stop_was_clean() {
    let dir = three_files();
    let before = head(dir.path());
    let (mut log, found) = Log::open(dir.path(), 2_000).expect("opens");
    assert!(found.clean && found.pieces.is_empty());
    assert!(matches!(Log::open(dir.path(), 2_000), Err(LogFault::InUse(_))), "one process at a time");
    log.add(r#""event":"started""#);
    log.write().expect("written");
    drop(log);
    assert_eq!(head(dir.path()).n, before.n + 1);
    let (_, found) = Log::open(dir.path(), 2_000).expect("opens");
    assert!(!found.clean, "no stop was written");
}

/// A kill leaves any number of a write's bytes.
#[test]
fn a_line_cut_by_a_crash_is_told_of_and_stays() {
    let whole = three_files();
    let last = files(whole.path())[2].clone();
    let bytes = fs::read(&last).expect("readable");
    let name = last.file_name().expect("a name");
    // Some of them, and whole lines.
    for len in (0..bytes.len()).step_by(31).chain([bytes.len(), lines(&last)[0].len() + 1]) {
        let dir = tempdir().expect("a directory");
        for file in files(whole.path()) {
            fs::copy(&file, dir.path().join(file.file_name().expect("a name"))).expect("copied");
        }
        fs::write(dir.path().join(name), &bytes[..len]).expect("written");
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let settings = Settings { dir: dir.path().to_owned(), file_bytes: 1_000_000 };
        let audit = Audit::start(&bus, &settings, Box::new(|| None)).expect("starts");
        drop(bus);
        audit.finish();
        let after = report(dir.path());
        assert_eq!(after.fault, None, "{len} bytes");
        assert_eq!(
            fs::read(dir.path().join(name)).expect("readable")[..len],
            bytes[..len],
            "nothing is taken away"
        );
        let is_cut = len > 0 && bytes[len - 1] != b'\n';
        assert_eq!(after.notes.iter().any(|note| note.contains("a crash left")), is_cut, "{len}: {after}");
        if is_cut {
            // What is left of the line can't be changed or taken away either.
            let mut piece = bytes[..len].to_vec();
            piece[len - 1] ^= 1;
            fs::write(dir.path().join(name), &piece).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").kind, FaultKind::CutTail);
            let line_start = bytes[..len].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            fs::write(dir.path().join(name), &bytes[..line_start]).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").kind, FaultKind::Gap);
        }
    }
}

/// Killed while it tells of a piece that a kill left, again and again: each piece is told of, once.
#[test]
fn kills_while_a_cut_is_told_of_are_told_of_too() {
    let begin = |dir: &Path| {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let settings = Settings { dir: dir.to_owned(), file_bytes: 1_000_000 };
        let audit = Audit::start(&bus, &settings, Box::new(|| None)).expect("starts");
        drop(bus);
        audit.finish();
    };
    let cut_last = |dir: &Path, len: usize| {
        let last = files(dir).pop().expect("files");
        let bytes = fs::read(&last).expect("readable");
        let len = len.min(bytes.len());
        fs::write(&last, &bytes[..len]).expect("written");
        len > 0 && bytes[len - 1] != b'\n'
    };
    // Within the first line, which tells of a piece; at its end; within the one after that.
    for lens in [[0, 0], [1, 0], [0, 1], [7, 90], [90, 7], [300, 420], [420, 300], [420, 420]] {
        let dir = three_files();
        let mut pieces = usize::from(cut_last(dir.path(), 70));
        for len in lens {
            begin(dir.path());
            pieces += usize::from(cut_last(dir.path(), len));
        }
        begin(dir.path());
        let after = report(dir.path());
        assert_eq!(after.fault, None, "{lens:?}");
        let told = after.notes.iter().filter(|note| note.contains("a crash left")).count();
        assert_eq!(told, pieces, "{lens:?}: {after}");
        // Who has the later files only is not told of pieces that are not there.
        let paths = files(dir.path());
        let later = verify(&paths[3..], Some(after.head)).expect("readable");
        assert_eq!(later.fault, None, "{lens:?}");
        // Each piece is as it was, or it shows.
        for path in paths {
            let mut bytes = fs::read(&path).expect("readable");
            let Some(last) = bytes.last_mut().filter(|last| **last != b'\n') else { continue };
            *last ^= 1;
            fs::write(&path, &bytes).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").file, path, "{lens:?}");
            *bytes.last_mut().expect("the same") ^= 1;
            fs::write(&path, &bytes).expect("written");
        }
        assert_eq!(report(dir.path()).fault, None);
    }
}

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

/// All that `events` say, one line each, less what a start and a stop say.
fn told(publish: impl FnOnce(&Bus), in_force: Vec<(ZoneId, Policy)>) -> Vec<serde_json::Value> {
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
fn who_entered_and_under_which_policy() {
    let (before, after) = (Policy::default(), Policy { mode: Mode::Hold, ..Policy::default() });
    let lines = told(
        |bus| {
            let z = bus.zone(&zone("Z"));
            bus.publish(events::ZoneAdded { zone: z, policy: before });
            bus.publish(events::PolicyChanged { zone: z, policy: after });
            bus.publish(events::Admitted {
                zone: z,
                epoch: 7,
                seq: 1 << 40,
                entered_unix_s: 1_790_000_000,
                at_ms: 12,
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
    assert_eq!(policies[2]["zone"], "NOT_HEARD_OF", "what is in force has the last word");
    assert_eq!(find("evicted")[0]["count"], 3);
    assert_eq!(find("store_back")[0]["away_ms"], 4_000);
    assert_eq!((find("store_lost").len(), &find("reloaded")[0]["ok"]), (1, &false.into()));
}

/// Rings of four events, and a thousand at once: those that are not in the log are counted there.
#[test]
fn what_is_missing_is_counted() {
    let lines = told(
        |bus| {
            let (zone, policy) = (bus.zone(&zone("Z")), Policy::default());
            let entered = |seq| events::Admitted { zone, epoch: 1, seq, entered_unix_s: 0, at_ms: 0, policy };
            (0..1_000).for_each(|seq| bus.publish(entered(seq)));
        },
        Vec::new(),
    );
    let entered = lines.iter().filter(|line| line["event"] == "entered").count() as u64;
    let missing: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert!(missing > 0, "{entered} came through");
    assert_eq!(entered + missing, 1_000);
}

/// What operators change is written with who, from where, before and after; with a log that can't be written, all that
/// fits waits, and what does not is counted.
#[test]
fn a_change_is_in_it_with_who_and_from_where() {
    let dir = tempdir().expect("a directory");
    let settings = Settings { dir: dir.path().to_owned(), file_bytes: 1_000_000 };
    let bus = Bus::new().expect("a thread");
    let audit = Audit::start(&bus, &settings, Box::new(|| None)).expect("opens");
    let zone = ZoneId::parse("Z").expect("a name");
    let notice = Notice::new([("en", "Say \"when\".\nNow.")]).expect("a notice");
    let after = Definition { notice, ..Default::default() };
    let by = |name: &str, from: Option<&str>| Author {
        name: name.to_owned(),
        role: "admin".to_owned(),
        from: from.map(|from| from.parse().expect("an address")),
    };
    let recorder = audit.recorder();
    let made = Change { before: None, after: Some(after.clone()) };
    recorder.write(&by("ada \"a\"\n", Some("::1")), &zone, &made);
    let gone = Change { before: Some(after), after: None };
    recorder.write(&by("local", None), &zone, &gone);
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

    let (recorder, mut told) = Recorder::with_log();
    for _ in 0..2_000 {
        recorder.write(&by("local", None), &zone, &made);
    }
    let waiting = std::iter::from_fn(|| told.left()).count() as u64;
    assert!(waiting >= 1_000, "{waiting}");
    assert_eq!(waiting + told.take_missing(), 2_000);
    assert_eq!(told.take_missing(), 0, "counted once");
}

/// A head is in the server's log a minute after the last line, also where no more lines follow.
#[tokio::test(start_paused = true)]
async fn the_last_line_is_kept_elsewhere_though_nothing_follows() {
    let dir = tempdir().expect("a directory");
    let bus = Bus::with_rings(|_| 4).expect("a thread");
    let subscription = bus.subscribe("audit", Scope::Root, KINDS).expect("room");
    let spill = subscription.spill(100).expect("a thread");
    let (log, found) = Log::open(dir.path(), 1_000_000).expect("opens");
    let policies = Box::new(|| None);
    let names = bus.names();
    let writer = Writer { log, names, known: HashMap::new(), policies, failing: false, kept: None };
    let logged = Logged::default();
    let text = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || text.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (_scribe, changes) = Recorder::with_log();
    let mut writing = pin!(writer.run(spill, changes, &found));
    assert!(timeout(HEAD_EVERY / 2, &mut writing).await.is_err(), "it goes on");
    bus.publish(events::Reloaded { ok: true });
    // The queue is filled by a thread of its own, whatever the time.
    while bus.subscribers()[0].spilled == 0 {
        thread::yield_now();
    }
    assert!(timeout(HEAD_EVERY * 3, &mut writing).await.is_err(), "it goes on");
    let text = String::from_utf8(logged.0.lock().expect("no holder panics").clone()).expect("text");
    let heads: Vec<_> =
        text.lines().filter_map(|line| line.split_once(" head=")).map(|(_, head)| head).collect();
    let last = head(dir.path()).to_string();
    assert_eq!((heads.len(), heads.last()), (2, Some(&&*last)), "{text}");
}

/// What is logged.
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
