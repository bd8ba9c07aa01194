//! Each changed byte of a record or a receipt is detected, and so is each lie that an operator could tell.
//!
//! JSON has several spellings of one content: white space, escapes. A changed file that still has the same content is the same
//! record. Every other change must be a fault.

use crate::world::{ROUND_1000, World};
use draw::{
    Checkpoint, Fallback, Randomness, Receipt, Record, Signer, Statement, Terms, Tree, VerifierKey, verify,
    verify_receipt,
};
use proptest::prelude::*;

/// What a byte may become.
fn other_bytes(byte: u8) -> impl Iterator<Item = u8> {
    let near = [byte ^ 1, byte ^ 2, byte ^ 32, byte.wrapping_add(1)];
    near.into_iter().chain(*b" 0A\"\\}").filter(move |other| *other != byte)
}

/// Whether the verifier finds something wrong with the record in these bytes, or it is the same record.
fn is_found(original: &Record, changed: &[u8]) -> bool {
    match Record::parse(changed) {
        Ok(record) => record == *original || !verify(&record, None).0.is_right(),
        Err(_) => true,
    }
}

/// The same for a receipt, alone and beside its record. Alone, a changed position may pass, and is said not to be computed.
fn is_found_in_receipt(original: &Receipt, world: &World, changed: &[u8]) -> bool {
    let Ok(receipt) = Receipt::parse(changed) else { return true };
    if receipt == *original {
        return true;
    }
    let only_position = Receipt { position: original.position, ..receipt.clone() } == *original;
    let alone = verify_receipt(&receipt, None, None);
    let is_told = alone.limits.iter().any(|limit| limit.contains("NOT computed"));
    let beside = verify_receipt(&receipt, Some(&world.drawn), None);
    !beside.is_right() && (!alone.is_right() || (only_position && is_told))
}

#[test]
fn each_changed_byte_of_a_record_is_found() {
    for world in [World::drand(13), World::stated(13), World::stated(1), World::stated(0)] {
        let record = world.record();
        let json = record.to_json().into_bytes();
        assert!(verify(&Record::parse(&json).expect("a record"), None).0.is_right());
        for at in 0..json.len() {
            for byte in other_bytes(json[at]) {
                let mut changed = json.clone();
                changed[at] = byte;
                assert!(is_found(&record, &changed), "byte {at}: {}", String::from_utf8_lossy(&changed));
            }
            let mut shorter = json.clone();
            shorter.remove(at);
            assert!(is_found(&record, &shorter), "without byte {at}");
            assert!(is_found(&record, &json[..at]), "cut at {at}");
        }
    }
}

#[test]
fn each_changed_byte_of_a_receipt_is_found() {
    for world in [World::drand(13), World::stated(13), World::stated(1)] {
        for place in [0, world.places.count() - 1] {
            let receipt = world.receipt(place);
            let json = receipt.to_json().into_bytes();
            assert!(verify_receipt(&receipt, Some(&world.drawn), None).is_right());
            assert!(verify_receipt(&receipt, None, None).is_right());
            for at in 0..json.len() {
                for byte in other_bytes(json[at]) {
                    let mut changed = json.clone();
                    changed[at] = byte;
                    let text = String::from_utf8_lossy(&changed);
                    assert!(is_found_in_receipt(&receipt, &world, &changed), "byte {at}: {text}");
                }
                let mut shorter = json.clone();
                shorter.remove(at);
                assert!(is_found_in_receipt(&receipt, &world, &shorter), "without byte {at}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_changes_of_a_record_are_found(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let world = World::stated(40);
        let record = world.record();
        let mut json = record.to_json().into_bytes();
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        prop_assert!(is_found(&record, &json), "{}", String::from_utf8_lossy(&json));
    }

    #[test]
    fn random_changes_of_a_receipt_are_found(place in 0..40_u32, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let world = World::stated(40);
        let receipt = world.receipt(place);
        let mut json = receipt.to_json().into_bytes();
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        prop_assert!(is_found_in_receipt(&receipt, &world, &json), "{}", String::from_utf8_lossy(&json));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Record::parse(&bytes).is_ok(), Receipt::parse(&bytes).is_ok());
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = (Checkpoint::parse(text).is_ok(), draw::Note::parse("the note", text).is_ok(), VerifierKey::parse(text).is_ok());
        }
    }
}

fn fault_of(record: &Record) -> String {
    verify(record, None).0.fault.expect("a fault").to_string()
}

/// Two people exchange their places in the published list. The number in line stays the same.
#[test]
fn another_list_of_the_same_size_is_found() {
    let world = World::stated(13);
    let gone = (0..13).find(|place| !world.places.is_in_line(*place)).expect("somebody left");
    let swapped = (0..13)
        .map(|place| if place == gone { true } else { place != gone - 1 && world.places.is_in_line(place) });
    let swapped = swapped.collect();
    let record = Record::new(world.signer.key(), &world.note, &swapped, world.randomness.clone());
    assert!(fault_of(&record).contains("the list of places is not the list that was frozen"));
}

#[test]
fn a_checkpoint_that_lies_about_its_number_in_line_is_found() {
    let world = World::stated(13);
    let in_line = world.places.in_line();
    let lying = world
        .checkpoint
        .text()
        .replace(&format!("in-line {in_line}\n"), &format!("in-line {}\n", in_line - 1));
    let record = Record { checkpoint: world.signer.sign(&lying), ..world.record() };
    assert!(fault_of(&record).contains("are in line, and the checkpoint says"));
}

#[test]
fn a_record_signed_by_another_key_is_found() {
    let world = World::drand(13);
    let forger = Signer::new("shop.example/weir", &[66; 32]).expect("a key");
    let forged = Record {
        key: forger.key().to_string(),
        checkpoint: forger.sign(world.checkpoint.text()),
        ..world.record()
    };
    let (alone, _) = verify(&forged, None);
    assert!(alone.is_right() && alone.limits[0].contains("compare it with the key"), "{alone}");
    let (known, _) = verify(&forged, Some(world.signer.key()));
    assert!(known.fault.expect("a fault").to_string().contains("the key that you gave"));
    let (right, _) = verify(&world.record(), Some(world.signer.key()));
    assert!(right.is_right(), "{right}");
    let stripped = Record { key: forger.key().to_string(), ..world.record() };
    assert!(fault_of(&stripped).contains("is not signed by"));
    // A key with another name may not sign for this origin.
    let other = Signer::new("other.example", &[1; 32]).expect("a key");
    let foreign = Record {
        key: other.key().to_string(),
        checkpoint: other.sign(world.checkpoint.text()),
        ..world.record()
    };
    assert!(fault_of(&foreign).contains("the key is called `other.example`"));
}

#[test]
fn only_the_announced_randomness_counts() {
    let world = World::drand(13);
    let other = |randomness| fault_of(&Record { randomness, ..world.record() });
    let Randomness::Drand { signature, .. } = world.randomness.clone() else { panic!("of drand") };
    assert!(other(Randomness::Drand { round: 1_001, signature }).contains("announced is round 1000"));
    assert!(
        other(Randomness::Drand { round: 1_000, signature: "00".repeat(48) }).contains("not the signature")
    );
    let state = |statement| world.state(&statement);
    let value = |value: &str| Statement::Value(value.to_owned());
    assert!(other(Randomness::Stated { statement: state(value("6")) }).contains("it is a stated value"));
    assert!(other(Randomness::Arrival { statement: state(Statement::Missing) }).contains("`fallback wait`"));
    let stated = World::stated(13);
    let other = |statement: String| {
        let randomness = Randomness::Stated { statement };
        verify(&Record { randomness, ..stated.record() }, None)
    };
    let (report, drawn) = other(stated.state(&value("another value")));
    assert!(report.is_right() && report.limits.iter().any(|limit| limit.contains("looked up")), "{report}");
    assert_ne!(drawn.expect("drawn").positions(), stated.drawn.positions());
    assert!(!other(stated.state(&Statement::Missing)).0.is_right(), "a value is needed");
    assert!(!other(World::stated(14).state(&value("6"))).0.is_right(), "of another checkpoint");
    let forger = Signer::new("shop.example/weir", &[66; 32]).expect("a key");
    let forged = forger.sign(&value("6").text(&stated.checkpoint).expect("one line"));
    assert!(!other(forged).0.is_right(), "by another key");
    for wrong in ["", " 6", "6 ", "6\n6", "6\u{85}"] {
        assert!(value(wrong).text(&stated.checkpoint).is_err());
        let missing = Statement::Missing.text(&stated.checkpoint).expect("one line");
        let signed = stated.signer.sign(&missing.replace("missing", &format!("value {wrong}")));
        assert!(!other(signed).0.is_right(), "{wrong:?}");
    }
}

#[test]
fn a_fallback_counts_only_if_the_checkpoint_says_so_and_is_reported() {
    let world = World::drand(13);
    // Round 1000 is the later one of a draw that announced round 981: 55 s are 19 rounds.
    let record = |fallback, statement: Statement| {
        let terms = Terms {
            frozen_unix_s: 1_692_806_300,
            announced: draw::Announced::Drand { round: 981 },
            fallback,
            ..world.checkpoint.terms().clone()
        };
        let checkpoint = Checkpoint::new(terms, &Tree::new(&world.places)).expect("right");
        let statement = world.signer.sign(&statement.text(&checkpoint).expect("one line"));
        let randomness = match fallback {
            Fallback::Arrival => Randomness::Arrival { statement },
            Fallback::Wait | Fallback::Later { .. } => {
                Randomness::Later { round: 1_000, signature: ROUND_1000.to_owned(), statement }
            }
        };
        Record { checkpoint: world.signer.sign(checkpoint.text()), randomness, ..world.record() }
    };
    for seconds in 55..=57 {
        let (report, drawn) = verify(&record(Fallback::Later { seconds }, Statement::Missing), None);
        assert!(report.is_right() && drawn.expect("drawn").randomness().is_fallback(), "{report}");
        assert!(report.limits.iter().any(|limit| limit.contains("that round 981 of drand did not come")));
    }
    for seconds in [54, 58] {
        let fault = fault_of(&record(Fallback::Later { seconds }, Statement::Missing));
        assert!(fault.contains("after round 981 comes"), "{fault}");
    }
    let value = || Statement::Value("6".to_owned());
    assert!(fault_of(&record(Fallback::Later { seconds: 55 }, value())).contains("states that a value came"));
    assert!(fault_of(&record(Fallback::Arrival, value())).contains("states that a value came"));
    assert!(fault_of(&record(Fallback::Wait, Statement::Missing)).contains("`fallback wait`"));
    let (report, drawn) = verify(&record(Fallback::Arrival, Statement::Missing), None);
    let drawn = drawn.expect("drawn");
    assert!(report.is_right() && drawn.randomness().is_fallback() && drawn.seed().is_none(), "{report}");
    assert!(drawn.positions().iter().copied().eq(1..=drawn.places().in_line()));
}

#[test]
fn a_receipt_of_another_draw_or_with_a_wrong_position_is_found() {
    let (world, other) = (World::stated(40), World::stated(41));
    let receipt = other.receipt(3);
    let fault = verify_receipt(&receipt, Some(&world.drawn), None).fault.expect("a fault").to_string();
    assert!(fault.contains("its checkpoint is not the checkpoint of the record"), "{fault}");
    let receipt = world.receipt(3);
    let position = receipt.position.expect("in line");
    for wrong in [position - 1, position + 1, 0, 41, u32::MAX] {
        let receipt = Receipt { position: Some(wrong), ..receipt.clone() };
        assert!(!verify_receipt(&receipt, Some(&world.drawn), None).is_right(), "{wrong}");
        let alone = verify_receipt(&receipt, None, None);
        let in_range = (1..=world.places.in_line()).contains(&wrong);
        assert_eq!(alone.is_right(), in_range, "{alone}");
    }
    let nobody = Receipt { position: None, ..receipt.clone() };
    assert!(!verify_receipt(&nobody, None, None).is_right());
    let gone = Receipt { in_line: false, position: None, ..receipt };
    assert!(!verify_receipt(&gone, None, None).is_right());
}

#[test]
fn files_above_their_limits_and_other_files_are_refused() {
    assert!(
        Record::parse(&vec![b' '; draw::RECORD_MAX + 1])
            .is_err_and(|fault| fault.to_string().contains("at most"))
    );
    assert!(Receipt::parse(&vec![b' '; draw::RECEIPT_MAX + 1]).is_err());
    let world = World::stated(5);
    let swapped = Record::parse(world.receipt(0).to_json().as_bytes()).expect_err("a receipt").to_string();
    assert!(swapped.contains("weir-draw-record-1"), "{swapped}");
    let newer = world.record().to_json().replace("record-1", "record-2");
    assert!(Record::parse(newer.as_bytes()).is_err_and(|fault| fault.to_string().contains("record-2")));
    let twice = world.record().to_json().replacen('{', "{\"key\":\"x\",", 1);
    assert!(Record::parse(twice.as_bytes()).is_err_and(|fault| fault.to_string().contains("duplicate")));
    for name in ["kind", "statement"] {
        let twice =
            world.record().to_json().replace("{\"kind\"", &format!("{{\"{name}\":\"stated\",\"kind\""));
        assert!(Record::parse(twice.as_bytes()).is_err_and(|fault| fault.to_string().contains("duplicate")));
    }
}

/// Signatures of others, such as cosigners, change nothing but a note in the report.
#[test]
fn signatures_of_cosigners_are_kept_and_not_checked() {
    let world = World::stated(5);
    let cosigner = Signer::new("cosigner.example/w1", &[5; 32]).expect("a key");
    let line = cosigner.sign(world.checkpoint.text());
    let line = &line[world.checkpoint.text().len() + 1..];
    let record = Record { checkpoint: format!("{}{line}", world.note), ..world.record() };
    let (report, drawn) = verify(&record, Some(world.signer.key()));
    assert!(report.is_right() && report.limits.iter().any(|limit| limit.starts_with("1 more")), "{report}");
    assert!(verify_receipt(&world.receipt(0), drawn.as_ref(), None).is_right());
}
