//! The parent process. It starts the workers, lets them begin together, and adds up what they send.
//!
//! Invariant: no worker outlives the parent, because a worker ends when its standard input ends.

use std::{net::IpAddr, process::Stdio};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    clock::unix_ms,
    frame::{Frame, Order, Task, no_latencies, unpack},
    gather::{Gathered, add},
    pool::REPLY_TIMEOUT,
    profile::Profile,
    progress::Progress,
    report::Opening,
    target::Target,
    worker,
};

/// Open files that a worker needs besides its connections.
const FILES: usize = 500;
/// Open files that a process may have.
const FILES_MAX: usize = 20_000;
/// Connections that fit between two addresses: the size of the kernel's default range of ports.
pub const PORTS: usize = 28_000;
/// The time between the order to begin and the start, so that all workers have received the order.
const HEADWAY_MS: u64 = 300;
/// The time limit for creating the users.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// The time limit after the planned end: for the last replies, and for sending the stories.
const GRACE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The waiting room.
    pub target: Target,
    /// The zone.
    pub zone: String,
    /// The profile, with the run's number of users.
    pub profile: Profile,
    /// The number of connections of all workers together.
    pub connections: usize,
    /// Source addresses; empty for any.
    pub sources: Vec<IpAddr>,
    /// The number of workers; none for one per core.
    pub workers: Option<u16>,
    /// The start, milliseconds of the Unix clock; none for at once.
    pub start_unix_ms: Option<u64>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The opening that the run is made for.
    pub opening: Option<Opening>,
}

impl Setup {
    /// A run of a built-in profile against `url`, for tests.
    #[cfg(test)]
    pub(crate) fn of_test(url: &str, profile: &str) -> Self {
        Self {
            target: crate::target::parse(url, &crate::target::Way::default()).expect("a target"),
            zone: "Z".to_owned(),
            profile: crate::profile::load(profile).expect("built in"),
            connections: 1,
            sources: Vec::new(),
            workers: None,
            start_unix_ms: None,
            seed: 1,
            opening: None,
        }
    }

    /// The number of workers.
    ///
    /// # Errors
    /// If the setup does not fit into the limits of the machine.
    pub fn workers(&self) -> Result<u16, String> {
        let most = FILES_MAX - FILES;
        let streams = self.streams() as usize;
        let sockets = self.connections + streams;
        let what = match streams {
            0 => format!("{} connections", self.connections),
            _ => format!("{} connections and {streams} streams (--stream-share)", self.connections),
        };
        let needed = u16::try_from(sockets.div_ceil(most)).map_err(|_| "too many connections")?;
        let ports = PORTS * self.sources.len().max(1);
        if sockets > ports {
            return Err(format!(
                "{what} need at least {} source addresses (--sources); one address has {PORTS} ports",
                sockets.div_ceil(PORTS)
            ));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Each worker needs a user in the first step, and a connection.
        let (first, _) = self.profile.share(0, 1)[0];
        let most_useful = u16::try_from(first.min(u32::from(u16::MAX))).unwrap_or(u16::MAX);
        let most_useful = most_useful.min(u16::try_from(self.connections).unwrap_or(u16::MAX)).max(1);
        let wanted = self.workers.unwrap_or(u16::try_from(cores).unwrap_or(1).max(needed));
        if wanted < needed {
            return Err(format!(
                "{what} need at least {needed} workers (--workers); a process may open {FILES_MAX} files"
            ));
        }
        Ok(wanted.min(most_useful))
    }

    /// The largest number of streams of all workers together.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.profile.most_streams(0, 1)
    }

    fn task(&self, worker: u16, workers: u16) -> Task {
        let (all, parts) = (self.connections, usize::from(workers));
        Task {
            target: self.target.clone(),
            zone: self.zone.clone(),
            profile: self.profile.clone(),
            worker,
            workers,
            connections: all / parts + usize::from(usize::from(worker) < all % parts),
            sources: self.sources.clone(),
            seed: self.seed,
            draw: self.opening.as_ref().and_then(|opening| opening.draw.clone()),
        }
    }
}

struct Worker {
    child: Child,
    orders: ChildStdin,
}

/// A message of a worker, or none after the end of its output.
type Message = (u16, Option<Frame>);

async fn start(setup: &Setup, worker: u16, workers: u16, messages: mpsc::Sender<Message>) -> Result<Worker> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("worker")
        .env(worker::KEEP_MEMORY.0, worker::KEEP_MEMORY.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C on the terminal must reach only the parent, which then stops the workers.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("starting a worker")?;
    let mut orders = child.stdin.take().context("a worker's input")?;
    let out = child.stdout.take().context("a worker's output")?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // Goose sometimes prints lines too.
            let Some(frame) = line.starts_with('{').then(|| serde_json::from_str(&line).ok()).flatten()
            else {
                continue;
            };
            if messages.send((worker, Some(frame))).await.is_err() {
                return;
            }
        }
        drop(messages.send((worker, None)).await);
    });
    send(&mut orders, &setup.task(worker, workers)).await.context("sending a worker its task")?;
    Ok(Worker { child, orders })
}

async fn send(to: &mut ChildStdin, message: &impl serde::Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    Ok(to.flush().await?)
}

/// Runs the rehearsal. Returns its start, milliseconds of the Unix clock, and the measurements.
///
/// # Errors
/// If the run could not begin. Later failures are in [`Gathered::broken`].
pub async fn run(setup: &Setup) -> Result<(u64, Gathered)> {
    let mut interrupts = Interrupts::new()?;
    let workers = setup.workers().map_err(anyhow::Error::msg)?;
    let (sender, mut messages) = mpsc::channel(256);
    let mut running = Vec::new();
    for worker in 0..workers {
        running.push(start(setup, worker, workers, sender.clone()).await?);
    }
    drop(sender);

    let ready_by = Instant::now() + READY_WITHIN;
    let mut ready = 0;
    while ready < workers {
        tokio::select! {
            message = messages.recv() => match message {
                Some((_, Some(Frame::Ready {}))) => ready += 1,
                Some((worker, Some(Frame::Broken(why)))) => bail!("worker {worker}: {why}"),
                Some((worker, None)) => bail!("worker {worker} ended before the run began"),
                _ => bail!("the workers ended before the run began"),
            },
            _ = interrupts.next() => {
                return Err(Interrupted(BEFORE.to_owned()).into());
            }
            () = sleep_until(ready_by) => bail!("the users were not created within {} s", READY_WITHIN.as_secs()),
        }
    }
    let earliest = unix_ms() + HEADWAY_MS;
    let begin = match setup.start_unix_ms {
        Some(agreed) if agreed < earliest => {
            bail!(
                "the workers were ready {} ms too late; choose a later --start-at, or an event that begins later",
                earliest - agreed
            )
        }
        Some(agreed) => agreed,
        None => earliest,
    };
    for worker in &mut running {
        send(&mut worker.orders, &Order::Begin(begin))
            .await
            .context("a worker ended before the run began")?;
    }
    let mut progress = Progress::new(setup.profile.lasts_ms() / 1000);
    let waits_s = begin.saturating_sub(unix_ms()) / 1_000;
    if waits_s > 0 {
        progress.message(&format!("all users are ready; the run begins in {waits_s} s"));
    }
    let lasts = Duration::from_millis(u64::from(setup.profile.lasts_ms()) + begin.saturating_sub(unix_ms()));
    // Each hasher of the standard library has a random key.
    let id = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), begin);
    let mut gathered = Gathered { runs: vec![format!("{id:016x}")], ..Gathered::default() };
    let has_report = gather(
        &mut gathered,
        &mut progress,
        &mut running,
        &mut messages,
        &mut interrupts,
        Instant::now() + lasts + GRACE,
    )
    .await;
    if !has_report {
        // Dropping the workers kills them.
        return Err(Interrupted("the run was stopped at once, so it has no report".to_owned()).into());
    }
    for mut worker in running {
        drop(worker.orders);
        // It has sent its last message, so killing it loses nothing.
        if tokio::time::timeout(Duration::from_secs(2), worker.child.wait()).await.is_err() {
            drop(worker.child.kill().await);
        }
    }
    Ok((begin, gathered))
}

/// Adds up what the workers send until all have ended. False if somebody did not want to wait for that.
async fn gather(
    gathered: &mut Gathered,
    progress: &mut Progress,
    running: &mut [Worker],
    messages: &mut mpsc::Receiver<Message>,
    interrupts: &mut Interrupts,
    end_by: Instant,
) -> bool {
    let workers = u16::try_from(running.len()).unwrap_or(u16::MAX);
    // How many workers have reported a second, for the seconds that some worker has not reported yet.
    let mut reported = std::collections::BTreeMap::<u32, u16>::new();
    let mut ended = vec![false; running.len()];
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some((_, Some(Frame::Second { at, second, wait, entry }))) => {
                    let mut all = no_latencies();
                    for (to, text) in [(&mut gathered.wait, wait), (&mut gathered.entry, entry)] {
                        if let Some(latencies) = unpack(&text) {
                            add(to, &latencies);
                            add(&mut all, &latencies);
                        }
                    }
                    gathered.add_second(at as usize, &second, &all);
                    let by = reported.entry(at).or_default();
                    *by += 1;
                    if *by == workers {
                        reported.remove(&at);
                        let (second, latencies) = &gathered.seconds[at as usize];
                        progress.second(at, second, latencies);
                    }
                }
                Some((worker, Some(Frame::Stories(columns)))) => match columns.stories() {
                    Some(mut stories) => gathered.stories.append(&mut stories),
                    None => gathered.broken.push(format!("worker {worker} sent damaged stories")),
                },
                Some((_, Some(Frame::Papers(mut papers)))) => gathered.papers.append(&mut papers),
                Some((worker, Some(Frame::End { lasted_ms, due, counters, streams, failures }))) => {
                    ended[usize::from(worker)] = true;
                    gathered.lasted_ms = gathered.lasted_ms.max(lasted_ms);
                    gathered.add_due(&due);
                    gathered.add_counters(&counters);
                    gathered.add_streams(&streams);
                    gathered.add_failures(&failures);
                }
                Some((worker, Some(Frame::Broken(why)))) => {
                    gathered.broken.push(format!("worker {worker}: {why}"));
                }
                Some((_, Some(Frame::Ready {}))) => {}
                Some((worker, None)) => {
                    if !ended[usize::from(worker)] {
                        gathered.broken.push(format!("worker {worker} died"));
                        progress.message(&format!("worker {worker} died; stopping the run"));
                        end(running).await;
                    }
                }
                None => break,
            },
            interrupt = interrupts.next() => {
                if gathered.interrupted {
                    // A terminal that closes may send it twice, and nobody is impatient.
                    if interrupt == Interrupt::HangUp {
                        continue;
                    }
                    progress.done();
                    return false;
                }
                gathered.interrupted = true;
                progress.message(&format!(
                    "stopping the run; the report follows when the calls in flight have ended, and a call may take {} s; interrupt a \
                     second time to end at once, without a report",
                    REPLY_TIMEOUT.as_secs()
                ));
                end(running).await;
            }
            () = sleep_until(end_by) => {
                gathered.broken.push("workers did not end in time".to_owned());
                break;
            }
        }
    }
    progress.done();
    if gathered.wait.is_empty() && gathered.failures.is_empty() && !gathered.interrupted {
        gathered.broken.push("no call was made".to_owned());
    }
    if gathered.lasted_ms == 0 {
        gathered.lasted_ms = u32::try_from(gathered.seconds.len()).unwrap_or(0).saturating_mul(1000);
    }
    true
}

/// Stops all workers. A worker that cannot receive the order has ended already.
async fn end(running: &mut [Worker]) {
    for worker in running {
        drop(send(&mut worker.orders, &Order::End).await);
    }
}

/// The run or the search was stopped before it had a report; the text says how far it came.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// What is said of a run that was stopped too early for a report.
const BEFORE: &str = "the run was stopped before it began";

/// Who stops a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Somebody: Ctrl-C or SIGTERM.
    Asked,
    /// The terminal was closed (SIGHUP).
    HangUp,
}

/// Ctrl-C, SIGTERM from a supervisor, or SIGHUP from a terminal that is closed.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// None if the run shall outlive its terminal (`nohup`).
    hang_up: Option<Signal>,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// Does what comes before a run, unless that is interrupted.
    pub(crate) async fn or_before<T>(&mut self, preparing: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            prepared = preparing => prepared,
            _ = self.next() => Err(Interrupted(BEFORE.to_owned()).into()),
        }
    }

    pub(crate) async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::Asked,
            _ = self.terminate.recv() => Interrupt::Asked,
            Some(()) = async { self.hang_up.as_mut()?.recv().await } => Interrupt::HangUp,
        }
    }
}

/// Whether whoever started this process set SIGHUP to be ignored. A handler would undo that.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_hang_up_in(&status)
}

fn is_hang_up_in(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1, SIGHUP.
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_nohup_ignores_the_end_of_its_terminal() {
        assert!(is_hang_up_in("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!is_hang_up_in("Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!is_hang_up_in(""));
    }
}
