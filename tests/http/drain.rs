//! Stopping: requests in flight are served, and a client that hangs is cut off at the deadline.

use std::time::Duration;

use rustix::process::Signal;

use crate::{
    app::{Answer, body},
    client::{Client, Reply, post},
    clock::{eventually, now},
    weir::{Setup, Weir, zone},
};

const IN_QUEUE: usize = 50;
const ROUNDS: usize = 8;

fn with(settings: &str) -> Weir {
    Setup::new(&format!("{settings}\n{}", zone("Z", 60_000, ""))).start()
}

/// Sends half of a request's body after the server has begun to read it. Returns the other half.
fn half_sent(weir: &Weir) -> (Client, String) {
    let mut client = weir.connect();
    let request = post("/traffic/wait", &body("Z", None)).replace("Host", "Expect: 100-continue\r\nHost");
    let (head, rest) = request.split_once("\r\n\r\n").expect("a head and a body");
    client.send(format!("{head}\r\n\r\n")).expect("taken");
    assert_eq!(client.head().expect("the interim reply").status, 100);
    client.send(&rest[..5]).expect("taken");
    (client, rest[5..].to_owned())
}

/// Waits until no connection is accepted any more.
fn listener_is_closed(weir: &Weir) {
    eventually("the listener is closed", || Client::connect(weir.public).is_err().then_some(()));
}

/// All connections that the kernel accepted before the signal are served, in every round.
pub(crate) fn accept_queue_is_served() {
    for round in 0..ROUNDS {
        let mut weir = with("");
        weir.freeze();
        let mut clients: Vec<Client> = (0..IN_QUEUE).map(|_| weir.connect()).collect();
        for client in &mut clients {
            client.send_post("/traffic/wait", &body("Z", None)).expect("the kernel takes it");
        }
        weir.signal(Signal::TERM);
        weir.signal(Signal::CONT);
        for (n, client) in clients.iter_mut().enumerate() {
            let reply = client.reply().unwrap_or_else(|e| panic!("round {round}, connection {n}: {e}"));
            assert!(Answer::of(&reply).can_enter);
            // A call that was answered just before the signal took effect ends as an idle connection.
            assert!(client.is_ended(), "round {round}, connection {n}");
        }
        assert!(weir.wait_for_end().success());
    }
}

/// A request in flight is read to its end and answered, idle connections end, and new connections are refused.
pub(crate) fn requests_in_flight_finish() {
    let mut weir = with("drain_deadline_s = 600");
    let mut idle = weir.connect();
    assert_eq!(idle.get("/healthz").expect("a reply").status, 200);
    let (mut client, rest) = half_sent(&weir);
    weir.signal(Signal::TERM);
    assert!(idle.is_ended(), "an idle connection ends at once");
    listener_is_closed(&weir);
    client.send(rest).expect("taken while draining");
    let reply = client.reply().expect("a reply while draining");
    assert!(Answer::of(&reply).can_enter);
    assert!(reply.closes() && client.is_ended());
    assert!(weir.wait_for_end().success());
}

/// A request that never ends is cut off at the deadline.
pub(crate) fn deadline_ends_it() {
    let mut weir = with("drain_deadline_s = 1\nbody_timeout_s = 120");
    let (mut client, _rest) = half_sent(&weir);
    let signalled = now();
    weir.signal(Signal::TERM);
    weir.wait_for_end();
    assert!(now() - signalled >= Duration::from_secs(1), "the deadline is granted in full");
    // The client may receive an error; then the connection ends.
    if let Ok(reply) = client.reply() {
        assert!(reply.status >= 400 && reply.closes(), "{reply:?}");
    }
    assert!(client.ends());
}

/// The reply of a stopping server to a GET of `path`, for the table of errors.
pub(crate) fn asked_while_stopping(path: &str) -> Reply {
    let weir = with("drain_deadline_s = 600");
    let (_busy, _rest) = half_sent(&weir);
    let mut asking = weir.connect();
    asking.send(format!("GET {path} HTTP/1.1\r\nHost:")).expect("taken");
    // The server answers in order, so it has read the half head once it answers a later request.
    assert_eq!(weir.get("/healthz").status, 200);
    weir.signal(Signal::TERM);
    listener_is_closed(&weir);
    asking.send("test\r\n\r\n").expect("taken while draining");
    asking.reply().expect("a reply while draining")
}

/// A second signal ends the server at once, however long the deadline is.
pub(crate) fn second_signal_ends_it_at_once() {
    let mut weir = with("drain_deadline_s = 600\nbody_timeout_s = 120");
    let (_client, _rest) = half_sent(&weir);
    weir.signal(Signal::TERM);
    listener_is_closed(&weir);
    weir.signal(Signal::TERM);
    weir.wait_for_end();
}
