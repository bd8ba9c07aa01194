//! The schedule of a zone: events that begin and end at set times, and what applies before and after them.
//!
//! An event has a pre-queue: people take places from then on, and nobody enters until the event begins. The store opens the zone at
//! that instant by its own clock, because the policy of an event has [`Policy::opens_at`]. So no server has to do anything then.
//! Invariant: the events of a schedule are sorted and do not overlap, from the beginning of the pre-queue to the end.

use std::{fmt, sync::Arc};

use crate::{
    InstantFault, Mode, NoAuthority, Notice, Opening, Policy, PolicyFault, ZoneId, check_authority,
    parse_instant,
};

/// An instant as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    unix_s: u32,
    text: Arc<str>,
}

impl Moment {
    /// Reads an instant, see [`parse_instant`].
    ///
    /// # Errors
    /// An [`InstantFault`].
    pub fn parse(text: &str) -> Result<Self, InstantFault> {
        Ok(Self { unix_s: parse_instant(text)?, text: text.into() })
    }

    /// Seconds since 1970-01-01 UTC.
    #[must_use]
    pub fn unix_s(&self) -> u32 {
        self.unix_s
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What applies before the pre-queue of an event, or after its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// The zone's policy.
    #[default]
    Usual,
    /// As the mode `hold`.
    Hold,
    /// As the mode `closed`.
    Closed,
}

impl Outside {
    /// All values with their names in configuration files.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Usual, "usual"), (Self::Hold, "hold"), (Self::Closed, "closed")];

    /// The value of this name.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        named(&Self::ALL, word)
    }

    /// The value's name in configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        word_of(&Self::ALL, self)
    }
}

/// The address of a page to which people go on while a zone is closed: of another host, or a path of the host that shows the waiting page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAddress(Arc<str>);

/// A text is no address of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPageAddress {
    /// It has another form.
    #[error(
        "is no address of a page: write one as https://shop.example/soon or /soon, of at most {max} visible ASCII characters, without user, \\ \
         and \"",
        max = PageAddress::MAX
    )]
    Form,
    /// No host can have this name, or browsers read another one in it.
    #[error(
        "names no host that browsers would ask for: a host is a name as shop.example (letters, digits and hyphens between dots, the last part \
         no number), or an address as 192.0.2.7 or [2001:db8::7]"
    )]
    Host,
    /// The port is none.
    #[error("has no port behind the colon of its host: a port is 1 to 65535")]
    Port,
}

impl From<NoAuthority> for NoPageAddress {
    fn from(fault: NoAuthority) -> Self {
        match fault {
            NoAuthority::Host => Self::Host,
            NoAuthority::Port => Self::Port,
        }
    }
}

impl PageAddress {
    /// The longest address, in bytes. Clients cut longer texts of errors.
    pub const MAX: usize = 1_000;

    /// Reads an address.
    ///
    /// # Errors
    /// [`NoPageAddress`].
    pub fn parse(text: &str) -> Result<Self, NoPageAddress> {
        let is_spelled = text.len() <= Self::MAX
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>'));
        if !is_spelled {
            return Err(NoPageAddress::Form);
        }
        let of_host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match of_host.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default()) {
            Some("") => return Err(NoPageAddress::Form),
            Some(authority) if authority.contains('@') => return Err(NoPageAddress::Form),
            Some(authority) => check_authority(authority)?,
            // Two slashes begin another host.
            None if text.starts_with('/') && !text.starts_with("//") => {}
            None => return Err(NoPageAddress::Form),
        }
        Ok(Self(text.into()))
    }

    /// The address, as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value of this name.
fn named<T: Copy>(all: &[(T, &'static str)], name: &str) -> Option<T> {
    all.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}

/// The name of a value.
fn word_of<T: PartialEq>(all: &[(T, &'static str)], of: T) -> &'static str {
    all.iter().find(|(value, _)| *value == of).map_or("", |(_, word)| word)
}

/// Where the randomness comes from that decides a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RandomnessSource {
    /// A round of drand that comes after the freeze.
    Drand,
    /// A value that an operator states after the freeze. The text says where it comes from; see [`DrawTerms::SOURCE_MAX`].
    Stated(Arc<str>),
}

/// What happens if the randomness does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawFallback {
    /// Nobody enters until it comes.
    Wait,
    /// The order is that of arrival, once an operator says that it did not come.
    Arrival,
}

impl DrawFallback {
    /// All values with their names in configuration files.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Wait, "wait"), (Self::Arrival, "arrival")];

    /// The value of this name.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        named(&Self::ALL, word)
    }

    /// The value's name in configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        word_of(&Self::ALL, self)
    }
}

/// How the order of a pre-queue is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawTerms {
    /// What decides.
    pub randomness: RandomnessSource,
    /// What happens without it.
    pub fallback: DrawFallback,
}

impl DrawTerms {
    /// How long after `begins` people enter, in seconds. The list is frozen when the event begins. In this time it is published, the
    /// randomness comes, and everybody who keeps to the longest usual polling period learns the place.
    pub const DRAW_S: u32 = 30;

    /// The longest text that says where a stated value comes from, in bytes.
    pub const SOURCE_MAX: usize = 1_024;

    /// The source of a stated value: a text of one line, with neither a space at its ends nor control characters.
    #[must_use]
    pub fn source(text: &str) -> Option<Arc<str>> {
        let is_right = (1..=Self::SOURCE_MAX).contains(&text.len())
            && !text.starts_with(' ')
            && !text.ends_with(' ')
            && !text.contains(char::is_control);
        is_right.then(|| text.into())
    }
}

/// A sale, or whatever else begins at a set time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name among the events of the zone. It is written as a zone's id.
    pub id: ZoneId,
    /// From when on people take places.
    pub prequeue_from: Moment,
    /// From when on people enter.
    pub begins: Moment,
    /// When it is over.
    pub ends: Moment,
    /// What applies until the pre-queue begins.
    pub before: Outside,
    /// What applies from the end on, until the next event.
    pub after: Outside,
    /// Where people go on while the zone is closed before the pre-queue.
    pub before_page: Option<PageAddress>,
    /// Where people go on while the zone is closed after the end.
    pub after_page: Option<PageAddress>,
    /// How many people may enter in a minute, where that differs from the zone's policy.
    pub admit_per_minute: Option<u32>,
    /// How many people may be inside, where that differs from the zone's policy.
    pub max_active: Option<u32>,
    /// How the order of the pre-queue is drawn; `None` for the order of arrival.
    pub draw: Option<DrawTerms>,
    /// The text for people who wait; if it is empty, the zone's own counts.
    pub notice: Notice,
}

/// Why events are no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    /// There are too many events.
    #[error("there are {0} events, and {max} are the most; delete those that are over", max = Schedule::EVENTS_MAX)]
    TooMany(usize),
    /// Two events have the same id.
    #[error("two events have the id {0}")]
    Twice(ZoneId),
    /// The pre-queue begins too late for all servers to be ready at the start.
    #[error(
        "event {0}: prequeue_from must be at least {1} s before begins, so that all servers are ready in time"
    )]
    ShortPrequeue(ZoneId, u32),
    /// The same where the event limits the people inside.
    #[error(
        "event {0}: prequeue_from must be at least {1} s before begins, because max_active needs a minute in which people who are inside \
         show themselves"
    )]
    ShortPrequeueInside(ZoneId, u32),
    /// The event ends before it begins.
    #[error("event {0}: ends must be after begins; with order = draw, more than {draw} s after it", draw = DrawTerms::DRAW_S)]
    EndsFirst(ZoneId),
    /// Two events overlap.
    #[error("event {1} has its pre-queue from {2} on, and event {0} ends only at {3}")]
    Overlap(ZoneId, ZoneId, Moment, Moment),
    /// The list of the event's draw is frozen, and the change would make another event of it.
    #[error(
        "event {0} has begun, and its list is that of its start: its begins, its order and what decides that stay, and it stays until it \
         ends; set mode = hold to stop entries, or an earlier ends (more than {draw} s after begins) to end it",
        draw = DrawTerms::DRAW_S
    )]
    Frozen(ZoneId),
    /// A number of the event does not fit the zone's policy.
    #[error("event {0}: {1}")]
    Policy(ZoneId, PolicyFault),
}

/// Where an instant is in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase<'a> {
    /// No event says what applies.
    Usual,
    /// Before the pre-queue of this event.
    Before(&'a Event),
    /// People take places for this event.
    Prequeue(&'a Event),
    /// People enter.
    Open(&'a Event),
    /// This event is over, and no other one has come.
    After(&'a Event),
}

/// The events of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Arc<[Event]>);

impl Schedule {
    /// The most events of a zone.
    pub const EVENTS_MAX: usize = 32;

    /// How long a pre-queue is at least, in seconds.
    pub const LEAST_PREQUEUE_S: u32 = 60;

    /// The same of an event with a limit of its own for the people inside: when such a limit comes into force, nobody enters for a minute.
    pub const LEAST_PREQUEUE_INSIDE_S: u32 = 120;

    /// A schedule of these events, in any order, for a zone with this policy.
    ///
    /// # Errors
    /// The first [`ScheduleFault`].
    pub fn new(mut events: Vec<Event>, policy: &Policy) -> Result<Self, ScheduleFault> {
        if events.len() > Self::EVENTS_MAX {
            return Err(ScheduleFault::TooMany(events.len()));
        }
        events.sort_by(|a, b| (a.prequeue_from.unix_s, &a.id).cmp(&(b.prequeue_from.unix_s, &b.id)));
        for (at, event) in events.iter().enumerate() {
            let id = || event.id.clone();
            if events[..at].iter().any(|other| other.id == event.id) {
                return Err(ScheduleFault::Twice(id()));
            }
            let is_shorter =
                |least_s| event.prequeue_from.unix_s.saturating_add(least_s) > event.begins.unix_s;
            if is_shorter(Self::LEAST_PREQUEUE_S) {
                return Err(ScheduleFault::ShortPrequeue(id(), Self::LEAST_PREQUEUE_S));
            }
            let has_limit = event.max_active.is_some_and(|most| most > 0 && policy.max_active == 0);
            if has_limit && is_shorter(Self::LEAST_PREQUEUE_INSIDE_S) {
                return Err(ScheduleFault::ShortPrequeueInside(id(), Self::LEAST_PREQUEUE_INSIDE_S));
            }
            if event.opens_s() >= event.ends.unix_s {
                return Err(ScheduleFault::EndsFirst(id()));
            }
            event.policy(policy).check().map_err(|fault| ScheduleFault::Policy(id(), fault))?;
        }
        for pair in events.windows(2) {
            if let [one, next] = pair
                && one.ends.unix_s > next.prequeue_from.unix_s
            {
                return Err(ScheduleFault::Overlap(
                    one.id.clone(),
                    next.id.clone(),
                    next.prequeue_from.clone(),
                    one.ends.clone(),
                ));
            }
        }
        Ok(Self(events.into()))
    }

    /// Whether there is no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The events, in the order of time.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.0
    }

    /// The event of this name.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Event> {
        self.0.iter().find(|event| event.id.as_str() == id)
    }

    /// When the next pre-queue begins after `unix_s`, in seconds since 1970.
    #[must_use]
    pub fn next_prequeue_s(&self, unix_s: u64) -> Option<u64> {
        self.0.iter().map(|event| u64::from(event.prequeue_from.unix_s)).find(|from| *from > unix_s)
    }

    /// Checks that `new` leaves the draws of this schedule as they are whose lists are frozen at `unix_s`, in seconds since 1970.
    ///
    /// # Errors
    /// [`ScheduleFault::Frozen`] for the first event of which that is not so.
    pub fn check_frozen(&self, new: &Self, unix_s: u64) -> Result<(), ScheduleFault> {
        match self.first_draw_changed(new, unix_s) {
            Some(event) if u64::from(event.begins.unix_s) <= unix_s => {
                Err(ScheduleFault::Frozen(event.id.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Of the events by lot that are not over at `unix_s` (seconds since 1970), the first one that `new` would make another one of. The
    /// change may be made until it begins.
    #[must_use]
    pub fn first_draw_changed(&self, new: &Self, unix_s: u64) -> Option<&Event> {
        let stays = |old: &Event| {
            let new = new.get(old.id.as_str());
            new.is_some_and(|new| new.begins.unix_s == old.begins.unix_s && new.draw == old.draw)
        };
        let is_ahead = |event: &&Event| event.draw.is_some() && unix_s < event.ends.unix_s.into();
        self.0.iter().filter(is_ahead).find(|event| !stays(event))
    }

    /// What happens with the draws that are new beside `before`, and whose events have begun already at `unix_s` (seconds since 1970): one
    /// text for each.
    #[must_use]
    pub fn begun_draws(&self, before: &Self, unix_s: u64) -> Vec<String> {
        let is_new = |event: &&Event| {
            let old = before.get(event.id.as_str());
            event.draw.is_some() && !old.is_some_and(|old| old.is_same(event) && old.draw.is_some())
        };
        let begun = self.0.iter().filter(is_new).filter(|event| event.stage(unix_s) == Stage::Open);
        let text = |Event { id, begins, .. }: &Event| {
            format!(
                "event {id}: its draw began at {begins}. Unless its list is frozen already, that happens as soon as a server reads this: only \
                 people who are in line then take part, people who come later stand behind them, and nobody enters until the order is drawn"
            )
        };
        begun.map(text).collect()
    }

    /// The events that are new or other ones beside `before`, and that are over at `unix_s` (seconds since 1970): one text for each.
    #[must_use]
    pub fn past_events(&self, before: &Self, unix_s: u64) -> Vec<String> {
        let is_new = |event: &&Event| before.get(event.id.as_str()) != Some(event);
        let past = self.0.iter().filter(is_new).filter(|event| event.stage(unix_s) == Stage::Over);
        let text = |event: &Event| {
            let Event { id, ends, after, .. } = event;
            let applies = match self.phase(unix_s) {
                Phase::After(last) if last.id == *id => {
                    format!(", and after = {} applies from now on", after.word())
                }
                _ => String::new(),
            };
            format!(
                "event {id}: it ended at {ends}, so it does not take place{applies}; look at the year, or take it away"
            )
        };
        past.map(text).collect()
    }

    /// What is different in `new`, one text for each event.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let gone = self.0.iter().filter(|event| new.get(event.id.as_str()).is_none());
        let mut changes: Vec<String> = gone.map(|event| format!("event {} deleted", event.id)).collect();
        for event in new.events() {
            match self.get(event.id.as_str()) {
                None => changes.push(format!("event {} from {} to {}", event.id, event.begins, event.ends)),
                Some(old) if old == event => {}
                Some(old) => changes.push(format!("event {}: {}", event.id, old.changes(event).join(", "))),
            }
        }
        changes
    }

    /// The events that are not over at `unix_s` (seconds since 1970), and that `new` has no longer or, once their pre-queues have begun,
    /// would move or end sooner. One text for each.
    #[must_use]
    pub fn ended_by(&self, new: &Self, unix_s: u64) -> Vec<String> {
        let stays = |event: &&Event| {
            new.get(event.id.as_str()).is_some_and(|new| match event.stage(unix_s) {
                Stage::Before | Stage::Over => true,
                stage => {
                    new.stage(unix_s) == stage && new.is_same(event) && new.ends.unix_s >= event.ends.unix_s
                }
            })
        };
        let text = |event: &Event| {
            let Event { id, begins, .. } = event;
            let now = match event.stage(unix_s) {
                Stage::Before => format!("event {id}, which is to begin at {begins}"),
                Stage::Prequeue => format!("event {id}, whose pre-queue goes on"),
                Stage::Open | Stage::Over => format!("event {id}, which goes on"),
            };
            match new.get(id.as_str()) {
                None => now,
                Some(other) => format!("{now}, as it is announced ({})", event.changes(other).join(", ")),
            }
        };
        let ahead = self.0.iter().filter(|event| event.stage(unix_s) != Stage::Over);
        ahead.filter(|event| !stays(event)).map(text).collect()
    }

    /// The event whose pre-queue began last before `unix_s`, in seconds since 1970. It may be over.
    #[must_use]
    pub fn last_begun(&self, unix_s: u64) -> Option<&Event> {
        let begun = self.0.partition_point(|event| u64::from(event.prequeue_from.unix_s) <= unix_s);
        begun.checked_sub(1).and_then(|at| self.0.get(at))
    }

    /// The event that lasts at `unix_s`, in seconds since 1970, or else the one that comes next.
    #[must_use]
    pub fn now_or_next(&self, unix_s: u64) -> Option<&Event> {
        self.0.iter().find(|event| unix_s < event.ends.unix_s.into())
    }

    /// Where the instant `unix_s` (seconds since 1970) is. Between two events, the later one counts, if it says what applies before it.
    #[must_use]
    pub fn phase(&self, unix_s: u64) -> Phase<'_> {
        let second = |moment: &Moment| u64::from(moment.unix_s);
        let begun = self.0.partition_point(|event| second(&event.prequeue_from) <= unix_s);
        let (last, next) = (begun.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(begun));
        match (last, next) {
            (Some(event), _) if unix_s < second(&event.begins) => Phase::Prequeue(event),
            (Some(event), _) if unix_s < second(&event.ends) => Phase::Open(event),
            (_, Some(event)) if event.before != Outside::Usual => Phase::Before(event),
            (Some(event), _) if event.after != Outside::Usual => Phase::After(event),
            _ => Phase::Usual,
        }
    }
}

/// Where an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its pre-queue has not begun.
    Before,
    /// Its pre-queue has begun.
    Prequeue,
    /// It has begun, and is not over.
    Open,
    /// It is over.
    Over,
}

/// A text is no event. See [`Event::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the text of an event")]
pub struct NoEvent;

/// Separates the parts of an event's text. No notice has this character.
const UNIT: char = '\u{1f}';

/// The name of the part that says where a stated value comes from. It is no language.
const STATED: &str = "#stated";

/// The names of the parts that say where people go on.
const BEFORE_PAGE: &str = "#before_page";
const AFTER_PAGE: &str = "#after_page";

impl Event {
    /// Whether `other` is the same sale: it has the same name and begins at the same instant. A name alone may be used again.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.begins.unix_s == other.begins.unix_s
    }

    /// All of it in one text, for registers and tags.
    #[must_use]
    pub fn text(&self) -> String {
        let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let Self { id, prequeue_from, begins, ends, before, after, .. } = self;
        let mut text = format!(
            "{id} {prequeue_from} {begins} {ends} {} {} {} {}",
            before.word(),
            after.word(),
            number(self.admit_per_minute),
            number(self.max_active)
        );
        let stated = self.draw.as_ref().and_then(|draw| match &draw.randomness {
            RandomnessSource::Drand => None,
            RandomnessSource::Stated(source) => Some((STATED, &**source)),
        });
        if let Some(draw) = &self.draw {
            text.extend([" draw ", draw.fallback.word()]);
        }
        let pages = [(BEFORE_PAGE, &self.before_page), (AFTER_PAGE, &self.after_page)];
        let pages = pages.into_iter().filter_map(|(name, page)| Some((name, page.as_ref()?.as_str())));
        for (language, notice) in stated.into_iter().chain(pages).chain(self.notice.iter()) {
            text.extend([UNIT.encode_utf8(&mut [0; 4]), language, UNIT.encode_utf8(&mut [0; 4]), notice]);
        }
        text
    }

    /// Reads the text of [`Event::text`].
    ///
    /// # Errors
    /// [`NoEvent`] if it is not such a text.
    pub fn parse(text: &str) -> Result<Self, NoEvent> {
        let mut parts = text.split(UNIT);
        let words: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
        let &[id, prequeue_from, begins, ends, before, after, per_minute, max_active, ref order @ ..] =
            &words[..]
        else {
            return Err(NoEvent);
        };
        let moment = |text| Moment::parse(text).map_err(|_| NoEvent);
        let number = |text: &str| match text {
            "-" => Ok(None),
            number => number.parse().map(Some).map_err(|_| NoEvent),
        };
        let mut notice = Vec::new();
        let mut randomness = RandomnessSource::Drand;
        let (mut before_page, mut after_page) = (None, None);
        let page = |text| PageAddress::parse(text).map(Some).map_err(|_| NoEvent);
        while let Some(language) = parts.next() {
            let text = parts.next().ok_or(NoEvent)?;
            match language {
                STATED => randomness = RandomnessSource::Stated(DrawTerms::source(text).ok_or(NoEvent)?),
                BEFORE_PAGE => before_page = page(text)?,
                AFTER_PAGE => after_page = page(text)?,
                language => notice.push((language, text)),
            }
        }
        let draw = match order {
            [] if randomness == RandomnessSource::Drand => None,
            ["draw", fallback] => {
                Some(DrawTerms { randomness, fallback: DrawFallback::named(fallback).ok_or(NoEvent)? })
            }
            _ => return Err(NoEvent),
        };
        Ok(Self {
            id: ZoneId::parse(id).map_err(|_| NoEvent)?,
            prequeue_from: moment(prequeue_from)?,
            begins: moment(begins)?,
            ends: moment(ends)?,
            before: Outside::named(before).ok_or(NoEvent)?,
            after: Outside::named(after).ok_or(NoEvent)?,
            before_page,
            after_page,
            admit_per_minute: number(per_minute)?,
            max_active: number(max_active)?,
            draw,
            notice: Notice::new(notice).map_err(|_| NoEvent)?,
        })
    }

    /// Who enters first, in words: `arrival`, or as in `draw by drand, or else wait`.
    #[must_use]
    pub fn order_text(&self) -> String {
        match &self.draw {
            None => "arrival".to_owned(),
            Some(DrawTerms { randomness, fallback }) => {
                let by = match randomness {
                    RandomnessSource::Drand => "drand".to_owned(),
                    RandomnessSource::Stated(source) => format!("{source:?}"),
                };
                format!("draw by {by}, or else {}", fallback.word())
            }
        }
    }

    /// Where it is at `unix_s`, in seconds since 1970.
    #[must_use]
    pub fn stage(&self, unix_s: u64) -> Stage {
        let is_ahead = |moment: &Moment| unix_s < u64::from(moment.unix_s);
        match self {
            Self { prequeue_from, .. } if is_ahead(prequeue_from) => Stage::Before,
            Self { begins, .. } if is_ahead(begins) => Stage::Prequeue,
            Self { ends, .. } if is_ahead(ends) => Stage::Open,
            _ => Stage::Over,
        }
    }

    /// When people enter, in seconds since 1970: when it begins, or after the draw.
    #[must_use]
    pub fn opens_s(&self) -> u32 {
        self.begins.unix_s.saturating_add(if self.draw.is_some() { DrawTerms::DRAW_S } else { 0 })
    }

    /// The number of its draw in its zone, which is not 0: the FNV-1a hash of its id in 32 bits. 0 without a draw.
    #[must_use]
    pub fn draw_number(&self) -> u32 {
        let hash = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        match self.draw {
            None => 0,
            Some(_) => self.id.as_str().as_bytes().iter().fold(0x811c_9dc5, hash).max(1),
        }
    }

    /// Where it differs from `new`, as in `begins A -> B`.
    fn changes(&self, new: &Self) -> Vec<String> {
        let number =
            |number: Option<u32>| number.map_or_else(|| "the zone's".to_owned(), |number| number.to_string());
        let page = |page: &Option<PageAddress>| page.as_ref().map_or("none", PageAddress::as_str).to_owned();
        let all = |of: &Self| {
            [
                ("prequeue_from", of.prequeue_from.to_string()),
                ("begins", of.begins.to_string()),
                ("ends", of.ends.to_string()),
                ("before", of.before.word().to_owned()),
                ("after", of.after.word().to_owned()),
                ("before_page", page(&of.before_page)),
                ("after_page", page(&of.after_page)),
                ("admit_per_minute", number(of.admit_per_minute)),
                ("max_active", number(of.max_active)),
                ("order", of.order_text()),
                ("notice", of.notice.sentence()),
            ]
        };
        let pairs = all(self).into_iter().zip(all(new));
        let differ = pairs.filter(|((_, old), (_, new))| old != new);
        let mut changes: Vec<_> =
            differ.map(|((name, old), (_, new))| format!("{name} {old} -> {new}")).collect();
        if changes.is_empty() && self != new {
            changes.push("another notice".to_owned());
        }
        changes
    }

    /// The policy of its pre-queue, and while it lasts. The zone opens by itself when the event begins, or later if the zone's own policy
    /// says so. An operator who sets another mode than `auto` stops the event.
    #[must_use]
    pub fn policy(&self, usual: &Policy) -> Policy {
        Policy {
            opens_at: Opening { unix_s: usual.opens_at.unix_s.max(self.opens_s()), draw: self.draw_number() },
            admit_per_minute: self.admit_per_minute.unwrap_or(usual.admit_per_minute),
            max_active: self.max_active.unwrap_or(usual.max_active),
            ..*usual
        }
    }
}

impl Phase<'_> {
    /// Where people go on, if the zone is closed.
    #[must_use]
    pub fn page(&self) -> Option<&PageAddress> {
        match self {
            Self::Before(event) => event.before_page.as_ref(),
            Self::After(event) => event.after_page.as_ref(),
            Self::Usual | Self::Prequeue(_) | Self::Open(_) => None,
        }
    }

    /// The event that lasts: its pre-queue has begun, and it is not over.
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Prequeue(event) | Self::Open(event) => Some(event),
            Self::Usual | Self::Before(_) | Self::After(_) => None,
        }
    }

    /// The policy that counts then, of a zone with this policy.
    pub(crate) fn policy(self, usual: &Policy) -> Policy {
        let outside = |what| match what {
            // Whoever set another mode than `auto` meant now.
            _ if usual.mode != Mode::Auto => *usual,
            Outside::Usual => *usual,
            Outside::Hold => Policy { mode: Mode::Hold, ..*usual },
            Outside::Closed => Policy { mode: Mode::Closed, ..*usual },
        };
        match self {
            Self::Usual => *usual,
            Self::Before(event) => outside(event.before),
            Self::Prequeue(event) | Self::Open(event) => event.policy(usual),
            Self::After(event) => outside(event.after),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn moment(text: &str) -> Moment {
        Moment::parse(text).expect(text)
    }

    fn event(id: &str, prequeue_from: &str, begins: &str, ends: &str) -> Event {
        Event {
            id: ZoneId::parse(id).expect("a name"),
            prequeue_from: moment(prequeue_from),
            begins: moment(begins),
            ends: moment(ends),
            before: Outside::Usual,
            after: Outside::Usual,
            before_page: None,
            after_page: None,
            admit_per_minute: None,
            max_active: None,
            draw: None,
            notice: Notice::default(),
        }
    }

    /// The same sale, by draw.
    pub(crate) fn drawn(randomness: RandomnessSource, fallback: DrawFallback) -> Event {
        Event { draw: Some(DrawTerms { randomness, fallback }), ..sale() }
    }

    pub(crate) fn sale() -> Event {
        Event {
            before: Outside::Closed,
            after: Outside::Hold,
            before_page: PageAddress::parse("https://shop.example/soon?a=b#c").ok(),
            after_page: PageAddress::parse("/wait/OTHER").ok(),
            admit_per_minute: Some(600),
            max_active: Some(50),
            notice: Notice::new([("en", "Soon."), ("ko", "곧\n시작")]).expect("a notice"),
            ..event(
                "sale",
                "2026-12-01T08:30[Europe/Berlin]",
                "2026-12-01T09:00[Europe/Berlin]",
                "2026-12-01T11:00:00Z",
            )
        }
    }

    pub(crate) fn at(text: &str) -> u64 {
        moment(text).unix_s().into()
    }

    #[test]
    fn pages_have_possible_hosts_and_ports() {
        for right in [
            "/soon",
            "/",
            "https://shop.example",
            "https://shop.example./a?b#c",
            "http://localhost:8080/",
            "https://a_b.shop-1.example:65535",
            "https://192.0.2.7:1/",
            "https://[2001:db8::7]:8443/x",
            "https://xn--bcher-kva.example",
        ] {
            assert!(PageAddress::parse(right).is_ok(), "{right}");
        }
        let (form, host, port) = (NoPageAddress::Form, NoPageAddress::Host, NoPageAddress::Port);
        let long = format!("https://{}.example", "a".repeat(64));
        for (wrong, fault) in [
            ("soon", form),
            ("//shop.example", form),
            ("https://", form),
            ("https:///a", form),
            ("ftp://shop.example", form),
            ("https://user@shop.example", form),
            ("/a b", form),
            (r"/\shop", form),
            ("https://:443/", host),
            ("https://.", host),
            ("https://shop..example", host),
            ("https://-shop.example", host),
            ("https://shop-.example", host),
            ("https://shop.example%2f", host),
            ("https://sh*p", host),
            ("https://999.0.0.1/", host),
            ("https://1.2.3/", host),
            ("https://[2001:db8::g]/", host),
            ("https://[::1", host),
            ("https://2001:db8::7/", host),
            (&long, host),
            ("https://shop.example:", port),
            ("https://shop.example:0", port),
            ("https://shop.example:65536/", port),
            ("https://shop.example:44a/", port),
            ("https://shop.example:+80", port),
            ("https://[::1]:x/", port),
        ] {
            assert_eq!(PageAddress::parse(wrong), Err(fault), "{wrong}");
        }
    }

    #[test]
    fn the_event_that_lasts_is_that_of_its_prequeue_and_its_sale() {
        let schedule = Schedule::new(vec![sale()], &Policy::default()).expect("a schedule");
        let lasts = |text: &str| schedule.phase(at(text)).event().is_some();
        assert_eq!(
            ["2026-12-01T07:29:59Z", "2026-12-01T07:30:00Z", "2026-12-01T10:59:59Z", "2026-12-01T11:00:00Z"]
                .map(lasts),
            [false, true, true, false]
        );
    }

    #[test]
    fn the_last_event_and_the_one_that_lasts_or_comes() {
        let later = event("later", "2026-12-02T08:30:00Z", "2026-12-02T09:00:00Z", "2026-12-02T12:00:00Z");
        let first = event("first", "2026-12-01T08:30:00Z", "2026-12-01T09:00:00Z", "2026-12-01T12:00:00Z");
        let schedule = Schedule::new(vec![later, first], &Policy::default()).expect("a schedule");
        let name = |event: Option<&Event>| event.map_or("", |event| event.id.as_str()).to_owned();
        for (now, last, next) in [
            ("2026-12-01T08:29:59Z", "", "first"),
            ("2026-12-01T08:30:00Z", "first", "first"),
            ("2026-12-01T11:59:59Z", "first", "first"),
            ("2026-12-01T12:00:00Z", "first", "later"),
            ("2026-12-02T08:30:00Z", "later", "later"),
            ("2026-12-02T12:00:00Z", "later", ""),
        ] {
            let found = (name(schedule.last_begun(at(now))), name(schedule.now_or_next(at(now))));
            assert_eq!(found, (last.to_owned(), next.to_owned()), "{now}");
        }
    }

    #[test]
    fn between_two_events_the_later_one_counts() {
        let other = event("other", "2026-12-03T08:00:00Z", "2026-12-03T09:00:00Z", "2026-12-03T10:00:00Z");
        let phase = |before| {
            let other = Event { before, ..other.clone() };
            let schedule = Schedule::new(vec![other, sale()], &Policy::default()).expect("a schedule");
            match schedule.phase(at("2026-12-02T00:00:00Z")) {
                Phase::Before(event) => format!("before {}", event.id),
                Phase::After(event) => format!("after {}", event.id),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(phase(Outside::Closed), "before other");
        assert_eq!(phase(Outside::Usual), "after sale");
    }

    #[test]
    fn events_that_are_no_schedule_are_refused() {
        let refused = |events| Schedule::new(events, &Policy::default()).expect_err("refused").to_string();
        let (day, next) = ("2026-12-01T09:00:00Z", "2026-12-01T10:00:00Z");
        let short = event("a", "2026-12-01T08:59:01Z", day, next);
        assert!(refused(vec![short]).contains("at least 60 s"));
        let limited = event("a", "2026-12-01T08:58:01Z", day, next);
        let limited = Event { max_active: Some(5), ..limited };
        assert!(refused(vec![limited.clone()]).contains("at least 120 s"));
        assert!(Schedule::new(vec![limited], &Policy { max_active: 9, ..Policy::default() }).is_ok());
        assert!(
            refused(vec![event("a", "2026-12-01T08:00:00Z", day, day)]).contains("ends must be after begins")
        );
        let one = event("a", "2026-12-01T08:00:00Z", day, next);
        assert!(refused(vec![one.clone(), one.clone()]).contains("two events have the id a"));
        let meets = event("b", next, "2026-12-01T11:00:00Z", "2026-12-01T12:00:00Z");
        assert!(Schedule::new(vec![meets.clone(), one.clone()], &Policy::default()).is_ok());
        let overlaps = Event { prequeue_from: moment("2026-12-01T09:59:59Z"), ..meets };
        assert_eq!(
            refused(vec![overlaps, one.clone()]),
            "event b has its pre-queue from 2026-12-01T09:59:59Z on, and event a ends only at 2026-12-01T10:00:00Z"
        );
        let fast = Event { admit_per_minute: Some(0), ..one.clone() };
        assert_eq!(refused(vec![fast]), "event a: admit_per_minute is 0, and must be 1 to 600000");
        let many =
            (0..33).map(|at| Event { id: ZoneId::parse(&format!("e{at}")).expect("a name"), ..one.clone() });
        assert!(refused(many.collect()).starts_with("there are 33 events, and 32 are the most"));
    }

    #[test]
    fn a_draw_whose_list_is_frozen_stays() {
        let schedule = |events| Schedule::new(events, &Policy::default()).expect("a schedule");
        let old = schedule(vec![drawn(RandomnessSource::Drand, DrawFallback::Wait)]);
        let begun_s = u64::from(old.events()[0].begins.unix_s());
        let frozen = Err(ScheduleFault::Frozen(old.events()[0].id.clone()));
        let event = drawn(RandomnessSource::Drand, DrawFallback::Wait);
        let later = Event { begins: moment("2026-12-01T09:05[Europe/Berlin]"), ..event.clone() };
        // Its checkpoint says what decides. What is shown of the event must say the same.
        let other = drawn(RandomnessSource::Stated("six dice".into()), DrawFallback::Wait);
        let changes = [vec![], vec![later], vec![sale()], vec![other]].map(schedule);
        for new in &changes {
            assert_eq!(old.check_frozen(new, begun_s - 1), Ok(()), "before it begins");
            assert_eq!(old.check_frozen(new, begun_s), frozen);
            assert_eq!(old.check_frozen(new, at("2026-12-01T11:00:00Z")), Ok(()), "when it is over");
        }
        let shorter = Event { ends: moment("2026-12-01T10:00:00Z"), admit_per_minute: Some(5), ..event };
        assert_eq!(old.check_frozen(&schedule(vec![shorter]), begun_s), Ok(()));
        assert_eq!(
            schedule(vec![sale()]).check_frozen(&Schedule::default(), begun_s),
            Ok(()),
            "it has no draw"
        );
    }

    #[test]
    fn a_draw_that_is_made_after_its_beginning_is_named() {
        let schedule = |events| Schedule::new(events, &Policy::default()).expect("a schedule");
        let event = drawn(RandomnessSource::Drand, DrawFallback::Wait);
        let new = schedule(vec![event.clone()]);
        let (begun_s, over_s) = (at("2026-12-01T08:00:00Z"), at("2026-12-01T11:00:00Z"));
        let said = |before: &Schedule, unix_s| new.begun_draws(before, unix_s).join("; ");
        let none = Schedule::default();
        assert!(said(&none, begun_s).starts_with("event sale: its draw began at 2026-12-01T09:00["));
        assert_eq!([said(&none, begun_s - 1), said(&none, over_s)], ["", ""], "it is to come, or over");
        let arrival = schedule(vec![sale()]);
        assert_ne!(said(&arrival, begun_s), "", "the order was that of arrival before");
        let faster = Event { admit_per_minute: Some(5), ..event.clone() };
        assert_eq!(said(&schedule(vec![faster]), begun_s), "", "another change of a draw that goes on");
        let earlier = Event { begins: moment("2026-12-01T08:45[Europe/Berlin]"), ..event };
        assert_ne!(said(&schedule(vec![earlier]), begun_s), "", "it was moved");
        assert!(arrival.begun_draws(&none, begun_s).is_empty(), "it has no draw");
        let past = |before: &Schedule, unix_s| new.past_events(before, unix_s).join("; ");
        assert!(
            past(&none, over_s).starts_with("event sale: it ended at 2026-12-01T"),
            "{}",
            past(&none, over_s)
        );
        assert_eq!([past(&none, over_s - 1), past(&new, over_s)], ["", ""], "it lasts, or is no news");
    }

    #[test]
    fn the_text_of_an_event_says_all_of_it() {
        for event in [
            sale(),
            event("a", "2026-12-01T08:00:00Z", "2026-12-01T09:00:00Z", "2026-12-01T10:00:00Z"),
            drawn(RandomnessSource::Drand, DrawFallback::Wait),
            drawn(RandomnessSource::Stated("six dice".into()), DrawFallback::Arrival),
        ] {
            assert_eq!(Event::parse(&event.text()), Ok(event.clone()));
            for (cut, _) in event.text().char_indices() {
                let read = Event::parse(&event.text()[..cut]);
                assert!(read.as_ref() != Ok(&event), "{cut}");
            }
        }
    }

    #[test]
    fn changes_name_the_event_and_what_differs() {
        let schedule = |events| Schedule::new(events, &Policy::default()).expect("a schedule");
        let later = Event { begins: moment("2026-12-01T09:05[Europe/Berlin]"), max_active: None, ..sale() };
        assert_eq!(
            schedule(vec![sale()]).changes(&schedule(vec![later])),
            [
                "event sale: begins 2026-12-01T09:00[Europe/Berlin] -> 2026-12-01T09:05[Europe/Berlin], max_active 50 -> the zone's"
            ]
        );
        assert_eq!(schedule(vec![sale()]).changes(&Schedule::default()), ["event sale deleted"]);
        assert_eq!(
            Schedule::default().changes(&schedule(vec![sale()])),
            ["event sale from 2026-12-01T09:00[Europe/Berlin] to 2026-12-01T11:00:00Z"]
        );
    }
}
