//! Whole draws: `changes` alters records and receipts. `vectors` holds the published draws, `wrong` and `limits` the published
//! single files. `world` makes draws, and `altered` makes files with one change.

mod altered;
mod changes;
mod limits;
mod vectors;
mod world;
mod wrong;
