//! The draw of a sale's waiting room: an order by lot that anybody can check.
//!
//! People who come before a sale get *places*, numbered from 0 in the order of their arrival. At the *freeze* some of them
//! are still in line. The operator publishes a signed [`Checkpoint`] over the list of places, and names in it the public
//! randomness that will decide: a round of drand that does not exist yet. From the checkpoint and that randomness follows
//! one [`Seed`], and from the seed one order of all who are in line. Nobody chooses anything after the freeze.
//!
//! ```
//! use draw::{Announced, Drawn, Fallback, Places, Randomness, Record, Signer, Terms, Tree, Checkpoint, verify};
//!
//! // The freeze: three people came, and the second one left.
//! let places: Places = [true, false, true].into_iter().collect();
//! let terms = Terms {
//!     key_name: "shop.example/weir".to_owned(),
//!     event: "opening-night".to_owned(),
//!     zone: "SALE".to_owned(),
//!     frozen_unix_s: 1_692_806_300,
//!     start_unix_s: 1_692_806_400,
//!     announced: Announced::Drand { round: 1_000 },
//!     fallback: Fallback::Wait,
//! };
//! let checkpoint = Checkpoint::new(terms, &Tree::new(&places))?;
//! let signer = Signer::new("shop.example/weir", &[7; 32])?;
//! let note = signer.sign(checkpoint.text());
//!
//! // Later, when the round exists.
//! let signature = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39";
//! let randomness = Randomness::Drand { round: 1_000, signature: signature.to_owned() };
//! let drawn = Drawn::new(&checkpoint, &places, &randomness, signer.key())?;
//! assert_eq!(drawn.position(0).min(drawn.position(2)), Some(1));
//! assert_eq!(drawn.position(1), None);
//!
//! // Anybody, at any time.
//! let record = Record::new(signer.key(), &note, &places, randomness);
//! let (report, _) = verify(&record, None);
//! assert!(report.fault.is_none(), "{report}");
//! # Ok::<(), draw::Fault>(())
//! ```
//!
//! The formats and the algorithm are those of the page `docs/app/draw.md`, which a second implementation can be written from.
//!
//! Invariants: no IO, no clock, no runtime, and no secret but the key that signs. Everything that is read has exactly one
//! spelling, apart from the white space and the escapes of JSON. A change of a list, a checkpoint, the randomness or a
//! receipt is a [`Fault`].

mod announced;
mod checkpoint;
mod drand;
mod drawn;
mod fault;
mod note;
mod places;
mod randomness;
mod record;
mod report;
mod seed;
mod shuffle;
mod spelling;
mod statement;
mod tree;
mod verify;

pub use announced::{Announced, Fallback};
pub use checkpoint::{ALGORITHM, Checkpoint, Terms};
pub use drand::{Chain, QUICKNET};
pub use drawn::Drawn;
pub use fault::Fault;
pub use note::{NOTE_MAX, Note, Signer, VerifierKey};
pub use places::Places;
pub use randomness::{OrderSource, Randomness};
pub use record::{RECEIPT_FORMAT, RECEIPT_MAX, RECORD_FORMAT, RECORD_MAX, Receipt, Record};
pub use report::Report;
pub use seed::Seed;
pub use shuffle::{order, positions};
pub use spelling::shown;
pub use statement::Statement;
pub use tree::{Hash, Tree, check_path};
pub use verify::{verify, verify_receipt};

/// The most places of one draw.
pub const PLACES_MAX: u32 = 20_000_000;
