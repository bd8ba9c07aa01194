//! A TCP proxy in front of a server. It can hold, delay or cut connections.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::{PATIENCE, local};
use crate::clock::now;

/// What a [`Proxy`] does with the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Passes them on after a delay.
    Pass(Duration),
    /// Holds them until it passes again.
    Hold,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Flows {
    to_server: Flow,
    to_client: Flow,
}

struct Shared {
    flows: Mutex<Flows>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    closed: AtomicBool,
}

/// A proxy. It always accepts new connections.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy in front of a server, which need not run yet.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(local(0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let pass = Flow::Pass(Duration::ZERO);
        let shared = Arc::new(Shared {
            flows: Mutex::new(Flows { to_server: pass, to_client: pass }),
            changed: Condvar::new(),
            open: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if accepting.closed.load(Ordering::Acquire) {
                    return;
                }
                // If the server does not run, the client's connection is closed.
                let Ok(server) = TcpStream::connect_timeout(&server, PATIENCE) else { continue };
                drop((client.set_nodelay(true), server.set_nodelay(true)));
                let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                let mut open = accepting.open.lock().expect("no thread panics with it");
                open.extend([client.try_clone(), server.try_clone()].into_iter().flatten());
                drop(open);
                pump(from_client, server, Arc::clone(&accepting), |flows| flows.to_server);
                pump(from_server, client, Arc::clone(&accepting), |flows| flows.to_client);
            }
        });
        Self { port, shared }
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets what happens to bytes in each direction.
    pub(crate) fn set(&self, to_server: Flow, to_client: Flow) {
        *self.shared.flows.lock().expect("no thread panics with it") = Flows { to_server, to_client };
        self.shared.changed.notify_all();
    }

    /// Passes everything at once, including held bytes.
    pub(crate) fn pass(&self) {
        self.delay(Duration::ZERO);
    }

    /// Passes everything, with a delay in each direction.
    pub(crate) fn delay(&self, each_way: Duration) {
        self.set(Flow::Pass(each_way), Flow::Pass(each_way));
    }

    /// Holds everything in both directions. Connections stay open.
    pub(crate) fn cut(&self) {
        self.set(Flow::Hold, Flow::Hold);
    }

    /// Passes requests, and holds replies.
    pub(crate) fn cut_replies(&self) {
        self.set(Flow::Pass(Duration::ZERO), Flow::Hold);
    }

    /// Closes all open connections.
    pub(crate) fn sever(&self) {
        for stream in self.shared.open.lock().expect("no thread panics with it").drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.sever();
        self.pass();
        // Wakes the accepting thread.
        drop(TcpStream::connect_timeout(&local(self.port), PATIENCE));
    }
}

/// Copies bytes in one direction: one thread reads them and notes the time, another writes them when they are due.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: Arc<Shared>, flow: fn(&Flows) -> Flow) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1_024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send((now(), buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (taken, bytes) in receiver {
            let mut flows = shared.flows.lock().expect("no thread panics with it");
            loop {
                let left = match flow(&flows) {
                    Flow::Pass(delay) => (taken + delay).saturating_duration_since(now()),
                    Flow::Hold => PATIENCE,
                };
                if left.is_zero() {
                    break;
                }
                flows = shared.changed.wait_timeout(flows, left).expect("no thread panics with it").0;
            }
            drop(flows);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(std::net::Shutdown::Both));
    });
}
