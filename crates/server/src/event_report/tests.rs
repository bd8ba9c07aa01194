use serde_json::json;

use super::{changes::Changes, *};

fn report(minutes: Vec<Value>) -> Report {
    let sums = Sums::of(&minutes);
    Report {
        version: 1,
        zone: "Z".to_owned(),
        event: json!({"id": "sale", "notice": {"en": "<script>alert(1)</script>\u{202e}"}}),
        from: 6_000,
        to: 6_000 + 60 * 2_000,
        made: 9_000,
        sums,
        minutes,
        draw: json!({"stage": "drawn", "key": "k+1+x", "checkpoint": "a\nb"}),
        changes: Changes { source: said!("here", "여기"), list: Vec::new() },
        missing: vec![said!("a part", "일부")],
    }
}

fn minute(at: u64, joined: u64, waits: Value) -> Value {
    json!({"at": at, "joined": joined, "entered": 2, "evicted": 1, "waiting": 5, "present": 5, "waits_s": waits, "told_s": null,
        "left": {"floor": 7}})
}

#[test]
fn sums_are_those_of_the_minutes() {
    let waits = |count: u64, mean: f64, longest: f64| json!({"count": count, "mean": mean, "p50": mean, "p95": longest, "longest": longest});
    let sums = Sums::of(&[
        minute(6_000, 3, waits(1, 10.0, 10.0)),
        minute(6_060, 4, Value::Null),
        minute(6_120, 0, waits(3, 2.0, 5.0)),
    ]);
    assert_eq!((sums.joined, sums.entered, sums.left, sums.most_waiting), (7, 6, 3, 5));
    assert_eq!((sums.waits_known, sums.mean_wait_s, sums.longest_wait_s), (4, 4.0, 10.0));
    assert_eq!(Sums::of(&[]), Sums::default());
}

/// The page has everything, loads nothing, and no text from outside becomes a part of it.
#[test]
fn a_page_stands_alone() {
    let page = page::page(&report(vec![minute(6_000, 3, Value::Null), minute(6_060, 4, Value::Null)]));
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains('\u{202e}'), "invisible characters are replaced");
    for outside in ["http://", "https://", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<span lang=\"en\">").count(), page.matches("<span lang=\"ko\">").count());
    assert_eq!(page.matches("<svg").count(), page.matches("<details>").count(), "each chart has a table");
    for part in ["floor", "weir draw verify", "a part", "일부", "k+1+x"] {
        assert!(page.contains(part), "{part}");
    }
}

/// However long an event is, a page has a limit.
#[test]
fn a_page_is_bounded() {
    let minutes = (0..31 * 1_440).map(|at| minute(60 * at, 1, Value::Null)).collect();
    let long = Report { from: 0, to: 31 * 86_400, ..report(minutes) };
    let page = page::page(&long);
    assert!(page.len() < 300_000, "{} bytes", page.len());
    let sum = usize::try_from(long.sums.joined).expect("some thousand");
    assert_eq!(sum, 31 * 1_440);
}
