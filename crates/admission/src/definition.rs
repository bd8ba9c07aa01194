//! A zone's definition: the policy, the notice and the events that its operators set.
//!
//! Invariant: two definitions have the same tag only if they are equal, up to a collision of BLAKE3.

use crate::{Event, Field, Mode, Notice, Phase, Policy, SECOND_FIELDS, Schedule, Stage, instant_text};

/// Everything that operators set for one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// How the zone admits.
    pub policy: Policy,
    /// The text for people who wait. No rule reads it.
    pub notice: Notice,
    /// Its events. They say which policy and notice are in force when: [`Definition::policy_at`].
    pub schedule: Schedule,
}

/// The length of a tag, in hexadecimal digits.
const TAG_LEN: usize = 32;

impl Definition {
    /// Stands before the text of an event where a notice has its language. No language has this name.
    pub const EVENT: &str = "@event";

    /// A strong entity tag: 32 hexadecimal digits (128 bits of BLAKE3 over all fields).
    ///
    /// # Examples
    /// ```
    /// use admission::{Definition, Policy};
    /// let one = Definition::default();
    /// let other = Definition::from(Policy { admit_per_minute: 1, ..Policy::default() });
    /// assert_eq!(one.etag(), Definition::default().etag());
    /// assert_ne!(one.etag(), other.etag());
    /// ```
    #[must_use]
    pub fn etag(&self) -> String {
        let fields = self.policy.used_fields(SECOND_FIELDS).enumerate();
        let part = |(index, field): (usize, &Field)| {
            // A later field may follow any other one, so its name has to be there.
            let name = if index < SECOND_FIELDS { String::new() } else { format!("{}=", field.name) };
            name + &field.text(&self.policy)
        };
        let mut text = fields.map(part).collect::<Vec<_>>().join(" ");
        self.push_texts(&mut text);
        let mut tag = blake3::hash(text.as_bytes()).to_hex().to_string();
        tag.truncate(TAG_LEN);
        tag
    }

    /// Appends the notice and the events to the text of a policy: a language or [`Definition::EVENT`], and the text, each after a tab,
    /// which no text contains. A definition with neither has the same text as in versions that knew neither.
    pub fn push_texts(&self, text: &mut String) {
        for (language, notice) in self.notice.iter() {
            text.extend(["\t", language, "\t", notice]);
        }
        for event in self.schedule.events() {
            text.extend(["\t", Self::EVENT, "\t", &event.text()]);
        }
    }

    /// What is different in `new`, as in `mode auto -> hold`; empty where nothing is.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let pairs = self.policy.fields().into_iter().zip(new.policy.fields());
        let mut changes: Vec<_> = pairs
            .filter(|(old, new)| old != new)
            .map(|((name, old), (_, new))| format!("{name} {old} -> {new}"))
            .collect();
        if self.notice != new.notice {
            changes.push(format!("{} -> {}", self.notice.sentence(), new.notice.sentence()));
        }
        changes.extend(self.schedule.changes(&new.schedule));
        changes
    }

    /// The policy in force at an instant, in seconds since 1970.
    ///
    /// After an event it still has the event's opening, which is over. So the store goes on to tell the time by the clock that opened
    /// the event ([`Snapshot::unix_ms`](crate::Snapshot::unix_ms)), and a wall clock that was set back does not bring the event back.
    #[must_use]
    pub fn policy_at(&self, unix_s: u64) -> Policy {
        let policy = self.schedule.phase(unix_s).policy(&self.policy);
        let over = self.schedule.events().iter().rev().find(|event| u64::from(event.ends.unix_s()) <= unix_s);
        match over {
            Some(event) if policy.opens_at.unix_s == 0 => {
                Policy { opens_at: event.opens_s().into(), ..policy }
            }
            _ => policy,
        }
    }

    /// What contradicts itself at `unix_s` (seconds since 1970), though each part is right: see [`Policy::contradiction`]. Events that are
    /// over count no more.
    #[must_use]
    pub fn contradictions(&self, unix_s: u64) -> Vec<String> {
        let is_ahead = |event: &&Event| event.stage(unix_s) != Stage::Over;
        let mut all: Vec<String> = self.policy.contradiction().into_iter().collect();
        for event in self.schedule.events().iter().filter(is_ahead) {
            let Event { id, begins, ends, .. } = event;
            let what = event.policy(&self.policy).contradiction();
            all.extend(what.filter(|what| !all.contains(what)).map(|what| format!("event {id}: {what}")));
            let opens_at = self.policy.opens_at.unix_s;
            if opens_at > event.opens_s() {
                let from = instant_text(opens_at);
                let who = if opens_at < ends.unix_s() {
                    "nobody enters before"
                } else {
                    "nobody enters, because it ends before"
                };
                all.push(format!(
                    "event {id} begins at {begins}, but {who} opens_at = {from}: the later one opens the zone; take opens_at away, \
                     if that is not meant"
                ));
            }
        }
        let is_to_begin = |event: &&Event| matches!(event.stage(unix_s), Stage::Before | Stage::Prequeue);
        let next = self.schedule.events().iter().find(is_to_begin);
        if let (Some(event), true) = (next, self.policy.mode != Mode::Auto) {
            all.push(format!(
                "mode = {} keeps the events of the zone from beginning, as {}; set mode = auto, and say by `before` and `after` of an event \
                 what applies outside of it",
                self.policy.mode.word(),
                event.id
            ));
        }
        all
    }

    /// What would end at `unix_s` (seconds since 1970) with `new` in its place, though it keeps people out or promises them a start: a hold,
    /// an opening that is still to come, and events that are not over. One text for each.
    #[must_use]
    pub fn ended_by(&self, new: &Self, unix_s: u64) -> Vec<String> {
        let mut ended = self.schedule.ended_by(&new.schedule, unix_s);
        let opens_at = self.policy.opens_at;
        if u64::from(opens_at.unix_s) > unix_s && new.policy.opens_at.unix_s < opens_at.unix_s {
            ended.push(format!("opens_at {}", instant_text(opens_at.unix_s)));
        }
        let (now, then) = (self.policy_at(unix_s).mode, new.policy_at(unix_s).mode);
        if self.policy.mode.keeps_out() {
            if new.policy.mode != self.policy.mode {
                ended.push(format!("mode {}", self.policy.mode.word()));
            }
        } else if ended.is_empty() && now.keeps_out() && !then.keeps_out() {
            ended.push(match self.schedule.phase(unix_s) {
                Phase::Before(event) => format!("before = {} of event {}", event.before.word(), event.id),
                Phase::After(event) => format!("after = {} of event {}", event.after.word(), event.id),
                _ => format!("mode {}", now.word()),
            });
        }
        ended
    }

    /// The notice in force at an instant, in seconds since 1970.
    #[must_use]
    pub fn notice_at(&self, unix_s: u64) -> &Notice {
        match self.schedule.phase(unix_s) {
            Phase::Prequeue(event) | Phase::Open(event) if !event.notice.is_empty() => &event.notice,
            _ => &self.notice,
        }
    }
}

impl From<Policy> for Definition {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        OnStoreFailure, Outside,
        schedule::tests::{at, moment, sale},
    };

    #[test]
    fn each_field_changes_the_tag() {
        let policy = Policy::default();
        let with_notice = |texts: &[(&str, &str)]| Definition {
            policy,
            notice: Notice::new(texts.iter().copied()).expect("a notice"),
            ..Definition::default()
        };
        let all = [
            policy.into(),
            Policy { mode: Mode::Closed, ..policy }.into(),
            Policy { admit_per_minute: 1, ..policy }.into(),
            Policy { sub_windows: 1, ..policy }.into(),
            Policy { polling_period_ms: 1_000, ..policy }.into(),
            Policy { idle_timeout_s: 61, ..policy }.into(),
            Policy { pass_ttl_s: 301, ..policy }.into(),
            Policy { on_store_failure: OnStoreFailure::Open, ..policy }.into(),
            Policy { waits_per_minute_per_client: 1, ..policy }.into(),
            Policy { entries_per_minute_per_client: 30, ..policy }.into(),
            Policy { max_waiting: 30, ..policy }.into(),
            with_notice(&[("en", "a")]),
            with_notice(&[("ko", "a")]),
            with_notice(&[("en", "a"), ("ko", "b")]),
            with_notice(&[("en", "a\nko\nb")]),
            with_notice(&[("en", "b"), ("ko", "a")]),
        ];
        let tags: HashSet<String> = all.iter().map(Definition::etag).collect();
        assert_eq!(tags.len(), all.len());
        assert!(tags.iter().all(|tag| tag.len() == TAG_LEN && tag.bytes().all(|b| b.is_ascii_hexdigit())));
        let [one, other] =
            [[("ko", "b"), ("en", "a")], [("en", "a"), ("ko", "b")]].map(|texts| with_notice(&texts));
        assert_eq!(one.etag(), other.etag());
    }

    /// Operators' programs keep tags over an upgrade.
    #[test]
    fn tags_do_not_change_between_versions() {
        let rules = Policy {
            mode: Mode::Hold,
            admit_per_minute: 600,
            sub_windows: 12,
            polling_period_ms: 4_000,
            idle_timeout_s: 61,
            pass_ttl_s: 301,
            on_store_failure: OnStoreFailure::Open,
            ..Policy::default()
        };
        let policy = Policy { waits_per_minute_per_client: 5, entries_per_minute_per_client: 60, ..rules };
        let definition = Definition {
            notice: Notice::new([("en", "a"), ("ko", "안내")]).expect("a notice"),
            ..policy.into()
        };
        assert_eq!(Definition::default().etag(), "a5b8431fdc02ba89b77945af381b4ec1");
        assert_eq!(definition.etag(), "f04ee1ddc8ec68b8b5edd9c617e7869d");
    }

    #[test]
    fn what_a_new_definition_would_end_is_named() {
        let definition = |mode, events| {
            let policy = Policy { mode, ..Policy::default() };
            Definition { schedule: Schedule::new(events, &policy).expect("a schedule"), ..policy.into() }
        };
        let with_sale = definition(Mode::Auto, vec![sale()]);
        let bare = definition(Mode::Auto, Vec::new());
        let ended = |old: &Definition, new: &Definition, text| old.ended_by(new, at(text)).join(", ");
        let (before, prequeue, open, over) =
            ("2026-12-01T07:00:00Z", "2026-12-01T07:45:00Z", "2026-12-01T09:00:00Z", "2026-12-01T11:00:00Z");
        for (now, wanted) in [
            (before, "event sale, which is to begin at 2026-12-01T09:00[Europe/Berlin]"),
            (prequeue, "event sale, whose pre-queue goes on"),
            (open, "event sale, which goes on"),
            (over, "after = hold of event sale"),
        ] {
            assert_eq!(ended(&with_sale, &bare, now), wanted);
            assert_eq!(ended(&with_sale, &with_sale, now), "", "the same again");
            assert_eq!(ended(&bare, &with_sale, now), "", "a new event ends nothing");
        }
        // Another rate ends nothing, and an event that is to come may be moved.
        let faster = Event { admit_per_minute: Some(700), ..sale() };
        let moved = Event { begins: moment("2026-12-01T08:15:00Z"), ..sale() };
        let shorter = Event { ends: moment("2026-12-01T10:00:00Z"), ..sale() };
        let open_before = Event { before: Outside::Usual, ..sale() };
        for (event, now, wanted) in [
            (&faster, prequeue, ""),
            (&moved, before, ""),
            (
                &moved,
                prequeue,
                "event sale, whose pre-queue goes on, as it is announced (begins 2026-12-01T09:00[Europe/Berlin] -> 2026-12-01T08:15:00Z)",
            ),
            (
                &shorter,
                prequeue,
                "event sale, whose pre-queue goes on, as it is announced (ends 2026-12-01T11:00:00Z -> 2026-12-01T10:00:00Z)",
            ),
            (
                &shorter,
                open,
                "event sale, which goes on, as it is announced (ends 2026-12-01T11:00:00Z -> 2026-12-01T10:00:00Z)",
            ),
            (&open_before, before, "before = closed of event sale"),
        ] {
            assert_eq!(ended(&with_sale, &definition(Mode::Auto, vec![event.clone()]), now), wanted);
        }
        let longer = definition(Mode::Auto, vec![shorter]);
        assert_eq!(ended(&longer, &with_sale, open), "", "a later end ends nothing");
        for mode in [Mode::Hold, Mode::Closed] {
            let stopped = definition(mode, Vec::new());
            assert_eq!(ended(&stopped, &bare, before), format!("mode {}", mode.word()));
            assert_eq!(ended(&bare, &stopped, before), "", "a stop ends nothing");
        }
        let opening = |text| {
            let opens_at = moment(text).unix_s().into();
            Definition::from(Policy { opens_at, ..Policy::default() })
        };
        assert_eq!(ended(&opening(open), &bare, before), "opens_at 2026-12-01T09:00:00Z");
        assert_eq!(ended(&opening(open), &opening(prequeue), before), "opens_at 2026-12-01T09:00:00Z");
        assert_eq!(ended(&opening(prequeue), &opening(open), before), "", "it opens later");
        assert_eq!(ended(&opening(prequeue), &bare, open), "", "it is open");
    }

    #[test]
    fn a_policy_follows_the_phases_of_its_events() {
        let usual = Policy { admit_per_minute: 60, ..Policy::default() };
        let schedule = Schedule::new(vec![sale()], &usual).expect("a schedule");
        let definition = Definition { schedule, ..usual.into() };
        let modes = |text| definition.policy_at(at(text)).mode;
        assert_eq!(modes("2026-01-01T00:00:00Z"), Mode::Closed);
        assert_eq!(modes("2026-12-01T07:29:59Z"), Mode::Closed);
        let of_event = definition.policy_at(at("2026-12-01T07:30:00Z"));
        let opens_at = moment("2026-12-01T08:00:00Z").unix_s().into();
        assert_eq!(of_event, Policy { opens_at, admit_per_minute: 600, max_active: 50, ..usual });
        // Nothing changes when it begins: the store opens the zone.
        assert_eq!(definition.policy_at(at("2026-12-01T10:59:59Z")), of_event);
        let over = definition.policy_at(at("2026-12-01T11:00:00Z"));
        assert_eq!((over.mode, over.opens_at), (Mode::Hold, opens_at), "its clock goes on");
        // Of two openings the later one counts.
        let later = moment("2026-12-01T09:00:00Z").unix_s().into();
        let also = Definition { policy: Policy { opens_at: later, ..usual }, ..definition.clone() };
        assert_eq!(also.policy_at(at("2026-12-01T07:30:00Z")).opens_at, later);
        let said = |text| definition.notice_at(at(text)).get("en");
        assert_eq!([said("2026-12-01T07:30:00Z"), said("2026-12-01T11:00:00Z")], [Some("Soon."), None]);
        // An operator stops it.
        let stopped = Definition { policy: Policy { mode: Mode::Hold, ..usual }, ..definition };
        assert_eq!(stopped.policy_at(at("2026-12-01T09:00:00Z")).mode, Mode::Hold);
        assert_eq!(stopped.policy_at(at("2026-01-01T00:00:00Z")).mode, Mode::Hold);
    }

    /// The sale, and the same a year before, in a zone with this policy.
    fn two_sales(policy: Policy) -> Definition {
        let old = Event {
            id: crate::ZoneId::parse("old").expect("a name"),
            prequeue_from: moment("2025-12-01T07:30:00Z"),
            begins: moment("2025-12-01T08:00:00Z"),
            ends: moment("2025-12-01T11:00:00Z"),
            ..sale()
        };
        let schedule = Schedule::new(vec![old, sale()], &policy).expect("a schedule");
        Definition { schedule, ..policy.into() }
    }

    #[test]
    fn a_mode_that_stops_events_is_warned_of_while_one_is_to_begin() {
        let said =
            |mode, now| two_sales(Policy { mode, ..Policy::default() }).contradictions(at(now)).concat();
        for (now, wanted) in [
            ("2025-12-01T07:45:00Z", "mode = hold keeps the events of the zone from beginning, as old; "),
            ("2025-12-01T08:00:00Z", "mode = hold keeps the events of the zone from beginning, as sale; "),
            ("2026-12-01T07:45:00Z", "mode = hold keeps the events of the zone from beginning, as sale; "),
        ] {
            assert!(said(Mode::Hold, now).starts_with(wanted), "{}", said(Mode::Hold, now));
            assert_eq!(said(Mode::Auto, now), "");
        }
        for now in ["2026-12-01T09:00:00Z", "2026-12-01T11:00:00Z"] {
            assert_eq!(said(Mode::Hold, now), "", "no event is to begin");
        }
    }

    #[test]
    fn an_opening_behind_the_beginning_of_an_event_is_warned_of() {
        let said = |opens_at, now| {
            let opens_at = moment(opens_at).unix_s().into();
            two_sales(Policy { opens_at, ..Policy::default() }).contradictions(at(now)).concat()
        };
        let (now, begins) = ("2026-01-01T00:00:00Z", "2026-12-01T09:00[Europe/Berlin]");
        for (opens_at, wanted) in [
            ("2026-12-01T08:00:01Z", "nobody enters before opens_at = 2026-12-01T08:00:01Z: "),
            ("2026-12-01T10:59:59Z", "nobody enters before opens_at = 2026-12-01T10:59:59Z: "),
            (
                "2026-12-01T11:00:00Z",
                "nobody enters, because it ends before opens_at = 2026-12-01T11:00:00Z: ",
            ),
        ] {
            let wanted = format!("event sale begins at {begins}, but {wanted}");
            assert!(said(opens_at, now).starts_with(&wanted), "{}", said(opens_at, now));
        }
        assert_eq!(said("2026-12-01T08:00:00Z", now), "", "of one that is over, nothing is said");
        assert_eq!(said("2026-12-01T11:00:00Z", "2026-12-01T11:00:00Z"), "", "it is over");
    }
}
