//! How a log continues after a crash.

use super::*;

/// A kill may leave any number of a write's bytes.
#[test]
fn a_fragment_left_by_a_crash_stays_and_is_recorded() {
    let whole = three_files();
    let last = files(whole.path())[2].clone();
    let bytes = fs::read(&last).expect("readable");
    let name = last.file_name().expect("a name");
    // Some lengths, and those of whole lines.
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
            "nothing is removed"
        );
        let is_cut = len > 0 && bytes[len - 1] != b'\n';
        assert_eq!(after.notes.iter().any(|note| note.contains("a crash left")), is_cut, "{len}: {after}");
        if is_cut {
            // A change or removal of the fragment is found as well.
            let mut fragment = bytes[..len].to_vec();
            fragment[len - 1] ^= 1;
            fs::write(dir.path().join(name), &fragment).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").kind, FaultKind::CutTail);
            let line_start = bytes[..len].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            fs::write(dir.path().join(name), &bytes[..line_start]).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").kind, FaultKind::Gap);
        }
    }
}

/// The server is killed again and again while it records a fragment. Each fragment is recorded once.
#[test]
fn fragments_left_while_a_fragment_is_recorded_are_recorded_too() {
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
    // Within the first line, which records a fragment; at its end; within the next line.
    for lens in [[0, 0], [1, 0], [0, 1], [7, 90], [90, 7], [300, 420], [420, 300], [420, 420]] {
        let dir = three_files();
        let mut fragments = usize::from(cut_last(dir.path(), 70));
        for len in lens {
            begin(dir.path());
            fragments += usize::from(cut_last(dir.path(), len));
        }
        begin(dir.path());
        let after = report(dir.path());
        assert_eq!(after.fault, None, "{lens:?}");
        let recorded = after.notes.iter().filter(|note| note.contains("a crash left")).count();
        assert_eq!(recorded, fragments, "{lens:?}: {after}");
        // The later files alone pass, although the fragments are in earlier files.
        let paths = files(dir.path());
        let later = verify(&paths[3..], Some(after.head)).expect("readable");
        assert_eq!(later.fault, None, "{lens:?}");
        // A change of any fragment is found.
        for path in paths {
            let mut bytes = fs::read(&path).expect("readable");
            let Some(last) = bytes.last_mut().filter(|last| **last != b'\n') else { continue };
            *last ^= 1;
            fs::write(&path, &bytes).expect("written");
            assert_eq!(report(dir.path()).fault.expect("a fault").file, path, "{lens:?}");
            *bytes.last_mut().expect("not empty") ^= 1;
            fs::write(&path, &bytes).expect("written");
        }
        assert_eq!(report(dir.path()).fault, None);
    }
}
