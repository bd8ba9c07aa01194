//! More connections than the server may hold: each one is served or gets a 503, and users who poll notice nothing.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Resource, getrlimit};

use crate::{
    app::{Answer, body},
    client::Client,
    clock::{DEADLINE, eventually, now},
    weir::{Setup, zone},
};

const CONNECTIONS: usize = 20_000;

/// The most connections that may end without a reply. The server answers every connection that it refuses, and its accept
/// queue holds a whole flood, so none should; a few are for a kernel that is short of memory.
const MAX_SILENT: usize = CONNECTIONS / 1_000;

const ROLE: &str = "WEIR_TEST_FLOOD";

/// Whether this process is one that the test started to open connections.
pub(crate) fn is_worker() -> bool {
    env::var_os(ROLE).is_some()
}

/// Opens its share of connections, sends one request on each, prints what became of them, and keeps them until its input ends.
pub(crate) fn work() {
    let order = env::var(ROLE).expect("the test sets the variable");
    let words: Vec<&str> = order.split(' ').collect();
    let [source, server, count] = words[..] else { panic!("the order is malformed: {order}") };
    let source: Ipv4Addr = source.parse().expect("an address");
    let server: SocketAddr = server.parse().expect("an address");
    let count: usize = count.parse().expect("a number");
    let (mut open, mut served, mut refused, mut silent) = (Vec::new(), 0, 0, 0);
    for _ in 0..count {
        match Client::connect_from(source, server) {
            Ok(client) => open.push(client),
            Err(_) => silent += 1,
        }
    }
    for client in &mut open {
        // A refused connection may be closed already. Its reply can be read all the same.
        drop(client.send("GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"));
        match client.reply().map(|reply| (reply.status, reply.closes())) {
            Ok((200, false)) => served += 1,
            Ok((503, true)) => refused += 1,
            Ok(other) => panic!("neither served nor refused: {other:?}"),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => panic!("no reply in {DEADLINE:?}"),
            Err(_) => silent += 1,
        }
    }
    let mut out = io::stdout();
    writeln!(out, "{served} {refused} {silent}").and_then(|()| out.flush()).expect("the test listens");
    io::stdin().lines().for_each(drop);
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Its input ends with the pipe. A worker that hangs is killed.
        drop(self.0.stdin.take());
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// 20,000 connections at once, a few more than the cap.
pub(crate) fn twenty_thousand_connections() {
    let may_open = getrlimit(Resource::Nofile)
        .current
        .map_or(CONNECTIONS, |n| usize::try_from(n).unwrap_or(CONNECTIONS));
    let share = may_open.saturating_sub(100).min(CONNECTIONS / 2);
    assert!(share >= 500, "with {may_open} open files a process, this test has no room: raise `ulimit -n`");
    // The workers connect first and ask later, so the server must not close connections that are silent meanwhile.
    // Two addresses stand for a crowd, so their connections are not counted.
    let timeouts = "idle_timeout_s = 3600\nheader_timeout_s = 120\nmax_connections_per_client = 0";
    let weir = Setup::new(&format!("{timeouts}\n{}", zone("Z", 60, "mode = \"hold\""))).start();
    let mut poller = weir.connect();
    let token = Answer::of(&poller.post("/traffic/wait", &body("Z", None)).expect("a reply")).token;
    let mut poll = || {
        let reply =
            poller.post("/traffic/entry", &body("Z", Some(&token))).expect("a poll on an open connection");
        assert_eq!(Answer::of(&reply).waiting().rank, 1);
    };

    let me = env::current_exe().expect("a running test has a file");
    let start = |n: usize| {
        let count = share.min(CONNECTIONS - n * share);
        // Each worker has its own address: one address has 28,000 ports towards a server.
        let order = format!("127.0.0.{} {} {count}", n + 2, weir.public);
        let piped = Command::new(&me).env(ROLE, order).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Worker(piped.expect("the test starts itself"))
    };
    let mut workers: Vec<Worker> = (0..CONNECTIONS.div_ceil(share)).map(start).collect();
    let reports = workers.iter_mut().map(|worker| {
        let out = worker.0.stdout.take().expect("piped");
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // If there is no line, the test sees that the worker failed.
            drop(BufReader::new(out).read_line(&mut line));
            drop(send.send(line));
        });
        receive
    });
    let mut reports: Vec<_> = reports.collect();
    let (mut said, deadline) = (Vec::new(), now() + 3 * DEADLINE);
    while !reports.is_empty() {
        assert!(now() < deadline, "the flood takes too long");
        poll();
        reports.retain(|report| match report.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                said.push(line);
                false
            }
            Err(_) => true,
        });
    }
    let numbers = said.iter().map(|line| {
        let numbers: Vec<usize> = line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        <[usize; 3]>::try_from(numbers).expect("a worker failed; see above")
    });
    let [served, refused, silent] =
        numbers.fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
    drop(writeln!(
        io::stderr(),
        "flood: {served} served, {refused} refused with 503, {silent} ended without a reply"
    ));
    assert_eq!(served + refused + silent, CONNECTIONS);
    assert!(silent <= MAX_SILENT, "{silent} connections ended without a reply");
    assert!(served >= may_open.min(CONNECTIONS) / 2, "only {served} served");
    for _ in 0..100 {
        poll();
    }
    assert_eq!(weir.admin_get("/healthz").status, 200, "the admin listener answers in the middle of it");
    drop(workers);
    eventually("new connections are served again", || {
        let mut client = Client::connect(weir.public).ok()?;
        client.get("/healthz").ok().filter(|reply| reply.status == 200)
    });
    poll();
    assert!(!weir.log().contains("panicked"), "{}", weir.log());
}
