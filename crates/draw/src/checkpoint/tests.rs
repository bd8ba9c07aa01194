//! Each line of a checkpoint is read strictly, and a text has one reading.

use super::*;
use crate::places::Places;

fn terms() -> Terms {
    Terms {
        key_name: "shop.example/weir".to_owned(),
        event: "opening-night".to_owned(),
        zone: "SALE:1".to_owned(),
        frozen_unix_s: 1_692_806_300,
        start_unix_s: 1_692_806_400,
        announced: Announced::Drand { round: 1_000 },
        fallback: Fallback::Later { seconds: 60 },
    }
}

fn with(terms: Terms) -> Result<Checkpoint, Fault> {
    let places: Places = [true, true, false, true, false].into_iter().collect();
    Checkpoint::new(terms, &Tree::new(&places))
}

const TEXT: &str = "shop.example/weir/opening-night/SALE:1\n\
                    5\n\
                    pSAhOIZmKgkZB448HTHrB0+886MOVCQEPmW7pMgDT78=\n\
                    event opening-night\n\
                    zone SALE:1\n\
                    frozen 2023-08-23T15:58:20Z\n\
                    start 2023-08-23T16:00:00Z\n\
                    algorithm weir-draw-1\n\
                    in-line 3\n\
                    randomness drand 52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971 1000\n\
                    fallback later 60\n";

#[test]
fn a_checkpoint_is_written_and_read() {
    let checkpoint = with(terms()).expect("right");
    assert_eq!(checkpoint.text(), TEXT);
    assert_eq!(Checkpoint::parse(TEXT), Ok(checkpoint));
    let stated = Announced::Stated { source: "KOSPI 200 이 2026-11-27 15:30 KST에 닫힌 값".to_owned() };
    for fallback in [Fallback::Wait, Fallback::Arrival] {
        let checkpoint = with(Terms { announced: stated.clone(), fallback, ..terms() }).expect("right");
        assert_eq!(Checkpoint::parse(checkpoint.text()), Ok(checkpoint));
    }
}

#[test]
fn each_missing_repeated_swapped_or_added_line_is_refused() {
    let lines: Vec<&str> = TEXT.split_inclusive('\n').collect();
    let refused = |lines: &[&str]| assert!(Checkpoint::parse(&lines.concat()).is_err(), "{lines:?}");
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed.remove(at);
        refused(&changed);
        changed = lines.clone();
        changed.insert(at, lines[at]);
        refused(&changed);
        for added in ["\n", "note hello\n", " \n"] {
            changed = lines.clone();
            changed.insert(at + 1, added);
            refused(&changed);
        }
        for other in 0..at {
            changed = lines.clone();
            changed.swap(at, other);
            refused(&changed);
        }
    }
    assert!(Checkpoint::parse(TEXT.trim_end()).is_err() && Checkpoint::parse("").is_err());
}

#[test]
fn each_line_has_one_spelling_and_its_fault_names_the_line() {
    let changes = [
        ("opening-night/SALE", "opening-day/SALE", "line 1 "),
        ("\n5\n", "\n05\n", "line 2 "),
        ("\n5\n", "\n20000001\n", "line 2 "),
        ("T78=", "T78", "line 3 "),
        ("T78=", "T79=", "line 3 "),
        ("event ", "event  ", "line 1 "),
        ("event ", "Event ", "line 4 "),
        ("15:58:20Z", "15:58:20+00:00", "line 6 "),
        ("frozen 2023-08-23T15:58:20Z", "frozen 2023-08-23T16:00:00Z", "comes before the freeze"),
        ("weir-draw-1", "weir-draw-2", "line 8 "),
        ("in-line 3", "in-line 03", "line 9 "),
        ("in-line 3", "in-line 6", "6 are in line, of 5"),
        ("drand 52", "drand 53", "line 10 "),
        (" 1000\n", " 01000\n", "line 10 "),
        (" 1000\n", " 99999999999\n", "round 99999999999"),
        (" 1000\n", " 0\n", "round 0"),
        ("drand ", "dice ", "line 10 "),
        ("later 60", "later 060", "line 11 "),
        ("later 60", "later 0", "later round"),
        ("later 60", "never", "line 11 "),
        ("later 60\n", "later 60\n\n", "line 12 "),
    ];
    for (from, to, why) in changes {
        let changed = TEXT.replace(from, to);
        assert_ne!(changed, TEXT, "{from}");
        let fault = Checkpoint::parse(&changed).expect_err(to).to_string();
        assert!(fault.contains(why), "{to}: {fault}");
    }
}

/// A byte that was changed is refused, or makes another checkpoint. So no signature fits both.
#[test]
fn a_text_has_one_reading() {
    for at in 0..TEXT.len() {
        for by in [1, 2, 4, 16, 32] {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] ^= by;
            let changed = String::from_utf8(bytes).expect("ASCII");
            if let Ok(read) = Checkpoint::parse(&changed) {
                assert_eq!(read.text(), changed, "byte {at}");
            }
        }
    }
}

#[test]
fn terms_out_of_range_are_refused() {
    let source = |source: &str| Announced::Stated { source: source.to_owned() };
    let wrong = [
        Terms { key_name: "a b".to_owned(), ..terms() },
        Terms { event: "a/b".to_owned(), ..terms() },
        Terms { event: String::new(), ..terms() },
        Terms { zone: "..".to_owned(), ..terms() },
        Terms { zone: "a\nb".to_owned(), ..terms() },
        Terms { start_unix_s: u64::MAX, ..terms() },
        Terms { frozen_unix_s: 1_692_806_364, ..terms() },
        Terms { fallback: Fallback::Later { seconds: 604_801 }, ..terms() },
        Terms { announced: source("dice"), ..terms() },
        Terms { announced: source(" dice"), fallback: Fallback::Wait, ..terms() },
        Terms { announced: source("a\nb"), fallback: Fallback::Wait, ..terms() },
        Terms { announced: source(""), fallback: Fallback::Wait, ..terms() },
        Terms { announced: source(&"x".repeat(1_025)), fallback: Fallback::Wait, ..terms() },
    ];
    for wrong in wrong {
        assert!(with(wrong.clone()).is_err(), "{wrong:?}");
    }
    // The round after the freeze is the first one that is possible.
    assert!(with(Terms { frozen_unix_s: 1_692_806_363, ..terms() }).is_ok());
}
