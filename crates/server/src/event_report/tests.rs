use serde_json::json;

use super::*;

fn report(minutes: Vec<Value>) -> Report {
    Report {
        outline: Outline {
            version: 1,
            zone: "Z".to_owned(),
            from: 6_000,
            to: 6_000 + 60 * 2_000,
            made: 9_000,
            sums: Sums::default(),
            changes: Changes { source: bilingual!("here", "여기"), list: Vec::new() },
            missing: vec![bilingual!("a part", "일부")],
        },
        event: json!({"id": "sale", "notice": {"en": "<script>alert(1)</script>\u{202e}"}}),
        minutes,
        draw: json!({"stage": "drawn", "key": "k+1+x", "checkpoint": "a\nb"}),
    }
}

fn minute(at: u64, joined: u64) -> Value {
    json!({"at": at, "joined": joined, "entered": 2, "evicted": 1, "waiting": 5, "present": 5, "waits_s": null, "told_s": null,
        "left": {"floor": 7}})
}

/// The page has everything, loads nothing, and no text from outside becomes a part of it.
#[test]
fn a_page_stands_alone() {
    let page = page::page(&report(vec![minute(6_000, 3), minute(6_060, 4)]));
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
    let minutes = (0..31 * 1_440).map(|at| minute(60 * at, 1)).collect();
    let mut long = report(minutes);
    (long.outline.from, long.outline.to) = (0, 31 * 86_400);
    let page = page::page(&long);
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

/// The command writes what the server replied, however it orders the members.
#[test]
fn the_reply_of_a_server_is_a_report() {
    let written = serde_json::to_value(report(vec![minute(6_000, 3)])).expect("JSON");
    assert!(written["outline"].is_null() && written["sums"]["joined"] == 0, "{written}");
    let read: Report = serde_json::from_value(written.clone()).expect("a report");
    assert_eq!(serde_json::to_value(read).expect("JSON"), written);
}

#[test]
fn two_names_of_one_file_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    assert!(is_one_file(&a, &a) && is_one_file(&a, &dir.path().join("./a")), "it need not exist");
    assert!(!is_one_file(&a, &b));
    assert!(is_one_file(Path::new("sale"), Path::new("./sale")));
    fs::write(&a, "").expect("written");
    std::os::unix::fs::symlink(&a, &b).expect("a link");
    assert!(is_one_file(&a, &b));
}
