//! A server for the examples that measure over HTTP.
//!
//! Invariant: the server ends with the run.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A `weir` of its own, as it was built last by `cargo build --profile dist`.
#[derive(Debug)]
pub struct Served {
    process: Process,
    /// Its public address.
    pub address: SocketAddr,
}

#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Served {
    /// Starts a server with this configuration. Its data is in `dir`, or in the store at the address `store`.
    ///
    /// # Errors
    /// If `dir` cannot be written, or the program does not exist or does not start.
    pub fn start(dir: &Path, config: &str, store: Option<&str>) -> io::Result<Self> {
        let file = dir.join("weir.toml");
        fs::write(&file, config)?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let mut command = Command::new(target.join("dist/weir"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(dir.join("data")).arg("--config").arg(&file).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(store) = store {
            command.args(["--store", store]);
        }
        let mut process = Process(command.spawn()?);
        let said = BufReader::new(process.0.stdout.take().expect("piped"));
        for line in said.lines() {
            let line = line?;
            let plain = line.strip_prefix("listening on http://");
            if let Some(address) = plain.or_else(|| line.strip_prefix("listening on https://")) {
                let address = address.parse().map_err(io::Error::other)?;
                return Ok(Self { process, address });
            }
        }
        Err(io::Error::other("weir did not start; build it: cargo build --profile dist"))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// The processor time that it used, user and system.
    ///
    /// # Errors
    /// If the kernel does not say it.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        // The kernel counts in hundredths of a second on every common Linux.
        Ok(Duration::from_millis(10 * (ticks(11) + ticks(12))))
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// If the kernel does not say it.
    pub fn resident(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kib: Option<u64> = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Ok(kib.unwrap_or(0) * 1_024)
    }
}
