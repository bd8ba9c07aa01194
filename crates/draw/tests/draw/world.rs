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
        Self::with_secret([1; 32], places, terms, randomness)
    }

    pub(crate) fn with_secret(
        secret: [u8; 32],
        places: Places,
        terms: Terms,
        randomness: impl Fn(&dyn Fn(Statement) -> String) -> Randomness,
    ) -> Self {
        let signer = Signer::new(&terms.key_name, &secret).expect("a key");
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

    /// The same places. Round 981 did not come; 55 s later are 19 rounds, so round 1000 decides.
    pub(crate) fn later(count: u32) -> Self {
        let terms = Terms {
            fallback: Fallback::Later { seconds: 55 },
            frozen_unix_s: 1_692_806_300,
            ..terms(Announced::Drand { round: 981 })
        };
        Self::new(places(count), terms, |state| Randomness::Later {
            round: 1_000,
            signature: ROUND_1000.to_owned(),
            statement: state(Statement::Missing),
        })
    }

    /// The same places. The dice were not thrown, so the order is that of arrival.
    pub(crate) fn stated_arrival(count: u32) -> Self {
        let source = "six dice, thrown on stage at the start".to_owned();
        let terms = Terms { fallback: Fallback::Arrival, ..terms(Announced::Stated { source }) };
        Self::new(places(count), terms, |state| Randomness::Arrival { statement: state(Statement::Missing) })
    }

    /// 20 places, drawn by a lottery. Source and value have letters beyond ASCII.
    pub(crate) fn lottery() -> Self {
        let source = "로또 6/45 제1252회 당첨번호, 추첨 순서대로, 빈칸으로 나눔".to_owned();
        let terms = Terms {
            event: "2026-11-27".to_owned(),
            zone: "A.b_C:d-e".to_owned(),
            ..terms(Announced::Stated { source })
        };
        Self::new(places(20), terms, |state| Randomness::Stated {
            statement: state(Statement::Value("7 13 21 30 38 44 보너스 2".to_owned())),
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
