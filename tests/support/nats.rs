//! Real NATS servers, started on free ports and killed when dropped.
//!
//! Invariant: a server that is returned answers, and is the process that was started here.
#![allow(dead_code, reason = "each test uses a part")]

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clock::eventually;

/// One `nats-server`.
pub(crate) struct Nats {
    dir: TempDir,
    port: u16,
    args: Vec<String>,
    child: Option<Child>,
}

impl Nats {
    /// Starts a server without authentication.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with these arguments, such as `--user weir --pass word`.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        loop {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
            let mut nats = Self {
                dir: tempfile::Builder::new().prefix("weir-nats-").tempdir().expect("a temporary directory"),
                port: free.expect("a free port").port(),
                args: args.iter().map(ToString::to_string).collect(),
                child: None,
            };
            if nats.run() {
                return nats;
            }
        }
    }

    /// Runs the server; false if another process took its port.
    fn run(&mut self) -> bool {
        let binary = env::var_os("NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let path = self.dir.path().join("log");
        let log = File::create(&path).expect("the temporary directory takes files");
        let child = Command::new(&binary)
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string()])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file's handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} does not start ({error}); these tests need NATS: apt-get install nats-server, or set NATS_SERVER to \
                     the binary",
                    binary.display()
                )
            });
        let child = self.child.insert(child);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        eventually("nats-server answers", || {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            if child.try_wait().expect("our own child").is_some() {
                assert!(log.contains("address already in use"), "nats-server ended:\n{log}");
                return Some(false);
            }
            // This process logs it once it has bound the port.
            log.contains("Server is ready").then_some(())?;
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().map(|_| true)
        })
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Publishes messages as any client of the server could.
    pub(crate) fn publish(&self, subject: &str, messages: &[&[u8]]) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it answers");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut bytes = b"CONNECT {\"verbose\":false}\r\n".to_vec();
        for message in messages {
            bytes.extend(format!("PUB {subject} {}\r\n", message.len()).bytes());
            bytes.extend(*message);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"PING\r\n");
        stream.write_all(&bytes).expect("the server accepts messages");
        let mut lines = BufReader::new(stream).lines();
        let pong = lines.find(|line| line.as_ref().is_ok_and(|line| line == "PONG"));
        assert!(pong.is_some(), "the server accepted all messages");
    }

    /// Kills the server (SIGKILL).
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
    }

    /// Sets the arguments of the next start.
    pub(crate) fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(ToString::to_string).collect();
    }

    /// Kills the server if it runs, and starts it on the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        assert!(self.run(), "another process took port {} while its server was restarted", self.port);
    }

    /// Freezes the server (SIGSTOP).
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the server (SIGCONT).
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).expect("our own child");
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
