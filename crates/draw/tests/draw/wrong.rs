//! `wrong.json`: files that must be refused.
//!
//! Invariant: each file has exactly one fault.

use draw::{Places, Randomness, Record, Signer, Statement};
use serde_json::{Value, json};

use crate::{
    altered::{
        File, MIXED_KEY, MIXED_KEY_WRONG, appended, field, from_hex, is_right_file, line, of_round, receipt,
        receipt_alone, record, replaced, signature_of, stated, text_of, to_base64, typed_key, under, value,
        with_text,
    },
    vectors::golden,
    world::{ROUND_1000, World},
};

/// Signatures of the checkpoint of `World::drand(13)` by the secret of the worlds. The nonce is the neutral element.
const SMALL_NONCE: &str = "0100000000000000000000000000000000000000000000000000000000000000\
                           b854803704f33b2de02f92ef2efffb70e813c660c65bc26dc3e9aeb70d67a401";
/// The nonce has a part of order 8, so the signature is right only with the cofactor.
const MIXED_NONCE: &str = "e9b2fe981587efae6478f48ba1fa60cec6126d0e26dde72a0a24f640dcd783e5\
                           60f0eb20429830a1513f1cc996409d8c98f17cc7b94f3d09a05c9c3eb0846d01";
/// `S` is the right one plus `L`.
const LARGE_S: &str = "93771bfbc2a44e57c28c9182a4bda1e96f83d61b237027ff2556a7ad808956d8\
                       80493c81a74eae698797c42400a9258c7a5d95327f76cd1f02e0495163c80517";
/// A point of the group of BLS signatures whose `x` is written plus `p`.
const LARGE_X: &str =
    "bf73ddd4c9cd4de0d32470a193f4f1e3fb9926b584ad13e4aac0ffabba099c4f013b75ba40707c427d998c5529beb9f9";
/// The signature of round 1000 plus a point outside of the group.
const OUTSIDE: &str =
    "94385d48ab9d338824a523ff7d310fbeeac0184598d56b49f27857bcd3ef91f6ead1c7ef99c9beee47784ebba5c635de";

/// Lines of the checkpoint.
fn wrong_checkpoints() -> Vec<File> {
    let (five, drand, later) = (World::stated(5), World::drand(13), World::later(13));
    let text = |about: &str, world: &World, from: &str, to: &str| record(about, &replaced(world, from, to));
    let start = |about: &str, to: &str| text(about, &five, "start 2023-08-23T15:59:21Z", to);
    let source = |about: &str, to: &str| text(about, &five, "six dice, thrown on stage at the start", to);
    let event = |about: &str, to: &str| {
        let text = five.checkpoint.text().replace("opening-night", to);
        record(about, &with_text(&five, &text))
    };
    let exchanged = ("event opening-night\nzone SALE\n", "zone SALE\nevent opening-night\n");
    let late = Randomness::Later {
        round: 1_000,
        signature: ROUND_1000.to_owned(),
        statement: stated(
            &later,
            &later.checkpoint.text().replace("fallback later 55", "fallback wait"),
            "missing",
        ),
    };
    vec![
        text("The place count has a leading zero.", &five, "\n5\n", "\n05\n"),
        text("The place count has a sign.", &five, "\n5\n", "\n+5\n"),
        text("The tree has one place more.", &five, "\n5\n", "\n6\n"),
        text("The root has bits left over.", &five, "bnm3T4=", "bnm3T5="),
        text("The line of the event is missing.", &five, "event opening-night\n", ""),
        text("A line is there twice.", &five, "zone SALE\n", "zone SALE\nzone SALE\n"),
        text("Two lines are exchanged.", &five, exchanged.0, exchanged.1),
        text("A line is unknown.", &five, "fallback wait\n", "fallback wait\nnote x\n"),
        text("The event is not that of the origin.", &five, "event opening-night", "event closing-night"),
        text("The zone is not that of the origin.", &five, "zone SALE", "zone SALF"),
        event("The event has 65 characters.", &"x".repeat(65)),
        event("The event is two dots.", ".."),
        event("The event has a space.", "opening night"),
        start("An instant has an offset.", "start 2023-08-23T15:59:21+00:00"),
        start("An instant has a fraction.", "start 2023-08-23T15:59:21.0Z"),
        start("An instant has small letters.", "start 2023-08-23t15:59:21z"),
        start("An instant does not exist.", "start 2023-02-30T15:59:21Z"),
        start("An instant is the 24th hour.", "start 2023-08-23T24:00:00Z"),
        start("An instant is a leap second.", "start 2016-12-31T23:59:60Z"),
        start("An instant is before 1970.", "start 1969-12-31T23:59:59Z"),
        start("An instant is after the last one.", "start 9999-12-30T22:00:01Z"),
        text("The algorithm is unknown.", &five, "weir-draw-1", "weir-draw-2"),
        text("The number in line is not that of the list.", &five, "in-line 4", "in-line 3"),
        text("The fallback is unknown.", &five, "fallback wait", "fallback never"),
        text("A later round of another source.", &five, "fallback wait", "fallback later 60"),
        source("The stated source ends with a space.", "dice "),
        source("The stated source has a control character, U+0085.", "dice\u{85}"),
        source("The stated source has 1,025 bytes.", &"x".repeat(1_025)),
        source("The stated source is empty.", ""),
        text("The announced round comes in the second of the freeze.", &drand, "15:59:20Z", "15:59:24Z"),
        text("The announced round has a leading zero.", &drand, " 1000\n", " 01000\n"),
        text("The chain is unknown.", &drand, "drand 52db", "drand 53db"),
        text("The later round is 0 s later.", &drand, "fallback wait", "fallback later 0"),
        text("The later round is more than a week later.", &drand, "fallback wait", "fallback later 604801"),
        text("The later round is one too late: 54 s are 18 rounds.", &later, "later 55", "later 54"),
        text("The later round is one too early: 58 s are 20 rounds.", &later, "later 55", "later 58"),
        record(
            "A later round, and the fallback is to wait.",
            &Record { randomness: late, ..replaced(&later, "fallback later 55", "fallback wait") },
        ),
    ]
}

/// Keys, signatures and notes.
fn wrong_notes() -> Vec<File> {
    let (five, drand) = (World::stated(5), World::drand(13));
    let (key, right) = (typed_key(&drand), signature_of(&drand.note));
    let signed = |about: &str, signature: &[u8]| record(about, &under(&drand, &key, None, signature));
    let with_key =
        |about: &str, key: &[u8], signature: &[u8]| record(about, &under(&drand, key, None, signature));
    let noted = |about: &str, note: String| record(about, &Record { checkpoint: note, ..drand.record() });
    let more = |about: &str, lines: &str| record(about, &appended(&drand, lines));
    let neutral = [&[1], &from_hex(SMALL_NONCE)[..32]].concat();
    let neutral_signature = [&from_hex(SMALL_NONCE)[..32], &[0; 32]].concat();
    let other = Signer::new("other.example", &[1; 32]).expect("a key");
    let foreign = Record {
        key: other.key().to_string(),
        checkpoint: other.sign(drand.checkpoint.text()),
        ..drand.record()
    };
    let late = five.checkpoint.text().replace("15:59:21Z", "15:59:22Z");
    let unsigned =
        Record { checkpoint: five.note.replace("15:59:21Z", "15:59:22Z"), ..with_text(&five, &late) };
    let own_line = drand.note.rsplit_once("\n\n").map(|(_, line)| line).expect("signed");
    vec![
        noted("The signature is there twice.", format!("{}{own_line}", drand.note)),
        record("The signature is that of another text.", &unsigned),
        noted("There is no signature of the key.", {
            format!("{}\n{}", drand.checkpoint.text(), line("witness.example", &[7; 4], &[7; 64]))
        }),
        record("The ID of the key does not fit.", &under(&drand, &key, Some(&[0; 4]), &right)),
        with_key("The key has another type.", &[&[2], &key[1..]].concat(), &right),
        with_key("The key has a byte too many.", &[&key[..], &[0]].concat(), &right),
        with_key("The key is of small order.", &neutral, &neutral_signature),
        record("The key has another name than the origin.", &foreign),
        signed("The signature has 63 bytes.", &right[..63]),
        signed("The signature has 65 bytes.", &[&right[..], &[0]].concat()),
        signed("The signature's S is not below L.", &from_hex(LARGE_S)),
        signed("The nonce of the signature is of small order.", &from_hex(SMALL_NONCE)),
        signed("The signature is right only with the cofactor: its nonce.", &from_hex(MIXED_NONCE)),
        with_key(
            "The signature is right only with the cofactor: its key.",
            &from_hex(MIXED_KEY),
            &from_hex(MIXED_KEY_WRONG),
        ),
        noted("The note ends without a line feed.", drand.note.trim_end().to_owned()),
        noted("The note ends with two line feeds.", format!("{}\n", drand.note)),
        noted("The note ends with a carriage return.", format!("{}\r\n", drand.note.trim_end())),
        noted("A signature line begins with a minus.", drand.note.replace('\u{2014}', "-")),
        noted("A signature line has two spaces.", drand.note.replace("\u{2014} ", "\u{2014}  ")),
        more("A foreign signature is no base64.", "\u{2014} witness.example AAAA_AA=\n"),
        more("A foreign signature has bits left over.", "\u{2014} witness.example AAAAAAB=\n"),
        more("A foreign signature has no padding.", "\u{2014} witness.example AAAAAAA\n"),
        more("A foreign signature has 4 bytes.", "\u{2014} witness.example AAAAAA==\n"),
        more("A foreign signature is missing.", "\u{2014} witness.example\n"),
        more("A foreign name has a plus.", "\u{2014} a+b AAAAAAA=\n"),
        more("A foreign name has white space, U+0085.", "\u{2014} a\u{85}b AAAAAAA=\n"),
        more("A foreign name has white space, U+00A0.", "\u{2014} a\u{a0}b AAAAAAA=\n"),
        more("A foreign name has white space, U+2029.", "\u{2014} a\u{2029}b AAAAAAA=\n"),
        more("A foreign name has white space, U+3000.", "\u{2014} a\u{3000}b AAAAAAA=\n"),
        more("A foreign name has a control character, U+0001.", "\u{2014} a\u{1}b AAAAAAA=\n"),
    ]
}

/// Fields of the record, and the randomness.
fn wrong_records() -> Vec<File> {
    let (five, drand, later) = (World::stated(5), World::drand(13), World::later(13));
    let arrival = World::stated_arrival(5);
    let lying = Places::from_bytes(5, [0b10111]).expect("a list");
    let with = |about: &str, world: &World, randomness: Randomness| {
        record(about, &Record { randomness, ..world.record() })
    };
    let round = |about: &str, number: u64, signature: &str| with(about, &drand, of_round(number, signature));
    let text = five.checkpoint.text();
    let said = |about: &str, statement: String| with(about, &five, Randomness::Stated { statement });
    let line = |about: &str, said_line: &str| said(about, stated(&five, text, said_line));
    let missing = |world: &World| world.state(&Statement::Missing);
    let other_origin = text_of(&five.state(&value("3 1 6 6 2 5"))).replacen("/SALE\n", "/SALF\n", 1);
    let one_bit = |from: &str, to: &str| ROUND_1000.replacen(from, to, 1);
    let soon = replaced(&drand, "fallback wait", "fallback later 55");
    let counted = Record { places: "Ow==".to_owned(), ..replaced(&five, "in-line 4", "in-line 5") };
    vec![
        record(
            "The list is not the one that was frozen.",
            &Record::new(five.signer.key(), &five.note, &lying, five.randomness.clone()),
        ),
        field("The list has a bit beyond its last place.", &five, |record| record["places"] = "Ow==".into()),
        record("The list has a bit beyond its last place, and the number in line counts it.", &counted),
        field("The list has a byte too many.", &five, |record| record["places"] = "GwA=".into()),
        field("The base64 of the list has bits left over.", &five, |record| record["places"] = "Gx==".into()),
        field("The base64 of the list has no padding.", &five, |record| record["places"] = "Gw".into()),
        field("A field is unknown.", &five, |record| record["note"] = "x".into()),
        field("A field is missing.", &five, |record| {
            drop(record.as_object_mut().map(|fields| fields.remove("places")));
        }),
        field("The format is unknown.", &five, |record| record["format"] = "weir-draw-record-2".into()),
        field("The randomness has an unknown kind.", &five, |record| {
            record["randomness"]["kind"] = "dice".into();
        }),
        field("The randomness has an unknown field.", &five, |record| {
            record["randomness"]["round"] = 1.into();
        }),
        field("The randomness has no kind.", &five, |record| {
            drop(record["randomness"].as_object_mut().map(|fields| fields.remove("kind")));
        }),
        field("The randomness is an array.", &five, |record| {
            record["randomness"] = json!(["stated", record["randomness"]["statement"]]);
        }),
        field("The record is an array.", &five, |record| {
            *record = ["format", "key", "checkpoint", "places", "randomness"]
                .iter()
                .map(|name| record[name].clone())
                .collect();
        }),
        field("The round is a text.", &drand, |record| record["randomness"]["round"] = "1000".into()),
        record(
            "Another round than the announced one, with its right signature.",
            &replaced(&drand, " 1000\n", " 999\n"),
        ),
        round("The signature's last bit is another.", 1_000, &one_bit("5e39", "5e38")),
        round("The signature's point is negative: only the pairing refuses it.", 1_000, &one_bit("b4", "94")),
        round(
            "The signature plus a point outside of its group: the pairing would accept it.",
            1_000,
            OUTSIDE,
        ),
        round("The signature is the point at infinity.", 1_000, &format!("c0{}", "00".repeat(47))),
        round("The signature's bit of compression is cleared.", 1_000, &one_bit("b4", "34")),
        round("The signature's x is not below p.", 1_000, LARGE_X),
        round("The signature is in upper case.", 1_000, &ROUND_1000.to_uppercase()),
        round("The signature has a byte too many.", 1_000, &format!("{ROUND_1000}00")),
        with(
            "A stated value instead of the announced round.",
            &drand,
            Randomness::Stated { statement: drand.state(&value("6")) },
        ),
        with("The announced round instead of a stated value.", &five, of_round(1_000, ROUND_1000)),
        with(
            "The order of arrival, and the fallback is to wait.",
            &drand,
            Randomness::Arrival { statement: missing(&drand) },
        ),
        record(
            "The announced round as the later one.",
            &Record {
                randomness: Randomness::Later {
                    round: 1_000,
                    signature: ROUND_1000.to_owned(),
                    statement: stated(&drand, text_of(&soon.checkpoint), "missing"),
                },
                ..soon
            },
        ),
        with(
            "A later round, and the operator states a value.",
            &later,
            Randomness::Later {
                round: 1_000,
                signature: ROUND_1000.to_owned(),
                statement: later.state(&value("6")),
            },
        ),
        with(
            "The order of arrival, and the operator states a value.",
            &arrival,
            Randomness::Arrival { statement: arrival.state(&value("6")) },
        ),
        said("No value came, and the fallback is to wait.", missing(&five)),
        said("The value of another draw.", World::stated(6).state(&value("3 1 6 6 2 5"))),
        said("The statement has another origin, and the right hash.", five.signer.sign(&other_origin)),
        said(
            "The value is not the one that is signed.",
            five.state(&value("6")).replace("value 6", "value 7"),
        ),
        line("An empty value.", "value "),
        line("A value that begins with a space.", "value  6"),
        line("A value in two lines.", "value 6\nvalue 7"),
        line("A value with a control character, U+0085.", "value 6\u{85}"),
        line("A value of 1,025 bytes.", &format!("value {}", "x".repeat(1_025))),
        line("The last line is neither a value nor `missing`.", "Value 6"),
    ]
}

fn wrong_receipts() -> Vec<File> {
    let (world, drand) = (World::stated(5), World::drand(13));
    let of = |place: u32| world.receipt(place);
    let wrong = |about: &str, place: u32, fields: Value| receipt(about, &world, place, &fields);
    let alone = |about: &str, place: u32, fields: Value| receipt_alone(about, &world, place, &fields);
    let path = of(3).path;
    let longer: Vec<&String> = path.iter().chain(&path[..1]).collect();
    let short_hash = [&path[..2], &[to_base64([0; 31])]].concat();
    let other_value = Randomness::Stated { statement: world.state(&value("1 1 1 1 1 1")) };
    let forger = Signer::new("shop.example/weir", &[66; 32]).expect("a key");
    let forged =
        json!({ "key": forger.key().to_string(), "checkpoint": forger.sign(drand.checkpoint.text()) });
    let late = replaced(&drand, "start 2023-08-23T15:59:21Z", "start 2023-08-23T15:59:22Z");
    let mut other_draw = receipt("A receipt that is right, of another draw.", &world, 3, &json!({}));
    other_draw.receipt = Some(serde_json::to_value(World::stated(6).receipt(3)).expect("JSON"));
    vec![
        wrong("The position is another.", 3, json!({ "position": of(3).position.map(|p| p % 4 + 1) })),
        wrong("A place in line has no position.", 3, json!({ "position": null })),
        alone("A place in line has no position, alone.", 3, json!({ "position": null })),
        alone("A place that was not in line has a position.", 2, json!({ "position": 1 })),
        wrong("The place is another.", 3, json!({ "place": 1, "position": of(1).position })),
        wrong("The place was not in line.", 3, json!({ "inLine": false, "position": null })),
        alone("The place was not in line, alone.", 3, json!({ "inLine": false, "position": null })),
        alone("The place does not exist.", 3, json!({ "place": 5 })),
        wrong("The place is false.", 0, json!({ "place": false })),
        wrong("The position is true.", 0, json!({ "position": true })),
        wrong("Whether it is in line is 1.", 0, json!({ "inLine": 1 })),
        alone("The position is 0.", 3, json!({ "position": 0 })),
        alone("The position is above the number in line.", 3, json!({ "position": 5 })),
        wrong("The path is shorter.", 3, json!({ "path": path[..2] })),
        wrong("The path is longer.", 3, json!({ "path": longer })),
        wrong("A hash of the path has 31 bytes.", 3, json!({ "path": short_hash })),
        wrong("The event is another.", 3, json!({ "event": "closing-night" })),
        wrong("The zone is another.", 3, json!({ "zone": "SALF" })),
        wrong("The format is that of a record.", 3, json!({ "format": "weir-draw-record-1" })),
        wrong("A field is unknown in the receipt.", 3, json!({ "note": "x" })),
        wrong("The randomness is another.", 3, json!({ "randomness": other_value })),
        receipt("The checkpoint has another start.", &drand, 3, &json!({ "checkpoint": late.checkpoint })),
        receipt("The key is another one of the same name.", &drand, 3, &forged),
        other_draw,
    ]
}

#[test]
fn each_wrong_file_is_refused() {
    let made: Vec<File> = [wrong_checkpoints(), wrong_notes(), wrong_records(), wrong_receipts()]
        .into_iter()
        .flatten()
        .collect();
    let published: Vec<File> = golden("wrong.json", &made);
    assert_eq!(published, made);
    for File { about, record, receipt } in &published {
        if receipt.is_some() && record.is_some() {
            assert!(is_right_file(record.as_ref(), None), "{about}: the record beside the receipt");
        }
        assert!(!is_right_file(record.as_ref(), receipt.as_ref()), "{about}");
    }
}
