//! The checkpoint: what is fixed at the freeze (<https://c2sp.org/tlog-checkpoint>, with extension lines).
//!
//! ```text
//! shop.example/weir/opening-night/SALE      the key's name, the event and the zone
//! 600000                                    the number of places
//! <root of the tree, base64>
//! event opening-night
//! zone SALE
//! frozen 2026-11-27T10:59:50Z
//! start 2026-11-27T11:00:00Z
//! algorithm weir-draw-1
//! in-line 583112
//! randomness drand <chain> <round>          or: randomness stated <where the value comes from>
//! fallback wait                             or: arrival, or: later <seconds>
//! ```
//!
//! The origin contains event and zone, because a cosigner signs only one tree of a size for an origin, so it signs only one
//! list for a draw. Invariant: a text that is read is exactly the text that is written from what was read.

use crate::{
    PLACES_MAX,
    announced::{self, Announced, Fallback},
    fault::Fault,
    spelling::{from_base64, from_instant, is_id, is_key_name, number, to_base64, to_instant},
    tree::{Hash, Tree},
};

/// The name of the algorithm: SHA-256 of checkpoint and randomness, `ChaCha20`, Fisher-Yates.
pub const ALGORITHM: &str = "weir-draw-1";

/// What an operator says about a draw, besides the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The name of the key that signs: 1 to 128 visible ASCII characters without `+`.
    pub key_name: String,
    /// The event: 1 to 64 of `A-Z a-z 0-9 _ . : -`. An event has one draw in a zone, so a repeated sale needs another name.
    pub event: String,
    /// The zone: the same characters.
    pub zone: String,
    /// When the list was frozen, in seconds since 1970. The announced round of drand must come later.
    pub frozen_unix_s: u64,
    /// When the sale starts, in seconds since 1970.
    pub start_unix_s: u64,
    /// The randomness that will decide.
    pub announced: Announced,
    /// What happens if it does not come.
    pub fallback: Fallback,
}

/// A checkpoint: terms and the list of places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    terms: Terms,
    places: u32,
    in_line: u32,
    root: Hash,
    text: String,
}

impl Checkpoint {
    /// The checkpoint of a list.
    ///
    /// # Errors
    /// [`Fault::Format`] if a term is out of its range.
    pub fn new(terms: Terms, tree: &Tree) -> Result<Self, Fault> {
        Self::checked(terms, tree.places().count(), tree.places().in_line(), tree.root())
    }

    /// Reads the text of a checkpoint, without signatures.
    ///
    /// # Errors
    /// [`Fault::Format`], with the line, if this is not exactly the text of a checkpoint.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let what = |line: usize| format!("line {line} of the checkpoint");
        let Some(body) = text.strip_suffix('\n') else {
            return Err(Fault::format("the checkpoint", "its last line has no line break"));
        };
        let mut lines = body.split('\n').zip(1..);
        let mut next = |expected: &str| {
            let found = lines.next();
            found.ok_or_else(|| {
                Fault::format("the checkpoint", format!("it ends before the line `{expected}`"))
            })
        };
        let (origin, _) = next("ORIGIN")?;
        let (places, line) = next("NUMBER OF PLACES")?;
        let places = small_number(places).map_err(|why| Fault::format(what(line), why))?;
        let (root, line) = next("ROOT")?;
        let root = from_base64(root).and_then(|bytes| Hash::try_from(bytes).ok());
        let root = root.ok_or_else(|| Fault::format(what(line), "it is not the base64 of 32 bytes"))?;
        let mut field = |name: &str| {
            let (line, at) = next(name)?;
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
            let why = || format!("it is `{}`, and `{name} …` is expected", line.escape_debug());
            value.map(|value| (value, at)).ok_or_else(|| Fault::format(what(at), why()))
        };
        let (event, _) = field("event")?;
        let (zone, _) = field("zone")?;
        let mut instant = |name: &str| {
            let (value, line) = field(name)?;
            let why = || format!("`{}` is not an instant like 2026-11-27T11:00:00Z", value.escape_debug());
            from_instant(value).ok_or_else(|| Fault::format(what(line), why()))
        };
        let (frozen_unix_s, start_unix_s) = (instant("frozen")?, instant("start")?);
        let (algorithm, line) = field("algorithm")?;
        if algorithm != ALGORITHM {
            let why = format!("`{}` is not known; known is {ALGORITHM}", algorithm.escape_debug());
            return Err(Fault::format(what(line), why));
        }
        let (in_line, line) = field("in-line")?;
        let in_line = small_number(in_line).map_err(|why| Fault::format(what(line), why))?;
        let (announced, line) = field("randomness")?;
        let announced = Announced::parse(announced).map_err(|why| Fault::format(what(line), why))?;
        let (fallback, line) = field("fallback")?;
        let why = "it is not `wait`, `arrival` or `later SECONDS`";
        let fallback = Fallback::parse(fallback).ok_or_else(|| Fault::format(what(line), why))?;
        if let Some((more, line)) = lines.next() {
            return Err(Fault::format(what(line), format!("`{}` is not expected", more.escape_debug())));
        }
        let key_name = origin
            .strip_suffix(zone)
            .and_then(|rest| rest.strip_suffix('/')?.strip_suffix(event)?.strip_suffix('/'))
            .ok_or_else(|| {
                Fault::format(
                    what(1),
                    format!("it does not end with the event and the zone, `/{event}/{zone}`"),
                )
            })?;
        let (key_name, event, zone) = (key_name.to_owned(), event.to_owned(), zone.to_owned());
        let terms = Terms { key_name, event, zone, frozen_unix_s, start_unix_s, announced, fallback };
        let read = Self::checked(terms, places, in_line, root)?;
        if read.text != text {
            return Err(Fault::format("the checkpoint", "it is not written as checkpoints are"));
        }
        Ok(read)
    }

    fn checked(terms: Terms, places: u32, in_line: u32, root: Hash) -> Result<Self, Fault> {
        let fault = |what: &str, why: &str| Err(Fault::format(format!("the checkpoint's {what}"), why));
        if !is_key_name(&terms.key_name) {
            return fault(
                "origin",
                "the key's name in it is not 1 to 128 visible ASCII characters without `+`",
            );
        }
        for (what, id) in [("event", &terms.event), ("zone", &terms.zone)] {
            if !is_id(id) {
                return fault(what, "it is not 1 to 64 of A-Z a-z 0-9 _ . : -, or it is . or ..");
            }
        }
        if places > PLACES_MAX {
            return fault("number of places", &format!("{places} is above {PLACES_MAX}"));
        }
        if in_line > places {
            return fault("in-line", &format!("{in_line} are in line, of {places} places"));
        }
        if let Err(why) = announced::check(&terms.announced, terms.fallback, terms.frozen_unix_s) {
            return fault("randomness", &why);
        }
        let instants = (to_instant(terms.frozen_unix_s), to_instant(terms.start_unix_s));
        let (Some(frozen), Some(start)) = instants else {
            return fault("instants", "they are not before the year 10000");
        };
        let Terms { key_name, event, zone, announced, fallback, .. } = &terms;
        let text = format!(
            "{key_name}/{event}/{zone}\n{places}\n{}\nevent {event}\nzone {zone}\nfrozen {frozen}\nstart {start}\n\
             algorithm {ALGORITHM}\nin-line {in_line}\nrandomness {}\nfallback {}\n",
            to_base64(root),
            announced.text(),
            fallback.text()
        );
        Ok(Self { terms, places, in_line, root, text })
    }

    /// The text, as it is signed and as it goes into the seed. It ends with a line break.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first line: the name of the key, the event and the zone, with slashes between them.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.text.split('\n').next().unwrap_or_default()
    }

    /// What the operator says about the draw.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The number of places.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.places
    }

    /// The number of places that are in line.
    #[must_use]
    pub fn in_line(&self) -> u32 {
        self.in_line
    }

    /// The root of the tree over the places.
    #[must_use]
    pub fn root(&self) -> &Hash {
        &self.root
    }
}

fn small_number(text: &str) -> Result<u32, String> {
    let small =
        number(text).and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= PLACES_MAX);
    small.ok_or_else(|| {
        format!("`{}` is not a number from 0 to {PLACES_MAX} without leading zeros", text.escape_debug())
    })
}

#[cfg(test)]
mod tests;
