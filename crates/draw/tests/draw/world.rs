//! A whole draw, for tests.

use draw::{
    Announced, Checkpoint, Drawn, Fallback, Places, Randomness, Receipt, Record, Signer, Statement, Terms,
    Tree,
};

/// The signature of round 1000, as the servers of drand's quicknet publish it.
pub(crate) const ROUND_1000: &str =
    "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39";

pub(crate) struct World {
    pub(crate) signer: Signer,
    pub(crate) places: Places,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) note: String,
    pub(crate) randomness: Randomness,
    pub(crate) drawn: Drawn,
}

impl World {
    pub(crate) fn new(
        places: Places,
        terms: Terms,
        randomness: impl Fn(&dyn Fn(Statement) -> String) -> Randomness,
    ) -> Self {
        let signer = Signer::new(&terms.key_name, &[1; 32]).expect("a key");
        let checkpoint = Checkpoint::new(terms, &Tree::new(&places)).expect("right terms");
        let note = signer.sign(checkpoint.text());
        let state = |statement: Statement| signer.sign(&statement.text(&checkpoint).expect("one line"));
        let randomness = randomness(&state);
        let drawn = Drawn::new(&checkpoint, &places, &randomness, signer.key()).expect("drawn");
        Self { signer, places, checkpoint, note, randomness, drawn }
    }

    /// `count` places, of which every fourth has left, drawn by round 1000 of drand.
    pub(crate) fn drand(count: u32) -> Self {
        let randomness = |_: &dyn Fn(Statement) -> String| Randomness::Drand {
            round: 1_000,
            signature: ROUND_1000.to_owned(),
        };
        Self::new(places(count), terms(Announced::Drand { round: 1_000 }), randomness)
    }

    /// The same, drawn by a value of another source.
    pub(crate) fn stated(count: u32) -> Self {
        Self::dice(places(count))
    }

    /// These places, drawn by six dice.
    pub(crate) fn dice(places: Places) -> Self {
        let source = "six dice, thrown on stage at the start".to_owned();
        Self::new(places, terms(Announced::Stated { source }), |state| Randomness::Stated {
            statement: state(Statement::Value("3 1 6 6 2 5".to_owned())),
        })
    }

    /// What the operator states about this draw.
    pub(crate) fn state(&self, statement: &Statement) -> String {
        self.signer.sign(&statement.text(&self.checkpoint).expect("one line"))
    }

    pub(crate) fn record(&self) -> Record {
        Record::new(self.signer.key(), &self.note, &self.places, self.randomness.clone())
    }

    pub(crate) fn receipt(&self, place: u32) -> Receipt {
        let tree = Tree::new(&self.places);
        Receipt::new(&self.drawn, &tree, self.signer.key(), &self.note, place).expect("the place exists")
    }
}

pub(crate) fn places(count: u32) -> Places {
    (0..count).map(|place| place % 4 != 2).collect()
}

pub(crate) fn terms(announced: Announced) -> Terms {
    Terms {
        key_name: "shop.example/weir".to_owned(),
        event: "opening-night".to_owned(),
        zone: "SALE".to_owned(),
        frozen_unix_s: 1_692_806_360,
        start_unix_s: 1_692_806_361,
        announced,
        fallback: Fallback::Wait,
    }
}
