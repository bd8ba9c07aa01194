//! Measures the use of slots over real HTTP, in real time. It starts `weir` and sends 2,400 people at once to a zone
//! of 600 per minute, each on a separate connection, with 50 ms of network delay in each direction and polls at the
//! given period +-10 %. The output is the share of slots that were used while there was a line.
//!
//! `cargo build --profile dist && cargo run --profile dist -p weir-benches --example slots_http -- 35` for 35 % walking away.
//! With a second argument, a store's address, two servers on that store, with people spread over both.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, sleep_until},
};
use weir_benches::Served;

const PEOPLE: u64 = 2_400;
const PER_MINUTE: u64 = 600;
const ONE_WAY: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let leaving: u64 = match std::env::args().nth(1).map_or(Ok(35), |arg| arg.parse()) {
        Ok(percent @ 0..=80) => percent,
        _ => {
            eprintln!("slots_http: the argument is the percentage of people who leave, 0 to 80");
            return ExitCode::from(64);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = std::env::args().nth(2);
    match runtime.block_on(measure(leaving, store.as_deref())) {
        Ok(used) => {
            println!("{leaving} % of {PEOPLE} leave: {used:.1} % of the slots used");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("slots_http: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(leaving: u64, store: Option<&str>) -> std::io::Result<f64> {
    let dir = tempfile::tempdir()?;
    let config = format!("[[zone]]\nid = \"Z\"\nadmit_per_minute = {PER_MINUTE}\n");
    let mut servers = vec![Served::start(dir.path(), &config, store)?];
    if store.is_some() {
        servers.push(Served::start(dir.path(), &config, store)?);
    }
    let entered = Arc::new(Mutex::new(Vec::new()));
    let from = Instant::now();
    let mut people = Vec::new();
    for person in 0..PEOPLE {
        // Steps by the golden ratio are spread evenly and are the same in every run.
        let chance = person * 61_803 % 100_000;
        let leaves =
            (chance < leaving * 1_000).then(|| from + Duration::from_millis(person * 7_919 % 240_000));
        let arrives = from + Duration::from_millis(person * 2_000 / PEOPLE);
        let server = &servers[usize::try_from((person * 40_503) >> 8).expect("small") % servers.len()];
        people.push(tokio::spawn(live(
            server.address.to_string(),
            person,
            arrives,
            leaves,
            Arc::clone(&entered),
        )));
    }
    for person in people {
        person.await.expect("a task")?;
    }
    let mut entered = std::mem::take(&mut *entered.lock().expect("no panics"));
    entered.sort_unstable();
    let at_once = usize::try_from(PER_MINUTE).expect("small");
    let line = &entered[at_once..];
    // The time that the line took for the entries of whole sub-windows. The last 90 entries have no line behind them.
    let sub = at_once / 10;
    let count = line.len().saturating_sub(90 + sub) / sub * sub;
    let took = line[count] - line[0];
    #[expect(clippy::cast_precision_loss, reason = "small")]
    Ok(100.0 * count as f64 / (took.as_secs_f64() / 60.0 * PER_MINUTE as f64))
}

/// One person, who joins, polls as told, and enters or leaves.
async fn live(
    address: String,
    person: u64,
    arrives: Instant,
    leaves: Option<Instant>,
    entered: Arc<Mutex<Vec<Duration>>>,
) -> std::io::Result<()> {
    let from = arrives - Duration::from_millis(person * 2_000 / PEOPLE);
    sleep_until(arrives).await;
    let mut connection = TcpStream::connect(&address).await?;
    connection.set_nodelay(true)?;
    let mut token = None::<String>;
    for poll in 0.. {
        if leaves.is_some_and(|at| at <= Instant::now()) {
            return Ok(());
        }
        let reply = call(&mut connection, &address, token.as_deref()).await?;
        if reply.contains("\"canEnter\":true") {
            // The slot was used one network delay before the app receives the pass.
            entered.lock().expect("no panics").push(from.elapsed() - ONE_WAY);
            return Ok(());
        }
        let field = |name: &str| {
            let value = reply.split_once(&format!("\"{name}\":"))?.1;
            Some(value.trim_start_matches('"').split(['"', ',', '}']).next()?.to_owned())
        };
        token = field("token");
        let period: u64 = field("pollingPeriod")
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| std::io::Error::other(format!("not the reply of a waiting room: {reply}")))?;
        let jitter = 900 + (person * 7_919 + poll * 104_729) % 201;
        sleep(Duration::from_millis(period * jitter / 1_000)).await;
    }
    Ok(())
}

async fn call(connection: &mut TcpStream, address: &str, token: Option<&str>) -> std::io::Result<String> {
    let (path, body) = match token {
        Some(token) => ("/traffic/entry", format!("{{\"zoneId\":\"Z\",\"token\":\"{token}\"}}")),
        None => ("/traffic/wait", "{\"zoneId\":\"Z\"}".to_owned()),
    };
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    sleep(ONE_WAY).await;
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    let mut reply = Vec::new();
    loop {
        if connection.read_buf(&mut reply).await? == 0 {
            return Err(std::io::Error::other("the server closed the connection"));
        }
        let text = String::from_utf8_lossy(&reply);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() == length.unwrap_or(0) {
                sleep(ONE_WAY).await;
                return Ok(body.to_owned());
            }
        }
    }
}
