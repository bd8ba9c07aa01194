//! `right.json`: files at the limits of the formats, which must be accepted. `texts.json`: spellings of JSON. And files whose sizes are
//! at the limits.

use draw::{Announced, Fallback, Randomness, Record, Signer, Terms, verify};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    altered::{
        File, MIXED_KEY, MIXED_KEY_RIGHT, appended, from_hex, id_of, is_right, is_right_file, line, of_round,
        receipt, record, replaced, stated, typed_key, under, value, with_text,
    },
    vectors::golden,
    world::{ROUND_1000, World, places, terms},
};

/// A record, and a receipt beside it, as texts: a reader of JSON would not keep these spellings.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Text {
    about: String,
    right: bool,
    record: Option<String>,
    receipt: Option<String>,
}

fn right() -> Vec<File> {
    let (five, drand, later) = (World::stated(5), World::drand(13), World::later(13));
    let text = |about: &str, world: &World, from: &str, to: &str| record(about, &replaced(world, from, to));
    let start = |about: &str, to: &str| text(about, &five, "start 2023-08-23T15:59:21Z", to);
    let source = |about: &str, to: &str| text(about, &five, "six dice, thrown on stage at the start", to);
    let more = |about: &str, lines: &str| record(about, &appended(&drand, lines));
    let cosigned = line("witness.example/w1", &[7; 4], &[9; 72]);
    let own_id = id_of("shop.example/weir", &typed_key(&drand));
    let named = |about: &str, secret: u8, terms: Terms| {
        let world = World::with_secret([secret; 32], places(5), terms, |_| of_round(1_000, ROUND_1000));
        record(about, &world.record())
    };
    let announced = || terms(Announced::Drand { round: 1_000 });
    let has_plus = |secret: &u8| {
        let signer = Signer::new("k", &[*secret; 32]).expect("a key");
        signer.key().to_string().matches('+').count() > 2
    };
    let plus = (1..=255).find(has_plus).expect("a key with a plus");
    let long_value = Randomness::Stated { statement: five.state(&value(&"x".repeat(1_024))) };
    vec![
        more("A cosignature of another name.", &cosigned),
        more("A signature of the same name and another ID.", &line("shop.example/weir", &[7; 4], &[9; 64])),
        more("A signature of another name and the same ID.", &line("witness.example", &own_id, &[9; 64])),
        more("A foreign signature of 5 bytes.", &line("w", &[7; 4], &[9])),
        more(
            "A foreign name with U+FEFF, U+200B and U+0080, which are no white space.",
            &line("a\u{feff}b\u{200b}c\u{80}", &[7; 4], &[9; 64]),
        ),
        receipt(
            "A receipt with a cosignature that the record does not have.",
            &drand,
            3,
            &json!({ "checkpoint": format!("{}{cosigned}", drand.note) }),
        ),
        start("The first instant.", "start 1970-01-01T00:00:00Z"),
        start("The last instant.", "start 9999-12-30T22:00:00Z"),
        source("A source of 1,024 bytes.", &"x".repeat(1_024)),
        source(
            "A source with U+2028, U+202E, a letter of two parts, and U+00A0 at its end. Verifiers show the first two escaped.",
            "dice\u{2028}ok: \u{202e}x\u{202c} e\u{301}\u{a0}",
        ),
        record("A value of 1,024 bytes.", &Record { randomness: long_value, ..five.record() }),
        text("The freeze is one second before the round.", &drand, "15:59:20Z", "15:59:23Z"),
        text("57 s are 19 rounds, too.", &later, "later 55", "later 57"),
        text("The longest wait for a later round.", &drand, "fallback wait", "fallback later 604800"),
        record(
            "The key is partly of small order, and the signature is right without the cofactor.",
            &under(&drand, &from_hex(MIXED_KEY), None, &from_hex(MIXED_KEY_RIGHT)),
        ),
        named("A key with a plus in its base64.", plus, announced()),
        named("Names of the greatest length.", 1, {
            Terms {
                key_name: "x/".repeat(64),
                event: "e".repeat(64),
                zone: "z".repeat(64),
                fallback: Fallback::Arrival,
                ..announced()
            }
        }),
        named("An event of three dots.", 1, Terms { event: "...".to_owned(), ..announced() }),
    ]
}

/// Spellings of JSON: those that are the same file, and those that every verifier refuses.
fn texts() -> Vec<Text> {
    let (drand, lottery) = (World::drand(13), World::lottery());
    let record = drand.record().to_json();
    let receipt = drand.receipt(0).to_json();
    let cosigned = appended(&drand, &line("a\u{10348}b", &[7; 4], &[9; 64])).to_json();
    let mut texts = Vec::new();
    let mut of_record = |right: bool, about: &str, text: &str| {
        assert_ne!(text, record, "{about}");
        texts.push(Text { about: about.to_owned(), right, record: Some(text.to_owned()), receipt: None });
    };
    let escaped: String = (lottery.record().to_json().chars())
        .flat_map(|char| {
            let mut units = [0; 2];
            let units = char.encode_utf16(&mut units).to_vec();
            let spell =
                move |unit: u16| if char.is_ascii() { char.to_string() } else { format!("\\u{unit:04X}") };
            units.into_iter().map(spell).collect::<Vec<_>>()
        })
        .collect();
    let spaced = record.replace("\":", "\" :\t").replace(",\"", " ,\r\n \"");
    of_record(true, "White space around everything.", &format!(" \n{spaced}\r\n\t "));
    of_record(true, "Letters beyond ASCII as escapes.", &escaped);
    of_record(true, "An escaped slash, and a field's name with an escape.", &{
        record.replace("shop.example/", "shop.example\\/").replace("\"key\"", "\"k\\u0065y\"")
    });
    of_record(true, "A surrogate pair.", &cosigned.replace('\u{10348}', "\\ud800\\udf48"));
    of_record(true, "Fields in another order.", &{
        let format = "\"format\":\"weir-draw-record-1\"";
        format!(
            "{},{format}}}",
            &record.replacen(&format!("{format},"), "", 1)[..record.len() - format.len() - 2]
        )
    });
    of_record(false, "A byte order mark.", &format!("\u{feff}{record}"));
    of_record(false, "A no-break space at the end.", &format!("{record}\u{a0}"));
    of_record(false, "A second value at the end.", &format!("{record}{{}}"));
    of_record(false, "The last character is missing.", &record[..record.len() - 1]);
    of_record(false, "A comma at the end.", &format!("{},}}", &record[..record.len() - 1]));
    of_record(false, "A lone surrogate.", &cosigned.replace('\u{10348}', "\\ud800"));
    of_record(
        false,
        "A surrogate pair in the wrong order.",
        &cosigned.replace('\u{10348}', "\\udf48\\ud800"),
    );
    of_record(false, "A line feed that is not escaped.", &record.replacen("\\n", "\n", 1));
    of_record(false, "A field is there twice, with the same value.", &{
        record.replacen('{', "{\"format\":\"weir-draw-record-1\",", 1)
    });
    of_record(false, "A field is there twice, once with an escape.", &{
        record.replacen('{', "{\"f\\u006frmat\":\"weir-draw-record-1\",", 1)
    });
    of_record(false, "A field of the randomness is there twice.", &{
        record.replacen("\"round\":1000", "\"round\":1000,\"round\":1000", 1)
    });
    of_record(false, "The kind of the randomness is there twice.", &{
        record.replacen("\"kind\":\"drand\"", "\"kind\":\"drand\",\"kind\":\"drand\"", 1)
    });
    for number in ["1e3", "1000.0", "10e2", "1000e0", "01000", "+1000", "-1000", "\"1000\"", "[1000]", "NaN"]
    {
        let about = format!("The round is spelled `{number}`.");
        of_record(false, &about, &record.replacen(":1000,", &format!(":{number},"), 1));
    }
    let mut of_receipt = |right: bool, about: &str, from: &str, to: &str| {
        let text = receipt.replacen(from, to, 1);
        assert_ne!(text, receipt, "{about}");
        let record = Some(record.clone());
        texts.push(Text { about: about.to_owned(), right, record, receipt: Some(text) });
    };
    of_receipt(true, "A receipt with white space.", ",", " ,\n");
    for number in ["-0", "0.0", "0e0", "00", "false", "null", "\"0\""] {
        of_receipt(
            false,
            &format!("The place is spelled `{number}`."),
            "\"place\":0,",
            &format!("\"place\":{number},"),
        );
    }
    of_receipt(
        false,
        "A field of the receipt is there twice.",
        "\"inLine\":true",
        "\"inLine\":true,\"inLine\":true",
    );
    of_receipt(false, "A receipt with a byte order mark.", "{", "\u{feff}{");
    texts
}

#[test]
fn each_file_at_a_limit_is_right() {
    let published: Vec<File> = golden("right.json", &right());
    assert_eq!(published, right());
    for File { about, record, receipt } in &published {
        assert!(is_right_file(record.as_ref(), receipt.as_ref()), "{about}");
    }
}

#[test]
fn each_spelling_of_json_is_read_or_refused() {
    let published: Vec<Text> = golden("texts.json", &texts());
    assert_eq!(published, texts());
    for Text { about, right, record, receipt } in &published {
        let bytes = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
        assert_eq!(is_right(bytes(record).as_deref(), bytes(receipt).as_deref()), *right, "{about}");
    }
    // A byte that is not UTF-8.
    let mut bytes = World::drand(13).record().to_json().into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'/').expect("a slash");
    bytes[at] = 0xff;
    assert!(!is_right(Some(&bytes), None));
}

#[test]
fn files_and_notes_up_to_their_limits_are_read() {
    let world = World::drand(13);
    let padded = |json: String, size: usize| {
        let mut bytes = json.into_bytes();
        bytes.resize(size, b' ');
        bytes
    };
    let (record, receipt) = (world.record().to_json(), world.receipt(0).to_json());
    assert!(is_right(Some(&padded(record.clone(), draw::RECORD_MAX)), None));
    assert!(!is_right(Some(&padded(record.clone(), draw::RECORD_MAX + 1)), None));
    assert!(is_right(Some(record.as_bytes()), Some(&padded(receipt.clone(), draw::RECEIPT_MAX))));
    assert!(!is_right(Some(record.as_bytes()), Some(&padded(receipt, draw::RECEIPT_MAX + 1))));
    // The names of foreign lines fill the note.
    let noted = |size: usize| {
        let rest = size - world.note.len() - "\u{2014}  AAAAAAA=\n".len();
        appended(&world, &format!("\u{2014} {} AAAAAAA=\n", "w".repeat(rest)))
    };
    assert_eq!(noted(draw::NOTE_MAX).checkpoint.len(), draw::NOTE_MAX);
    assert!(verify(&noted(draw::NOTE_MAX), None).0.is_right());
    assert!(!verify(&noted(draw::NOTE_MAX + 1), None).0.is_right());
}

/// A later round may be above the last one that can be announced. Nobody has its signature yet, so only the reason is compared.
#[test]
fn a_later_round_may_be_above_the_last_announced_one() {
    let drand = World::drand(13);
    let text = drand.checkpoint.text();
    let text = text.replace(" 1000\n", " 80000000000\n").replace("fallback wait", "fallback later 604800");
    let late = |round: u64| {
        let (signature, statement) = (ROUND_1000.to_owned(), stated(&drand, &text, "missing"));
        let randomness = Randomness::Later { round, signature, statement };
        let (report, _) = verify(&Record { randomness, ..with_text(&drand, &text) }, None);
        report.fault.map(|fault| fault.to_string()).unwrap_or_default()
    };
    assert!(late(80_000_201_600).contains("this is not the signature of round 80000201600"));
    assert!(late(80_000_201_599).contains("comes 80000201600"));
}

/// A source or a value cannot add a line to the report, or turn it around.
#[test]
fn a_report_shows_each_step_on_one_line() {
    let of_source = right().into_iter().find(|file| file.about.contains("U+202E")).expect("a vector");
    let record = of_source.record.expect("a record").to_string();
    let (report, _) = verify(&Record::parse(record.as_bytes()).expect("a record"), None);
    let shown = report.to_string();
    assert!(shown.contains("dice\\u{2028}ok: \\u{202e}x\\u{202c} e\u{301}\u{a0}"), "{shown}");
    assert!(!shown.contains(['\u{2028}', '\u{202e}']), "{shown}");
    assert!(report.limits.iter().any(|limit| limit.contains("few possible values")), "{shown}");
}
