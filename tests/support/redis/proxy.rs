//! A TCP proxy in front of a server. It can hold, delay or cut connections: all of them, or those of some clients.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, OnceLock, Weak,
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

/// The network in two parts. Nothing passes between them; connections stay open.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    /// The clients of the smaller part: the source address of a connection that is not 127.0.0.1, or else its ACL user.
    pub(crate) few: Vec<String>,
    /// Whether the server behind the proxy is in the smaller part.
    pub(crate) server_is_few: bool,
}

impl Division {
    /// Whether the server's part is not that of the client. A client that is in neither part reaches nobody.
    fn holds(&self, client: Option<&String>) -> bool {
        client.is_none_or(|client| client.is_empty() || self.few.contains(client) != self.server_is_few)
    }
}

struct Flows {
    to_server: Flow,
    to_client: Flow,
    division: Option<Division>,
}

struct Shared {
    flows: Mutex<Flows>,
    changed: Condvar,
    /// Both ends of each connection. Its threads own them, so that they end with it.
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// Where new connections lead.
    server: Mutex<SocketAddr>,
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
            flows: Mutex::new(Flows { to_server: pass, to_client: pass, division: None }),
            changed: Condvar::new(),
            open: Mutex::new(Vec::new()),
            server: Mutex::new(server),
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
                let server = *accepting.server.lock().expect("no thread panics with it");
                let Ok(server) = TcpStream::connect_timeout(&server, PATIENCE) else { continue };
                drop((client.set_nodelay(true), server.set_nodelay(true)));
                let (client, server) = (Arc::new(client), Arc::new(server));
                let mut open = accepting.open.lock().expect("no thread panics with it");
                open.retain(|stream| stream.strong_count() > 0);
                open.extend([&client, &server].map(Arc::downgrade));
                drop(open);
                let name = Arc::new(OnceLock::new());
                if let Ok(address) = client.peer_addr()
                    && address.ip() != Ipv4Addr::LOCALHOST
                {
                    name.get_or_init(|| address.ip().to_string());
                }
                let link = |flow| Link { shared: Arc::clone(&accepting), name: Arc::clone(&name), flow };
                pump(Arc::clone(&client), Arc::clone(&server), link(|flows| flows.to_server));
                pump(server, client, link(|flows| flows.to_client));
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
        let mut flows = self.shared.flows.lock().expect("no thread panics with it");
        (flows.to_server, flows.to_client) = (to_server, to_client);
        drop(flows);
        self.shared.changed.notify_all();
    }

    /// Divides the network; `None` makes it whole, and passes what was held.
    pub(crate) fn divide(&self, division: Option<Division>) {
        self.shared.flows.lock().expect("no thread panics with it").division = division;
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

    /// Leads new connections to another server, as a name or a virtual address does. Open connections stay.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().expect("no thread panics with it") = server;
    }

    /// Closes all open connections.
    pub(crate) fn sever(&self) {
        let mut open = self.shared.open.lock().expect("no thread panics with it");
        for stream in open.drain(..).filter_map(|stream| stream.upgrade()) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.sever();
        self.divide(None);
        self.pass();
        // Wakes the accepting thread.
        drop(TcpStream::connect_timeout(&local(self.port), PATIENCE));
    }
}

/// One direction of a connection.
struct Link {
    shared: Arc<Shared>,
    /// Who the client is: see [`Division::few`]. Empty if its first bytes do not say it.
    name: Arc<OnceLock<String>>,
    flow: fn(&Flows) -> Flow,
}

/// The ACL user in the first bytes of a connection: that of `AUTH` or `HELLO 3 AUTH`, whose password follows. Empty if there
/// is none.
fn user_in(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let named = text.split_once("AUTH\r\n$").and_then(|(_, rest)| rest.split("\r\n").nth(1));
    named.unwrap_or_default().to_owned()
}

/// Copies bytes in one direction: one thread reads them and notes the time, another writes them when they are due.
fn pump(from: Arc<TcpStream>, to: Arc<TcpStream>, link: Link) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    let name = Arc::clone(&link.name);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1_024];
        while let Ok(count @ 1..) = (&*from).read(&mut buffer) {
            // The client speaks first.
            name.get_or_init(|| user_in(&buffer[..count]));
            if sender.send((now(), buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let Link { shared, name, flow } = link;
        for (taken, bytes) in receiver {
            let mut flows = shared.flows.lock().expect("no thread panics with it");
            loop {
                let divided = flows.division.as_ref().is_some_and(|division| division.holds(name.get()));
                let left = match flow(&flows) {
                    Flow::Pass(delay) if !divided => (taken + delay).saturating_duration_since(now()),
                    Flow::Pass(_) | Flow::Hold => PATIENCE,
                };
                if left.is_zero() {
                    break;
                }
                flows = shared.changed.wait_timeout(flows, left).expect("no thread panics with it").0;
            }
            drop(flows);
            if (&*to).write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(std::net::Shutdown::Both));
    });
}
