//! A model of Redis, as far as the scripts in `lua/` use it: the data of a node, an interpreter that runs the real scripts
//! over it, and the effects that a primary sends to its replicas.
//!
//! Nothing here knows of nodes, networks or failovers. The simulation around it decides which node runs a script, and when
//! its effects arrive elsewhere. `against_redis` compares this model with a real server.
//!
//! Invariants: the same calls at the same instants give the same replies, effects and data; no clock is read, and no order
//! of a hash table is visible. A command, an option or a global that the model does not have is a panic, never an error that
//! a server could take for an answer of Redis.

mod arguments;
mod bits;
mod commands;
mod data;
mod hashes;
mod interpreter;
mod keys;
mod packing;
mod sorted;
mod strings;

#[allow(unused_imports, reason = "the simulation names it")]
pub(crate) use self::keys::Effect;
pub(crate) use self::{
    data::{Data, Dumped},
    interpreter::{Interpreter, Process},
};
