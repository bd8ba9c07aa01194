//! Files that an operator makes who signs whatever is asked for, and what a verifier does with them.
//!
//! Invariant: everything but the one change is right. If the text of a checkpoint changes, it is signed again, and so are the
//! statements about it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use draw::{Randomness, Receipt, Record, Statement, verify, verify_receipt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::world::World;

/// A record, a receipt beside a record that is right, or a receipt alone.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) about: String,
    pub(crate) record: Option<Value>,
    pub(crate) receipt: Option<Value>,
}

/// The key of the worlds plus a point of order 8, and two signatures of the checkpoint of `World::drand(13)` under it. With the
/// cofactor both are right. Without it only the second is: there `k` is a multiple of 8.
pub(crate) const MIXED_KEY: &str = "019ea3f11f5bd34f0cd7147fd0a436c088f624c6100c1df6a53c0a29e05d60cea0";
pub(crate) const MIXED_KEY_WRONG: &str = "b862409fb5c4c4123df2abf7462b88f041ad36dd6864ce872fd5472be363c5b1\
                               585431c2801ee6d5c4c751204a5cd2e0e6f5f160feef3128a9999c8e85666907";
pub(crate) const MIXED_KEY_RIGHT: &str = "f9e42d2edc81d23367967352b47e4856b82578634e6c1de72280ce8b60ce70c0\
                               a643123021efc61b921079fd8abb562dd31abb5a2e333ffeefe3f09b1560910a";
pub(crate) fn to_base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Bytes in hex.
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| u8::try_from(digit.to_digit(16).expect("hex")).expect("a nibble")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The text of a note, with its last line feed.
pub(crate) fn text_of(note: &str) -> &str {
    &note[..=note.rfind("\n\n").expect("signed")]
}

/// The bytes of the only signature of a note, without the key's ID.
pub(crate) fn signature_of(note: &str) -> Vec<u8> {
    let (_, base64) = note.trim_end().rsplit_once(' ').expect("signed");
    STANDARD.decode(base64).expect("base64")[4..].to_vec()
}

/// A signature line.
pub(crate) fn line(name: &str, id: &[u8], signature: &[u8]) -> String {
    format!("\u{2014} {name} {}\n", to_base64([id, signature].concat()))
}

/// The ID of a key: of its name, and of its type and bytes.
pub(crate) fn id_of(name: &str, typed_key: &[u8]) -> Vec<u8> {
    Sha256::digest([name.as_bytes(), b"\n", typed_key].concat())[..4].to_vec()
}

/// A statement with another last line, or about another text.
pub(crate) fn stated(world: &World, text: &str, said: &str) -> String {
    let origin = text.split('\n').next().unwrap_or_default();
    world.signer.sign(&format!("{origin}\ncheckpoint {}\n{said}\n", to_base64(Sha256::digest(text))))
}

/// The record with another text of the checkpoint.
pub(crate) fn with_text(world: &World, text: &str) -> Record {
    let again = |statement: &str| {
        let (_, said) = text_of(statement).trim_end().rsplit_once('\n').expect("three lines");
        stated(world, text, said)
    };
    let randomness = match world.randomness.clone() {
        drand @ Randomness::Drand { .. } => drand,
        Randomness::Later { round, signature, statement } => {
            Randomness::Later { round, signature, statement: again(&statement) }
        }
        Randomness::Stated { statement } => Randomness::Stated { statement: again(&statement) },
        Randomness::Arrival { statement } => Randomness::Arrival { statement: again(&statement) },
    };
    Record { checkpoint: world.signer.sign(text), randomness, ..world.record() }
}

/// The record with one change in the text of the checkpoint.
pub(crate) fn replaced(world: &World, from: &str, to: &str) -> Record {
    let text = world.checkpoint.text().replacen(from, to, 1);
    assert_ne!(text, world.checkpoint.text(), "{from}");
    with_text(world, &text)
}

/// The record with this text after the checkpoint's signature.
pub(crate) fn appended(world: &World, lines: &str) -> Record {
    Record { checkpoint: format!("{}{lines}", world.note), ..world.record() }
}

/// The record under a key of this type and these bytes, with this ID or the right one, and with this signature.
pub(crate) fn under(world: &World, typed_key: &[u8], id: Option<&[u8]>, signature: &[u8]) -> Record {
    let name = &world.checkpoint.terms().key_name;
    let id = id.map_or_else(|| id_of(name, typed_key), <[u8]>::to_vec);
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Record {
        key: format!("{name}+{hex}+{}", to_base64(typed_key)),
        checkpoint: format!("{}\n{}", world.checkpoint.text(), line(name, &id, signature)),
        ..world.record()
    }
}

/// The type and the bytes of a world's key.
pub(crate) fn typed_key(world: &World) -> Vec<u8> {
    let key = world.signer.key().to_string();
    STANDARD.decode(key.splitn(3, '+').nth(2).expect("a key")).expect("base64")
}

pub(crate) fn json(record: &Record) -> Value {
    serde_json::to_value(record).expect("JSON")
}

pub(crate) fn record(about: &str, record: &Record) -> File {
    File { about: about.to_owned(), record: Some(json(record)), receipt: None }
}

/// A record after a change of its JSON.
pub(crate) fn field(about: &str, world: &World, change: impl Fn(&mut Value)) -> File {
    let mut changed = json(&world.record());
    change(&mut changed);
    File { about: about.to_owned(), record: Some(changed), receipt: None }
}

/// A receipt with other fields, beside the right record.
pub(crate) fn receipt(about: &str, world: &World, place: u32, fields: &Value) -> File {
    let record = Some(json(&world.record()));
    File { record, ..receipt_alone(about, world, place, fields) }
}

pub(crate) fn receipt_alone(about: &str, world: &World, place: u32, fields: &Value) -> File {
    let mut changed = serde_json::to_value(world.receipt(place)).expect("JSON");
    for (name, value) in fields.as_object().expect("an object") {
        changed[name] = value.clone();
    }
    File { about: about.to_owned(), record: None, receipt: Some(changed) }
}

pub(crate) fn of_round(round: u64, signature: &str) -> Randomness {
    Randomness::Drand { round, signature: signature.to_owned() }
}

pub(crate) fn value(value: &str) -> Statement {
    Statement::Value(value.to_owned())
}

/// What a verifier does with the bytes of a record and of a receipt.
pub(crate) fn is_right(record: Option<&[u8]>, receipt: Option<&[u8]>) -> bool {
    let mut drawn = None;
    if let Some(json) = record {
        let Ok(record) = Record::parse(json) else { return false };
        drawn = verify(&record, None).1;
        if drawn.is_none() {
            return false;
        }
    }
    let Some(json) = receipt else { return true };
    Receipt::parse(json).is_ok_and(|receipt| verify_receipt(&receipt, drawn.as_ref(), None).is_right())
}

pub(crate) fn is_right_file(record: Option<&Value>, receipt: Option<&Value>) -> bool {
    let bytes = |json: Option<&Value>| json.map(|json| json.to_string().into_bytes());
    is_right(bytes(record).as_deref(), bytes(receipt).as_deref())
}
