//! The test vectors in `crates/draw/tests/vectors`, which other implementations use, too.
//!
//! `WEIR_WRITE_VECTORS=1 cargo test -p draw --test draw vectors` writes them again. Then each difference must be meant: a
//! published vector does not change.

use std::{env, fs, path::Path};

use draw::{
    Announced, Checkpoint, Drawn, Fallback, Places, QUICKNET, Randomness, Receipt, Record, Signer, Statement,
    Terms, Tree, VerifierKey, verify, verify_receipt,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::world::{ROUND_1000, World, places, terms};

/// A whole draw, and what follows from it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    about: String,
    /// The secret seed of the Ed25519 key, in hex, so that the signature can be made again.
    secret: String,
    record: Record,
    /// In hex; `null` if the order is that of arrival.
    seed: Option<String>,
    /// By place; `null` for a place that is not in line.
    positions: Vec<Option<u32>>,
    receipts: Vec<Receipt>,
}

/// A record or a receipt that must be refused. The record beside a receipt is right.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrong {
    about: String,
    record: Option<serde_json::Value>,
    receipt: Option<serde_json::Value>,
}

/// The file of vectors, after writing it if that was asked for.
fn golden<T: Serialize + DeserializeOwned>(name: &str, made: &T) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    if env::var_os("WEIR_WRITE_VECTORS").is_some() {
        let json = serde_json::to_string_pretty(made).expect("JSON");
        fs::write(&path, json + "\n").expect("written");
    }
    let json = fs::read(&path).expect("the vectors are committed");
    serde_json::from_slice(&json).expect("JSON")
}

fn case(about: &str, world: &World, receipts: &[u32]) -> Case {
    Case {
        about: about.to_owned(),
        secret: "01".repeat(32),
        record: world.record(),
        seed: world.drawn.seed().map(ToString::to_string),
        positions: (0..world.places.count()).map(|place| world.drawn.position(place)).collect(),
        receipts: receipts.iter().map(|place| world.receipt(*place)).collect(),
    }
}

fn cases() -> Vec<(&'static str, Case)> {
    let later = Terms {
        fallback: Fallback::Later { seconds: 55 },
        frozen_unix_s: 1_692_806_300,
        ..terms(Announced::Drand { round: 981 })
    };
    let later = World::new(places(13), later, |state| Randomness::Later {
        round: 1_000,
        signature: ROUND_1000.to_owned(),
        statement: state(Statement::Missing),
    });
    let arrival = Terms { fallback: Fallback::Arrival, ..terms(Announced::Drand { round: 2_000 }) };
    let arrival =
        World::new(places(13), arrival, |state| Randomness::Arrival { statement: state(Statement::Missing) });
    let lottery = Terms {
        event: "2026-11-27".to_owned(),
        zone: "A.b_C:d-e".to_owned(),
        ..terms(Announced::Stated {
            source: "로또 6/45 제1252회 당첨번호, 추첨 순서대로, 빈칸으로 나눔".to_owned(),
        })
    };
    let lottery = World::new(places(20), lottery, |state| Randomness::Stated {
        statement: state(Statement::Value("7 13 21 30 38 44 보너스 2".to_owned())),
    });
    let nobody_left = World::dice((0..300).map(|_| true).collect());
    let all_left = World::dice((0..9).map(|_| false).collect());
    vec![
        ("empty.json", case("No places at all.", &World::stated(0), &[])),
        ("one.json", case("One place, in line. No word of the stream is used.", &World::stated(1), &[0])),
        ("five.json", case("Five places; place 2 has left.", &World::stated(5), &[0, 1, 2, 3, 4])),
        ("all-left.json", case("Nine places; all have left.", &all_left, &[0, 8])),
        ("nobody-left.json", case("300 places, all in line.", &nobody_left, &[0, 255, 256, 299])),
        (
            "thousand.json",
            case("1,000 places; every fourth has left.", &World::stated(1_000), &[0, 2, 512, 999]),
        ),
        ("drand.json", case("13 places, drawn by round 1000 of quicknet.", &World::drand(13), &[0, 2, 12])),
        (
            "later.json",
            case(
                "Round 981 of quicknet did not come. 55 s later are 19 rounds: round 1000 decides.",
                &later,
                &[12],
            ),
        ),
        (
            "arrival.json",
            case(
                "Round 2000 of quicknet did not come, and the fallback is the order of arrival.",
                &arrival,
                &[2, 12],
            ),
        ),
        ("lottery.json", case("A stated source and value beyond ASCII.", &lottery, &[19])),
    ]
}

#[test]
fn each_case_is_drawn_and_verified_as_published() {
    for (name, made) in cases() {
        let published: Case = golden(name, &made);
        assert_eq!(published, made, "{name}");
        let secret = [1; 32];
        let key = VerifierKey::parse(&published.record.key).expect("a key");
        let signer = Signer::new(key.name(), &secret).expect("a key");
        let (text, _) = published.record.checkpoint.split_once("\n\n").expect("signed");
        assert_eq!(signer.sign(&format!("{text}\n")), published.record.checkpoint, "{name}");
        let (report, drawn) = verify(&published.record, Some(&key));
        let drawn = drawn.unwrap_or_else(|| panic!("{name}: {report}"));
        for receipt in &published.receipts {
            let report = verify_receipt(receipt, Some(&drawn), Some(&key));
            assert!(report.is_right(), "{name}: {report}");
            assert!(verify_receipt(receipt, None, Some(&key)).is_right());
        }
    }
}

/// A record with one change, made by an operator who also signs it again if the checkpoint is changed.
fn wrong() -> Vec<Wrong> {
    let world = World::stated(5);
    let drand = World::drand(13);
    let json = |record: &Record| Some(serde_json::to_value(record).expect("JSON"));
    let record =
        |about: &str, record: &Record| Wrong { about: about.to_owned(), record: json(record), receipt: None };
    let text = |world: &World, about: &str, from: &str, to: &str| {
        let changed = world.checkpoint.text().replacen(from, to, 1);
        assert_ne!(changed, world.checkpoint.text(), "{from}");
        record(about, &Record { checkpoint: world.signer.sign(&changed), ..world.record() })
    };
    let field = |about: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = json(&world.record()).expect("JSON");
        change(&mut changed);
        Wrong { about: about.to_owned(), record: Some(changed), receipt: None }
    };
    let receipt = |about: &str, change: &dyn Fn(&mut Receipt)| {
        let mut changed = world.receipt(3);
        change(&mut changed);
        let receipt = Some(serde_json::to_value(&changed).expect("JSON"));
        Wrong { about: about.to_owned(), record: json(&world.record()), receipt }
    };
    let drand_with =
        |about: &str, randomness: Randomness| record(about, &Record { randomness, ..drand.record() });
    let stated_with = |about: &str, statement: String| {
        let randomness = Randomness::Stated { statement };
        record(about, &Record { randomness, ..world.record() })
    };
    let value = |value: &str| Statement::Value(value.to_owned());
    let line = |line: &str| {
        let missing = Statement::Missing.text(&world.checkpoint).expect("one line");
        world.signer.sign(&missing.replace("missing", line))
    };
    let of_round = |round, signature: &str| Randomness::Drand { round, signature: signature.to_owned() };
    let mut changed_signature = ROUND_1000.to_owned();
    changed_signature.replace_range(95.., "8");
    let twice =
        format!("{}{}", world.note, world.note.rsplit_once("\n\n").map(|(_, line)| line).expect("signed"));
    let lying = Places::from_bytes(5, [0b10111]).expect("a list");
    vec![
        text(&world, "The place count has a leading zero.", "\n5\n", "\n05\n"),
        text(&world, "The tree has one place more.", "\n5\n", "\n6\n"),
        text(&world, "The line of the event is missing.", "event opening-night\n", ""),
        text(&world, "A line is there twice.", "zone SALE\n", "zone SALE\nzone SALE\n"),
        text(
            &world,
            "Two lines are exchanged.",
            "event opening-night\nzone SALE\n",
            "zone SALE\nevent opening-night\n",
        ),
        text(&world, "A line is unknown.", "fallback wait\n", "fallback wait\nnote x\n"),
        text(&world, "The event is not that of the origin.", "event opening-night", "event closing-night"),
        text(
            &world,
            "An instant has an offset.",
            "start 2023-08-23T15:59:21Z",
            "start 2023-08-23T15:59:21+00:00",
        ),
        text(
            &world,
            "An instant has a fraction.",
            "start 2023-08-23T15:59:21Z",
            "start 2023-08-23T15:59:21.0Z",
        ),
        text(&world, "An instant does not exist.", "start 2023-08-23T", "start 2023-02-30T"),
        text(&world, "The algorithm is unknown.", "weir-draw-1", "weir-draw-2"),
        text(&world, "The number in line is not that of the list.", "in-line 4", "in-line 3"),
        text(&world, "The fallback is unknown.", "fallback wait", "fallback never"),
        text(&world, "A later round of another source.", "fallback wait", "fallback later 60"),
        text(&world, "The stated source ends with a space.", "at the start\n", "at the start \n"),
        text(&drand, "The announced round comes before the freeze.", " 1000\n", " 998\n"),
        text(&drand, "The chain is unknown.", "drand 52db", "drand 53db"),
        text(&drand, "The later round is 0 s later.", "fallback wait", "fallback later 0"),
        record("The signature is there twice.", &Record { checkpoint: twice, ..world.record() }),
        record(
            "The signature is that of another text.",
            &Record { checkpoint: world.note.replace("in-line 4", "in-line 5"), ..world.record() },
        ),
        record(
            "The list is not the one that was frozen.",
            &Record::new(world.signer.key(), &world.note, &lying, world.randomness.clone()),
        ),
        field("The list has a bit beyond its last place.", &|record| record["places"] = "Ow==".into()),
        field("The list has a byte too many.", &|record| record["places"] = "GwA=".into()),
        field("The base64 of the list has bits left over.", &|record| record["places"] = "Gx==".into()),
        field("The ID of the key does not fit.", &|record| {
            let key = record["key"].as_str().expect("text").to_owned();
            let (name, rest) = key.split_once('+').expect("a key");
            record["key"] = format!("{name}+00000000{}", &rest[8..]).into();
        }),
        field("A field is unknown.", &|record| record["note"] = "x".into()),
        field("A field is missing.", &|record| {
            drop(record.as_object_mut().map(|fields| fields.remove("places")));
        }),
        field("The format is unknown.", &|record| record["format"] = "weir-draw-record-2".into()),
        field("The randomness has an unknown kind.", &|record| record["randomness"]["kind"] = "dice".into()),
        drand_with("Another round than the announced one.", of_round(1_001, ROUND_1000)),
        drand_with("A signature of no round.", of_round(1_000, &changed_signature)),
        drand_with(
            "The signature plus a point outside of its group. The pairing alone would accept it.",
            of_round(
                1_000,
                "94385d48ab9d338824a523ff7d310fbeeac0184598d56b49f27857bcd3ef91f6ead1c7ef99c9beee47784ebba5c635de",
            ),
        ),
        drand_with("A signature in upper case.", of_round(1_000, &ROUND_1000.to_uppercase())),
        drand_with(
            "A stated value instead of the announced round.",
            Randomness::Stated { statement: drand.state(&value("6")) },
        ),
        drand_with(
            "The order of arrival, and the fallback is to wait.",
            Randomness::Arrival { statement: drand.state(&Statement::Missing) },
        ),
        drand_with(
            "The announced round as the later one.",
            Randomness::Later {
                round: 1_000,
                signature: ROUND_1000.to_owned(),
                statement: drand.state(&Statement::Missing),
            },
        ),
        stated_with("No value came, and the fallback is to wait.", world.state(&Statement::Missing)),
        stated_with("The value of another draw.", World::stated(6).state(&value("3 1 6 6 2 5"))),
        stated_with(
            "The value is not the one that is signed.",
            world.state(&value("6")).replace("value 6", "value 7"),
        ),
        stated_with("An empty value.", line("value ")),
        stated_with("A value that begins with a space.", line("value  6")),
        stated_with("A value in two lines.", line("value 6\nvalue 7")),
        stated_with("A value with a control character, U+0085.", line("value 6\u{85}")),
        receipt("The position is another.", &|receipt| {
            receipt.position = receipt.position.map(|p| p % 4 + 1);
        }),
        receipt("A place in line has no position.", &|receipt| receipt.position = None),
        receipt("The place is another.", &|receipt| receipt.place = 1),
        receipt("The place was not in line.", &|receipt| receipt.in_line = false),
        receipt("The path is shorter.", &|receipt| drop(receipt.path.pop())),
        receipt("The path is longer.", &|receipt| receipt.path.push(receipt.path[0].clone())),
        receipt("The event is another.", &|receipt| receipt.event = "closing-night".to_owned()),
        receipt("The randomness is another.", &|receipt| {
            receipt.randomness = Randomness::Stated { statement: world.state(&value("1 1 1 1 1 1")) };
        }),
        receipt("The checkpoint is that of another draw.", &|receipt| {
            receipt.checkpoint.clone_from(&World::stated(6).note);
        }),
    ]
}

#[test]
fn each_wrong_file_is_refused() {
    let published: Vec<Wrong> = golden("wrong.json", &wrong());
    assert_eq!(published, wrong());
    for Wrong { about, record, receipt } in &published {
        let record = record.as_ref().and_then(|json| Record::parse(json.to_string().as_bytes()).ok());
        let (right, drawn) = record.map_or((false, None), |record| {
            let (report, drawn) = verify(&record, None);
            (report.is_right(), drawn)
        });
        assert_eq!(right, receipt.is_some(), "{about}");
        let Some(receipt) = receipt else { continue };
        let receipt = Receipt::parse(receipt.to_string().as_bytes()).expect("a receipt");
        assert!(!verify_receipt(&receipt, drawn.as_ref(), None).is_right(), "{about}");
    }
}

/// What a server does: freeze, publish, draw, hand out receipts.
#[test]
fn a_large_draw_is_verified() {
    let places: Places = (0..30_000).map(|place| place % 11 != 0).collect();
    let terms = terms(Announced::Drand { round: QUICKNET.first_round_from(1_692_806_362) });
    let tree = Tree::new(&places);
    let checkpoint = Checkpoint::new(terms, &tree).expect("right");
    let signer = Signer::new("shop.example/weir", &[9; 32]).expect("a key");
    let note = signer.sign(checkpoint.text());
    let randomness = Randomness::Drand { round: 1_000, signature: ROUND_1000.to_owned() };
    let record = Record::new(signer.key(), &note, &places, randomness.clone());
    let (report, verified) = verify(&record, Some(signer.key()));
    let drawn = Drawn::new(&checkpoint, &places, &randomness, signer.key()).expect("drawn");
    assert_eq!(verified.as_ref(), Some(&drawn), "{report}");
    for place in (0..30_000).step_by(997) {
        let receipt = Receipt::new(&drawn, &tree, signer.key(), &note, place).expect("the place exists");
        assert!(verify_receipt(&receipt, verified.as_ref(), Some(signer.key())).is_right());
        assert!(verify_receipt(&receipt, None, None).is_right());
    }
    assert_eq!(Receipt::new(&drawn, &tree, signer.key(), &note, 30_000), None);
}
