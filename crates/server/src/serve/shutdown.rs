//! The signals of the process, and the end of a server.
//!
//! SIGHUP reloads the configuration. The first SIGTERM or SIGINT stops the server: it accepts no new connections, asks
//! clients to connect elsewhere, and finishes requests until the drain deadline. The second one ends the process at once.

use std::time::Duration;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    failure::{self, Failure},
    http::public::PublicState,
    servers::Servers,
};

/// How long the store may take to hear that this server stops.
const RETIRE: Duration = Duration::from_secs(2);

/// The signals that the server handles.
pub(super) struct Signals {
    pub(super) reload: Signal,
    pub(super) stop: StopSignal,
}

impl Signals {
    /// From now on, these signals do not end the process.
    pub(super) fn handle() -> Result<Self, Failure> {
        let handle = |kind| {
            let why = |e| Failure::new(failure::UNAVAILABLE, format_args!("signals cannot be handled: {e}"));
            signal(kind).map_err(why)
        };
        let (terminate, interrupt) = (handle(SignalKind::terminate())?, handle(SignalKind::interrupt())?);
        Ok(Self { reload: handle(SignalKind::hangup())?, stop: StopSignal { terminate, interrupt } })
    }
}

/// SIGTERM and SIGINT.
pub(super) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
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
    pub(super) stop: watch::Sender<bool>,
    /// Ends when the last connection is closed.
    pub(super) task: JoinHandle<()>,
}

impl Serving {
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
