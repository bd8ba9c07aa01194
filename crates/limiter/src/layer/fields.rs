//! The header fields of a limit: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! The first two follow
//! [draft-ietf-httpapi-ratelimit-headers](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/):
//! lists of structured fields with one item per policy, as in `"reads";q=100;w=60` and `"reads";r=50;t=30`.
//!
//! Invariant: a client that waits for the given time does not come too early. All times are whole seconds, rounded up.

use std::fmt::Write as _;

use http::{
    HeaderMap,
    header::{HeaderName, HeaderValue, RETRY_AFTER},
};

use crate::{Bandwidth, Decision, Limit, Refill};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const BUDGET: HeaderName = HeaderName::from_static("ratelimit");

/// A limit and its header fields. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Announced {
    limit: Limit,
    /// The capacity of each bandwidth, and the name of its policy as a structured string.
    names: std::sync::Arc<[(u64, Box<str>)]>,
    policy: HeaderValue,
}

impl Announced {
    /// Announces `limit` as `name`. If it has several bandwidths, each is a policy: `name-1`, `name-2`, and so on.
    ///
    /// Characters other than visible ASCII and spaces are left out of the name.
    #[must_use]
    pub fn new(limit: Limit, name: &str) -> Self {
        let bandwidths = limit.bandwidths();
        let mut policy = String::with_capacity(32);
        let mut names = Vec::with_capacity(bandwidths.len());
        for (bandwidth, number) in bandwidths.iter().zip(1..) {
            let name = if bandwidths.len() == 1 { quoted(name) } else { quoted(&format!("{name}-{number}")) };
            let comma = if number == 1 { "" } else { ", " };
            let (quota, window_s) = (bandwidth.capacity(), window_s(bandwidth));
            let written = write!(policy, "{comma}{name};q={quota};w={window_s}");
            debug_assert!(written.is_ok(), "a String takes all");
            names.push((quota, name.into_boxed_str()));
        }
        let policy = HeaderValue::from_str(&policy).expect("names were stripped of what no field may have");
        Self { limit, names: names.into(), policy }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The name of the policy that decided, as a structured string, which is also a JSON string. `None` if the
    /// configuration decided.
    #[must_use]
    pub fn policy_of(&self, decision: &Decision) -> Option<&str> {
        // If two bandwidths have the same capacity, the first one is named.
        let limit = decision.budget()?.limit;
        self.names.iter().find(|(capacity, _)| *capacity == limit).map(|(_, name)| &**name)
    }

    /// Writes the fields for a decision. `t` is the time until the bandwidth is full; for a refusal, the time until the same
    /// ask is allowed, as in `Retry-After`.
    pub fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        headers.insert(POLICY, self.policy.clone());
        let retry_after_s = decision.retry_after_s();
        if let (Some(budget), Some(name)) = (decision.budget(), self.policy_of(decision)) {
            let in_s = retry_after_s.unwrap_or(budget.reset_after_us.div_ceil(1_000_000));
            let text = format!("{name};r={};t={in_s}", budget.remaining);
            headers.insert(BUDGET, HeaderValue::try_from(text).expect("as the policy's, and digits"));
        }
        if let Some(seconds) = retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
}

/// In how many seconds an empty bandwidth is full again.
fn window_s(bandwidth: &Bandwidth) -> u128 {
    let (capacity, tokens) = (u128::from(bandwidth.capacity()), u128::from(bandwidth.tokens()));
    let period_us = bandwidth.period().as_micros();
    let window_us = match bandwidth.refill() {
        Refill::Greedy => (capacity * period_us).div_ceil(tokens),
        Refill::Interval(_) => capacity.div_ceil(tokens) * period_us,
    };
    window_us.div_ceil(1_000_000)
}

/// A structured string. JSON escapes the same characters in the same way.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ') {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Align, Bucket, Budget};

    fn announced(name: &str, bandwidths: &[Bandwidth]) -> Announced {
        Announced::new(Limit::new("limit", bandwidths.iter().copied()).expect("a limit"), name)
    }

    fn told(announced: &Announced, decision: &Decision) -> [Option<String>; 3] {
        let mut headers = HeaderMap::new();
        announced.write(decision, &mut headers);
        ["ratelimit-policy", "ratelimit", "retry-after"]
            .map(|name| headers.get(name).map(|value| value.to_str().expect("text").to_owned()))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn fields_follow_the_draft() {
        let reads = announced("reads", &[Bandwidth::per_minute(100)]);
        let mut bucket = Bucket::new(reads.limit(), 0);
        let policy = "\"reads\";q=100;w=60";
        let half = bucket.ask(reads.limit(), 50, 0);
        assert_eq!(told(&reads, &half), [some(policy), some("\"reads\";r=50;t=30"), None]);
        // 51 of 100 need 0.6 s more, which is rounded up to a second.
        let more = bucket.ask(reads.limit(), 51, 0);
        assert_eq!(told(&reads, &more), [some(policy), some("\"reads\";r=50;t=1"), some("1")]);
        let all = bucket.ask(reads.limit(), 100, 1);
        assert_eq!(told(&reads, &all), [some(policy), some("\"reads\";r=50;t=30"), some("30")]);
        let never = bucket.ask(reads.limit(), 101, 1);
        assert_eq!(told(&reads, &never), [some(policy), some("\"reads\";r=50;t=30"), None]);
        let unknown = Decision::Unknown { allowed: false };
        assert_eq!(told(&reads, &unknown), [some(policy), None, None]);
    }

    #[test]
    fn a_window_is_the_time_to_refill_the_whole_capacity() {
        let day = Duration::from_secs(86_400);
        let several = announced(
            "a\"b\\c\u{e9}\n",
            &[
                Bandwidth::greedy(10, 1, Duration::from_millis(150)),
                Bandwidth::interval(25, 10, Duration::from_secs(60), Align::FirstUse),
                Bandwidth::interval(1_000, 1_000, day, Align::Epoch),
            ],
        );
        let name = r#""a\"b\\c-"#;
        let policy = format!("{name}1\";q=10;w=2, {name}2\";q=25;w=180, {name}3\";q=1000;w=86400");
        let budget = Budget { limit: 25, remaining: 0, reset_after_us: 1 };
        let denied = Decision::Denied { retry_after_us: 59_000_001, budget };
        assert_eq!(
            told(&several, &denied),
            [some(&policy), some(&format!("{name}2\";r=0;t=60")), some("60")]
        );
    }
}
