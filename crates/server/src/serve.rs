//! Serves: from a configuration to a running server, and to its end.
//!
//! | file | concern |
//! |---|---|
//! | `assembly` | puts the parts together |
//! | `listeners` | serves each listener: its service, its limits |
//! | `zones` | opens the store, and follows changes of zones |
//! | `greeting` | what is printed when the server serves |
//! | `reload` | takes over a changed configuration |
//! | `shutdown` | signals, and the order of a stop |
//!
//! Invariant: the addresses are printed only when all listeners are open (public, admin, and gRPC if it is configured), so a caller
//! that reads them can connect.

mod assembly;
mod greeting;
mod listeners;
mod reload;
mod shutdown;
mod zones;

use std::{io, sync::Arc, time::Duration};

use audit::Audit;
use events::{Bus, Reloaded};
use tokio::runtime;

use crate::{
    config::{Config, Sources},
    failure::{self, Failure},
    otlp::Otlp,
    output,
};
use assembly::{Assembled, assemble};
pub use greeting::describe;
use listeners::{ADMIN_CONNECTIONS, Listeners};
use reload::reload;
pub use shutdown::ReloadSignal;
use shutdown::{StopSignal, finish, shut_down};

/// The most streams of events on the admin listener. A stream keeps its connection, so without this bound a single viewer
/// could take all connections.
const ADMIN_STREAMS: usize = ADMIN_CONNECTIONS / 2;

/// The most reports of events that are made at the same time. Each may hold a month of minutes, some 10 MB.
const REPORTS: usize = 2;

/// The stack of a thread. Address space only, which costs nothing: without optimisation, a lane that calls Redis takes more than the usual
/// 2 MiB.
pub const STACK_BYTES: usize = 8 << 20;

/// How long threads may take to end after the server has stopped.
const END_OF_THREADS: Duration = Duration::from_secs(1);

/// Serves until a signal stops the server. `reload` reads `sources` again. `otlp` is what a collector gets, if there is one.
///
/// # Errors
/// The server cannot start, or a second signal cut its end short.
pub fn run(
    config: Config,
    sources: &Sources,
    reload: ReloadSignal,
    otlp: Option<Otlp>,
) -> Result<(), Failure> {
    let no_threads =
        |e: io::Error| Failure::new(failure::UNAVAILABLE, format_args!("threads cannot be started: {e}"));
    let bus = Arc::new(Bus::new().map_err(no_threads)?);
    let publisher = Arc::clone(&bus);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(config.worker_threads)
        .thread_stack_size(STACK_BYTES)
        // A thread's ring of events is made before there are requests.
        .on_thread_start(move || {
            let _ = publisher.enlist();
        })
        .enable_all()
        .build()
        .map_err(no_threads)?;
    let mut audit = None;
    let served = runtime.block_on(serve(config, (sources, reload), bus, &mut audit, otlp));
    runtime.shutdown_timeout(END_OF_THREADS);
    // The bus is gone with the runtime, so the log is complete when it has written what it received.
    if let Some(audit) = audit {
        audit.finish();
    }
    served
}

async fn serve(
    config: Config,
    (sources, mut hangup): (&Sources, ReloadSignal),
    bus: Arc<Bus>,
    audit: &mut Option<Audit>,
    otlp: Option<Otlp>,
) -> Result<(), Failure> {
    shutdown::outlive_full_files()?;
    let Assembled { public, admin, sockets, metrics, certificates, logins, zones_changed, tasks } =
        assemble(&config, &bus, audit, otlp.as_ref().map(Otlp::tracer)).await?;
    let sending = otlp.map(|otlp| otlp.start(Arc::clone(&metrics)));
    let mut stop = StopSignal::handle()?;
    let listeners = Listeners::serve(&config, (&public, &admin), sockets, &metrics, certificates.as_deref());
    // A server serves also where nobody can read its greeting.
    if let Err(unwritten) =
        output::print(&greeting::greeting(&config, &public.gate.definitions(), listeners.at))
    {
        tracing::warn!("{unwritten}");
    }

    let mut in_force = config.clone();
    loop {
        tokio::select! {
            () = hangup.recv() => {
                let new = reload(&config, sources, &public, &admin, (certificates.as_deref(), logins.as_ref())).await;
                bus.publish(Reloaded { ok: new.is_some() });
                in_force = new.unwrap_or(in_force);
            }
            () = admin.editor.changed() => {}
            () = zones_changed.notified() => {}
            () = stop.recv() => break,
        }
        (listeners.set_idle)(in_force.idle_timeout(listeners::longest_polling_ms(&public.gate)));
    }
    tracing::info!(
        deadline_s = config.drain_deadline.as_secs(),
        "stopping: requests under way are finished first"
    );
    let ended = shut_down(&public, &admin.servers, listeners.public, listeners.admin, &mut stop).await;
    finish(&ended, &admin, tasks, sending).await;
    ended
}
