//! A worker: one process that runs a Goose attack with a share of the users.
//!
//! Goose starts and stops the users. Each user is a task whose only transaction takes the steps of [`User::step`]. The metrics, reports,
//! controllers and HTTP client of Goose are not used: Goose measures from the sending of a request, not from the time at
//! which it was due, and one client per user would cost more than everything else. Measured: one worker creates 300,000
//! users within 1 s. A user takes 3.3 KB before it starts and 9 to 11 KB at work; nearly all of it is Goose's: a started user
//! is copied into its task. That memory is touched before the run, see `touch_memory`.
//!
//! When Goose stops a user (the latest first), the user ends after its current step, so a user in a long sleep ends with
//! the run. Invariant: the last message is always [`Frame::End`] or [`Frame::Broken`].

use std::{
    io::{self, BufRead as _, Write as _},
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use goose::{
    GooseAttack,
    client::GooseClientBuilder,
    config::GooseConfiguration,
    goose::{GooseUser, Scenario, Transaction, TransactionFunction},
    trigger_killswitch,
};
use hyper::Uri;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::sync::watch;

use crate::{
    clock::ms,
    columns::Columns,
    frame::{Frame, Order, Task, pack},
    profile::{first_end_us, starts_us},
    users::{Crowd, User},
    wire,
};

/// Stories in one message.
const STORIES: usize = 16_384;
/// Papers in one message.
const PAPERS: usize = 64;
/// Threads for the users. Goose's loop has the main thread, because it never rests while users start.
const THREADS: usize = 1;
/// Open files besides the connections: pipes, timers and those of the runtime.
const FILES: usize = 50;
/// What a user takes at work in addition to what Goose allocates before the run, bytes.
const USER_BYTES: usize = 7_000;
/// Memory is touched in blocks of this size, bytes.
const BLOCK_BYTES: usize = 64 * 1024;
const SECOND_US: u64 = 1_000_000;
/// What the parent sets in a worker's environment: its allocator keeps the memory that is freed.
pub(crate) const KEEP_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "-1");

/// Runs the worker: reads its task from standard input and writes messages to standard output.
///
/// # Errors
/// If it cannot send the failure to its parent.
pub fn main() -> Result<()> {
    let (frames, writer) = writer();
    let worked = (|| {
        // The limit that a shell sets is far too low for the connections.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let task: Task = serde_json::from_str(&line).context("the task")?;
        check_files(&task, limit.maximum.unwrap_or(u64::MAX)).map_err(anyhow::Error::msg)?;
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()?
            .block_on(work(task, frames.clone()))
    })();
    if let Err(error) = worked {
        frames.send(Frame::Broken(format!("{error:#}")))?;
    }
    drop(frames);
    writer.join().map_err(|_| anyhow!("the writer panicked"))?
}

/// Checks that the process may open as many files as the connections and streams of the task need.
fn check_files(task: &Task, files: u64) -> Result<(), String> {
    let streams = task.profile.most_streams(task.worker.into(), task.workers.into());
    let needed = (task.connections + streams as usize + FILES) as u64;
    if files >= needed {
        return Ok(());
    }
    let (connections, missing) = (task.connections, needed - files);
    let what = match streams {
        0 => format!("{connections} connections"),
        _ => format!("{streams} streams and {connections} connections"),
    };
    Err(format!(
        "{what} of one process need {needed} open files, {missing} more than the {files} that are allowed; raise the hard limit \
         (ulimit -Hn), give more --workers, or fewer users, --stream-share or --connections"
    ))
}

/// Writes messages on a separate thread, because a full pipe must not hold up the users.
fn writer() -> (mpsc::Sender<Frame>, std::thread::JoinHandle<Result<()>>) {
    let (frames, written) = mpsc::channel::<Frame>();
    let writer = std::thread::spawn(move || {
        for frame in written {
            let mut line = serde_json::to_vec(&frame)?;
            line.push(b'\n');
            let mut out = io::stdout().lock();
            out.write_all(&line)?;
            out.flush()?;
        }
        Ok(())
    });
    (frames, writer)
}

/// Reads the orders of the parent. The end of standard input ends the run.
fn listen(orders: watch::Sender<Option<Order>>) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Some(order) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
            orders.send_replace(Some(order));
        }
        orders.send_replace(Some(Order::End));
    });
}

/// CPU time of this process, microseconds.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1000).unwrap_or(0)
}

/// Takes the memory of `users` from the kernel, and gives it back to the allocator, which keeps it ([`KEEP_MEMORY`]).
///
/// The kernel clears each page when it is used for the first time. In a burst that work would fall into the seconds in
/// which the users start, when the generator and the server need all processors.
fn touch_memory(users: u32) {
    let blocks = (users as usize).saturating_mul(USER_BYTES).div_ceil(BLOCK_BYTES);
    let touched: Vec<_> = (0..blocks).map(|_| std::hint::black_box(vec![1_u8; BLOCK_BYTES])).collect();
    drop(touched);
}

async fn work(task: Task, frames: mpsc::Sender<Frame>) -> Result<()> {
    let steps = Arc::new(task.profile.share(task.worker.into(), task.workers.into()));
    let (mut users, mut before) = (0_u32, 0);
    for &(after, _) in steps.iter() {
        users += after.saturating_sub(before);
        before = after;
    }
    let path = |path| format!("{}{path}", task.target.prefix).parse::<Uri>();
    let paths = [path(wire::WAIT)?, path(wire::ENTRY)?];
    let crowd = Arc::new(Crowd::new(&task, paths, users).map_err(anyhow::Error::msg)?);
    let (orders, ordered) = watch::channel(None);
    listen(orders);

    let attack = attack(&task, &steps, &crowd, users, &frames, &ordered)?;
    let (over, is_over) = watch::channel(false);
    let seconds = tokio::spawn(seconds(Arc::clone(&crowd), frames.clone(), ordered.clone(), is_over));
    tokio::spawn(end(Arc::clone(&crowd), ordered.clone(), steps.iter().map(|(_, s)| u64::from(*s)).sum()));
    attack.execute().await.map_err(|error| anyhow!("goose: {error}"))?;

    crowd.stop();
    let lasted_ms = ms(crowd.run_us());
    over.send_replace(true);
    seconds.await?;
    let total = crowd.tally.total();
    for stories in total.stories.chunks(STORIES) {
        frames.send(Frame::Stories(Box::new(Columns::of(stories))))?;
    }
    for papers in total.papers.chunks(PAPERS) {
        frames.send(Frame::Papers(papers.to_vec()))?;
    }
    let (due, counters, streams, failures) = (total.due, total.counters, total.streams, total.failures);
    frames.send(Frame::End { lasted_ms, due, counters, streams, failures })?;
    Ok(())
}

/// The attack. It creates the users, waits for the order to begin, and starts and stops them by the plan.
fn attack(
    task: &Task,
    steps: &Arc<Vec<(u32, u32)>>,
    crowd: &Arc<Crowd>,
    users: u32,
    frames: &mpsc::Sender<Frame>,
    ordered: &watch::Receiver<Option<Order>>,
) -> Result<GooseAttack> {
    let plan: Vec<_> = steps.iter().map(|(users, seconds)| format!("{users},{seconds}s")).collect();
    let (plan, host) = (plan.join(";"), format!("http://{}", task.target.host));
    let arguments = ["--host", &host, "--test-plan", &plan].into_iter().chain([
        "--no-metrics",
        "--no-telnet",
        "--no-print-metrics",
        "--no-error-summary",
        "-qqq",
    ]);
    let configuration = GooseConfiguration::parse_args_default(&arguments.collect::<Vec<_>>())?;

    let start = transaction({
        let (crowd, steps) = (Arc::clone(crowd), Arc::clone(steps));
        move |goose| {
            let number = u32::try_from(goose.weighted_users_index).unwrap_or(u32::MAX);
            goose.set_session_data(User::new(Arc::clone(&crowd), number, starts_us(&steps, number)));
            Box::pin(async { Ok(()) })
        }
    });
    // Goose ends users between transactions. What it does there costs as much as a tenth of a call, so while the plan ends nobody, a user
    // takes all steps in one transaction.
    let ends_us = first_end_us(steps);
    let step = transaction(move |goose| {
        Box::pin(async move {
            if let Some(user) = goose.get_session_data_mut::<User>() {
                loop {
                    user.step().await;
                    if !user.stays(ends_us) {
                        break;
                    }
                }
            }
            Ok(())
        })
    });
    let finish = transaction(|goose| {
        if let Some(user) = goose.get_session_data_mut::<User>() {
            user.finish();
        }
        Box::pin(async { Ok(()) })
    });
    // Goose runs this before the first user starts, when all users are created.
    let begin = transaction({
        let (frames, ordered, crowd) = (frames.clone(), ordered.clone(), Arc::clone(crowd));
        move |_| {
            let (frames, mut ordered, crowd) = (frames.clone(), ordered.clone(), Arc::clone(&crowd));
            Box::pin(async move {
                touch_memory(users);
                drop(frames.send(Frame::Ready {}));
                if begun(&crowd, &mut ordered).await {
                    tokio::select! {
                        () = tokio::time::sleep_until(crowd.clock.at(0)) => {}
                        _ = ordered.wait_for(|order| *order == Some(Order::End)) => {}
                    }
                }
                Ok(())
            })
        }
    });
    let scenario = Scenario::new("user")
        .register_transaction(start.set_on_start())
        .register_transaction(step)
        .register_transaction(finish.set_on_stop());
    // One shared client. It is never used, and one per user would cost more than everything else.
    let shared = GooseClientBuilder::new().without_cookies();
    Ok(GooseAttack::initialize_with_config(configuration)?
        .set_client_builder_without_cookies(shared)?
        .test_start(begin)
        .register_scenario(scenario))
}

fn transaction<F>(function: F) -> Transaction
where
    F: for<'r> Fn(
            &'r mut GooseUser,
        )
            -> std::pin::Pin<Box<dyn Future<Output = goose::goose::TransactionResult> + Send + 'r>>
        + Send
        + Sync
        + 'static,
{
    let function: TransactionFunction = Arc::new(function);
    Transaction::new(function)
}

/// Waits for the order to begin and sets the clock; false if the run ends before.
async fn begun(crowd: &Crowd, ordered: &mut watch::Receiver<Option<Order>>) -> bool {
    match ordered.wait_for(Option::is_some).await.map(|order| *order) {
        Ok(Some(Order::Begin(unix_ms))) => {
            crowd.clock.begin_at(unix_ms);
            true
        }
        _ => false,
    }
}

/// Ends the run at the planned time, or earlier at the order of the parent.
async fn end(crowd: Arc<Crowd>, mut ordered: watch::Receiver<Option<Order>>, planned_s: u64) {
    if begun(&crowd, &mut ordered).await {
        tokio::select! {
            () = tokio::time::sleep_until(crowd.clock.at(planned_s * SECOND_US)) => {}
            _ = ordered.wait_for(|order| *order == Some(Order::End)) => {}
        }
    }
    // Goose ignores the signal while the run is about to begin, so it is repeated.
    loop {
        trigger_killswitch("the run is over");
        crowd.stop();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Sends each second when it has ended, and the last one at the end of the run.
async fn seconds(
    crowd: Arc<Crowd>,
    frames: mpsc::Sender<Frame>,
    mut ordered: watch::Receiver<Option<Order>>,
    mut is_over: watch::Receiver<bool>,
) {
    if !begun(&crowd, &mut ordered).await {
        return;
    }
    // Somebody may end the run while it waits for its start.
    tokio::select! {
        () = tokio::time::sleep_until(crowd.clock.at(0)) => {}
        _ = is_over.wait_for(|over| *over) => return,
    }
    let mut cpu = cpu_us();
    for at in 0_u32.. {
        let due_us = u64::from(at + 1) * SECOND_US;
        let over = tokio::select! {
            () = tokio::time::sleep_until(crowd.clock.at(due_us)) => false,
            _ = is_over.wait_for(|over| *over) => true,
        };
        if !over && !crowd.is_stopping() {
            crowd.tally.lag(crowd.clock.now_us().saturating_sub(due_us));
        }
        let counts = crowd.tally.second();
        // While the last users end, seconds are empty.
        if crowd.is_stopping() && crowd.run_us() < due_us - SECOND_US && counts.is_empty() {
            if over {
                return;
            }
            continue;
        }
        let (before, mut second) = (std::mem::replace(&mut cpu, cpu_us()), counts.second);
        second.cpu_millicores = u32::try_from((cpu - before) / 1000).unwrap_or(u32::MAX);
        let (wait, entry) = (pack(&counts.wait), pack(&counts.entry));
        if frames.send(Frame::Second { at, second, wait, entry }).is_err() || over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        profile,
        target::{Way, parse},
    };

    #[test]
    fn too_few_open_files_are_named_before_the_run() {
        let mut task = Task {
            target: parse("http://127.0.0.1:1", &Way::default()).expect("a target"),
            zone: "Z".into(),
            profile: profile::load("spike").expect("built in"),
            worker: 1,
            workers: 2,
            connections: 100,
            sources: Vec::new(),
            seed: 1,
            draw: None,
        };
        assert_eq!(check_files(&task, 150), Ok(()));
        assert!(
            check_files(&task, 149).expect_err("refused").contains("1 more than the 149 that are allowed")
        );
        // 5,000 users of this worker, and one who may be replaced.
        task.profile.stream_share = 0.5;
        assert_eq!(check_files(&task, 2_651), Ok(()));
        let said = check_files(&task, 651).expect_err("refused");
        for fact in [
            "2501 streams and 100 connections",
            "2651 open files",
            "2000 more",
            "ulimit -Hn",
            "--stream-share",
        ] {
            assert!(said.contains(fact), "{said}");
        }
    }
}
