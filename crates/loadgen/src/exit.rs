//! The exit codes of `loadgen`.
//!
//! Invariant: [`TABLE`] has each code once. The help and the book show its rows; a test compares the book with it.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Each check and objective was observed, and holds.
    Good,
    /// A check or an objective does not hold.
    Bad,
    /// The command line is wrong, or the run itself failed.
    Failed,
    /// Nothing bad was seen, but something was not observed.
    Open,
    /// The run was stopped, and nothing bad was seen until then.
    Interrupted,
}

/// Each ending with its name and its meaning.
pub const TABLE: [(Exit, &str, &str); 5] = [
    (Exit::Good, "good", "Every check and every objective was observed and holds."),
    (Exit::Bad, "bad", "A check or an objective does not hold."),
    (
        Exit::Failed,
        "failed",
        "The command line is wrong, or the run itself failed: it could not begin, a worker died, or a machine was late.",
    ),
    (
        Exit::Open,
        "open",
        "Nothing bad was seen, but a check or an objective was not observed enough. Its sentence says what is missing.",
    ),
    (
        Exit::Interrupted,
        "interrupted",
        "The run was stopped (Ctrl-C, SIGTERM, SIGHUP). Nothing bad was seen until then.",
    ),
];

impl Exit {
    /// The code. Scripts depend on it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Bad => 1,
            Self::Failed => 2,
            Self::Open => 3,
            Self::Interrupted => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The table for `--help`.
#[must_use]
pub fn help() -> String {
    let rows = TABLE.map(|(exit, name, meaning)| format!("  {}  {name:<11}  {meaning}", exit.code()));
    format!("Exit codes:\n{}", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The book's table has the rows of the code, in the same order, and no other row.
    #[test]
    fn the_book_has_the_table_of_exit_codes() {
        // Read when the test runs: an image is built without the book.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/rehearsal.md");
        let book = std::fs::read_to_string(path).expect("the book");
        let table: Vec<_> = book
            .lines()
            .skip_while(|line| !line.starts_with("| exit code "))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(str::to_owned)
            .collect();
        let rows: Vec<_> = TABLE
            .iter()
            .map(|(exit, name, meaning)| format!("| {} | {name} | {meaning} |", exit.code()))
            .collect();
        assert_eq!(table, rows);
        let mut codes = TABLE.map(|(exit, ..)| exit.code()).to_vec();
        codes.dedup();
        assert_eq!(codes, [0, 1, 2, 3, 4]);
    }
}
