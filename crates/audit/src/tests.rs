//! `verify` finds each change to a log. `crashes` shows how a log continues after a crash, `records` what its lines contain.

mod crashes;
mod records;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use tempfile::{TempDir, tempdir};

use super::{chain::SealedLine, files::list, *};

const FIRST: &str = "audit-0000000001.jsonl";

/// Three files with about ten lines each. The lines have different lengths.
fn three_files() -> TempDir {
    let dir = tempdir().expect("a directory");
    let (mut log, _) = Log::open(dir.path(), 2_000).expect("opens");
    for n in 0..25 {
        log.add(&json!({"event": "entered", "seq": 10_u64.pow(n % 7)}));
        log.write().expect("written");
    }
    log.add(&json!({"event": "stopped"}));
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

/// The fault that `verify` finds in the log of [`three_files`] after a change: index of the file, line, kind.
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
fn an_unchanged_log_passes_and_its_head_is_reported() {
    let dir = three_files();
    let report = report(dir.path());
    assert_eq!((report.fault, report.head.n, report.notes), (None, 26, vec![]));
    let paths = files(dir.path());
    let later = verify(&paths[1..], Some(report.head)).expect("readable");
    assert_eq!(later.fault, None);
    assert!(later.notes[0].contains("the files with earlier lines are not here"), "{later}");
    let empty = tempdir().expect("a directory");
    assert!(
        verify(&[empty.path().to_owned()], None).is_err() && verify(&[dir.path().join("no")], None).is_err()
    );
}

/// Each byte of each line is changed once.
#[test]
fn a_changed_byte_is_found_in_its_line() {
    let dir = three_files();
    for file in files(dir.path()) {
        let whole = fs::read(&file).expect("readable");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&file, &bytes).expect("written");
            let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
            let fault = report(dir.path()).fault.unwrap_or_else(|| panic!("byte {at}"));
            // Without its newline the last line is a fragment.
            let is_end = at + 1 == whole.len();
            let kind = if is_end { FaultKind::CutTail } else { FaultKind::Edited };
            assert_eq!((&fault.file, fault.line, fault.kind), (&file, line, kind), "byte {at}");
        }
        fs::write(&file, &whole).expect("written");
    }
}

/// A forger can compute a new hash for a changed line. The next line still has the old hash.
#[test]
fn a_line_with_a_new_hash_does_not_fit_the_next_line() {
    let fault = fault_after(|files| {
        with_lines(&files[0], |lines| {
            let first = SealedLine::read(lines[0].as_bytes()).expect("sealed");
            let (mut head, mut line) = (first.head, Vec::new());
            head.seal(&json!({"event": "entered", "seq": 666}), &mut line);
            lines[1] = String::from_utf8(line).expect("text").trim_end().to_owned();
        });
    });
    assert_eq!(fault, (0, 3, FaultKind::Edited));
}

#[test]
fn removed_swapped_and_repeated_lines_are_found() {
    let gone = fault_after(|files| with_lines(&files[1], |lines| drop(lines.remove(2))));
    assert_eq!(gone, (1, 3, FaultKind::Gap));
    let swapped = fault_after(|files| with_lines(&files[1], |lines| lines.swap(2, 3)));
    assert_eq!(swapped, (1, 3, FaultKind::Gap));
    let doubled = fault_after(|files| with_lines(&files[1], |lines| lines.insert(2, lines[1].clone())));
    assert_eq!(doubled, (1, 3, FaultKind::Gap));
    let first = fault_after(|files| with_lines(&files[1], |lines| drop(lines.remove(0))));
    assert_eq!(first, (1, 1, FaultKind::Gap));
}

/// Files may be archived. Lines at the beginning of a file that is here may not be missing.
#[test]
fn missing_first_lines_are_found() {
    let some = fault_after(|files| with_lines(&files[0], |lines| drop(lines.drain(..3))));
    assert_eq!(some, (0, 1, FaultKind::Gap));
    let all = fault_after(|files| fs::write(&files[0], "").expect("written"));
    assert_eq!(all, (1, 1, FaultKind::Gap));
    // In a later file they are found together with the files before it.
    let dir = three_files();
    let paths = files(dir.path());
    with_lines(&paths[1], |lines| drop(lines.remove(0)));
    let alone = verify(&paths[1..], None).expect("readable");
    assert!(alone.fault.is_none() && alone.notes[0].contains("only together with them"), "{alone}");
    assert_eq!(verify(&paths, None).expect("readable").fault.map(|fault| fault.kind), Some(FaultKind::Gap));
}

#[test]
fn a_missing_file_is_found() {
    assert_eq!(
        fault_after(|files| fs::remove_file(&files[1]).expect("gone")),
        (2, 1, FaultKind::MissingFile)
    );
}

#[test]
fn a_missing_tail_is_found() {
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
    // Removed whole lines can only be seen with a head from elsewhere.
    let dir = three_files();
    let known = head(dir.path());
    with_lines(&files(dir.path())[2], |lines| lines.truncate(1));
    let cut = report(dir.path());
    assert!(cut.fault.is_none() && cut.notes[0].contains("the end was removed"), "{cut}");
    let fault = verify(&[dir.path().to_owned()], Some(known)).expect("readable").fault.expect("a fault");
    assert_eq!((fault.line, fault.kind), (1, FaultKind::CutTail));
    // A replaced line with the same number has another hash.
    let (mut log, _) = Log::open(dir.path(), 1_000_000).expect("opens");
    while log.head().n < known.n + 1 {
        log.add(&json!({"event": "forged"}));
    }
    log.write().expect("written");
    let forged = verify(&[dir.path().to_owned()], Some(known)).expect("readable").fault.expect("a fault");
    assert_eq!(forged.kind, FaultKind::Edited);
    assert!(report(dir.path()).fault.is_none(), "the chain alone does not show it");
}

#[test]
fn a_restart_continues_the_chain_and_records_whether_the_stop_was_clean() {
    let dir = three_files();
    let before = head(dir.path());
    let (mut log, found) = Log::open(dir.path(), 2_000).expect("opens");
    assert!(found.clean && found.fragments.is_empty());
    assert!(matches!(Log::open(dir.path(), 2_000), Err(LogFault::InUse(_))), "one process at a time");
    log.add(&json!({"event": "started"}));
    log.write().expect("written");
    drop(log);
    assert_eq!(head(dir.path()).n, before.n + 1);
    let (_, found) = Log::open(dir.path(), 2_000).expect("opens");
    assert!(!found.clean, "no stop was written");
}
