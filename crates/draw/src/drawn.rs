//! A draw that has taken place: every place's position.
//!
//! Invariant: the positions of those in line are 1 to their number, each once; the others have none.

use crate::{
    checkpoint::Checkpoint,
    fault::Fault,
    note::VerifierKey,
    places::Places,
    randomness::{OrderSource, Randomness},
    seed::Seed,
    shuffle::positions,
};

/// The positions that a checkpoint, a list and a randomness decide.
#[derive(Debug, PartialEq, Eq)]
pub struct Drawn {
    checkpoint: Checkpoint,
    places: Places,
    randomness: Randomness,
    key: VerifierKey,
    seed: Option<Seed>,
    /// By rank among those in line.
    positions: Box<[u32]>,
}

impl Drawn {
    /// Draws. `key` is the operator's, for what the operator states about the randomness. `places` must be the list of the
    /// checkpoint; only the numbers of places are compared here, and [`verify`](crate::verify()) compares the root.
    ///
    /// # Errors
    /// [`Fault::OtherList`] if the list has other numbers, and those of [`Randomness::decide`].
    pub fn new(
        checkpoint: &Checkpoint,
        places: &Places,
        randomness: &Randomness,
        key: &VerifierKey,
    ) -> Result<Self, Fault> {
        let (found, frozen) =
            ((places.in_line(), places.count()), (checkpoint.in_line(), checkpoint.places()));
        if found != frozen {
            return Err(Fault::OtherList(format!(
                "{} of its {} places are in line, and the checkpoint says {} of {}",
                found.0, found.1, frozen.0, frozen.1
            )));
        }
        let (seed, positions) = match randomness.decide(checkpoint, key)? {
            OrderSource::Random(bytes) => {
                let seed = Seed::new(checkpoint, &bytes);
                (Some(seed), positions(&seed, places.in_line()))
            }
            OrderSource::Arrival => (None, (1..=places.in_line()).collect()),
        };
        let (checkpoint, places, randomness) = (checkpoint.clone(), places.clone(), randomness.clone());
        Ok(Self { checkpoint, places, randomness, key: key.clone(), seed, positions })
    }

    /// The position of a place, from 1; `None` if it is not in line.
    #[must_use]
    pub fn position(&self, place: u32) -> Option<u32> {
        self.places.rank(place).map(|rank| self.positions[rank as usize])
    }

    /// The positions by rank among those in line. [`order`](crate::order()) is the inverse.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The list of places.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The randomness.
    #[must_use]
    pub fn randomness(&self) -> &Randomness {
        &self.randomness
    }

    /// The operator's key.
    #[must_use]
    pub fn key(&self) -> &VerifierKey {
        &self.key
    }

    /// The seed; `None` if the order is that of arrival.
    #[must_use]
    pub fn seed(&self) -> Option<&Seed> {
        self.seed.as_ref()
    }
}
