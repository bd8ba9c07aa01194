//! Progress of the run. On a terminal it is one line that is redrawn each second; in a pipe it is a line every few
//! seconds.
//!
//! It goes to standard error, so that standard output holds only the result.

use std::io::{IsTerminal as _, Write as _};

use crate::{frame::Latencies, report::Second};

/// In a pipe, seconds between two lines.
const EVERY: u32 = 5;

/// Shows the progress.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    lasts_s: u32,
    entered: u64,
    drawn: bool,
}

impl Progress {
    /// For a run of the planned duration, seconds.
    #[must_use]
    pub fn new(lasts_s: u32) -> Self {
        Self { terminal: std::io::stderr().is_terminal(), lasts_s, entered: 0, drawn: false }
    }

    /// Shows the second that has ended.
    pub fn second(&mut self, at: u32, second: &Second, latencies: &Latencies) {
        self.entered += u64::from(second.entered);
        let line = line(at + 1, self.lasts_s, second, latencies, self.entered);
        let mut err = std::io::stderr().lock();
        // A rehearsal continues even if its progress cannot be shown.
        if self.terminal {
            drop(write!(err, "\r\x1b[2K{line}"));
            drop(err.flush());
            self.drawn = true;
        } else if (at + 1).is_multiple_of(EVERY) {
            drop(writeln!(err, "{line}"));
        }
    }

    /// Shows a message between two lines of progress.
    pub fn message(&mut self, what: &str) {
        self.done();
        drop(writeln!(std::io::stderr().lock(), "{what}"));
    }

    /// Ends the line of progress.
    pub fn done(&mut self) {
        if std::mem::take(&mut self.drawn) {
            drop(writeln!(std::io::stderr().lock()));
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn line(at: u32, lasts_s: u32, second: &Second, latencies: &Latencies, entered: u64) -> String {
    let p95 = if latencies.is_empty() { 0.0 } else { latencies.value_at_quantile(0.95) as f64 / 1000.0 };
    let total = lasts_s.max(at);
    let mut line = format!(
        "{at:>4}/{total} s  {} users ({} waiting)  {} calls/s  p95 {p95:.1} ms  {entered} entered  lag {} ms",
        second.users,
        second.waiting,
        second.wait_calls + second.entry_calls,
        second.lag_us / 1000,
    );
    if second.streams > 0 {
        line.push_str(&format!("  {} streams", second.streams));
    }
    if second.errors > 0 {
        line.push_str(&format!("  {} errors", second.errors));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::no_latencies;

    #[test]
    fn a_line_shows_the_second() {
        let second =
            Second { users: 9, waiting: 4, wait_calls: 2, entry_calls: 3, lag_us: 1500, ..Second::default() };
        let said = line(7, 60, &second, &no_latencies(), 11);
        assert_eq!(said, "   7/60 s  9 users (4 waiting)  5 calls/s  p95 0.0 ms  11 entered  lag 1 ms");
    }
}
