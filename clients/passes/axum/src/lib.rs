//! Accepts passes of Weir, each once. `docs/app/clients.md` describes what every verifier does.
//!
//! [`Passes`] accepts a pass; [`PassLayer`] is a tower layer around it, for axum and anything else of the `http` crate. It uses no crate of
//! Weir.

mod clock;
mod keys;
mod layer;
mod passes;
mod record;
mod refusal;
#[cfg(test)]
mod tests;
mod verify;

pub use self::{
    layer::{PassLayer, PassService},
    passes::{Passes, SetupError},
    record::{Memory, Spend},
    refusal::{Code, Refusal},
    verify::Pass,
};
