//! Profiles: how many users there are at which time, and what they do. A profile is data, built in or from a TOML file.
//!
//! Invariant: a [`Profile`] that [`load`] returns is valid (see [`Profile::check`]).

use serde::{Deserialize, Serialize};
use shown::{
    brief,
    utf8::{self, NotUtf8},
};
use thiserror::Error;

/// What a user does after entering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Starts again as a new user, after a first sleep.
    #[default]
    Anew,
    /// Makes no more calls.
    Stay,
}

/// A profile. Times are in seconds; shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// What it stands for, in a sentence.
    #[serde(default)]
    pub meaning: String,
    /// The largest number of users, 1 to 10 million.
    pub users: u32,
    /// Steps: the duration of each (whole seconds), and the share of the users that is present at its end.
    pub steps: Vec<(u32, f64)>,
    /// How long before the start of a sale people come, seconds: the sum of the first steps. The zone must have an event ahead, and the run
    /// is placed so that the other steps begin with it. None if the zone is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prequeue_s: Option<u32>,
    /// How long a user sleeps before the first call: shortest, longest.
    #[serde(default = "first_sleep")]
    pub first_sleep_s: (f64, f64),
    /// The share of users who leave while they wait.
    #[serde(default)]
    pub abandon: f64,
    /// How long they wait before they leave: shortest, longest.
    #[serde(default = "patience")]
    pub patience_s: (f64, f64),
    /// The share of users who stop polling once and come back.
    #[serde(default)]
    pub naps: f64,
    /// How long they stop, in addition to the polling period: shortest, longest.
    #[serde(default = "nap")]
    pub nap_s: (f64, f64),
    /// The share of users who ask again after entering, as after a lost reply. Without any, nothing shows that nobody
    /// enters twice.
    #[serde(default = "repeat")]
    pub repeat: f64,
    /// The share of users who listen to a stream of events instead of polling.
    #[serde(default)]
    pub stream_share: f64,
    /// What users do after entering.
    #[serde(default)]
    pub then: Then,
}

fn first_sleep() -> (f64, f64) {
    (0.0, 3.0)
}

fn patience() -> (f64, f64) {
    (5.0, 60.0)
}

fn repeat() -> f64 {
    0.05
}

fn nap() -> (f64, f64) {
    (5.0, 40.0)
}

/// Why a profile cannot be loaded.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The name is not built in, and no such file can be read.
    #[error("--profile {file}: {why}; the built-in profiles are {}", names())]
    Unreadable {
        /// The name given.
        file: String,
        /// The reason.
        why: std::io::Error,
    },
    /// The file is not a text.
    #[error("{file}:{at}")]
    NotUtf8 {
        /// The file.
        file: String,
        /// The place.
        at: NotUtf8,
    },
    /// The file holds no valid profile.
    #[error("{file}:{line}: {why}")]
    Wrong {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The field and what is wrong with it.
        why: String,
    },
}

fn names() -> String {
    builtin().into_iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
}

/// The built-in profiles.
#[must_use]
pub fn builtin() -> Vec<Profile> {
    let profile = |name: &str, users, steps: &[(u32, f64)], meaning: &str| Profile {
        name: name.to_owned(),
        meaning: meaning.to_owned(),
        users,
        steps: steps.to_vec(),
        prequeue_s: None,
        first_sleep_s: first_sleep(),
        abandon: 0.0,
        patience_s: patience(),
        naps: 0.0,
        nap_s: nap(),
        repeat: repeat(),
        stream_share: 0.0,
        then: Then::Anew,
    };
    vec![
        profile(
            "burst-600k",
            600_000,
            &[(10, 0.5), (110, 1.0), (30, 1.0), (10, 0.0)],
            "a ticket sale: half of 600,000 users within 10 s, all within 2 min, held for 30 s, gone within 10 s",
        ),
        profile(
            "spike",
            10_000,
            // Entries that follow a burst of a whole minute begin a minute later; the run shows them.
            &[(1, 1.0), (89, 1.0), (5, 0.0)],
            "a push message: 10,000 users within 1 s, held for 90 s",
        ),
        profile(
            "steady",
            10_000,
            &[(30, 1.0), (300, 1.0), (10, 0.0)],
            "an ordinary evening: 10,000 users within 30 s, held for 5 min",
        ),
        Profile {
            prequeue_s: Some(1_800),
            then: Then::Stay,
            ..profile(
                "sale",
                300_000,
                &[(1_740, 0.3), (60, 0.95), (60, 1.0), (240, 1.0), (10, 0.0)],
                "an event: 300,000 users, 30 % in a pre-queue of half an hour, 65 % in its last minute, 5 % in the minute after the \
                 start, held for 4 min; shorter if the event begins sooner",
            )
        },
    ]
}

/// The most bytes of a profile.
const MAX_LEN: u64 = 4 << 20;

/// Returns the built-in profile `name`, or reads the file `name`.
///
/// # Errors
/// If there is none, or it is invalid.
pub fn load(name: &str) -> Result<Profile, ProfileError> {
    if let Some(profile) = builtin().into_iter().find(|profile| profile.name == name) {
        return Ok(profile);
    }
    let bytes = shown::file::bytes(name.as_ref(), MAX_LEN);
    let bytes = bytes.map_err(|why| ProfileError::Unreadable { file: name.to_owned(), why })?;
    let text = utf8::text(bytes).map_err(|at| ProfileError::NotUtf8 { file: name.to_owned(), at })?;
    parse(name, &text)
}

/// Reads the profile in `text`, the content of `file`.
///
/// # Errors
/// If it is invalid.
pub fn parse(file: &str, text: &str) -> Result<Profile, ProfileError> {
    let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let wrong = |line, why| ProfileError::Wrong { file: file.to_owned(), line, why };
    let mut profile: Profile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        // The message does not name the field if its value has the wrong type; the line does.
        let source = text.lines().nth(line - 1).unwrap_or_default();
        let field = source.split_once('=').map(|(field, _)| field.trim());
        let field = field.filter(|field| is_bare(field)).map(|field| format!("{field}: "));
        wrong(line, format!("{}{}", field.unwrap_or_default(), brief(&error.message().replace('\n', ", "))))
    })?;
    if profile.name.is_empty() {
        file.clone_into(&mut profile.name);
    }
    profile.check().map_err(|(field, why)| {
        let at = text.lines().position(|line| line.trim_start().starts_with(field));
        wrong(at.map_or(1, |line| line + 1), format!("{field}: {why}"))
    })?;
    Ok(profile)
}

/// Whether a text is the name of a field as TOML has it without quotes, and not the beginning of something else. The names of all
/// fields are short.
fn is_bare(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.bytes().all(|byte| byte == b'_' || byte == b'-' || byte.is_ascii_alphanumeric())
}

impl Profile {
    /// Checks that it is valid.
    ///
    /// # Errors
    /// The invalid field, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let must = |ok: bool, field, why: &str| if ok { Ok(()) } else { Err((field, why.to_owned())) };
        must((1..=10_000_000).contains(&self.users), "users", "must be 1 to 10,000,000")?;
        must(!self.steps.is_empty(), "steps", "must have at least one step")?;
        must(
            self.steps.iter().all(|(_, part)| (0.0..=1.0).contains(part)),
            "steps",
            "shares must be 0 to 1",
        )?;
        must(self.steps[0].1 > 0.0, "steps", "the first step must end with users")?;
        must(
            (1..=86_400).contains(&self.steps.iter().map(|(s, _)| u64::from(*s)).sum::<u64>()),
            "steps",
            "must take 1 s to a day in total",
        )?;
        if let Some(prequeue_s) = self.prequeue_s {
            must(
                self.before_start().is_some_and(|steps| steps < self.steps.len() - 1),
                "prequeue_s",
                &format!(
                    "must be the sum of the first steps, and at least two steps must follow; {prequeue_s} s is none"
                ),
            )?;
        }
        for (field, part) in [
            ("abandon", self.abandon),
            ("naps", self.naps),
            ("repeat", self.repeat),
            ("stream_share", self.stream_share),
        ] {
            must((0.0..=1.0).contains(&part), field, "must be a share of 1, such as 0.35")?;
        }
        for (field, (from, to)) in
            [("first_sleep_s", self.first_sleep_s), ("patience_s", self.patience_s), ("nap_s", self.nap_s)]
        {
            must(0.0 <= from && from <= to && to <= 86_400.0, field, "must be [from, to], 0 to 86,400 s")?;
        }
        Ok(())
    }

    /// The number of steps of the pre-queue; none if there is none, or it does not end with a step.
    fn before_start(&self) -> Option<usize> {
        let prequeue_s = self.prequeue_s?;
        let mut ends = self.steps.iter().scan(0_u32, |at_s, (seconds, _)| {
            *at_s = at_s.saturating_add(*seconds);
            Some(*at_s)
        });
        ends.position(|end_s| end_s == prequeue_s).map(|last| last + 1)
    }

    /// Shortens the pre-queue to `prequeue_s`, each of its steps by the same factor.
    pub fn shorten_prequeue(&mut self, prequeue_s: u32) {
        let (Some(whole_s), Some(steps)) = (self.prequeue_s, self.before_start()) else { return };
        let (mut was_s, mut is_s) = (0_u64, 0_u64);
        for (seconds, _) in &mut self.steps[..steps] {
            was_s += u64::from(*seconds);
            let end_s = (was_s * u64::from(prequeue_s) / u64::from(whole_s.max(1))).max(is_s);
            *seconds = u32::try_from(end_s - is_s).unwrap_or(u32::MAX);
            is_s = end_s;
        }
        self.prequeue_s = Some(prequeue_s);
    }

    /// How many of the first `users` users listen to streams. A user listens or polls for all of its lives, so this is also the
    /// number of streams that are open at most.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn streams(&self, users: u32) -> u32 {
        (f64::from(users) * self.stream_share) as u32
    }

    /// The largest number of streams that one of `workers` has open at once.
    #[must_use]
    pub fn most_streams(&self, worker: u32, workers: u32) -> u32 {
        // Users who were stopped are replaced by others with other numbers, so the number may be one more.
        let users = self.share(worker, workers).iter().map(|(users, _)| *users).max().unwrap_or(0);
        if self.stream_share > 0.0 { self.streams(users) + 1 } else { 0 }
    }

    /// The duration, milliseconds.
    #[must_use]
    pub fn lasts_ms(&self) -> u32 {
        self.steps.iter().map(|(seconds, _)| seconds).sum::<u32>() * 1000
    }

    /// The steps of one of `workers`: (its users at the end of the step, seconds). The last step ends with no users.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn share(&self, worker: u32, workers: u32) -> Vec<(u32, u32)> {
        let mut steps: Vec<_> = self
            .steps
            .iter()
            .map(|&(seconds, part)| {
                // The first workers get the remainder, so that the shares add up.
                let all = (f64::from(self.users) * part).ceil() as u32;
                (all / workers + u32::from(worker < all % workers), seconds)
            })
            .collect();
        if steps.last().is_some_and(|(users, _)| *users > 0) {
            steps.push((0, 0));
        }
        steps
    }
}

/// When a user starts, microseconds. Users are numbered from 0 in the order in which they start; `steps` are those of
/// [`Profile::share`].
#[must_use]
pub fn starts_us(steps: &[(u32, u32)], number: u32) -> u64 {
    let (mut started, mut before, mut at_s) = (0, 0, 0_u64);
    for &(users, seconds) in steps {
        let more = users.saturating_sub(before);
        if number < started + more {
            let within = u64::from(seconds) * 1_000_000 * u64::from(number - started) / u64::from(more);
            return at_s * 1_000_000 + within;
        }
        (started, before, at_s) = (started + more, users, at_s + u64::from(seconds));
    }
    at_s * 1_000_000
}

/// Before this time, in microseconds, the plan ends no user; `steps` are those of [`Profile::share`].
#[must_use]
pub fn first_end_us(steps: &[(u32, u32)]) -> u64 {
    let (mut before, mut at_s) = (0, 0_u64);
    for &(users, seconds) in steps {
        if users < before {
            return at_s * 1_000_000;
        }
        (before, at_s) = (users, at_s + u64::from(seconds));
    }
    at_s * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_valid_and_the_burst_is_the_published_one() {
        for profile in builtin() {
            assert_eq!(profile.check(), Ok(()));
        }
        let burst = load("burst-600k").expect("built in");
        assert_eq!(burst.lasts_ms(), 160_000);
        assert_eq!(burst.share(0, 1), [(300_000, 10), (600_000, 110), (600_000, 30), (0, 10)]);
    }

    #[test]
    fn shares_add_up() {
        for users in [1_u32, 7, 1000, 12_345] {
            let profile = Profile { users, ..load("burst-600k").expect("built in") };
            let whole = profile.share(0, 1);
            for (step, (all, _)) in whole.iter().enumerate() {
                assert_eq!((0..3).map(|worker| profile.share(worker, 3)[step].0).sum::<u32>(), *all);
            }
        }
    }

    /// The last minute of half an hour is the last 2 s of a minute.
    #[test]
    fn a_pre_queue_is_shortened_evenly_and_must_end_with_a_step() {
        let mut sale = load("sale").expect("built in");
        sale.shorten_prequeue(60);
        assert_eq!(sale.steps, [(58, 0.3), (2, 0.95), (60, 1.0), (240, 1.0), (10, 0.0)]);
        assert_eq!((sale.prequeue_s, sale.check()), (Some(60), Ok(())));
        sale.shorten_prequeue(7);
        assert_eq!((sale.steps[0].0, sale.steps[1].0), (6, 1));
        for wrong in ["prequeue_s = 3", "prequeue_s = 5", "prequeue_s = 0"] {
            let said = parse("p.toml", &format!("users = 10\nsteps = [[2, 0.5], [3, 1.0]]\n{wrong}"));
            let said = said.expect_err("refused").to_string();
            assert!(said.starts_with("p.toml:3: prequeue_s: must be the sum of the first steps"), "{said}");
        }
    }

    #[test]
    fn users_start_evenly_within_their_step() {
        let steps = [(10, 10), (30, 20), (0, 5), (5, 1)];
        assert_eq!(starts_us(&steps, 0), 0);
        assert_eq!(starts_us(&steps, 5), 5_000_000);
        assert_eq!(starts_us(&steps, 10), 10_000_000);
        assert_eq!(starts_us(&steps, 29), 29_000_000);
        assert_eq!(starts_us(&steps, 30), 35_000_000);
    }

    #[test]
    fn the_first_step_with_fewer_users_ends_users() {
        assert_eq!(first_end_us(&[(10, 10), (30, 20), (30, 5), (5, 1), (9, 1)]), 35_000_000);
        assert_eq!(first_end_us(&[(10, 10), (10, 20)]), 30_000_000);
    }

    #[test]
    fn an_invalid_file_is_refused_with_line_and_field() {
        let say = |text: &str| parse("p.toml", text).expect_err("refused").to_string();
        let good = "users = 10\nsteps = [[1, 1.0]]\n";
        assert!(parse("p.toml", good).is_ok());
        assert_eq!(
            say("users = \"x\"\nsteps = []"),
            "p.toml:1: users: invalid type: string \"x\", expected u32"
        );
        assert!(say(&format!("{good}colour = 1")).starts_with("p.toml:3: colour: unknown field `colour`"));
        assert_eq!(
            say(&format!("{good}abandon = 35")),
            "p.toml:3: abandon: must be a share of 1, such as 0.35"
        );
        assert_eq!(say("users = 10\nsteps = [[1, 2.0]]"), "p.toml:2: steps: shares must be 0 to 1");
        assert!(say("steps = [[1, 1.0]]").contains("missing field `users`"));
        assert!(!say("users = ").contains('\n'));
        assert!(load("nosuch").expect_err("refused").to_string().contains("burst-600k, spike, steady, sale"));
    }

    /// Somebody may give any file, such as the report of a run: the error says where and why, and does not print the file.
    #[test]
    fn an_error_shows_little_of_a_long_file() {
        let say = |text: &str| parse("p.toml", text).expect_err("refused").to_string();
        let good = "users = 10\nsteps = [[1, 1.0]]\n";
        let long = "a b=".repeat(5_000);
        let report = format!("{{\"verdict\":{{\"note\":\"{long}\"}}}}");
        assert_eq!(say(&report), "p.toml:1: invalid key-value pair, expected key");
        for (text, begin, end) in [
            (
                format!("users = \"{long}\""),
                "p.toml:1: users: invalid type: string \"a b=a",
                "=\", expected u32",
            ),
            (
                format!("{good}then = \"{long}\""),
                "p.toml:3: then: unknown variant `a b=a",
                "`anew` or `stay`",
            ),
            (format!("{good}\"{long}\" = 1"), "p.toml:3: unknown field `a b=a", "`stream_share`, `then`"),
        ] {
            let said = say(&text);
            assert!(said.starts_with(begin) && said.ends_with(end) && said.len() < 500, "{said}");
        }
    }

    /// An editor finds a byte by its line and column.
    #[test]
    fn a_file_that_is_not_utf_8_is_refused_with_line_and_column() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("p.toml");
        std::fs::write(&path, b"users = 10\n# \xec\x98\xa4 \xff\n").expect("written");
        let said = load(path.to_str().expect("UTF-8")).expect_err("refused").to_string();
        assert_eq!(
            said,
            format!("{}:2: the byte at column 5 is not UTF-8; save the file as UTF-8", path.display())
        );
    }
}
