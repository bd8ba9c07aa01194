//! A worker: one process, one Goose attack, some of the users.
//!
//! Goose starts and stops the users, and runs each as a task of its own whose only transaction is [`User::step`]. Its
//! metrics, reports, controllers and HTTP client stay off: it measures from when a request was sent, not from when it
//! was due, and a client for each user would cost more than all the rest. Measured: 300,000 users of one worker are
//! made within 1 s and weigh 3.3 KB each before they start; at work, 10.6 KB each (100,000 users, 2,000 connections).
//!
//! A user whom Goose tells to go (it takes the latest first) goes when its step is over, so one that sleeps for long
//! goes at the end of the run. Invariant: whatever happens, the last frame is [`Frame::End`] or [`Frame::Broken`].

use std::{
    io::{self, BufRead as _, Write as _},
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use goose::{
    GooseAttack,
    client::GooseClientBuilder,
    config::GooseConfiguration,
    goose::{GooseUser, Scenario, Transaction, TransactionFunction},
    trigger_killswitch,
};
use hyper::{Uri, header::HeaderValue};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::sync::watch;

use crate::{
    clock::ms,
    columns::Columns,
    frame::{Frame, Order, Task, pack},
    profile::starts_us,
    users::{Crowd, User},
    wire,
};

/// Stories in one frame.
const STORIES: usize = 16_384;
/// Threads that users run on; Goose's own loop, which never rests while users start, has the main thread.
const THREADS: usize = 1;
/// Open files besides the connections: pipes, timers, and what the runtime has.
const FILES: usize = 50;
const SECOND_US: u64 = 1_000_000;

/// Works, from the first word on standard input to the last on standard output.
///
/// # Errors
/// Where it can't even say so to its parent.
pub fn main() -> Result<()> {
    let (frames, writer) = writer();
    let worked = (|| {
        // The limit that a shell starts with is far below what connections take.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let task: Task = serde_json::from_str(&line).context("the task")?;
        let files = limit.maximum.unwrap_or(u64::MAX);
        ensure!(
            files >= (task.connections + FILES) as u64,
            "{} connections need more open files than the {files} allowed: raise the hard limit (ulimit -Hn), or say \
             --connections or --workers",
            task.connections
        );
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

/// Writes frames on a thread of its own, since a full pipe must not hold up the users.
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

/// Hears the parent's orders; when its words end, so does the run.
fn listen(orders: watch::Sender<Option<Order>>) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Some(order) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
            orders.send_replace(Some(order));
        }
        orders.send_replace(Some(Order::End));
    });
}

/// Processor time of this process, microseconds.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1000).unwrap_or(0)
}

async fn work(task: Task, frames: mpsc::Sender<Frame>) -> Result<()> {
    let steps = Arc::new(task.profile.share(task.worker.into(), task.workers.into()));
    let (mut users, mut before) = (0_u32, 0);
    for &(after, _) in steps.iter() {
        users += after.saturating_sub(before);
        before = after;
    }
    let path = |path| format!("{}{path}", task.prefix).parse::<Uri>();
    let paths = [path(wire::WAIT)?, path(wire::ENTRY)?];
    let crowd = Arc::new(Crowd::new(&task, paths, HeaderValue::from_str(&task.host)?, users));
    let (orders, ordered) = watch::channel(None);
    listen(orders);

    let attack = attack(&task, &steps, &crowd, &frames, &ordered)?;
    let (over, is_over) = watch::channel(false);
    let seconds = tokio::spawn(seconds(Arc::clone(&crowd), frames.clone(), ordered.clone(), is_over));
    tokio::spawn(end(Arc::clone(&crowd), ordered.clone(), steps.iter().map(|(_, s)| u64::from(*s)).sum()));
    attack.execute().await.map_err(|error| anyhow!("goose: {error}"))?;

    crowd.stop();
    let lasted_ms = ms(crowd.over_us());
    over.send_replace(true);
    seconds.await?;
    let total = crowd.tally.total();
    for stories in total.stories.chunks(STORIES) {
        frames.send(Frame::Stories(Box::new(Columns::of(stories))))?;
    }
    let (due, counters, failures) = (total.due, total.counters, total.failures);
    frames.send(Frame::End { lasted_ms, due, counters, failures })?;
    Ok(())
}

/// The attack: makes the users, waits for the word to begin, and starts and stops them by the plan.
fn attack(
    task: &Task,
    steps: &Arc<Vec<(u32, u32)>>,
    crowd: &Arc<Crowd>,
    frames: &mpsc::Sender<Frame>,
    ordered: &watch::Receiver<Option<Order>>,
) -> Result<GooseAttack> {
    let plan: Vec<_> = steps.iter().map(|(users, seconds)| format!("{users},{seconds}s")).collect();
    let (plan, host) = (plan.join(";"), format!("http://{}", task.host));
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
    let step = transaction(|goose| {
        Box::pin(async move {
            if let Some(user) = goose.get_session_data_mut::<User>() {
                user.step().await;
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
    // The last thing before the first user starts: all users are made.
    let begin = transaction({
        let (frames, ordered, crowd) = (frames.clone(), ordered.clone(), Arc::clone(crowd));
        move |_| {
            let (frames, mut ordered, crowd) = (frames.clone(), ordered.clone(), Arc::clone(&crowd));
            Box::pin(async move {
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
    // One client for all: it is never used, and one for each user would cost more than all the rest.
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

/// Waits for the word to begin, and sets the clock by it; false if the run ends before.
async fn begun(crowd: &Crowd, ordered: &mut watch::Receiver<Option<Order>>) -> bool {
    match ordered.wait_for(Option::is_some).await.map(|order| *order) {
        Ok(Some(Order::Begin(unix_ms))) => {
            crowd.clock.begin_at(unix_ms);
            true
        }
        _ => false,
    }
}

/// Ends the run when the plan has, or when the parent says so.
async fn end(crowd: Arc<Crowd>, mut ordered: watch::Receiver<Option<Order>>, planned_s: u64) {
    if begun(&crowd, &mut ordered).await {
        tokio::select! {
            () = tokio::time::sleep_until(crowd.clock.at(planned_s * SECOND_US)) => {}
            _ = ordered.wait_for(|order| *order == Some(Order::End)) => {}
        }
    }
    // Goose forgets the word if it comes while the run is only about to begin: say it until it is heard.
    loop {
        trigger_killswitch("the run is over");
        crowd.stop();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Tells each second when it is over, the last one when the run is.
async fn seconds(
    crowd: Arc<Crowd>,
    frames: mpsc::Sender<Frame>,
    mut ordered: watch::Receiver<Option<Order>>,
    mut is_over: watch::Receiver<bool>,
) {
    if !begun(&crowd, &mut ordered).await {
        return;
    }
    tokio::time::sleep_until(crowd.clock.at(0)).await;
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
        // While users go home there is nothing to tell.
        if crowd.is_stopping() && crowd.over_us() < due_us - SECOND_US && counts.is_empty() {
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
