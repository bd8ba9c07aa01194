//! The command line of `loadgen`.
//!
//! Invariants: an invalid command line gives one line on standard error and exit code 2; none at all gives the list of the commands,
//! and the same exit code. Any other exit code is that of the
//! verdict ([`crate::exit::TABLE`]).

use std::{
    ffi::OsString,
    io::Write as _,
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::{Args, Parser, Subcommand, error::ErrorKind};
use rustix::process::Signal;
use shown::{stdout, without_quoted_secrets};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    amount, clock, conclusion,
    exit::{self, Exit},
    file, find,
    gather::Gathered,
    html, identity, profile, promise_checks,
    report::{Plan, Report},
    rules,
    run::{self, Interrupted, Interrupts, Setup},
    sale,
    same_file::FileId,
    slo::Slo,
    summary,
    target::{self, Resolved, Way},
    tls::{self, Trust},
    worker,
};

/// The default number of connections that all users share.
const CONNECTIONS: usize = 2000;
/// The same with HTTP/2.
const HTTP2_CONNECTIONS: usize = 20;
/// Seconds of the Unix clock from which on a start is a mistake: those of the year 5138, and those of 1973 in milliseconds.
const LATEST_S: u64 = 100_000_000_000;
/// The largest number of source addresses.
const SOURCES: u32 = 4096;

/// Rehearses a burst against a waiting room and judges what its users saw.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, after_help = exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a rehearsal
    #[command(after_help = exit::help())]
    Run(Box<Run>),
    /// Search for the largest load within the objectives, by rehearsals with more and more users
    #[command(after_help = exit::help())]
    Find(Box<Find>),
    /// List the built-in profiles
    Profiles,
    /// Merge the runs of several machines that rehearsed together into one report
    #[command(after_help = exit::help())]
    Merge(Merge),
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Args)]
struct Run {
    /// Address of the waiting room, such as http://127.0.0.1:8080 or https://shop.example
    #[arg(long, value_name = "URL")]
    target: String,
    #[command(flatten)]
    way: WayArgs,
    /// Zone to rehearse
    #[arg(long)]
    zone: String,
    /// Built-in profile (see `loadgen profiles`) or a TOML file; `sale` needs an event ahead
    #[arg(long, default_value = "burst-600k", value_name = "NAME|FILE")]
    profile: String,
    /// Largest number of users, instead of the profile's, such as 20000 or 300k
    #[arg(long, conflicts_with = "scale", value_parser = amount::users)]
    users: Option<u32>,
    /// Multiply the profile's number of users by this factor, such as 0.02 or 2%
    #[arg(long, value_name = "FACTOR", value_parser = amount::part)]
    scale: Option<f64>,
    /// Share of users who leave while they wait, such as 0.35 or 35%
    #[arg(long, value_name = "PART", value_parser = amount::part)]
    abandon: Option<f64>,
    /// Share of users who stop polling once, for as long as the profile says
    #[arg(long, value_name = "PART", value_parser = amount::part)]
    naps: Option<f64>,
    /// Share of users who ask again after they entered
    #[arg(long, value_name = "PART", value_parser = amount::part)]
    repeat: Option<f64>,
    /// Share of users who listen to a stream of events instead of polling, such as 0.5
    #[arg(long, value_name = "PART", value_parser = amount::part)]
    stream_share: Option<f64>,
    /// Source address, or a range such as 127.0.0.2-127.0.0.20
    #[arg(long, value_name = "FROM-TO", value_parser = sources)]
    sources: Option<Sources>,
    /// Number of connections that all users share: 2,000, with HTTP/2 20
    #[arg(long)]
    connections: Option<usize>,
    /// Number of worker processes, instead of one per core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Start at this time, the same on all machines: RFC 3339, or seconds of the Unix clock
    #[arg(long, value_name = "TIME", value_parser = start_at)]
    start_at: Option<u64>,
    /// The zone's limit of entries per minute, or its event's in a sale, which the checks use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    admit_per_minute: Option<u32>,
    /// The zone's number of sub-windows per minute
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    sub_windows: u32,
    /// The zone's idle timeout in seconds, which the checks use
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    idle_timeout: u32,
    #[command(flatten)]
    out: Out,
}

#[derive(Debug, Args)]
struct WayArgs {
    /// Trust only the authorities in this file of certificates (PEM), for https
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Do not verify the certificate, for https
    #[arg(long)]
    insecure: bool,
    /// Address of the target's host, such as shop.example:443:10.0.0.7
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    resolve: Vec<Resolved>,
    /// Call over HTTP/2: agreed by ALPN for https, expected to be known for http
    #[arg(long)]
    http2: bool,
    /// Header of each call, such as 'X-Rehearsal: yes'; may be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
}

/// The most bytes of the file of --ca.
const MAX_AUTHORITIES: u64 = 4 << 20;

impl WayArgs {
    fn read(self) -> Result<Way> {
        let trust = match &self.ca {
            _ if self.insecure => Trust::Anybody,
            Some(path) => {
                let bytes = shown::file::bytes(path, MAX_AUTHORITIES)
                    .with_context(|| format!("--ca {}", path.display()))?;
                // What is no text has no certificate either.
                let pem = String::from_utf8_lossy(&bytes).into_owned();
                tls::of_file(&pem).map_err(|why| anyhow!("--ca {}: {why}", path.display()))?;
                Trust::Authorities(pem)
            }
            None => Trust::System,
        };
        let headers = self.header.iter().map(|text| header(text)).collect::<Result<_>>()?;
        Ok(Way { trust, resolve: self.resolve, headers, http2: self.http2 })
    }
}

/// Reads `NAME: VALUE`. An error does not show the text, because it may be secret.
fn header(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once(':').context("--header: write NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Debug, Args)]
struct Find {
    /// Number of users of the first rehearsal
    #[arg(long, value_name = "USERS", default_value_t = 1_000, value_parser = amount::users)]
    from: u32,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Args)]
struct Merge {
    /// JSON files of the runs
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    out: Out,
}

#[derive(Debug, Args)]
struct Out {
    /// Write the run with its verdict as JSON to this file, or to standard output with `-`; `loadgen merge` reads it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as HTML to this file, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Objective, such as p95=36ms, entry:p95=20ms (of one call), errors=0.1%, slot-use=97%, eta-error=10% or
    /// eta-coverage=88-92%; may be repeated
    #[arg(long, value_name = "NAME=LIMIT")]
    slo: Vec<Slo>,
}

impl Out {
    /// Fails before the run if a report cannot be written, or if it would replace the other one or something that the command reads.
    /// `inputs` has what to call each of those, and its path.
    fn check(&self, inputs: &[(String, &Path)]) -> Result<()> {
        let known = inputs.iter().filter_map(|(name, path)| Some((FileId::at(path)?, name.clone())));
        let mut taken: Vec<(FileId, String)> = known.collect();
        let mut new = NewFiles::default();
        let files = self.files().filter(|(_, path)| !file::is_standard_output(path));
        if self.files().count() - files.clone().count() > 1 {
            bail!("--html -: would replace --json -; name another file");
        }
        if let Some((option, _)) = self.files().find(|(_, path)| file::is_standard_output(path)) {
            check_open().with_context(|| format!("{option} -"))?;
        }
        for (option, path) in files {
            let name = path.display();
            let is_new = !path.exists();
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let metadata =
                opened.and_then(|file| file.metadata()).with_context(|| format!("{option} {name}"))?;
            if is_new {
                new.0.push(path.canonicalize()?);
            }
            // Nothing is replaced in a device or a pipe, such as /dev/null.
            if !metadata.is_file() {
                continue;
            }
            let id = FileId::from(&metadata);
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == id) {
                bail!("{option} {name}: would replace {other}; name another file");
            }
            taken.push((id, format!("{option} {name}")));
        }
        Ok(())
    }

    /// The files to write, with their options.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> + Clone {
        [("--json", &self.json), ("--html", &self.html)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// Prints what people read: on standard error if a report takes standard output.
    fn say(&self, text: &str) -> Result<()> {
        if self.files().any(|(_, path)| file::is_standard_output(path)) {
            std::io::stderr().lock().write_all(text.as_bytes()).context("standard error")
        } else {
            print(text)
        }
    }
}

/// Files that were made only to see whether they can be. They do not stay, because no report may follow. A link to one does.
#[derive(Debug, Default)]
struct NewFiles(Vec<PathBuf>);

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            drop(std::fs::remove_file(path));
        }
    }
}

#[derive(Clone, Debug)]
struct Sources(Vec<IpAddr>);

fn sources(text: &str) -> Result<Sources, String> {
    let address = |text: &str| {
        text.trim().parse::<IpAddr>().map_err(|_| {
        format!("{text} is not an IP address; write one of this machine, such as 127.0.0.2, or a range such as 127.0.0.2-127.0.0.20")
    })
    };
    let Some((from, to)) = text.split_once('-') else { return Ok(Sources(vec![address(text)?])) };
    let (IpAddr::V4(from), IpAddr::V4(to)) = (address(from)?, address(to)?) else {
        return Err("only IPv4 addresses can form a range".to_owned());
    };
    let (from, to) = (u32::from(from), u32::from(to));
    if from > to || to - from >= SOURCES {
        return Err(format!("a range must go up and have at most {SOURCES} addresses"));
    }
    Ok(Sources((from..=to).map(|address| IpAddr::V4(address.into())).collect()))
}

/// Fails if this machine cannot call from an address.
fn is_here(source: &IpAddr) -> Result<()> {
    match UdpSocket::bind((*source, 0)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => bail!(
            "--sources {source}: this machine has no such address; give some of its own, such as 127.0.0.2 for a server on it"
        ),
        Err(error) => Err(error).with_context(|| format!("--sources {source}")),
    }
}

/// Reads RFC 3339 or seconds of the Unix clock; returns milliseconds of the Unix clock.
fn start_at(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        if seconds >= LATEST_S {
            return Err(
                "is later than the year 5000; write seconds of the Unix clock, not milliseconds".to_owned()
            );
        }
        return seconds.checked_mul(1000).ok_or_else(|| "is too far in the future".to_owned());
    }
    let time = text.parse::<jiff::Timestamp>().ok();
    time.and_then(|time| u64::try_from(time.as_millisecond()).ok())
        .ok_or_else(|| "write it like 2026-05-01T19:00:00+09:00, or as seconds of the Unix clock".to_owned())
}

/// Fails if the start is over at `now_ms`. Both are milliseconds of the Unix clock.
fn ahead(start_ms: u64, now_ms: u64) -> Result<(), String> {
    if start_ms > now_ms {
        return Ok(());
    }
    let [start, now] = [start_ms, now_ms].map(clock::instant);
    Err(format!(
        "--start-at {start}: is in the past; it is {now} now. Give a time at which all machines are ready"
    ))
}

/// Runs the command.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    if let Err(error) = outlive_full_files() {
        return refuse(&format!("signals cannot be handled: {error}"));
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return match check_open().and_then(|()| print(&error.to_string())) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => refuse(&format!("{error:#}")),
            };
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // The list of commands, without the options and the exit codes of the whole help.
            let help = error.to_string();
            let short = help.split("\n\nOptions:").next().unwrap_or(&help);
            return refuse(&format!("give a command\n\n{short}\n\n`loadgen COMMAND --help` describes one"));
        }
        Err(error) => {
            // Clap writes several lines. The first has all the facts, unless it ends before a list of missing arguments.
            let text = error.to_string();
            let mut lines =
                text.lines().map(str::trim).take_while(|line| !line.is_empty() && !line.starts_with("Usage"));
            let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            let message = lines.fold(first, |message, line| format!("{message} {line}"));
            let message = without_quoted_secrets(message, &error);
            return refuse(&match error.kind() {
                ErrorKind::InvalidSubcommand => {
                    format!("{message}; the commands are run, find, profiles and merge")
                }
                ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument => {
                    format!("{message}; `loadgen COMMAND --help` describes the options")
                }
                ErrorKind::ValueValidation => {
                    message.replace("invalid digit found in string", "write a whole number, as in 300000")
                }
                _ => message,
            });
        }
    };
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            let code = refuse(&format!("{error:#}").replace('\n', " "));
            if error.is::<Interrupted>() { Exit::Interrupted.into() } else { code }
        }
    }
}

/// Fails if what goes to standard output would be lost. A verdict is an exit code, too, and needs none.
fn check_open() -> Result<()> {
    ensure!(
        !stdout::was_closed(),
        "standard output is closed; leave it open, or send it to a file or /dev/null"
    );
    Ok(())
}

/// Prints to standard output.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

fn refuse(why: &str) -> ExitCode {
    drop(writeln!(std::io::stderr().lock(), "loadgen: {why}"));
    Exit::Failed.into()
}

fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(run) => rehearse(*run),
        Command::Find(find) => search(*find),
        Command::Profiles => {
            let profiles = profile::builtin();
            let lines = profiles.iter().map(|profile| format!("{:<12} {}\n", profile.name, profile.meaning));
            check_open()?;
            print(&lines.collect::<String>())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Merge(merge) => {
            let runs = file::read_all(&merge.files)?;
            let named = |path: &PathBuf| format!("{}, which is to be merged", path.display());
            let inputs: Vec<_> = merge.files.iter().map(|path| (named(path), path.as_path())).collect();
            merge.out.check(&inputs)?;
            let (plan, gathered) = file::merge(runs)?;
            conclude(&gathered.report(plan, &merge.out.slo), &gathered, &merge.out)
        }
        Command::Worker => worker::main().map(|()| ExitCode::SUCCESS),
    }
}

/// A command line that was checked.
struct Prepared {
    /// The target, as it was written.
    url: String,
    setup: Setup,
    /// Other machines start at the same time.
    is_part: bool,
    admit_per_minute: Option<u32>,
    /// How many people may be inside, by the published rule.
    inside_at_most: Option<u32>,
    sub_windows: u32,
    idle_s: u32,
    out: Out,
}

impl Prepared {
    /// Checks the command line, and that what it names is there.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn new(run: Run) -> Result<Self> {
        if let Some(start_ms) = run.start_at {
            ahead(start_ms, clock::unix_ms()).map_err(anyhow::Error::msg)?;
        }
        let mut profile = profile::load(&run.profile)?;
        if let Some(users) = run.users {
            profile.users = users;
        }
        if let Some(scale) = run.scale {
            if !(scale > 0.0 && scale <= 1000.0) {
                bail!("--scale {scale}: must be above 0 and at most 1,000");
            }
            profile.users = (f64::from(profile.users) * scale).round() as u32;
        }
        profile.abandon = run.abandon.unwrap_or(profile.abandon);
        profile.naps = run.naps.unwrap_or(profile.naps);
        profile.repeat = run.repeat.unwrap_or(profile.repeat);
        profile.stream_share = run.stream_share.unwrap_or(profile.stream_share);
        profile.check().map_err(|(field, why)| anyhow!("{field}: {why}"))?;
        let mut inputs = Vec::new();
        if profile::builtin().iter().all(|builtin| builtin.name != run.profile) {
            inputs.push((format!("--profile {}", run.profile), Path::new(&run.profile)));
        }
        inputs.extend(run.way.ca.as_deref().map(|path| (format!("--ca {}", path.display()), path)));
        run.out.check(&inputs)?;

        let target = target::parse(&run.target, &run.way.read()?)?;
        if target.tls.as_ref().is_some_and(|tls| tls.trust == Trust::Anybody) {
            writeln!(
                std::io::stderr().lock(),
                "loadgen: WARNING: --insecure: the certificate of {} is not verified, so anybody on the way can read \
                 the calls and answer them",
                target.host
            )?;
        }
        let sources = run.sources.map(|sources| sources.0).unwrap_or_default();
        if let Some(source) = sources.iter().find(|source| source.is_ipv4() != target.address.is_ipv4()) {
            bail!("--sources: {source} cannot reach {}", target.address);
        }
        sources.iter().try_for_each(is_here)?;
        let connections = if target.http2 { HTTP2_CONNECTIONS } else { CONNECTIONS };
        let connections = run.connections.unwrap_or(connections.min(profile.users as usize));
        if connections == 0 {
            bail!("--connections 0: must be at least 1");
        }
        let setup = Setup {
            target,
            zone: run.zone,
            profile,
            connections,
            sources,
            workers: run.workers,
            start_unix_ms: run.start_at,
            seed: run.seed,
            opening: None,
        };
        setup.workers().map_err(anyhow::Error::msg)?;
        Ok(Self {
            url: run.target,
            setup,
            is_part: run.start_at.is_some(),
            admit_per_minute: run.admit_per_minute,
            inside_at_most: None,
            sub_windows: run.sub_windows,
            idle_s: run.idle_timeout,
            out: run.out,
        })
    }

    /// Rehearses with so many users, at most those of the setup. Returns the measurements and their report.
    async fn rehearse(&self, users: u32) -> Result<(Report, Gathered)> {
        let mut setup = self.setup.clone();
        setup.profile.users = users;
        setup.connections = setup.connections.min(users as usize);
        let (start_unix_ms, gathered) = run::run(&setup).await?;
        let plan = Plan {
            streams: setup.streams(),
            target: self.url.clone(),
            zone: setup.zone,
            profile: setup.profile.name.clone(),
            users,
            planned_ms: setup.profile.lasts_ms(),
            abandon: setup.profile.abandon,
            start_unix_ms,
            is_part: self.is_part,
            admit_per_minute: self.admit_per_minute,
            sub_windows: self.sub_windows,
            idle_s: self.idle_s,
            inside_at_most: self.inside_at_most,
            opening: setup.opening,
        };
        Ok((gathered.report(plan, &self.out.slo), gathered))
    }

    async fn check_target(&self) -> Result<(), target::TargetError> {
        identity::check(&self.url, &self.setup).await
    }

    /// Reads in the published rule what is to be known of the time of the run.
    async fn read_rule(&mut self) {
        let Some(rule) = rules::of(&self.setup).await else { return };
        let from_ms = self.setup.start_unix_ms.unwrap_or_else(clock::unix_ms);
        let to_ms = from_ms.saturating_add(self.setup.profile.lasts_ms().into());
        self.inside_at_most = rule.inside_at_most(clock::instant(from_ms), clock::instant(to_ms));
    }

    /// Places the run before the event that is ahead, if its profile has a pre-queue. Says when it begins.
    async fn await_sale(&mut self) -> Result<()> {
        if self.setup.profile.prequeue_s.is_none() {
            return Ok(());
        }
        let ahead = sale::find(&self.setup).await?;
        let said = sale::place(&mut self.setup, &ahead, clock::unix_ms())?;
        Ok(writeln!(std::io::stderr().lock(), "loadgen: {said}")?)
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

/// From now on, a write beyond the limit of a file's size fails, as one to a full disk does. It does not end the process.
fn outlive_full_files() -> std::io::Result<()> {
    // The handler stays when the runtime and what hears of the signal are dropped.
    runtime()?.block_on(async { signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop) })
}

fn rehearse(run: Run) -> Result<ExitCode> {
    let mut prepared = Prepared::new(run)?;
    let (report, gathered) = runtime()?.block_on(async {
        let preparing = async {
            prepared.check_target().await?;
            prepared.await_sale().await?;
            prepared.read_rule().await;
            Ok(())
        };
        Interrupts::new()?.or_before(preparing).await?;
        let opens_ms = prepared.setup.opening.as_ref().map_or(0, |opening| opening.at_ms);
        if let Some(warning) = too_short(prepared.setup.profile.lasts_ms(), opens_ms) {
            writeln!(std::io::stderr().lock(), "loadgen: {warning}")?;
        }
        prepared.rehearse(prepared.setup.profile.users).await
    })?;
    conclude(&report, &gathered, &prepared.out)
}

/// What to say before a run whose verdict stays open however well the room does.
fn too_short(lasts_ms: u32, opens_ms: u32) -> Option<String> {
    let (lasts_s, least_s) = (lasts_ms.saturating_sub(opens_ms) / 1_000, promise_checks::least_run_s());
    let of_it = if opens_ms > 0 { " after the opening" } else { "" };
    (lasts_s < least_s).then(|| {
        format!(
            "this run lasts {lasts_s} s{of_it}, so its verdict cannot be good: the limit of a minute shows only in a run of at least \
             {least_s} s"
        )
    })
}

fn search(find: Find) -> Result<ExitCode> {
    if find.run.start_at.is_some() {
        bail!("--start-at: a search makes several rehearsals");
    }
    let mut prepared = Prepared::new(find.run)?;
    if prepared.setup.profile.prequeue_s.is_some() {
        bail!(
            "--profile {}: a search makes several rehearsals, and an event begins once",
            prepared.setup.profile.name
        );
    }
    let most = prepared.setup.profile.users;
    if find.from > most {
        bail!("--from {}: the profile has {most} users; give more with --users", find.from);
    }
    let (best, said) = runtime()?.block_on(async {
        let preparing = async {
            prepared.check_target().await?;
            prepared.read_rule().await;
            Ok(())
        };
        Interrupts::new()?.or_before(preparing).await?;
        find::search((find.from, most), prepared.idle_s, async |users| prepared.rehearse(users).await).await
    })?;
    let written =
        best.as_ref().map_or(Ok(()), |(report, gathered)| write_files(report, gathered, &prepared.out));
    // What was found is said even if a file cannot be written.
    prepared.out.say(&said)?;
    written?;
    Ok(best.map_or(Exit::Bad, |(report, _)| conclusion::of(&report).exit).into())
}

fn conclude(report: &Report, gathered: &Gathered, out: &Out) -> Result<ExitCode> {
    let written = write_files(report, gathered, out);
    // A long run is not lost because a file cannot be written.
    out.say(&summary::of(report))?;
    written?;
    Ok(conclusion::of(report).exit.into())
}

fn write_files(report: &Report, gathered: &Gathered, out: &Out) -> Result<()> {
    let json = out.json.as_ref().map_or(Ok(()), |path| file::write(path, report, gathered));
    let html = out.html.as_ref().map_or(Ok(()), |path| {
        let page = html::page(report)?;
        if file::is_standard_output(path) {
            return print(&page);
        }
        std::fs::write(path, page).with_context(|| format!("--html {}", path.display()))
    });
    json.and(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_run_that_is_too_short_says_so_before_it_begins() {
        let warning = too_short(13_000, 0).expect("too short");
        assert!(warning.contains("lasts 13 s") && warning.contains("at least 63 s"), "{warning}");
        assert_eq!(too_short(63_000, 0), None);
        let warning = too_short(63_000, 10_000).expect("too short");
        assert!(warning.contains("lasts 53 s after the opening, so"), "{warning}");
        for profile in profile::builtin() {
            assert_eq!(too_short(profile.lasts_ms(), 0), None, "{}", profile.name);
        }
    }

    #[test]
    fn a_start_in_the_past_is_refused_with_the_time_now() {
        let now_ms = 1_700_000_000_500;
        assert_eq!(ahead(now_ms + 1, now_ms), Ok(()));
        for start_ms in [now_ms, 0] {
            let said = ahead(start_ms, now_ms).expect_err("refused");
            assert!(said.contains("is in the past; it is 2023-11-14T22:13:20.5Z now"), "{said}");
        }
        assert!(
            ahead(1_600_000_000_000, now_ms)
                .expect_err("refused")
                .starts_with("--start-at 2020-09-13T12:26:40Z:")
        );
    }

    #[test]
    fn times_are_read() {
        assert_eq!(start_at("1700000000"), Ok(1_700_000_000_000));
        assert_eq!(start_at("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(start_at("2023-11-15T07:13:20+09:00"), Ok(1_700_000_000_000));
        assert_eq!(start_at("2024-02-29T00:00:00Z"), Ok(1_709_164_800_000));
        for wrong in [
            "soon",
            "1700000000000",
            "100000000000",
            "2023-11-14",
            "2023-13-14T22:13:20Z",
            "2023-11-14T22:13:20",
            "-5",
        ] {
            assert!(start_at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sources_are_read() {
        assert_eq!(sources("127.0.0.2-127.0.0.20").expect("sources").0.len(), 19);
        assert_eq!(sources("::1").expect("sources").0.len(), 1);
        for wrong in ["x", "127.0.0.9-127.0.0.2", "10.0.0.0-10.255.0.0", "::1-::2"] {
            assert!(sources(wrong).is_err(), "{wrong}");
        }
    }
}
