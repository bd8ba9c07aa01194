//! What is published: the record of a whole draw, and a receipt for one place. Both are JSON.
//!
//! Invariants: unknown, missing and repeated fields are refused, and so is an array in place of an object. A file above its limit is
//! refused before it is read.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    drawn::Drawn,
    fault::Fault,
    note::VerifierKey,
    places::Places,
    randomness::Randomness,
    spelling::{from_base64, to_base64},
    tree::{Hash, Tree},
};

/// The field `format` of a record.
pub const RECORD_FORMAT: &str = "weir-draw-record-1";
/// The field `format` of a receipt.
pub const RECEIPT_FORMAT: &str = "weir-draw-receipt-1";
/// The longest record, in bytes. One of 20 million places has 3.4 million.
pub const RECORD_MAX: usize = 4_000_000;
/// The longest receipt, in bytes. A path has at most 25 hashes.
pub const RECEIPT_MAX: usize = 200_000;

/// The whole record of a draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`RECORD_FORMAT`].
    pub format: String,
    /// The operator's public key, `NAME+ID+KEY`.
    pub key: String,
    /// The checkpoint with its signatures.
    pub checkpoint: String,
    /// The bitmap of those in line, in base64: place `i` is bit `i % 8` of byte `i / 8`, the lowest bit first.
    pub places: String,
    /// The randomness that came.
    #[serde(deserialize_with = "object")]
    pub randomness: Randomness,
}

/// What one person gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Receipt {
    /// [`RECEIPT_FORMAT`].
    pub format: String,
    /// The event.
    pub event: String,
    /// The zone.
    pub zone: String,
    /// The place, from 0.
    pub place: u32,
    /// Whether it was in line at the freeze.
    pub in_line: bool,
    /// Its position, from 1; `null` if it was not in line.
    #[serde(deserialize_with = "nullable")]
    pub position: Option<u32>,
    /// The path from the place's leaf to the root, each hash in base64.
    pub path: Vec<String>,
    /// The operator's public key, `NAME+ID+KEY`.
    pub key: String,
    /// The checkpoint with its signatures.
    pub checkpoint: String,
    /// The randomness that came.
    #[serde(deserialize_with = "object")]
    pub randomness: Randomness,
}

/// A field that may be `null`, but not missing.
fn nullable<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    Option::deserialize(from)
}

/// A JSON object. Without this, serde would also read the fields from an array.
fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(fields))
        }
    }

    from.deserialize_map(Object(PhantomData))
}

impl Record {
    /// The record of a draw. `note` is the signed checkpoint.
    #[must_use]
    pub fn new(key: &VerifierKey, note: &str, places: &Places, randomness: Randomness) -> Self {
        Self {
            format: RECORD_FORMAT.to_owned(),
            key: key.to_string(),
            checkpoint: note.to_owned(),
            places: to_base64(places.as_bytes()),
            randomness,
        }
    }

    /// Reads a record. Nothing is verified yet.
    ///
    /// # Errors
    /// [`Fault::Format`] if this is not a record.
    pub fn parse(json: &[u8]) -> Result<Self, Fault> {
        parse(json, "the record", RECORD_MAX, RECORD_FORMAT)
    }

    /// The record as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    /// The list of places, `count` of them.
    pub(crate) fn places(&self, count: u32) -> Result<Places, Fault> {
        let bits = from_base64(&self.places);
        let bits = bits.ok_or_else(|| Fault::format("the record's list of places", "it is not base64"))?;
        Places::from_bytes(count, bits)
    }
}

impl Receipt {
    /// The receipt of a place, from a draw, its tree, and the signed checkpoint. `None` if the place does not exist.
    #[must_use]
    pub fn new(drawn: &Drawn, tree: &Tree, key: &VerifierKey, note: &str, place: u32) -> Option<Self> {
        let terms = drawn.checkpoint().terms();
        Some(Self {
            format: RECEIPT_FORMAT.to_owned(),
            event: terms.event.clone(),
            zone: terms.zone.clone(),
            place,
            in_line: drawn.places().is_in_line(place),
            position: drawn.position(place),
            path: tree.path(place)?.iter().map(to_base64).collect(),
            key: key.to_string(),
            checkpoint: note.to_owned(),
            randomness: drawn.randomness().clone(),
        })
    }

    /// Reads a receipt. Nothing is verified yet.
    ///
    /// # Errors
    /// [`Fault::Format`] if this is not a receipt.
    pub fn parse(json: &[u8]) -> Result<Self, Fault> {
        parse(json, "the receipt", RECEIPT_MAX, RECEIPT_FORMAT)
    }

    /// The receipt as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    /// The hashes of the path.
    pub(crate) fn hashes(&self) -> Result<Vec<Hash>, Fault> {
        let hash = |(at, text): (usize, &String)| {
            let bytes = from_base64(text).and_then(|bytes| Hash::try_from(bytes).ok());
            let what = || format!("hash {} of the receipt's path", at + 1);
            bytes.ok_or_else(|| Fault::format(what(), "it is not the base64 of 32 bytes"))
        };
        self.path.iter().enumerate().map(hash).collect()
    }
}

fn parse<T: DeserializeOwned>(json: &[u8], what: &str, max: usize, format: &str) -> Result<T, Fault> {
    if json.len() > max {
        return Err(Fault::format(what, format!("it has {} bytes; at most {max} are read", json.len())));
    }
    // A file of another format is called that, and not by the first of its fields that differs.
    if let Ok(other) = serde_json::from_slice::<Format>(json)
        && other.format != format
    {
        let why = format!("it is a `{}`, and a {format} is expected", other.format.escape_debug());
        return Err(Fault::format(what, why));
    }
    let mut from = serde_json::Deserializer::from_slice(json);
    let read = object(&mut from).and_then(|read| from.end().map(|()| read));
    read.map_err(|why| Fault::format(what, why.to_string()))
}

/// The format of any file of ours.
#[derive(Deserialize)]
struct Format {
    format: String,
}
