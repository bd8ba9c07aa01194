//! Files that an operator makes who signs whatever is asked for.
//!
//! Invariant: everything but the one change is right. If the text of a checkpoint changes, it is signed again, and so are the
//! statements about it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use draw::{Randomness, Record};
use sha2::{Digest as _, Sha256};

use crate::world::World;

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
