//! What the doctor found: a table on a terminal, and lines with tabs in a pipe.
//!
//! Invariant: texts of servers are escaped, so that they can neither control the terminal nor add a column or a line.

use std::fmt::Write as _;

/// Where something was found that does not depend on the store.
pub(super) const CONFIG: &str = "configuration";
pub(super) const MACHINE: &str = "this machine";

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing to do.
    Ok,
    /// It could not be looked at, or depends on something that the doctor cannot know.
    Unknown,
    /// Dangerous.
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Problem => "problem",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug)]
struct Finding {
    state: State,
    place: String,
    found: String,
    /// Why it matters.
    why: &'static str,
    /// What to do.
    advice: &'static str,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Report(Vec<Finding>);

/// What is done about something that is as it should be.
const NOTHING: &str = "nothing to do";

impl Report {
    /// Something is as it should be.
    pub(super) fn ok(&mut self, place: &str, found: impl Into<String>, why: &'static str) {
        self.add(State::Ok, place, found.into(), why, NOTHING);
    }

    /// Something is not known.
    pub(super) fn unknown(
        &mut self,
        place: &str,
        found: impl Into<String>,
        why: &'static str,
        advice: &'static str,
    ) {
        self.add(State::Unknown, place, found.into(), why, advice);
    }

    /// Something is dangerous.
    pub(super) fn problem(
        &mut self,
        place: &str,
        found: impl Into<String>,
        why: &'static str,
        advice: &'static str,
    ) {
        self.add(State::Problem, place, found.into(), why, advice);
    }

    /// Something is dangerous, unless `right`.
    pub(super) fn judge(
        &mut self,
        right: bool,
        place: &str,
        found: impl Into<String>,
        why: &'static str,
        advice: &'static str,
    ) {
        let (state, advice) = if right { (State::Ok, NOTHING) } else { (State::Problem, advice) };
        self.add(state, place, found.into(), why, advice);
    }

    fn add(&mut self, state: State, place: &str, found: String, why: &'static str, advice: &'static str) {
        let clean = |text: &str| -> String {
            text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
        };
        self.0.push(Finding { state, place: clean(place), found: clean(&found), why, advice });
    }

    /// How many problems there are.
    pub(super) fn problems(&self) -> usize {
        self.0.iter().filter(|finding| finding.state == State::Problem).count()
    }

    /// The report. `pretty` is for a terminal; otherwise there is a heading, and each line has state, place, what was found, why it matters, and
    /// what to do, with tabs between them.
    pub(super) fn text(&self, pretty: bool) -> String {
        let mut out = String::new();
        if !pretty {
            out.push_str("STATE\tWHERE\tFOUND\tWHY\tTO DO\n");
            for Finding { state, place, found, why, advice } in &self.0 {
                let written = writeln!(out, "{}\t{place}\t{found}\t{why}\t{advice}", state.word());
                debug_assert!(written.is_ok(), "writing to a String does not fail");
            }
            return out;
        }
        let width = self.0.iter().map(|finding| finding.place.chars().count()).max().unwrap_or(0).max(5);
        out.push_str(&format!("{:7}  {:width$}  FOUND\n", "STATE", "WHERE"));
        for Finding { state, place, found, why, advice } in &self.0 {
            out.push_str(&format!("{:7}  {place:width$}  {found}\n", state.word()));
            if *state != State::Ok {
                out.push_str(&format!("{:7}  {:width$}    why:   {why}\n", "", ""));
                out.push_str(&format!("{:7}  {:width$}    to do: {advice}\n", "", ""));
            }
        }
        let problems = self.problems();
        out.push_str(&match problems {
            0 => "\nno problems\n".to_owned(),
            1 => "\n1 problem\n".to_owned(),
            some => format!("\n{some} problems\n"),
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_lines_and_a_terminal_a_table() {
        let mut report = Report::default();
        report.ok("redis", "version 7.0.15", "scripts need Redis 7");
        report.judge(false, "redis 10.0.0.1:6379", "no\treplica\n\u{1b}[2J", "it may die", "add one");
        report.unknown("x", "not asked", "it matters", "ask");
        assert_eq!(report.problems(), 1);
        let lines = report.text(false);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "STATE\tWHERE\tFOUND\tWHY\tTO DO",
                "ok\tredis\tversion 7.0.15\tscripts need Redis 7\tnothing to do",
                "problem\tredis 10.0.0.1:6379\tno replica  [2J\tit may die\tadd one",
                "unknown\tx\tnot asked\tit matters\task",
            ]
        );
        let table = report.text(true);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "STATE    WHERE                FOUND");
        assert_eq!(lines[1], "ok       redis                version 7.0.15");
        assert_eq!(lines[2], "problem  redis 10.0.0.1:6379  no replica  [2J");
        assert_eq!(lines[3].trim(), "why:   it may die");
        assert_eq!(lines[4].trim(), "to do: add one");
        assert_eq!(lines.last(), Some(&"1 problem"));
    }
}
