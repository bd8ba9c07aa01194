//! The JSON file of a run: the report, and the data that merging needs.
//!
//! ```json
//! {"verdict": {"outcome": "good", …}, "report": …, "second_latencies": ["…", …], "stories": {"user": [0, 1, …], …}}
//! ```
//!
//! `verdict` is [`Verdict`], so that a script finds it; merging ignores it and computes another.
//! `report` is [`Report`], whose fields are documented there. `second_latencies` has a histogram for each second, packed
//! like [`Latency::histogram`](crate::report::Latency::histogram). `stories` has the columns of [`Columns`], `papers` what users fetched of a draw ([`Paper`]). Invariant: a
//! file contains all data that its report was computed from, so the merged report of several machines is exact.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shown::brief;

use crate::{
    columns::Columns,
    conclusion::Verdict,
    frame::{pack, unpack},
    gather::{Gathered, add},
    paper::Paper,
    report::{GENERATOR, Plan, Report, SCHEMA},
    same_file::FileId,
};

/// The most bytes of the file of a run: one that never ends is not read for ever.
const MAX_LEN: u64 = 2 << 30;

/// The largest distance between the starts of machines that rehearsed together, milliseconds.
const TOGETHER_MS: u64 = 1000;

/// The content of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The verdict, computed from the report.
    #[serde(default)]
    pub verdict: Verdict,
    /// The report.
    pub report: Report,
    /// The latencies of each second, packed.
    pub second_latencies: Vec<String>,
    /// The stories.
    pub stories: Columns,
    /// What users fetched of a draw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub papers: Vec<Paper>,
}

/// The path that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// Whether a path stands for standard output.
pub(crate) fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == STANDARD_OUTPUT
}

/// Writes a run to `path`, the value of `--json`, or to standard output.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, report: &Report, gathered: &Gathered) -> Result<()> {
    let run = Run {
        verdict: Verdict::from(report),
        report: report.clone(),
        second_latencies: gathered.seconds.iter().map(|(_, latencies)| pack(latencies)).collect(),
        stories: Columns::of(&gathered.stories),
        papers: gathered.papers.clone(),
    };
    let name = || format!("--json {}", path.display());
    if is_standard_output(path) {
        let mut out = BufWriter::new(std::io::stdout().lock());
        serde_json::to_writer(&mut out, &run).context("standard output")?;
        return writeln!(out).and_then(|()| out.flush()).context("standard output");
    }
    let mut file = BufWriter::new(File::create(path).with_context(name)?);
    serde_json::to_writer(&mut file, &run).with_context(name)?;
    file.flush().with_context(name)
}

/// Reads a run from `path`.
///
/// # Errors
/// If the file cannot be read or holds no run.
pub fn read(path: &Path) -> Result<Run> {
    let name = path.display().to_string();
    let bytes = shown::file::bytes(path, MAX_LEN).with_context(|| name.clone())?;
    parse(&name, &bytes)
}

/// Reads the runs of several machines, each file once.
///
/// # Errors
/// As [`read`], or if a run is there twice: the same file, or the same content under another name. Its users would count twice.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, Run)>> {
    let (mut files, mut contents) = (HashMap::new(), HashMap::new());
    let mut runs = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.display().to_string();
        if let Some(first) = FileId::at(path).and_then(|id| files.insert(id, name.clone())) {
            bail!("{name}: is the same file as {first}; give the run of each machine once");
        }
        let bytes = shown::file::bytes(path, MAX_LEN).with_context(|| name.clone())?;
        if let Some(first) = contents.insert(Sha256::digest(&bytes), name.clone()) {
            bail!("{name}: has the same content as {first}; give the run of each machine once");
        }
        let run = parse(&name, &bytes)?;
        runs.push((name, run));
    }
    Ok(runs)
}

/// Reads a run from the content of the file `name`.
///
/// # Errors
/// If it holds no run.
fn parse(name: &str, bytes: &[u8]) -> Result<Run> {
    let run: Run = serde_json::from_slice(bytes)
        .map_err(|error| anyhow::anyhow!("{name}: not the JSON of a run: {}", brief(&error.to_string())))?;
    ensure!(run.report.schema == SCHEMA, "{name}: schema {} is not {SCHEMA}", run.report.schema);
    Ok(run)
}

/// Merges runs that began at the same time, against the same zone.
///
/// # Errors
/// If they did not rehearse together, or one is damaged.
pub fn merge(runs: Vec<(String, Run)>) -> Result<(Plan, Gathered)> {
    let mut all = Gathered::default();
    let mut plan: Option<Plan> = None;
    let mut workers = 0_u16;
    let is_alone = runs.len() == 1;
    let mut known = HashMap::new();
    for (name, run) in runs {
        let report = run.report;
        for id in &report.runs {
            if let Some(first) = known.insert(id.clone(), name.clone()) {
                bail!(
                    "{name}: has a run that {first} has, too; give the run of each machine once, by itself or merged"
                );
            }
        }
        all.runs.extend(report.runs);
        match &mut plan {
            // A part without the others stays one.
            None => plan = Some(Plan { is_part: report.plan.is_part && is_alone, ..report.plan.clone() }),
            Some(plan) => {
                if plan.zone != report.plan.zone {
                    bail!(
                        "{name}: its zone is {}, the zone of the first file is {}",
                        report.plan.zone,
                        plan.zone
                    );
                }
                let apart = plan.start_unix_ms.abs_diff(report.plan.start_unix_ms);
                ensure!(
                    apart <= TOGETHER_MS,
                    "{name}: began {apart} ms apart from the first file; start all machines together with --start-at"
                );
                agree(&name, plan, &report.plan)?;
                plan.users += report.plan.users;
                plan.streams += report.plan.streams;
                plan.planned_ms = plan.planned_ms.max(report.plan.planned_ms);
                plan.opening = plan.opening.take().or_else(|| report.plan.opening.clone());
                plan.admit_per_minute = plan.admit_per_minute.or(report.plan.admit_per_minute);
                plan.inside_at_most = plan.inside_at_most.or(report.plan.inside_at_most);
            }
        }
        let damaged = || format!("{name}: damaged histogram");
        ensure!(run.second_latencies.len() == report.seconds.len(), damaged());
        for (at, second) in report.seconds.iter().enumerate() {
            let latencies =
                run.second_latencies.get(at).and_then(|text| unpack(text)).with_context(damaged)?;
            all.add_second(at, second, &latencies);
        }
        add(&mut all.wait, &unpack(&report.wait.histogram).with_context(damaged)?);
        add(&mut all.entry, &unpack(&report.entry.histogram).with_context(damaged)?);
        all.add_counters(&report.counters);
        all.add_streams(&report.streams);
        all.add_failures(&report.failures);
        all.lasted_ms = all.lasted_ms.max(report.lasted_ms);
        all.interrupted |= report.interrupted;
        let broken = report.checks.into_iter().filter(|check| check.name == GENERATOR);
        all.broken.extend(broken.map(|check| format!("{name}: {}", check.note.trim_end_matches('.'))));
        // Workers of different machines have the same numbers; renumber them.
        let mut stories = run.stories.stories().with_context(|| format!("{name}: damaged stories"))?;
        let more = stories.iter().map(|story| story.who.0 + 1).max().unwrap_or(0);
        for story in &mut stories {
            story.who.0 = story.who.0.saturating_add(workers);
        }
        let mut papers = run.papers;
        papers.iter_mut().for_each(|paper| paper.who.0 = paper.who.0.saturating_add(workers));
        all.papers.append(&mut papers);
        workers = workers.saturating_add(more);
        all.stories.append(&mut stories);
    }
    let plan = plan.context("no run to merge")?;
    Ok((plan, all))
}

/// Fails if a run was judged by another policy than those before it.
fn agree(name: &str, known: &Plan, own: &Plan) -> Result<()> {
    let limits = known.admit_per_minute.zip(own.admit_per_minute);
    let same = |option: &str, (known, own): (u32, u32)| {
        ensure!(
            known == own,
            "{name}: was run with {option} {own}, and a file before it with {option} {known}; give all machines the same"
        );
        Ok(())
    };
    limits.map_or(Ok(()), |limits| same("--admit-per-minute", limits))?;
    same("--sub-windows", (known.sub_windows, own.sub_windows))?;
    same("--idle-timeout", (known.idle_s, own.idle_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(inside_at_most: Option<u32>) -> Run {
        let report = crate::html::tests::report("", 0);
        let plan = Plan { inside_at_most, ..report.plan.clone() };
        let (second_latencies, stories, papers) = Default::default();
        Run {
            verdict: Verdict::default(),
            report: Report { plan, ..report },
            second_latencies,
            stories,
            papers,
        }
    }

    /// The machines asked the same zone. A machine that could not read its rule knows nothing of it.
    #[test]
    fn the_limit_of_people_inside_is_that_of_any_machine() {
        let merged = |limits: &[Option<u32>]| {
            let runs = limits.iter().map(|&limit| ("a run".to_owned(), run(limit))).collect();
            merge(runs).expect("merged").0.inside_at_most
        };
        assert_eq!(merged(&[None, Some(50)]), Some(50));
        assert_eq!(merged(&[Some(50), None]), Some(50));
        assert_eq!(merged(&[None, None]), None);
    }

    /// Limits are those of the zone, so machines that were told different ones were told wrong ones.
    #[test]
    fn runs_with_different_policies_are_not_merged() {
        let merged = |changes: &[fn(&mut Plan)]| {
            let run = |change: &fn(&mut Plan)| {
                let mut run = run(None);
                change(&mut run.report.plan);
                run
            };
            let runs = changes.iter().enumerate().map(|(i, change)| (format!("{i}.json"), run(change)));
            merge(runs.collect()).map(|(plan, _)| plan)
        };
        for (change, options) in [
            (
                (|plan| plan.admit_per_minute = Some(120)) as fn(&mut Plan),
                ["--admit-per-minute 120", "--admit-per-minute 2000"],
            ),
            (|plan| plan.sub_windows = 20, ["--sub-windows 20", "--sub-windows 10"]),
            (|plan| plan.idle_s = 30, ["--idle-timeout 30", "--idle-timeout 60"]),
        ] {
            let said = merged(&[|_| {}, change]).expect_err("refused").to_string();
            assert!(
                said.starts_with("1.json: ") && options.iter().all(|option| said.contains(option)),
                "{said}"
            );
        }
        // A machine that was told no limit takes that of the others.
        let unknown: fn(&mut Plan) = |plan| plan.admit_per_minute = None;
        let plan = merged(&[unknown, |plan| plan.is_part = true, unknown]).expect("merged");
        assert_eq!((plan.admit_per_minute, plan.is_part), (Some(2_000), false));
        assert!(merged(&[unknown, |_| {}, |plan| plan.admit_per_minute = Some(1)]).is_err());
        // A part without the others does not know their users.
        assert!(merged(&[|plan| plan.is_part = true]).expect("merged").is_part);
    }

    /// However a file was copied or merged before, its users count once.
    #[test]
    fn a_run_is_merged_once() {
        let of = |name: &str, ids: &[&str]| {
            let mut run = run(None);
            run.report.runs = ids.iter().map(|&id| id.to_owned()).collect();
            (name.to_owned(), run)
        };
        let (_, all) = merge(vec![of("ab", &["a", "b"]), of("c", &["c"]), of("old", &[]), of("old 2", &[])])
            .expect("merged");
        assert_eq!(all.runs, ["a", "b", "c"]);
        let said = merge(vec![of("ab", &["a", "b"]), of("b", &["b"])]).expect_err("refused").to_string();
        assert!(said.starts_with("b: has a run that ab has, too"), "{said}");
    }

    #[test]
    fn a_damaged_file_is_not_merged() {
        let refusal = |damage: fn(&mut Run)| {
            let mut run = run(None);
            damage(&mut run);
            merge(vec![("a run".to_owned(), run)]).map(|_| ()).expect_err("refused").to_string()
        };
        assert_eq!(refusal(|run| run.stories.user.push(1)), "a run: damaged stories");
        assert_eq!(refusal(|run| run.stories.end.push(1)), "a run: damaged stories");
        assert_eq!(refusal(|run| run.second_latencies.push(String::new())), "a run: damaged histogram");
    }

    #[test]
    fn a_file_from_before_the_limit_of_people_inside_is_read() {
        let mut json = serde_json::to_value(run(None)).expect("JSON");
        assert!(json["report"]["plan"].get("inside_at_most").is_none());
        json["report"].as_object_mut().expect("an object").remove("gave_no_places");
        let read = parse("old.json", json.to_string().as_bytes()).expect("read");
        assert!(!read.report.gave_no_places && read.report.plan.inside_at_most.is_none());
    }
}
