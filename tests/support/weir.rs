//! The running binary. It is built once, started with a new directory and free ports, and ended by its process id.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Read, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    client::{Client, Reply},
    clock::eventually,
};

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// The binary.
pub(crate) fn binary() -> &'static Path {
    BINARY.get_or_init(|| build("weir"))
}

/// Takes the variables of the tests away that look like settings of Weir.
pub(crate) fn without_variables(command: &mut Command) -> &mut Command {
    let names = env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"WEIR_")) {
        command.env_remove(name);
    }
    command
}

/// The program of the package of the same name: that of `WEIR_BIN` or `LOADGEN_BIN` if there is one, as in `scripts/test`, which has
/// compiled it; otherwise it is built.
pub(crate) fn build(program: &str) -> PathBuf {
    if let Some(given) = env::var_os(format!("{}_BIN", program.to_uppercase())) {
        return given.into();
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        // Always both packages, so that their dependencies have the same features and are compiled once.
        .args(["build", "--quiet", "--package", "weir", "--package", "loadgen", "--bin", program])
        .args(["--message-format", "json"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{program} does not build");
    let messages = String::from_utf8(built.stdout).expect("cargo writes UTF-8");
    let path = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    path.expect("cargo names the executable")
}

/// How to start a server.
pub(crate) struct Setup {
    dir: TempDir,
    args: Vec<OsString>,
    shell: &'static str,
}

/// A running server. It is killed when dropped, and its log is shown if the test failed.
pub(crate) struct Weir {
    setup: Setup,
    child: Child,
    stdout: Pipe,
    log: Pipe,
    /// The public address.
    pub(crate) public: SocketAddr,
    /// The admin address.
    pub(crate) admin: SocketAddr,
    /// The address for proxies that ask over gRPC, if there is one.
    pub(crate) grpc: Option<SocketAddr>,
}

/// The exit status and output of a server that ended by itself.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) log: String,
}

impl Setup {
    /// A server with this configuration file, or without a file if the text is empty.
    pub(crate) fn new(config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("weir-http-").tempdir().expect("a temporary directory");
        let setup = Self { dir, args: Vec::new(), shell: "" };
        if !config.is_empty() {
            setup.write_config(config);
        }
        setup
    }

    /// A server with one zone `Z` that admits `per_minute`. `more` holds further lines of its table.
    pub(crate) fn zone(per_minute: u32, more: &str) -> Self {
        Self::new(&zone("Z", per_minute, more))
    }

    /// Adds a command line argument.
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets shell commands that run in the process before it becomes the server.
    pub(crate) fn shell(mut self, commands: &'static str) -> Self {
        self.shell = commands;
        self
    }

    /// The directory that holds the configuration file and the data directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    /// The configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.dir().join("weir.toml")
    }

    /// Writes another configuration file.
    pub(crate) fn write_config(&self, config: &str) {
        fs::write(self.config_path(), config).expect("the temporary directory takes files");
    }

    fn spawn(&self) -> (Child, Pipe, Pipe) {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{} exec \"$@\"", self.shell)).arg("sh").arg(binary()).arg("serve");
        command.args(&self.args);
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG");
        // Variables, because the flags of a test override them.
        command.env("WEIR_LISTEN", "127.0.0.1:0").env("WEIR_ADMIN_LISTEN", "127.0.0.1:0");
        command.env("WEIR_DATA_DIR", self.data());
        if self.config_path().exists() {
            command.env("WEIR_CONFIG", self.config_path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.current_dir(self.dir()).spawn().expect("the binary starts");
        let stdout = Pipe::drain(child.stdout.take().expect("stdout is piped"));
        let log = Pipe::drain(child.stderr.take().expect("stderr is piped"));
        (child, stdout, log)
    }

    /// Starts the server and waits until it prints its addresses.
    pub(crate) fn start(self) -> Weir {
        let (mut child, stdout, log) = self.spawn();
        let ready = || {
            let ended = child.try_wait().expect("our own child").is_some();
            let address = |before: &str| {
                let text = stdout.text();
                let (_, after) = text.split_once(before)?;
                after.split_once('\n')?.0.trim().parse::<SocketAddr>().ok()
            };
            let public = address("listening on http://").or_else(|| address("listening on https://"));
            let both = (public, address("admin on http://"));
            match both {
                (Some(public), Some(admin)) => {
                    // It is printed before the others.
                    let grpc = ["http", "https"].map(|scheme| format!("over gRPC on {scheme}://"));
                    Some(Ok((public, admin, grpc.iter().find_map(|before| address(before)))))
                }
                _ if ended => Some(Err(())),
                _ => None,
            }
        };
        match eventually("the server prints its addresses", ready) {
            Ok((public, admin, grpc)) => Weir { setup: self, child, stdout, log, public, admin, grpc },
            Err(()) => panic!("the server ended at start: {}{}", stdout.text(), log.text()),
        }
    }

    /// Starts the server and waits until it ends by itself.
    pub(crate) fn fail(&self) -> Ended {
        let (mut child, stdout, log) = self.spawn();
        let status = eventually("the server ends by itself", || {
            if stdout.text().contains("listening on") {
                child.kill().expect("our own child");
                panic!("the server serves: {}", stdout.text());
            }
            child.try_wait().expect("our own child")
        });
        Ended { status, stdout: stdout.rest(), log: log.rest() }
    }
}

impl Weir {
    /// A new connection to the public address.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.public).expect("the server accepts")
    }

    /// Sends a POST on a new connection.
    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.connect().post(path, body).expect("the server replies")
    }

    /// Sends a GET on a new connection.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().get(path).expect("the server replies")
    }

    /// Sends a GET to the admin address.
    pub(crate) fn admin_get(&self, path: &str) -> Reply {
        Client::connect(self.admin).and_then(|mut c| c.get(path)).expect("the admin listener replies")
    }

    /// Sends a request of an operator on a new connection. A body is JSON.
    pub(crate) fn admin_ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Reply {
        let asked = Client::connect(self.admin).and_then(|mut c| c.ask(method, path, headers, body));
        asked.expect("the admin listener replies")
    }

    /// The setup.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }

    /// Freezes the server (SIGSTOP) and waits until every thread has stopped.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        eventually("every thread stops", || {
            let mut tasks = fs::read_dir(&tasks).expect("a process has threads");
            let is_stopped = |task: io::Result<fs::DirEntry>| {
                let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
                // The state follows the name, which is in parentheses.
                stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
            };
            tasks.all(is_stopped).then_some(())
        });
    }

    /// The output so far.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the log has this text. A thread reads the log, so a line may come later here than the reply after it.
    #[allow(dead_code, reason = "not all tests read the log")]
    pub(crate) fn logs(&self, text: &str) {
        eventually(&format!("the log has {text:?}"), || self.log().contains(text).then_some(()));
    }

    /// Waits until the server ends.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        eventually("the server ends", || self.child.try_wait().expect("our own child"))
    }

    /// Kills the server as a power cut would, and starts it again on the same data directory.
    pub(crate) fn kill_and_restart(&mut self) {
        self.signal(Signal::KILL);
        self.wait_for_end();
        *self = self.take_setup().start();
    }

    /// Stops the server as an operator would, and returns its setup.
    pub(crate) fn stop(mut self) -> Setup {
        self.signal(Signal::TERM);
        let status = self.wait_for_end();
        assert!(status.success(), "a drained server exits with success: {status}");
        self.take_setup()
    }

    /// Takes the setup out of the server, which must not be used any more.
    pub(crate) fn take_setup(&mut self) -> Setup {
        let nowhere = Setup { dir: TempDir::new().expect("a directory"), args: Vec::new(), shell: "" };
        std::mem::replace(&mut self.setup, nowhere)
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            drop(writeln!(io::stderr(), "--- the server's log:\n{}---", self.log()));
        }
    }
}

/// The content of a pipe. A thread reads it, so that the writer never blocks.
struct Pipe {
    text: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Pipe {
    fn drain(mut from: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                sink.lock().expect("no holder panics").extend_from_slice(&chunk[..n]);
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no holder panics")).into_owned()
    }

    /// Reads up to the end of the pipe.
    fn rest(self) -> String {
        self.reader.join().expect("the reader never panics");
        String::from_utf8_lossy(&self.text.lock().expect("the reader is gone")).into_owned()
    }
}

/// The table of a zone.
pub(crate) fn zone(id: &str, per_minute: u32, more: &str) -> String {
    format!("[[zone]]\nid = \"{id}\"\nadmit_per_minute = {per_minute}\n{more}\n")
}
