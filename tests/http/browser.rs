//! A real browser: a headless Chromium runs the lines of the book in a page of another origin, while the server dies.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use serde_json::Value;

use crate::{
    app::{self, Answer, App, Waiting, body},
    clock::eventually,
    passes::JwkSet,
    weir::{Setup, zone},
};

/// Names under which Chromium may be installed.
const BROWSERS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

/// People in line ahead of the tab.
const AHEAD: u64 = 10;

/// A running browser. It ends with the test, and its log is shown if the test failed. It has its own process group,
/// because the program may be a script that starts the browser, and a browser starts helpers.
struct Browser {
    child: Child,
    log: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        drop(self.child.wait());
        if thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            drop(writeln!(io::stderr(), "--- the browser's log:\n{log}---"));
        }
    }
}

impl Browser {
    /// Opens `url`. `home` is a directory for this browser alone.
    fn open(url: &str, home: &Path) -> Self {
        let log = home.join("browser.log");
        let start = |program: String| {
            let mut browser = Command::new(program);
            // Containers have little shared memory, so the browser uses files instead.
            browser.args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
            if !has_sandbox() {
                // The browser opens only our own page.
                browser.arg("--no-sandbox");
            }
            // With a debugging port the browser stays open.
            browser.arg("--remote-debugging-port=0");
            browser.arg(format!("--user-data-dir={}", home.join("browser").display())).arg(url);
            let stderr = fs::File::create(&log).expect("the directory takes files");
            browser.stdout(Stdio::null()).stderr(stderr).process_group(0).spawn().ok()
        };
        let child = env::var("CHROMIUM").ok().into_iter().chain(BROWSERS.map(str::to_owned)).find_map(start);
        let child = child.expect(
            "no Chromium to test with: apt-get install chromium-headless-shell, or name one by CHROMIUM",
        );
        Self { child, log }
    }
}

/// Whether the browser can use its sandbox. It refuses to as root, and otherwise needs user namespaces, which
/// containers may not have.
fn has_sandbox() -> bool {
    let tried = Command::new("unshare").args(["--user", "true"]).stderr(Stdio::null()).status();
    !geteuid().is_root() && tried.is_ok_and(|status| status.success())
}

/// Serves one page and receives its reports.
struct Page {
    origin: String,
    reports: Arc<Mutex<Vec<Value>>>,
}

impl Page {
    fn serve(html: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("bound"));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let page = Self { origin, reports: Arc::clone(&reports) };
        let html = Arc::new(html);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (html, reports) = (Arc::clone(&html), Arc::clone(&reports));
                // The browser may close a connection early.
                thread::spawn(move || drop(answer(client, &*html, &reports)));
            }
        });
        page
    }

    /// What the page has reported under `name`.
    fn reported(&self, name: &str) -> Vec<Value> {
        let reports = self.reports.lock().expect("no holder panics");
        reports.iter().filter_map(|report| report.get(name).cloned()).collect()
    }
}

fn answer(client: TcpStream, html: &dyn Fn() -> String, reports: &Mutex<Vec<Value>>) -> io::Result<()> {
    // Browsers open connections in advance and may never use them.
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(client);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        if let Some(value) = head[from..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut client = reader.into_inner();
    let text = if head.starts_with("POST /report ") {
        reports.lock().expect("no holder panics").push(serde_json::from_slice(&body)?);
        String::new()
    } else if head.starts_with("GET / ") {
        html()
    } else {
        String::new()
    };
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// The example for browsers in the book.
fn example() -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/app/streams.md"))
        .expect("the page about streams");
    let (_, rest) = page.split_once("```js\n").expect("an example in JavaScript");
    rest.split_once("```").expect("its end").0.to_owned()
}

fn html(server: SocketAddr) -> String {
    let example = example();
    format!(
        r#"<!doctype html><meta charset="utf-8"><title>test</title><script>
const report = (what) => fetch("/report", {{ method: "POST", body: JSON.stringify(what) }});
const showPlace = (waiting) => report({{ waiting }});
const enter = (pass) => report({{ pass }});
const poll = (token) => report({{ polls: token }});
const startAnew = (problem) => report({{ problem }});
addEventListener("error", (event) => report({{ error: event.message }}));
{example}
const base = "http://{server}";
(async () => {{
  const body = JSON.stringify({{ zoneId: "Z" }});
  const reply = await fetch(base + "/traffic/wait", {{ method: "POST", headers: {{ "content-type": "application/json" }}, body }});
  const {{ token }} = await reply.json();
  await report({{ joined: token }});
  follow(base, "Z", token);
}})().catch((e) => report({{ error: String(e) }}));
</script>"#
    )
}

/// A proxy before the server. Its address stays the same when the server restarts, and it records the requests.
struct Door {
    address: SocketAddr,
    server: Arc<Mutex<Option<SocketAddr>>>,
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Door {
    fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let door = Self { address, server: Arc::default(), asked: Arc::default() };
        let (server, asked) = (Arc::clone(&door.server), Arc::clone(&door.asked));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                // Without a server the connection ends.
                let server = *server.lock().expect("no holder panics");
                drop(server.map(|server| through(client, server, asked)));
            }
        });
        door
    }

    fn lead_to(&self, server: Option<SocketAddr>) {
        *self.server.lock().expect("no holder panics") = server;
    }

    /// All requests so far, in order.
    fn asked(&self) -> String {
        String::from_utf8_lossy(&self.asked.lock().expect("no holder panics")).into_owned()
    }
}

fn through(client: TcpStream, server: SocketAddr, asked: Arc<Mutex<Vec<u8>>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let back = (server.try_clone()?, client.try_clone()?);
    let note = move |bytes: &[u8]| asked.lock().expect("no holder panics").extend_from_slice(bytes);
    thread::spawn(move || pass_on(&client, &server, note));
    thread::spawn(move || pass_on(&back.0, &back.1, |_| ()));
    Ok(())
}

/// Copies bytes until one side ends, then ends both.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, note: impl Fn(&[u8])) {
    let mut chunk = [0; 4_096];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        note(&chunk[..n]);
        if to.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

/// A tab hears its rank, continues by itself after the server was killed and restarted, sees its rank fall, and
/// enters with the same pass that a poll would return.
pub(crate) fn a_tab_follows_its_place_through_a_crash_and_enters() {
    let door = Door::open();
    let address = door.address;
    let page = Page::serve(move || html(address));
    let config = |mode: &str| {
        let more = format!("mode = \"{mode}\"\npolling_period_ms = 500");
        format!("cors_origins = [\"{}\"]\n{}", page.origin, zone("Z", 60, &more))
    };
    let mut weir = Setup::new(&config("hold")).start();
    door.lead_to(Some(weir.public));
    let mut ahead: Vec<App> = (0..AHEAD).map(|_| App::new("Z")).collect();
    for app in &mut ahead {
        app.step(weir.public);
    }
    let browser = Browser::open(&page.origin, weir.setup().dir());
    let waits = || -> Vec<Waiting> {
        let waits = page.reported("waiting").into_iter();
        waits.map(|waiting| serde_json::from_value(waiting).expect("a wait as on the wire")).collect()
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let polling = scope.spawn(move || {
            app::run(&mut ahead, || address, |_| over.load(Ordering::Relaxed), Duration::from_secs(120));
        });
        let tab = || {
            assert!(!polling.is_finished(), "those ahead saw a fault");
            let faults = [page.reported("error"), page.reported("problem"), page.reported("polls")].concat();
            assert!(faults.is_empty(), "{faults:?}");
        };
        let token = eventually("the tab has a place", || {
            tab();
            Some(page.reported("joined").first()?.as_str()?.to_owned())
        });
        let before = eventually("the tab hears where it stands", || {
            tab();
            Some(waits()).filter(|waits| waits.len() >= 2)
        });
        assert!(before.iter().all(|wait| wait.rank == AHEAD + 1 && wait.reason.as_deref() == Some("held")));
        assert!(!door.asked().to_ascii_lowercase().contains("last-event-id"), "there was none yet");
        weir.signal(Signal::KILL);
        weir.wait_for_end();
        door.lead_to(None);
        let heard = waits().len();
        weir = weir.take_setup().start();
        door.lead_to(Some(weir.public));
        eventually("the tab goes on after the crash", || {
            tab();
            Some(waits()).filter(|waits| waits.len() >= heard + 2)
        });
        let asked = door.asked().to_ascii_lowercase();
        let (_, back) = asked.rsplit_once("get /traffic/stream?").expect("it was opened");
        let last = back.lines().find_map(|line| line.strip_prefix("last-event-id: "));
        assert!(last.is_some_and(|id| id.len() == 52), "it came back by the newest token: {back}");
        let held = waits();
        assert!(held.iter().all(|wait| wait.rank == AHEAD + 1), "the place is kept: {held:?}");
        weir.setup().write_config(&config("auto"));
        weir.signal(Signal::HUP);
        let pass = eventually("the tab enters", || {
            tab();
            Some(page.reported("pass").first()?.as_str()?.to_owned())
        });
        over.store(true, Ordering::Relaxed);
        let ranks: Vec<u64> = waits().iter().map(|wait| wait.rank).collect();
        assert!(ranks.is_sorted_by(|a, b| a >= b), "{ranks:?}");
        assert!(
            ranks.last().is_some_and(|rank| *rank <= AHEAD + 1 - 6),
            "it never saw its rank move: {ranks:?}"
        );
        JwkSet::of(&weir).verify(&pass);
        let polled = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&token))));
        assert_eq!(polled.pass(), pass, "the tab's first token names the same entry");
    });
    drop(browser);
}
