//! Rehearses a burst against a waiting room and judges what its users saw.

mod bilingual;
pub mod cli;
pub mod clock;
pub mod columns;
pub mod file;
mod find;
mod format;
pub mod frame;
pub mod gather;
pub mod html;
pub mod lag;
pub mod pool;
pub mod profile;
pub mod progress;
pub mod random;
pub mod report;
pub mod run;
pub mod slo;
pub mod story;
mod summary;
pub mod tally;
pub mod target;
pub mod tls;
pub mod users;
pub mod verdict;
pub mod wire;
pub mod worker;
