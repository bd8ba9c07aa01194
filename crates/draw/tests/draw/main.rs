//! Whole draws: `changes` alters records and receipts, `vectors` holds the published test vectors, `world` makes draws.

mod changes;
mod vectors;
mod world;
