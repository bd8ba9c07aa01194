//! `weir doctor`: reports what is dangerous in a configuration, on this machine and in the store.
//!
//! | file | concern |
//! |---|---|
//! | `report` | what was found, and how it is printed |
//! | `machine` | the configuration and this machine |
//! | `start` | what a start needs: keys, addresses, directories |
//! | `redis` | a store in Redis: one look at all servers of a cell |
//! | `rights` | the commands that Weir's user of Redis needs |
//! | `said` | what the running servers say of themselves |
//! | `answers` | what a server of Redis answers, or why it does not |
//!
//! Invariant: the doctor changes nothing, neither in the store nor in the data directory. It writes a file without a name there, for a moment.

mod answers;
mod machine;
mod redis;
mod report;
mod rights;
mod said;
mod start;

use std::{io, io::IsTerminal as _, process::ExitCode};

use store::redis::client::inspect::Inspector;

use super::on_this_thread;
use crate::{
    config::Config,
    failure::Failure,
    keys::{IfMissing, Keys, fingerprints},
    output::print,
    stores::{Connections, StoreSettings},
};
use report::Report;

/// The exit code if there is a problem.
const PROBLEMS: u8 = 1;

/// Prints the report. `open_files` is the limit of open files on this machine.
pub(super) fn run(config: &Config, open_files: u64) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    machine::check(config, open_files, &mut report);
    let keys = Keys::read(&config.seal, &config.pass, &config.data_dir, IfMissing::Refuse);
    start::check(config, &keys, &mut report);
    match &config.store {
        StoreSettings::Memory => machine::check_embedded(config, &mut report),
        StoreSettings::Redis(settings) => {
            // What keeps a server from starting is a line of the report, like all else.
            let looked = on_this_thread(async {
                let seal_keys = keys.as_ref().map(|keys| fingerprints(&keys.seals)).unwrap_or_default();
                let connections = Connections::read(settings)?;
                let mut heard = Vec::new();
                for (cell, address) in connections.cells().all().iter().zip(connections.addresses()) {
                    let inspector = Inspector::new(address, connections.settings());
                    let durability = settings.durability;
                    let certificate = connections.settings().identity.is_some();
                    let link = answers::Link { tls: address.tls, certificate };
                    let cell = redis::Cell { cell, address, link, durability, seal_keys: &seal_keys };
                    heard.extend(redis::check(&cell, &inspector, &mut report).await);
                }
                said::check(heard, &mut report);
                Ok(())
            });
            if let Err(Failure { line, .. }) = looked {
                report.problem(report::CONFIG, line, start::REFUSED, "correct it");
            }
        }
    }
    let pretty = io::stdout().is_terminal();
    print(&report.text(pretty))?;
    Ok(if report.problems() > 0 { ExitCode::from(PROBLEMS) } else { ExitCode::SUCCESS })
}
