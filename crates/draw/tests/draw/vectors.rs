//! The test vectors in `crates/draw/tests/vectors`, which other implementations use, too.
//!
//! `WEIR_WRITE_VECTORS=1 cargo test -p draw --test draw` writes them again. Then each difference must be meant: a
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

/// The file of vectors, after writing it if that was asked for.
pub(crate) fn golden<T: Serialize + DeserializeOwned>(name: &str, made: &T) -> T {
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
    let later = World::later(13);
    let arrival = Terms { fallback: Fallback::Arrival, ..terms(Announced::Drand { round: 2_000 }) };
    let arrival =
        World::new(places(13), arrival, |state| Randomness::Arrival { statement: state(Statement::Missing) });
    let stated_arrival = World::stated_arrival(5);
    let lottery = World::lottery();
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
        (
            "stated-arrival.json",
            case("No value was stated, and the fallback is the order of arrival.", &stated_arrival, &[3]),
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
