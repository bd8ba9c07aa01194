//! Real apps behind the proxies: Express and Node's `URL`, Flask on Werkzeug's server, and hypercorn, which speaks HTTP/2 in clear text.
//! Their replies say in `X-Read-As` which handlers the app's routers and functions choose for a target.
//!
//! Invariant: an app counts every request that one of them takes for what Weir guards, however the request came, unless the test marks it
//! with `X-Not-Counted`.

use std::{
    env,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock},
};

use crate::client::{Client, Reply};

/// A header by which the apps leave a request out of their count.
pub(crate) const NOT_COUNTED: &str = "X-Not-Counted: 1\r\n";

/// One running app.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) at: SocketAddr,
    /// Whether it opens a tunnel for `Upgrade: h2c`.
    pub(crate) speaks_h2c: bool,
}

impl Reader {
    /// All of them. They are started once, and end with the test's process, which holds their standard inputs.
    pub(crate) fn all() -> [Self; 3] {
        static ALL: OnceLock<[Reader; 3]> = OnceLock::new();
        static PROCESSES: Mutex<Vec<(Child, Option<ChildStdin>)>> = Mutex::new(Vec::new());
        *ALL.get_or_init(|| {
            let dir = packages();
            let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxies/readers");
            let start = |command: &mut Command| {
                let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
                let mut child = spawned.unwrap_or_else(|e| panic!("{command:?}: {e}"));
                let mut line = String::new();
                let stdout = child.stdout.take().expect("piped");
                BufReader::new(stdout).read_line(&mut line).expect("the app prints its ports");
                let stdin = child.stdin.take();
                PROCESSES.lock().expect("no test panics here").push((child, stdin));
                let ports: Vec<u16> =
                    line.split_whitespace().map(|port| port.parse().expect("a port")).collect();
                assert!(!ports.is_empty(), "{command:?} prints its ports");
                ports
            };
            let node = start(Command::new("node").arg(here.join("node.mjs")).arg(dir.join("node")));
            let python = start(Command::new(dir.join("python/bin/python")).arg(here.join("apps.py")));
            let reader =
                |name, port, speaks_h2c| Self { name, at: ([127, 0, 0, 1], port).into(), speaks_h2c };
            [
                reader("node", node[0], false),
                reader("flask", python[0], false),
                reader("hypercorn", python[1], true),
            ]
        })
    }

    /// The number of requests so far that it took for what Weir guards.
    pub(crate) fn reached(self) -> usize {
        let mut client = Client::connect(self.at).expect("the app accepts");
        client.send(format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{NOT_COUNTED}\r\n")).expect("it reads");
        let reply = client.reply().expect("a reply");
        reply.header("x-reached").and_then(|count| count.parse().ok()).expect("a count")
    }
}

/// Which part of the app takes the request of this reply for what Weir guards, if one does.
pub(crate) fn guarded(reply: &Reply) -> Option<&str> {
    let readings = reply.headers.iter().filter(|(name, _)| name == "x-read-as");
    readings
        .flat_map(|(_, value)| value.split(", "))
        .find(|reading| reading.ends_with("=checkout") || reading.ends_with("=admin"))
}

/// Where the apps' packages are: `WEIR_READERS`, otherwise in the target directory of this program.
fn packages() -> PathBuf {
    let beside = || Some(env::current_exe().ok()?.ancestors().nth(3)?.join("readers"));
    let dir = env::var_os("WEIR_READERS").map(PathBuf::from).or_else(beside).expect("a program has a path");
    let is_there = dir.join("node/node_modules").is_dir() && dir.join("python/bin/python").is_file();
    assert!(
        is_there,
        "{} lacks the apps' packages; install them: tests/proxies/readers/install",
        dir.display()
    );
    dir
}
