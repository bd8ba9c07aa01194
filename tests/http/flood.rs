//! More connections than the server may hold: each is served or told no, and those who poll notice nothing.

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
const ROLE: &str = "WEIR_TEST_FLOOD";

/// Whether this process is one that the test started to make connections.
pub(crate) fn is_worker() -> bool {
    env::var_os(ROLE).is_some()
}

/// Opens its share of connections, asks once on each, tells what came of it, and holds them until its input ends.
pub(crate) fn work() {
    let order = env::var(ROLE).expect("a worker is told what to do");
    let words: Vec<&str> = order.split(' ').collect();
    let [source, server, count] = words[..] else { panic!("no order: {order}") };
    let source: Ipv4Addr = source.parse().expect("an address");
    let server: SocketAddr = server.parse().expect("an address");
    let count: usize = count.parse().expect("a number");
    let (mut open, mut served, mut refused, mut ended) = (Vec::new(), 0, 0, 0);
    for _ in 0..count {
        match Client::connect_from(source, server) {
            Ok(client) => open.push(client),
            Err(_) => ended += 1,
        }
    }
    for client in &mut open {
        // One that was refused may be closed already: the reply to it is there to read all the same.
        drop(client.send("GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"));
        match client.reply().map(|reply| (reply.status, reply.closes())) {
            Ok((200, false)) => served += 1,
            Ok((503, true)) => refused += 1,
            Ok(other) => panic!("neither served nor refused: {other:?}"),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => panic!("no reply in {DEADLINE:?}"),
            Err(_) => ended += 1,
        }
    }
    let mut out = io::stdout();
    writeln!(out, "{served} {refused} {ended}").and_then(|()| out.flush()).expect("the test listens");
    io::stdin().lines().for_each(drop);
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Its input ends with the pipe; a worker that hangs is ended.
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
    let weir = Setup::new(&format!("idle_timeout_s = 3600\n{}", zone("Z", 60, "mode = \"hold\""))).start();
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
        // Each worker its own address: one has 28,000 ports towards a server.
        let order = format!("127.0.0.{} {} {count}", n + 2, weir.public);
        let piped = Command::new(&me).env(ROLE, order).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Worker(piped.expect("the test starts itself"))
    };
    let mut workers: Vec<Worker> = (0..CONNECTIONS.div_ceil(share)).map(start).collect();
    let reports = workers.iter_mut().map(|worker| {
        let out = worker.0.stdout.take().expect("piped");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // No line is told as such: the test sees that a worker had nothing to say.
            drop(BufReader::new(out).read_line(&mut line));
            drop(tell.send(line));
        });
        told
    });
    let mut reports: Vec<_> = reports.collect();
    let (mut said, deadline) = (Vec::new(), now() + 3 * DEADLINE);
    while !reports.is_empty() {
        assert!(now() < deadline, "the flood takes for ever");
        poll();
        reports.retain(|told| match told.recv_timeout(Duration::from_millis(50)) {
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
    let [served, refused, ended] =
        numbers.fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
    drop(writeln!(io::stderr(), "flood: {served} served, {refused} told no, {ended} ended without a word"));
    assert_eq!(served + refused + ended, CONNECTIONS);
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
