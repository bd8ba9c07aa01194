//! The parent: starts the workers, has them begin together, and gathers what they say.
//!
//! Invariant: no worker outlives it. A worker ends when its standard input does.

use std::{net::IpAddr, process::Stdio};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    clock::unix_ms,
    frame::{Frame, Order, Task, no_latencies, unpack},
    gather::{Gathered, add},
    profile::Profile,
    progress::Progress,
    target::Target,
};

/// Open files a worker needs besides its connections.
const FILES: usize = 500;
/// Open files a process may have where this is used.
const FILES_MAX: usize = 20_000;
/// Connections from one address to another: the kernel's default range of ports.
pub const PORTS: usize = 28_000;
/// From the word to begin to the beginning, so that all workers have heard it.
const HEADWAY_MS: u64 = 300;
/// Making users may take this long.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// After its planned end, a run may take this long: a last reply's time, and some for telling the stories.
const GRACE: Duration = Duration::from_secs(120);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where.
    pub target: Target,
    /// The zone.
    pub zone: String,
    /// The profile, with the run's number of users.
    pub profile: Profile,
    /// Connections of all workers together.
    pub connections: usize,
    /// Source addresses; empty for any.
    pub sources: Vec<IpAddr>,
    /// How many workers; none for as many as there are cores.
    pub workers: Option<u16>,
    /// When to begin; none for at once.
    pub start_unix_ms: Option<u64>,
    /// What chance begins with.
    pub seed: u64,
}

impl Setup {
    /// How many workers it takes.
    ///
    /// # Errors
    /// Where what was asked for does not fit into the machine's limits.
    pub fn workers(&self) -> Result<u16, String> {
        let most = FILES_MAX - FILES;
        let needed = u16::try_from(self.connections.div_ceil(most)).map_err(|_| "too many connections")?;
        let ports = PORTS * self.sources.len().max(1);
        if self.connections > ports {
            return Err(format!(
                "{} connections need {} source addresses or more (--sources): {PORTS} fit on one",
                self.connections,
                self.connections.div_ceil(PORTS)
            ));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Each worker has a user from the first step on, and a connection.
        let (first, _) = self.profile.share(0, 1)[0];
        let most_useful = u16::try_from(first.min(u32::from(u16::MAX))).unwrap_or(u16::MAX);
        let most_useful = most_useful.min(u16::try_from(self.connections).unwrap_or(u16::MAX)).max(1);
        let wanted = self.workers.unwrap_or(u16::try_from(cores).unwrap_or(1).max(needed));
        if wanted < needed {
            return Err(format!(
                "{} connections need {needed} workers or more (--workers): a process may have {FILES_MAX} files open",
                self.connections
            ));
        }
        Ok(wanted.min(most_useful))
    }

    fn task(&self, worker: u16, workers: u16) -> Task {
        let (all, of) = (self.connections, usize::from(workers));
        Task {
            address: self.target.address,
            host: self.target.host.clone(),
            prefix: self.target.prefix.clone(),
            zone: self.zone.clone(),
            profile: self.profile.clone(),
            worker,
            workers,
            connections: all / of + usize::from(usize::from(worker) < all % of),
            sources: self.sources.clone(),
            seed: self.seed,
        }
    }
}

struct Worker {
    child: Child,
    orders: ChildStdin,
}

/// What a worker said, or that it says no more.
type Said = (u16, Option<Frame>);

async fn start(setup: &Setup, worker: u16, workers: u16, said: mpsc::Sender<Said>) -> Result<Worker> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A terminal's Ctrl-C is for the parent, who tells the workers.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("starting a worker")?;
    let mut orders = child.stdin.take().context("a worker's input")?;
    let out = child.stdout.take().context("a worker's output")?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // Goose says a word of its own now and then.
            let Some(frame) = line.starts_with('{').then(|| serde_json::from_str(&line).ok()).flatten()
            else {
                continue;
            };
            if said.send((worker, Some(frame))).await.is_err() {
                return;
            }
        }
        drop(said.send((worker, None)).await);
    });
    say(&mut orders, &setup.task(worker, workers)).await.context("telling a worker its task")?;
    Ok(Worker { child, orders })
}

async fn say(to: &mut ChildStdin, what: &impl serde::Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    Ok(to.flush().await?)
}

/// Runs it. Also says when it began.
///
/// # Errors
/// Where it could not begin. What goes wrong later is in [`Gathered::broken`].
pub async fn run(setup: &Setup) -> Result<(u64, Gathered)> {
    let workers = setup.workers().map_err(anyhow::Error::msg)?;
    let (said, mut hears) = mpsc::channel(256);
    let mut crew = Vec::new();
    for worker in 0..workers {
        crew.push(start(setup, worker, workers, said.clone()).await?);
    }
    drop(said);
    let mut interrupts = Interrupts::new()?;

    let ready_by = Instant::now() + READY_WITHIN;
    let mut ready = 0;
    while ready < workers {
        tokio::select! {
            heard = hears.recv() => match heard {
                Some((_, Some(Frame::Ready {}))) => ready += 1,
                Some((worker, Some(Frame::Broken(why)))) => bail!("worker {worker}: {why}"),
                Some((worker, None)) => bail!("worker {worker} ended before the run began"),
                _ => bail!("the workers ended before the run began"),
            },
            () = interrupts.next() => bail!("interrupted before the run began"),
            () = sleep_until(ready_by) => bail!("the users were not made within {} s", READY_WITHIN.as_secs()),
        }
    }
    let earliest = unix_ms() + HEADWAY_MS;
    let begin = match setup.start_unix_ms {
        Some(agreed) if agreed < earliest => {
            bail!("--start-at: all was ready only {} ms after that; agree on a later time", earliest - agreed)
        }
        Some(agreed) => agreed,
        None => earliest,
    };
    for worker in &mut crew {
        say(&mut worker.orders, &Order::Begin(begin)).await.context("a worker ended before the run began")?;
    }
    let lasts = Duration::from_millis(u64::from(setup.profile.lasts_ms()) + begin.saturating_sub(unix_ms()));
    let mut gathered = Gathered::default();
    gather(&mut gathered, setup, &mut crew, &mut hears, &mut interrupts, Instant::now() + lasts + GRACE)
        .await;
    for mut worker in crew {
        drop(worker.orders);
        // Its last word is said; an end by force does no harm.
        if tokio::time::timeout(Duration::from_secs(2), worker.child.wait()).await.is_err() {
            drop(worker.child.kill().await);
        }
    }
    Ok((begin, gathered))
}

async fn gather(
    gathered: &mut Gathered,
    setup: &Setup,
    crew: &mut [Worker],
    hears: &mut mpsc::Receiver<Said>,
    interrupts: &mut Interrupts,
    end_by: Instant,
) {
    let workers = u16::try_from(crew.len()).unwrap_or(u16::MAX);
    let mut progress = Progress::new(setup.profile.lasts_ms() / 1000);
    // How many workers have told of a second, of those of which not all have.
    let mut told = std::collections::BTreeMap::<u32, u16>::new();
    let mut ended = vec![false; crew.len()];
    loop {
        tokio::select! {
            heard = hears.recv() => match heard {
                Some((_, Some(Frame::Second { at, second, wait, entry }))) => {
                    let mut all = no_latencies();
                    for (to, text) in [(&mut gathered.wait, wait), (&mut gathered.entry, entry)] {
                        if let Some(latencies) = unpack(&text) {
                            add(to, &latencies);
                            add(&mut all, &latencies);
                        }
                    }
                    gathered.add_second(at as usize, &second, &all);
                    let by = told.entry(at).or_default();
                    *by += 1;
                    if *by == workers {
                        told.remove(&at);
                        let (second, latencies) = &gathered.seconds[at as usize];
                        progress.second(at, second, latencies);
                    }
                }
                Some((worker, Some(Frame::Stories(columns)))) => match columns.stories() {
                    Some(mut stories) => gathered.stories.append(&mut stories),
                    None => gathered.broken.push(format!("worker {worker} told damaged stories")),
                },
                Some((worker, Some(Frame::End { lasted_ms, due, counters, failures }))) => {
                    ended[usize::from(worker)] = true;
                    gathered.lasted_ms = gathered.lasted_ms.max(lasted_ms);
                    gathered.add_due(&due);
                    gathered.add_counters(&counters);
                    gathered.add_failures(&failures);
                }
                Some((worker, Some(Frame::Broken(why)))) => {
                    gathered.broken.push(format!("worker {worker}: {why}"));
                }
                Some((_, Some(Frame::Ready {}))) => {}
                Some((worker, None)) => {
                    if !ended[usize::from(worker)] {
                        gathered.broken.push(format!("worker {worker} died"));
                        progress.say(&format!("worker {worker} died; ending the run"));
                        end(crew).await;
                    }
                }
                None => break,
            },
            () = interrupts.next() => {
                gathered.interrupted = true;
                progress.say("ending the run; the report follows");
                end(crew).await;
            }
            () = sleep_until(end_by) => {
                gathered.broken.push("workers did not end in time".to_owned());
                break;
            }
        }
    }
    progress.done();
    if gathered.wait.is_empty() && gathered.failures.is_empty() && !gathered.interrupted {
        gathered.broken.push("not one call was made".to_owned());
    }
    if gathered.lasted_ms == 0 {
        gathered.lasted_ms = u32::try_from(gathered.seconds.len()).unwrap_or(0).saturating_mul(1000);
    }
}

/// Tells all workers to end. Those that can't hear it any more have.
async fn end(crew: &mut [Worker]) {
    for worker in crew {
        drop(say(&mut worker.orders, &Order::End).await);
    }
}

/// Ctrl-C, and a supervisor's SIGTERM.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
