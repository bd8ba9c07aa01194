//! Compares the cost for a server of 5,000 waiting users on streams with that of 5,000 users who poll every 3 s. It
//! starts `weir` and puts the users into a line that does not move, so that both kinds are told once per period. The
//! output is the CPU time of the server over 15 s, the number of messages, and the memory per user.
//!
//! `cargo build --profile dist && cargo run --profile dist -p weir-benches --example streams_http`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

use std::{
    io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, sleep_until},
};
use weir_benches::Served;

const PEOPLE: u64 = 5_000;
const PERIOD: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(15);

const CONFIG: &str = "
[[zone]]
id = \"Z\"
admit_per_minute = 60
sub_windows = 60
idle_timeout_s = 600
mode = \"hold\"
";

fn main() -> ExitCode {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let all = async {
        for streams in [true, false] {
            let how = if streams { "streams" } else { "polls" };
            println!("{PEOPLE} {how}: {}", measure(streams).await?);
        }
        io::Result::Ok(())
    };
    match raised.map_err(io::Error::from).and_then(|()| runtime.block_on(all)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("streams_http: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(streams: bool) -> io::Result<String> {
    let dir = tempfile::tempdir()?;
    let server = Served::start(dir.path(), CONFIG, None)?;
    let address = server.address.to_string();
    let tokens = join(&address).await?;
    let alone = server.resident()?;
    let said = Arc::new(AtomicU64::new(0));
    let mut people = tokio::task::JoinSet::new();
    for (n, token) in (0..).zip(tokens) {
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let said = Arc::clone(&said);
        if streams {
            people.spawn(listen(stream, token, said));
        } else {
            people.spawn(poll(stream, token, Instant::now() + PERIOD * n / 5_000, said));
        }
    }
    // The cost of starting is not measured.
    sleep(2 * PERIOD).await;
    let (from, before, cpu) = (Instant::now(), said.load(Relaxed), server.cpu_time()?);
    sleep(MEASURED).await;
    let (took, messages, used) = (from.elapsed(), said.load(Relaxed) - before, server.cpu_time()? - cpu);
    let held = server.resident()?.saturating_sub(alone);
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let (messages, people, held) = (messages as f64, PEOPLE as f64, held as f64);
    let (took, used) = (took.as_secs_f64(), used.as_secs_f64());
    Ok(format!(
        "{:.1} us per person and second, {:.0} messages/s, {:.1} us per message, {:.1} KB per person",
        used / took / people * 1e6,
        messages / took,
        used / messages * 1e6,
        held / people / 1e3
    ))
}

/// The tokens of the waiting users.
async fn join(address: &str) -> io::Result<Vec<String>> {
    let mut stream = TcpStream::connect(address).await?;
    let mut tokens = Vec::new();
    while (tokens.len() as u64) < PEOPLE {
        let reply = ask(&mut stream, "/traffic/wait", r#"{"zoneId":"Z"}"#).await?;
        if reply.contains("\"canEnter\":false") {
            let token = reply.split_once("\"token\":\"").and_then(|(_, rest)| rest.get(..52));
            tokens.push(token.ok_or_else(|| io::Error::other(reply.clone()))?.to_owned());
        }
    }
    Ok(tokens)
}

async fn ask(stream: &mut TcpStream, path: &str, body: &str) -> io::Result<String> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let (mut text, mut chunk) = (String::new(), [0; 2_048]);
    while !text.ends_with('}') {
        match stream.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => text.push_str(&String::from_utf8_lossy(&chunk[..n])),
        }
    }
    Ok(text)
}

/// Counts the messages of a stream.
async fn listen(mut stream: TcpStream, token: String, said: Arc<AtomicU64>) -> io::Result<()> {
    let request = format!("GET /traffic/stream?zone=Z&token={token} HTTP/1.1\r\nHost: bench\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut chunk = [0; 2_048];
    loop {
        match stream.read(&mut chunk).await? {
            0 => return Ok(()),
            n => {
                let ends = chunk[..n].windows(2).filter(|two| two == b"\n\n").count();
                said.fetch_add(ends as u64, Relaxed);
            }
        }
    }
}

/// Polls until the entry.
async fn poll(
    mut stream: TcpStream,
    token: String,
    mut due: Instant,
    said: Arc<AtomicU64>,
) -> io::Result<()> {
    let body = format!(r#"{{"zoneId":"Z","token":"{token}"}}"#);
    loop {
        sleep_until(due).await;
        due += PERIOD;
        let reply = ask(&mut stream, "/traffic/entry", &body).await?;
        said.fetch_add(1, Relaxed);
        if reply.contains("\"canEnter\":true") {
            return Ok(());
        }
    }
}
