//! The receipt of a draw, verified as anybody can who holds one: with hashes and Ed25519, from the published formats alone.
//!
//! A checkpoint is a signed text with the root of a tree over all places. A receipt has the path from one place to that root.
//! Invariant: what [`Receipt::verify`] returns is signed, or follows from what is signed, apart from the position: that follows from the
//! whole list, which the receipt does not have. A round of drand is not verified here, either; `weir draw verify` does both.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// The type of Ed25519 keys in signed notes.
const ED25519: u8 = 1;

type Hash = [u8; 32];

/// The checkpoint that was fixed at the freeze. Its signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The text, without signatures.
    pub text: String,
    /// The number of places.
    pub places: u32,
    /// How many of them are in line.
    pub in_line: u32,
    /// When the list was frozen, seconds since 1970 by the server's clock.
    pub frozen_unix_s: i64,
    event: String,
    zone: String,
    root: Hash,
    randomness: String,
}

/// A receipt that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The key that signed, `NAME+ID+KEY`.
    pub key: String,
    /// The event.
    pub event: String,
    /// The zone.
    pub zone: String,
    /// The place in the list, from 0.
    pub place: u32,
    /// The position in the order, from 1; none if the place was not in line.
    pub position: Option<u32>,
    /// The announced randomness did not come, so the order is that of arrival.
    pub is_by_arrival: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    format: String,
    event: String,
    zone: String,
    place: u32,
    in_line: bool,
    position: Option<u32>,
    path: Vec<String>,
    key: String,
    checkpoint: String,
    randomness: Randomness,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Randomness {
    kind: String,
    round: Option<u64>,
    #[serde(rename = "signature")]
    _signature: Option<String>,
    statement: Option<String>,
}

impl Checkpoint {
    /// Reads a checkpoint that `key` signed.
    ///
    /// # Errors
    /// What is wrong, as a clause.
    pub fn verify(note: &str, key: &str) -> Result<Self, String> {
        let text = signed(note, key)?;
        let lines: Vec<&str> = text.lines().collect();
        let [origin, places, root, event, zone, frozen, start, algorithm, in_line, randomness, _] = lines[..]
        else {
            return Err("its checkpoint does not have 11 lines".to_owned());
        };
        let field = |line: &str, name: &str| {
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')).map(str::to_owned);
            value.ok_or_else(|| format!("its checkpoint has no line `{name}`"))
        };
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| "its checkpoint has no number of places".to_owned());
        let (event, zone) = (field(event, "event")?, field(zone, "zone")?);
        let name = key.split('+').next().unwrap_or_default();
        if origin != format!("{name}/{event}/{zone}") {
            return Err(
                "the origin of its checkpoint is not that of the key, the event and the zone".to_owned()
            );
        }
        if field(algorithm, "algorithm")? != "weir-draw-1" {
            return Err("the algorithm of its checkpoint is not known".to_owned());
        }
        field(start, "start")?;
        let frozen = field(frozen, "frozen")?.parse::<Timestamp>();
        let frozen = frozen.map_err(|_| "its checkpoint has no instant of the freeze".to_owned())?;
        let root = hash(root).ok_or("its checkpoint has no root")?;
        Ok(Self {
            places: number(places)?,
            in_line: number(&field(in_line, "in-line")?)?,
            frozen_unix_s: frozen.as_second(),
            event,
            zone,
            root,
            randomness: field(randomness, "randomness")?,
            text: text.to_owned(),
        })
    }
}

impl Checkpoint {
    /// Whether it is of this draw.
    #[must_use]
    pub fn is_of(&self, zone: &str, event: &str) -> bool {
        (self.zone.as_str(), self.event.as_str()) == (zone, event)
    }
}

impl Receipt {
    /// Reads a receipt and verifies it.
    ///
    /// # Errors
    /// What is wrong, as a clause.
    pub fn verify(json: &str) -> Result<Self, String> {
        let written: Written =
            serde_json::from_str(json).map_err(|_| "it is not the JSON of a receipt".to_owned())?;
        let Written { format, event, zone, place, in_line, position, path, key, checkpoint, randomness } =
            written;
        if format != "weir-draw-receipt-1" {
            return Err("its format is not known".to_owned());
        }
        let checkpoint = Checkpoint::verify(&checkpoint, &key)?;
        if (&event, &zone) != (&checkpoint.event, &checkpoint.zone) {
            return Err("its event or zone is not that of its checkpoint".to_owned());
        }
        let path: Option<Vec<Hash>> = path.iter().map(|text| hash(text)).collect();
        let path = path.ok_or("its path is not one of hashes")?;
        if root(place, checkpoint.places, leaf(place, in_line), &path) != Some(checkpoint.root) {
            return Err("its place is not in the list that was signed".to_owned());
        }
        if position.is_some() != in_line
            || position.is_some_and(|position| !(1..=checkpoint.in_line).contains(&position))
        {
            return Err("its position is not one of the places in line".to_owned());
        }
        let is_by_arrival = randomness.check(&checkpoint, &key)?;
        Ok(Self { checkpoint, key, event, zone, place, position, is_by_arrival })
    }
}

impl Randomness {
    /// Checks that it is what the checkpoint announced. Returns whether it did not come, so that the order is that of arrival.
    fn check(&self, checkpoint: &Checkpoint, key: &str) -> Result<bool, String> {
        let announced: Vec<&str> = checkpoint.randomness.splitn(3, ' ').collect();
        let fits = match (self.kind.as_str(), &announced[..]) {
            ("drand", ["drand", _, round]) => self.round.is_some_and(|mine| mine.to_string() == *round),
            ("later", ["drand", ..]) | ("arrival", _) => self.states(checkpoint, key)? == "missing",
            ("stated", ["stated", ..]) => self.states(checkpoint, key)?.starts_with("value "),
            _ => false,
        };
        if fits {
            Ok(self.kind == "arrival")
        } else {
            Err("its randomness is not the announced one".to_owned())
        }
    }

    /// The last line of the signed statement about this checkpoint.
    fn states(&self, checkpoint: &Checkpoint, key: &str) -> Result<&str, String> {
        let text = signed(self.statement.as_deref().ok_or("its statement is missing")?, key)?;
        let about = format!("checkpoint {}", STANDARD.encode(Sha256::digest(&checkpoint.text)));
        let lines: Vec<&str> = text.lines().collect();
        match lines[..] {
            [origin, of, said] if checkpoint.text.lines().next() == Some(origin) && of == about => Ok(said),
            _ => Err("its statement is about another checkpoint".to_owned()),
        }
    }
}

/// The text of a note that `key` (`NAME+ID+KEY`) signed.
fn signed<'a>(note: &'a str, key: &str) -> Result<&'a str, String> {
    let mut parts = key.splitn(3, '+');
    let (Some(name), Some(id), Some(public)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("its key is not NAME+ID+KEY".to_owned());
    };
    let public = STANDARD.decode(public).unwrap_or_default();
    let known = Sha256::new().chain_update(name).chain_update(b"\n").chain_update(&public).finalize();
    let public = match public.split_first() {
        Some((&ED25519, public)) => {
            <&Hash>::try_from(public).ok().and_then(|key| VerifyingKey::from_bytes(key).ok())
        }
        _ => None,
    };
    let public = public.ok_or("its key is not one of Ed25519")?;
    let hex: String = known[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    if id != hex {
        return Err("the ID of its key does not fit".to_owned());
    }
    let (before, signatures) = note.rsplit_once("\n\n").ok_or("a note of it has no signature")?;
    let text = &note[..=before.len()];
    let of_key = |line: &str| {
        let (by, signature) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        let bytes = STANDARD.decode(signature).ok()?;
        (by == name && bytes.starts_with(&known[..4])).then_some(bytes)
    };
    let mine: Vec<_> = signatures.lines().filter_map(of_key).collect();
    let [signature] = &mine[..] else {
        return Err("a note of it does not have one signature of its key".to_owned());
    };
    let signature =
        Signature::from_slice(&signature[4..]).map_err(|_| "a signature is not one of Ed25519".to_owned())?;
    public.verify_strict(text.as_bytes(), &signature).map_err(|_| "a signature of it is wrong".to_owned())?;
    Ok(text)
}

fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn leaf(place: u32, in_line: bool) -> Hash {
    Sha256::new()
        .chain_update([0])
        .chain_update(place.to_be_bytes())
        .chain_update([u8::from(in_line)])
        .finalize()
        .into()
}

/// The root of a tree of `places` to which the path of a leaf leads (RFC 9162, 2.1.3.2); none if the path is too long or too short.
fn root(place: u32, places: u32, leaf: Hash, path: &[Hash]) -> Option<Hash> {
    if place >= places {
        return None;
    }
    let node = |left: &Hash, right: &Hash| -> Hash {
        Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
    };
    let (mut at, mut last, mut root) = (place, places - 1, leaf);
    for other in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            root = node(other, &root);
            // The last place of a level has no right neighbour up to here.
            let skipped = if at == 0 { 0 } else { at.trailing_zeros() };
            (at, last) = (at >> skipped, last >> skipped);
        } else {
            root = node(&root, other);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    (last == 0).then_some(root)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The published vectors of draws: files that are right, or have one fault.
    fn vectors(name: &str) -> Value {
        let path = format!("{}/../draw/tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).expect("a vector")).expect("JSON")
    }

    #[test]
    fn published_receipts_are_right() {
        for name in
            ["one", "five", "all-left", "thousand", "lottery", "drand", "later", "arrival", "stated-arrival"]
        {
            let draw = vectors(&format!("{name}.json"));
            let receipts = draw["receipts"].as_array().expect("receipts");
            assert!(!receipts.is_empty(), "{name}");
            for written in receipts {
                let receipt =
                    Receipt::verify(&written.to_string()).unwrap_or_else(|why| panic!("{name}: {why}"));
                let place = usize::try_from(receipt.place).expect("small");
                assert_eq!(json!(receipt.position), draw["positions"][place], "{name}");
                assert_eq!(receipt.is_by_arrival, name.ends_with("arrival"));
            }
        }
        let five = vectors("five.json");
        let checkpoint = Receipt::verify(&five["receipts"][0].to_string()).expect("right").checkpoint;
        assert_eq!((checkpoint.places, checkpoint.in_line), (5, 4));
        assert_eq!(checkpoint.frozen_unix_s, 1_692_806_360);
    }

    /// Each change of a field is noticed.
    #[test]
    fn a_receipt_that_was_changed_is_wrong() {
        let draw = vectors("five.json");
        let right = draw["receipts"][0].clone();
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut changed = right.clone();
            change(&mut changed);
            assert_ne!(changed, right);
            Receipt::verify(&changed.to_string()).expect_err("refused")
        };
        assert!(Receipt::verify(&right.to_string()).is_ok());
        let set = |field: &'static str, value: Value| refused(&move |receipt| receipt[field] = value.clone());
        assert!(set("place", json!(1)).contains("not in the list"));
        assert!(set("place", json!(5)).contains("not in the list"));
        assert!(
            refused(&|receipt| {
                (receipt["inLine"], receipt["position"]) = (json!(false), Value::Null);
            })
            .contains("not in the list")
        );
        for position in [json!(0), json!(5), Value::Null] {
            assert!(set("position", position).contains("position"));
        }
        assert!(set("zone", json!("OTHER")).contains("zone"));
        assert!(set("event", json!("other")).contains("event"));
        assert!(set("path", json!([])).contains("not in the list"));
        assert!(set("format", json!("x")).contains("format"));
        assert!(set("more", json!(1)).contains("JSON"));
        let longer = refused(&|receipt| {
            let first = receipt["path"][0].clone();
            receipt["path"].as_array_mut().expect("a path").push(first);
        });
        assert!(longer.contains("not in the list"));
        let text = right["checkpoint"].as_str().expect("text");
        assert!(set("checkpoint", json!(text.replace("in-line 4", "in-line 5"))).contains("signature"));
        let other = vectors("drand.json");
        let key = right["key"].as_str().expect("text").replace("+c77d8173+", "+c77d8174+");
        assert!(set("key", json!(key)).contains("ID of its key"));
        assert!(set("randomness", other["receipts"][0]["randomness"].clone()).contains("randomness"));
        let statement = right["randomness"]["statement"].as_str().expect("text").replace("3 1 6", "3 1 5");
        assert!(
            refused(&move |receipt| receipt["randomness"]["statement"] = json!(statement))
                .contains("signature")
        );
    }

    /// The published wrong receipts, each alone.
    #[test]
    fn published_wrong_receipts_are_refused() {
        let wrong = vectors("wrong.json");
        let alone = wrong.as_array().expect("files").iter().filter(|file| file["record"].is_null());
        let (mut refused, mut taken) = (0, Vec::new());
        for file in alone {
            match Receipt::verify(&file["receipt"].to_string()) {
                Err(_) => refused += 1,
                Ok(_) => taken.push(file["about"].to_string()),
            }
        }
        assert!(refused > 0 && taken.is_empty(), "{refused}, {taken:?}");
    }
}
