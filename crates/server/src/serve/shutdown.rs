//! The signals of the process, and the end of a server.
//!
//! SIGHUP reloads the configuration, or is kept until the server serves. Until then SIGTERM and SIGINT end the process. Afterwards the
//! first SIGTERM or SIGINT stops the server in this order:
//!
//! 1. The server says that it is not ready, also to the other servers. Streams end, and clients are asked to connect elsewhere.
//! 2. The listeners of clients and proxies accept what is already in their queues, and nothing more. Each finishes its requests,
//!    at most until the drain deadline.
//! 3. Each zone's store hears that this server stops.
//! 4. The admin listener stops in the same way.
//! 5. The statistics of the last minute are stored, and a collector gets the last traces.
//!
//! The second signal ends the process at once.

use std::{io, time::Duration};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::{
    failure::{self, Failure},
    http::{admin::AdminState, public::PublicState},
    otlp::Sending,
    servers::Servers,
};

/// How long the store may take to hear that this server stops.
const RETIRE: Duration = Duration::from_secs(2);

/// How long the stores may take to keep the statistics of the last minute.
const LAST_MINUTES: Duration = Duration::from_secs(1);

/// SIGHUP.
pub struct ReloadSignal(Signal);

impl ReloadSignal {
    /// From now on, SIGHUP does not end the process. One that comes while the server starts is a reload afterwards, so that nothing is
    /// missed that was written after the configuration was read: call this before.
    ///
    /// # Errors
    /// The signal cannot be handled.
    pub fn handle() -> Result<Self, Failure> {
        // The handler is the process's. It stays when this runtime is gone, and later ones hear of what came meanwhile.
        let runtime = runtime::Builder::new_current_thread().enable_io().build().map_err(unhandled)?;
        let _entered = runtime.enter();
        handled(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one. May be cancelled.
    pub(super) async fn recv(&mut self) {
        self.0.recv().await;
    }
}

/// From now on, a write beyond the limit of a file's size fails, as one to a full disk does. It does not end the process.
pub(super) fn outlive_full_files() -> Result<(), Failure> {
    // The handler stays when what hears of the signal is dropped.
    handled(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

fn handled(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(unhandled)
}

fn unhandled(why: io::Error) -> Failure {
    Failure::new(failure::UNAVAILABLE, format_args!("signals cannot be handled: {why}"))
}

/// SIGTERM and SIGINT.
pub(super) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    /// From now on, these signals do not end the process.
    pub(super) fn handle() -> Result<Self, Failure> {
        let (terminate, interrupt) = (handled(SignalKind::terminate())?, handled(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    /// Waits for the next one. May be cancelled.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A listener that accepts connections.
pub(super) struct Serving {
    /// Set to true, it lets the listener stop.
    stop: watch::Sender<bool>,
    /// Ends when the last connection is closed.
    task: JoinHandle<()>,
}

impl Serving {
    /// Accepts connections from now on, by what `serve` does until it is told to stop. Must be called on a tokio runtime.
    pub(super) fn start<F>(serve: impl FnOnce(watch::Receiver<bool>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(serve(stopped)) }
    }

    async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Stops all listeners. The admin listener stops last, so that it can answer meanwhile that the server is not ready.
///
/// # Errors
/// A second signal came before the end.
pub(super) async fn shut_down(
    state: &PublicState,
    servers: &Servers,
    public: Vec<Serving>,
    admin: Serving,
    signal: &mut StopSignal,
) -> Result<(), Failure> {
    state.lifecycle.stop();
    servers.announce();
    state.streams.stop();
    let stopped = async {
        // All of them at once: each has the whole deadline.
        for serving in &public {
            let _ = serving.stop.send(true);
        }
        for serving in public {
            serving.stop().await;
        }
        // Nobody can be heard any more.
        state.gate.retire(RETIRE).await;
        admin.stop().await;
    };
    tokio::select! {
        () = stopped => {
            tracing::info!("stopped");
            Ok(())
        }
        () = signal.recv() => Err(Failure::new(failure::CUT_SHORT, "stopped at once, on a second signal")),
    }
}

/// Keeps the statistics of the last minute, ends the tasks, and sends what is left for a collector, if the server `ended` without a
/// second signal: that one ends the process at once.
pub(super) async fn finish(
    ended: &Result<(), Failure>,
    admin: &AdminState,
    tasks: JoinSet<()>,
    sending: Option<Sending>,
) {
    if timeout(LAST_MINUTES, admin.stats.finish(&admin.gate)).await.is_err() {
        tracing::warn!("the store did not take the statistics of the last minute in time");
    }
    drop(tasks);
    if let (Ok(()), Some(sending)) = (ended, sending) {
        sending.finish().await;
    }
}
