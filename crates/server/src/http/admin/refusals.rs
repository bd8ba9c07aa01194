//! What the log says about requests of operators that were refused.
//!
//! Invariants: at most one line each [`EVERY`], however many are refused; no line holds a token.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hyper::StatusCode;
use tokio::time::Instant;

use crate::{access::Caller, http::problem::Problem};

/// How long the log is silent after a line.
const EVERY: Duration = Duration::from_secs(10);

/// Refused requests, as far as the log has not named them.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Unnamed>);

#[derive(Debug, Default)]
struct Unnamed {
    since: Option<Instant>,
    count: u64,
}

impl Refusals {
    /// The guard refused a request from this address.
    pub(in crate::http) fn by_the_guard(&self, from: IpAddr, problem: &Problem) {
        if let Some(unnamed) = self.take(Instant::now()) {
            // The reason may hold a part of the request. A string is quoted in plain lines, and a value in JSON.
            tracing::warn!(
                %from, code = problem.code.name, reason = &*problem.detail, others_not_logged = unnamed,
                "a request to the admin API was refused"
            );
        }
    }

    /// A request of a known caller was answered with `status`.
    pub(super) fn by_role(&self, from: IpAddr, caller: &Caller, status: StatusCode) {
        if status == StatusCode::FORBIDDEN
            && let Some(unnamed) = self.take(Instant::now())
        {
            tracing::warn!(
                %from, name = %caller.name, role = caller.role.as_str(), others_not_logged = unnamed,
                "a request to the admin API was refused: its token's role may not do that"
            );
        }
    }

    /// Counts a refusal. Returns how many were counted before it and not logged, if this one is to be logged.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut unnamed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unnamed.since.is_some_and(|since| now - since < EVERY) {
            unnamed.count += 1;
            return None;
        }
        unnamed.since = Some(now);
        Some(std::mem::take(&mut unnamed.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_line_now_and_then() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let logged: Vec<_> =
            (0..250).filter_map(|at| refusals.take(start + Duration::from_millis(100 * at))).collect();
        assert_eq!(logged, [0, 99, 99]);
    }
}
