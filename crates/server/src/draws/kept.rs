//! What is kept of a draw beside the line: the frozen list with its checkpoint, and then the randomness.
//!
//! The bytes begin with the stage, one digit: 1 frozen, 2 drawn. The rest is JSON. Invariant: what is read verifies: the list has the
//! root of the checkpoint, and the randomness is what the checkpoint announces.

use std::sync::{Arc, OnceLock};

use ::draw::{
    Checkpoint, Drawn, Note, Places, Randomness, Receipt, Record, Signer, Terms, Tree, VerifierKey,
};
use admission::{Census, Lots, LotsFault, SEGMENT, SEGMENT_WORDS};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};

/// A draw whose list is frozen, or that has taken place.
#[derive(Clone)]
pub struct KeptDraw {
    /// The first number that is not on the list.
    frozen: u64,
    /// The numbers of the listed segments.
    segments: Vec<u64>,
    key: VerifierKey,
    /// The checkpoint with its signature.
    note: String,
    checkpoint: Checkpoint,
    places: Places,
    drawn: Option<Arc<Drawn>>,
    tree: Arc<OnceLock<Tree>>,
    /// The place of each position.
    order: Arc<OnceLock<Vec<u32>>>,
}

/// The JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    frozen: u64,
    segments: Vec<u64>,
    key: String,
    checkpoint: String,
    /// How many places there are, and their bits in base64.
    places: u32,
    bits: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    randomness: Option<Randomness>,
}

/// The places of a list: its segments one after the other, up to the first number that is not on it.
fn places_of(census: &Census) -> Result<Places, ::draw::Fault> {
    let count = match census.segments.last() {
        None => 0,
        Some(last) => {
            let in_last = census.next.saturating_sub(last.index * SEGMENT).min(SEGMENT);
            (census.segments.len() as u64 - 1) * SEGMENT + in_last
        }
    };
    let mut bits: Vec<u8> = census
        .segments
        .iter()
        .flat_map(|segment| &segment.live)
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    bits.truncate(count.div_ceil(8) as usize);
    Places::from_bytes(count, bits)
}

impl KeptDraw {
    /// A list that is frozen now.
    pub(super) fn frozen(signer: &Signer, terms: Terms, census: &Census) -> Result<Self, ::draw::Fault> {
        let places = places_of(census)?;
        let tree = Tree::new(&places);
        let checkpoint = Checkpoint::new(terms, &tree)?;
        Ok(Self {
            frozen: census.next,
            segments: census.segments.iter().map(|segment| segment.index).collect(),
            key: signer.key().clone(),
            note: signer.sign(checkpoint.text()),
            checkpoint,
            places,
            drawn: None,
            tree: Arc::new(tree.into()),
            order: Arc::default(),
        })
    }

    /// The same, with the randomness that came.
    pub(super) fn drawn(&self, randomness: Randomness) -> Result<Self, ::draw::Fault> {
        let drawn = Drawn::new(&self.checkpoint, &self.places, &randomness, &self.key)?;
        Ok(Self { drawn: Some(Arc::new(drawn)), order: Arc::default(), ..self.clone() })
    }

    /// Reads what [`KeptDraw::to_bytes`] wrote. The error says what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let json = bytes.get(1..).unwrap_or_default();
        let written: Written = serde_json::from_slice(json).map_err(|why| why.to_string())?;
        let text = |fault: ::draw::Fault| fault.to_string();
        let key = VerifierKey::parse(&written.key).map_err(text)?;
        let note = Note::parse("the checkpoint", &written.checkpoint).map_err(text)?;
        note.verify(&key).map_err(text)?;
        let checkpoint = Checkpoint::parse(note.text()).map_err(text)?;
        let bits = BASE64_STANDARD.decode(&written.bits).map_err(|why| why.to_string())?;
        let places = Places::from_bytes(written.places, bits).map_err(text)?;
        let tree = Tree::new(&places);
        if tree.root() != *checkpoint.root() {
            return Err("the list is not that of the checkpoint".to_owned());
        }
        let kept = Self {
            frozen: written.frozen,
            segments: written.segments,
            key,
            note: written.checkpoint,
            checkpoint,
            places,
            drawn: None,
            tree: Arc::new(tree.into()),
            order: Arc::default(),
        };
        match written.randomness {
            Some(randomness) => kept.drawn(randomness).map_err(text),
            None => Ok(kept),
        }
    }

    /// The bytes to keep.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let written = Written {
            frozen: self.frozen,
            segments: self.segments.clone(),
            key: self.key.to_string(),
            checkpoint: self.note.clone(),
            places: self.places.count(),
            bits: BASE64_STANDARD.encode(self.places.as_bytes()),
            randomness: self.randomness().cloned(),
        };
        let stage = if self.drawn.is_some() { b'2' } else { b'1' };
        let mut bytes = vec![stage];
        serde_json::to_writer(&mut bytes, &written).expect("texts and numbers are JSON");
        bytes
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The checkpoint with its signature.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The key that signed it.
    #[must_use]
    pub fn key(&self) -> &VerifierKey {
        &self.key
    }

    /// The randomness that came.
    #[must_use]
    pub fn randomness(&self) -> Option<&Randomness> {
        self.drawn.as_ref().map(|drawn| drawn.randomness())
    }

    /// The record, once the draw has taken place.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        let drawn = self.drawn.as_ref()?;
        Some(Record::new(&self.key, &self.note, &self.places, drawn.randomness().clone()))
    }

    /// Which number each place gets.
    pub(super) fn lots(&self, draw: u32) -> Result<Lots, LotsFault> {
        let mut words: Vec<u64> = self
            .places
            .as_bytes()
            .chunks(8)
            .map(|bytes| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
            .collect();
        words.resize(self.segments.len() * SEGMENT_WORDS, 0);
        let of_segment = words.chunks_exact(SEGMENT_WORDS).map(<[u64]>::to_vec);
        let list: Vec<(u64, Vec<u64>)> = self.segments.iter().copied().zip(of_segment).collect();
        let from_0 = |drawn: &Arc<Drawn>| drawn.positions().iter().map(|position| position - 1).collect();
        let positions: Vec<u32> = self.drawn.as_ref().map(from_0).unwrap_or_default();
        Lots::new(draw, self.frozen, &list, &positions)
    }

    /// The receipt of a ticket: of the number that it had at the freeze, or of the one that it drew.
    pub(super) fn receipt(&self, lots: &Lots, seq: u64) -> Option<Receipt> {
        let drawn = self.drawn.as_ref()?;
        let position = seq.checked_sub(lots.drawn().from);
        let place = match position {
            None => lots.place(seq)?,
            Some(position) => {
                let order = self.order.get_or_init(|| {
                    let ranks = ::draw::order(drawn.positions());
                    let places: Vec<u32> = self.places.in_line_places().collect();
                    ranks.iter().map(|rank| places[*rank as usize]).collect()
                });
                *order.get(usize::try_from(position).ok()?)?
            }
        };
        let tree = self.tree.get_or_init(|| Tree::new(&self.places));
        Receipt::new(drawn, tree, &self.key, &self.note, place)
    }
}

#[cfg(test)]
mod tests {
    use ::draw::{Announced, Fallback, Statement, verify, verify_receipt};
    use admission::CensusSegment;

    use super::*;

    fn census() -> Census {
        let (mut first, mut second) = (CensusSegment::empty(3), CensusSegment::empty(9));
        (first.live[0], first.live[1_023]) = (0b1011, 1 << 63);
        second.live[0] = 0b101;
        Census {
            now_ms: 1,
            unix_ms: 1_692_806_300_000,
            next: 9 * SEGMENT + 5,
            drawn: admission::LastDeal::default(),
            settled_ms: 0,
            is_recovering: false,
            segments: vec![first, second],
            ended: Vec::new(),
        }
    }

    fn frozen() -> (Signer, KeptDraw) {
        let signer = Signer::new("shop.example", &[7; 32]).expect("a name");
        let terms = Terms {
            key_name: "shop.example".to_owned(),
            event: "sale".to_owned(),
            zone: "Z".to_owned(),
            frozen_unix_s: 1_692_806_300,
            start_unix_s: 1_692_806_330,
            announced: Announced::Stated { source: "dice".to_owned() },
            fallback: Fallback::Wait,
        };
        let kept = KeptDraw::frozen(&signer, terms, &census()).expect("freezes");
        (signer, kept)
    }

    #[test]
    fn what_is_kept_is_read_again_and_verifies() {
        let (signer, kept) = frozen();
        assert_eq!((kept.checkpoint().places(), kept.checkpoint().in_line()), (65_541, 6));
        let read = KeptDraw::read(&kept.to_bytes()).expect("reads");
        assert_eq!((read.note(), read.to_bytes()), (kept.note(), kept.to_bytes()));
        assert!(read.record().is_none(), "nothing is drawn yet");
        let statement = Statement::Value("3 1 6".to_owned()).text(kept.checkpoint()).expect("a value");
        let drawn = read.drawn(Randomness::Stated { statement: signer.sign(&statement) }).expect("draws");
        let drawn = KeptDraw::read(&drawn.to_bytes()).expect("reads");
        let record = drawn.record().expect("it is drawn");
        let (report, verified) = verify(&record, Some(signer.key()));
        assert!(report.fault.is_none(), "{report}");
        let verified = verified.expect("it verifies");
        let lots = drawn.lots(5).expect("fits");
        assert_eq!(lots.listed(), 6);
        // Each person's receipt is the same before and after the deal, and says the number that was drawn.
        for seq in [3 * SEGMENT, 3 * SEGMENT + 3, 4 * SEGMENT - 1, 9 * SEGMENT + 2] {
            let receipt = drawn.receipt(&lots, seq).expect("on the list");
            let number = lots.number(seq).expect("in line");
            assert_eq!(drawn.receipt(&lots, number), Some(receipt.clone()));
            assert_eq!(receipt.position.map(u64::from), Some(number - lots.drawn().from + 1));
            let report = verify_receipt(&receipt, Some(&verified), Some(signer.key()));
            assert!(report.fault.is_none(), "{report}");
        }
        let left = drawn.receipt(&lots, 3 * SEGMENT + 2).expect("on the list");
        assert!(!left.in_line && left.position.is_none());
        assert_eq!(drawn.receipt(&lots, 9 * SEGMENT + 5), None, "it came later");
    }

    #[test]
    fn what_was_altered_is_refused() {
        let (_, kept) = frozen();
        let bytes = String::from_utf8(kept.to_bytes()).expect("text");
        let altered = [
            bytes.replace("\"places\":65541", "\"places\":65540"),
            bytes.replacen("\"bits\":\"C", "\"bits\":\"B", 1),
            bytes.replace("event sale", "event sail"),
            bytes.replace("{\"frozen\"", "{\"frosen\""),
            String::new(),
        ];
        for altered in altered {
            assert_ne!(altered, bytes);
            assert!(KeptDraw::read(altered.as_bytes()).is_err(), "{altered:.80}");
        }
    }
}
