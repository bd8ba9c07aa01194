//! Measures whether other clients notice a client that floods `wait`. It starts `weir`. 40 clients with different
//! addresses join now and then and poll, 400 calls per second in total; one more client may flood. Intervals of 2 s
//! alternate between no flood, a flood of a zone with client limits, and a flood of a zone without. The output is
//! medians over intervals. Times run from the time at which a call was due.
//!
//! `cargo build --profile dist && cargo run --profile dist -p weir-benches --example flood_http -- 2000` for 2,000 calls a second;
//! with a second argument, the lines are in the store at that address.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

use std::{
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use weir_benches::{Served, median};

const OTHERS: u8 = 40;
const PERIOD: Duration = Duration::from_millis(100);
const CALLS: u32 = 20;
const ROUNDS: usize = 15;
const FLOODING: usize = 4;

/// What the flooding client does in an interval.
const ARMS: [&str; 3] = ["no flood", "flood, limited", "flood, not limited"];
const ZONES: [Option<&str>; 3] = [None, Some("LIMITED"), Some("FREE")];
const OVER: usize = ARMS.len();

const CONFIG: &str = "
[[zone]]
id = \"LIMITED\"
mode = \"hold\"
waits_per_minute_per_client = 60

[[zone]]
id = \"FREE\"
mode = \"hold\"
";

fn main() -> ExitCode {
    let rate: u32 = match std::env::args().nth(1).map_or(Ok(2_000), |arg| arg.parse()) {
        Ok(rate @ 100..=50_000) => rate,
        _ => {
            eprintln!("flood_http: the argument is the flood in calls per second, 100 to 50,000");
            return ExitCode::from(64);
        }
    };
    match measure(rate, std::env::args().nth(2).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flood_http: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rate: u32, store: Option<&str>) -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Served::start(dir.path(), CONFIG, store)?;
    let address = server.address;
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let arm = Arc::new(AtomicUsize::new(0));
    let flooded = Arc::clone(&arm);
    // A separate thread, so that the calls of the others do not wait for those of the flooding client in this
    // process.
    let flooder = std::thread::spawn(move || runtime()?.block_on(flood(address, rate, &flooded)));
    let stretches = runtime()?.block_on(others(address, &arm));
    arm.store(OVER, Ordering::Relaxed);
    let (sent, denied) = flooder.join().expect("a thread")?;
    let stretches = stretches?;
    println!(
        "| {rate} calls/s | others' p50 | others' p99 | p99 to no flood | flooder's calls/s | of these refused |"
    );
    println!("|---|---|---|---|---|---|");
    let mut base = 0.0;
    for (arm, name) in ARMS.iter().enumerate() {
        let of = |part: f64| {
            median(
                stretches[arm]
                    .iter()
                    .map(|calls| calls[place(calls.len(), part)].as_secs_f64() * 1e6)
                    .collect(),
            )
        };
        let (p50, p99) = (of(0.5), of(0.99));
        if arm == 0 {
            base = p99;
        }
        let seconds = ROUNDS as f64 * (PERIOD * CALLS).as_secs_f64();
        println!(
            "| {name} | {p50:.0} us | {p99:.0} us | {:+.1} % | {:.0} | {:.1} % |",
            (p99 / base - 1.0) * 100.0,
            f64::from(sent[arm]) / seconds,
            100.0 * f64::from(denied[arm]) / f64::from(sent[arm].max(1)),
        );
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small"
)]
fn place(len: usize, part: f64) -> usize {
    ((len as f64 * part) as usize).min(len - 1)
}

/// All intervals of each arm, each with the sorted times of its calls.
async fn others(address: SocketAddr, arm: &AtomicUsize) -> io::Result<[Vec<Vec<Duration>>; 3]> {
    let mut connections = Vec::new();
    for n in 0..OTHERS {
        connections.push(connect(address, 10 + n).await?);
    }
    let mut stretches: [Vec<Vec<Duration>>; 3] = Default::default();
    // The first interval of each kind warms up and is not counted.
    for round in 0..=ROUNDS {
        for (kind, of_kind) in stretches.iter_mut().enumerate() {
            arm.store(kind, Ordering::Relaxed);
            let from = Instant::now();
            let calls = connections
                .drain(..)
                .zip(0..)
                .map(|(connection, n)| tokio::spawn(live(connection, from + PERIOD * n / u32::from(OTHERS))));
            let mut times = Vec::new();
            for one in calls.collect::<Vec<_>>() {
                let (connection, took) = one.await.expect("a task")?;
                connections.push(connection);
                times.extend(took);
            }
            times.sort_unstable();
            if round > 0 {
                of_kind.push(times);
            }
        }
    }
    Ok(stretches)
}

/// The interval of one client: a new place, then polls.
async fn live(mut connection: TcpStream, from: Instant) -> io::Result<(TcpStream, Vec<Duration>)> {
    let mut token = None;
    let mut took = Vec::new();
    for n in 0..CALLS {
        let due = from + PERIOD * n;
        sleep_until(due).await;
        let (status, body) = call(&mut connection, "LIMITED", token.as_deref()).await?;
        took.push(due.elapsed());
        if status != 200 {
            return Err(io::Error::other(format!("another client received {status}: {body}")));
        }
        token =
            body.split_once("\"token\":\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    }
    Ok((connection, took))
}

/// Floods until the end of the run. Returns the calls and refusals of each arm.
async fn flood(address: SocketAddr, rate: u32, arm: &AtomicUsize) -> io::Result<([u32; 3], [u32; 3])> {
    let (mut sent, mut denied) = ([0; 3], [0; 3]);
    let mut connections = Vec::new();
    for _ in 0..FLOODING {
        connections.push(connect(address, 2).await?);
    }
    let mut due = interval(Duration::from_secs(1) / rate * u32::try_from(FLOODING).expect("small"));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let now = arm.load(Ordering::Relaxed);
        if now == OVER {
            return Ok((sent, denied));
        }
        let Some(zone) = ZONES[now] else { continue };
        // All calls are sent before any reply is read.
        for connection in &mut connections {
            send(connection, zone, None).await?;
        }
        for connection in &mut connections {
            let (status, _) = receive(connection).await?;
            sent[now] += 1;
            denied[now] += u32::from(status == 429);
        }
    }
}

async fn connect(to: SocketAddr, last: u8) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
    let connection = socket.connect(to).await?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

async fn call(connection: &mut TcpStream, zone: &str, token: Option<&str>) -> io::Result<(u16, String)> {
    send(connection, zone, token).await?;
    receive(connection).await
}

async fn send(connection: &mut TcpStream, zone: &str, token: Option<&str>) -> io::Result<()> {
    let (path, body) = match token {
        Some(token) => ("entry", format!("{{\"zoneId\":\"{zone}\",\"token\":\"{token}\"}}")),
        None => ("wait", format!("{{\"zoneId\":\"{zone}\"}}")),
    };
    let head = format!("POST /traffic/{path} HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n");
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await
}

async fn receive(connection: &mut TcpStream) -> io::Result<(u16, String)> {
    let odd = || io::Error::other("the server closed the connection or does not speak HTTP");
    let mut reply = Vec::with_capacity(1_024);
    loop {
        if connection.read_buf(&mut reply).await? == 0 {
            return Err(odd());
        }
        let text = std::str::from_utf8(&reply).map_err(io::Error::other)?;
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() == length.unwrap_or(0) {
                let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(odd)?;
                return Ok((status, body.to_owned()));
            }
        }
    }
}
