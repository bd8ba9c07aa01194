//! Stories as columns of numbers, the form in which workers send them and the JSON file holds them.
//!
//! Invariant: [`Columns::stories`] is the inverse of [`Columns::of`], and refuses everything that [`Columns::of`] does not
//! write. Times are milliseconds as in [`Story`]; the numbers of a missing part of a story are -1.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::story::{Call, End, Excused, Placed, Rise, Silence, Story, ToldOpening, ToldWait};

/// Stories, with a column for each number; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// The worker's number. After a merge, each worker of each machine has another number.
    pub worker: Vec<u16>,
    /// The user's number in its worker.
    pub user: Vec<u32>,
    /// The end: 0 entered, 1 left, 2 gone, 3 waiting, 4 outside, 5 no place.
    pub end: Vec<u8>,
    /// The time of the end.
    pub ended_ms: Vec<u32>,
    /// The call that was answered with a place: when it was sent.
    pub arrived_sent_ms: Vec<i64>,
    /// The call that was answered with a place: how long it took.
    pub arrived_took_ms: Vec<i64>,
    /// The last call that was answered "not yet": when it was sent.
    pub waiting_sent_ms: Vec<i64>,
    /// The last call that was answered "not yet": how long it took.
    pub waiting_took_ms: Vec<i64>,
    /// The first call that was answered "enter": when it was sent.
    pub entered_sent_ms: Vec<i64>,
    /// The first call that was answered "enter": how long it took.
    pub entered_took_ms: Vec<i64>,
    /// The first expected wait, seconds.
    pub told_eta_s: Vec<i64>,
    /// The low end of its range, seconds.
    pub told_from_s: Vec<i64>,
    /// The high end of its range, seconds.
    pub told_to_s: Vec<i64>,
    /// The rank in the same reply.
    pub told_rank: Vec<i64>,
    /// When that reply arrived.
    pub told_at_ms: Vec<i64>,
    /// The longest silence.
    pub silence_ms: Vec<u32>,
    /// How often a silence was so long that the server may have taken the user for absent.
    pub lapses: Vec<u16>,
    /// These silences: (row, when the user was last kept before, when the call was sent that ended it, how long it took). Files of
    /// earlier versions do not have this column.
    #[serde(default)]
    pub silences: Vec<(u32, u32, u32, u32)>,
    /// The longest time that stale or late replies excuse: (row, from, to). Files of earlier versions do not have this column.
    #[serde(default)]
    pub excused: Vec<(u32, u32, u32)>,
    /// The longest time after which the user was told to ask again, milliseconds. Files of earlier versions do not have this column.
    #[serde(default)]
    pub told_period_ms: Vec<i64>,
    /// How often a rank rose.
    pub rises: Vec<u16>,
    /// The largest rises: (row, from, to, when). They are rare, so this is not a column.
    pub worst_rises: Vec<(u32, u64, u64, u32)>,
    /// Users who were told when the zone opens: (row, when the call was sent, how long it took, time until the opening).
    #[serde(default)]
    pub opens: Vec<(u32, u32, u32, u32)>,
    /// Users who were told that the order is still to be drawn: (row, when last).
    #[serde(default)]
    pub undrawn: Vec<(u32, u32)>,
    /// Users who were told a rank after a draw: (row, rank, when the call was sent, how long it took).
    #[serde(default)]
    pub placed: Vec<(u32, u32, u32, u32)>,
    /// The digest of the pass; 0 for none. Files of earlier versions do not have this column.
    #[serde(default)]
    pub pass: Vec<u64>,
    /// Rows of users who asked again and received another pass or none.
    pub second_pass: Vec<u32>,
    /// Rows of users who asked again after entering and were answered.
    #[serde(default)]
    pub asked_again: Vec<u32>,
    /// Users whose last calls all failed: (row, since when).
    #[serde(default)]
    pub unanswered_since: Vec<(u32, u32)>,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What stands for a missing number.
const MISSING: i64 = -1;

/// A call from two columns: none in the inner option if the story has none, in the outer one if the numbers are damaged.
fn call(sent: i64, took: i64) -> Option<Option<Call>> {
    if (sent, took) == (MISSING, MISSING) {
        return Some(None);
    }
    made_call(sent.try_into().ok()?, took.try_into().ok()?).map(Some)
}

fn made_call(sent_ms: u32, took_ms: u32) -> Option<Call> {
    Some(Call { sent_ms, heard_ms: sent_ms.checked_add(took_ms)? })
}

impl Columns {
    /// The columns of `stories`.
    #[must_use]
    pub fn of(stories: &[Story]) -> Self {
        let mut columns = Self::default();
        for story in stories {
            columns.push(story);
        }
        columns
    }

    fn push(&mut self, story: &Story) {
        let row = u32::try_from(self.user.len()).unwrap_or(u32::MAX);
        self.worker.push(story.who.0);
        self.user.push(story.who.1);
        self.end.push(match story.end {
            End::Entered => 0,
            End::Left => 1,
            End::Gone => 2,
            End::Waiting => 3,
            End::Outside => 4,
            End::NoPlace => 5,
        });
        self.ended_ms.push(story.ended_ms);
        let took = |call: Call| i64::from(call.heard_ms.saturating_sub(call.sent_ms));
        let pair = |call: Option<Call>| {
            call.map_or((MISSING, MISSING), |call| (i64::from(call.sent_ms), took(call)))
        };
        for (call, sents, tooks) in [
            (story.arrived, &mut self.arrived_sent_ms, &mut self.arrived_took_ms),
            (story.last_waiting, &mut self.waiting_sent_ms, &mut self.waiting_took_ms),
            (story.entered, &mut self.entered_sent_ms, &mut self.entered_took_ms),
        ] {
            let (sent, took) = pair(call);
            sents.push(sent);
            tooks.push(took);
        }
        let told = story.first_told;
        self.told_eta_s.push(told.map_or(MISSING, |told| told.eta_s.into()));
        self.told_from_s.push(told.map_or(MISSING, |told| told.range_s.0.into()));
        self.told_to_s.push(told.map_or(MISSING, |told| told.range_s.1.into()));
        self.told_rank.push(told.map_or(MISSING, |told| signed(told.rank)));
        self.told_at_ms.push(told.map_or(MISSING, |told| told.at_ms.into()));
        self.silence_ms.push(story.longest_silence_ms);
        self.lapses.push(story.lapses);
        for &Silence { kept_ms, ended } in &story.silences {
            self.silences.push((row, kept_ms, ended.sent_ms, ended.heard_ms.saturating_sub(ended.sent_ms)));
        }
        if let Some(Excused { from_ms, to_ms }) = story.excused {
            self.excused.push((row, from_ms, to_ms));
        }
        self.told_period_ms.push(story.told_period_ms.map_or(MISSING, i64::from));
        self.rises.push(story.rises);
        if let Some(Rise { from, to, at_ms }) = story.worst_rise {
            self.worst_rises.push((row, from, to, at_ms));
        }
        if let Some(ToldOpening { told, in_ms }) = story.opens {
            self.opens.push((row, told.sent_ms, told.heard_ms.saturating_sub(told.sent_ms), in_ms));
        }
        if let Some(at_ms) = story.undrawn_ms {
            self.undrawn.push((row, at_ms));
        }
        if let Some(Placed { rank, told }) = story.placed {
            self.placed.push((row, rank, told.sent_ms, told.heard_ms.saturating_sub(told.sent_ms)));
        }
        self.pass.push(story.pass.map_or(0, NonZeroU64::get));
        if story.second_pass {
            self.second_pass.push(row);
        }
        if story.asked_again {
            self.asked_again.push(row);
        }
        if let Some(since_ms) = story.unanswered_since_ms {
            self.unanswered_since.push((row, since_ms));
        }
    }

    /// The stories. None if the columns are not equally long or hold a number that [`Self::of`] does not write.
    #[must_use]
    pub fn stories(&self) -> Option<Vec<Story>> {
        let rows = self.user.len();
        let are_equal = self.lengths().iter().all(|&length| length == rows);
        let is_new = |length: usize| length == 0 || length == rows;
        if !are_equal || !is_new(self.pass.len()) || !is_new(self.told_period_ms.len()) {
            return None;
        }
        let mut stories = (0..rows).map(|row| self.story(row)).collect::<Option<Vec<_>>>()?;
        for &(row, from, to, at_ms) in &self.worst_rises {
            stories.get_mut(row as usize)?.worst_rise = Some(Rise { from, to, at_ms });
        }
        for &(row, kept_ms, sent_ms, took_ms) in &self.silences {
            let ended = made_call(sent_ms, took_ms)?;
            stories.get_mut(row as usize)?.silences.push(Silence { kept_ms, ended });
        }
        for &(row, from_ms, to_ms) in &self.excused {
            stories.get_mut(row as usize)?.excused = Some(Excused { from_ms, to_ms });
        }
        for (story, &period_ms) in stories.iter_mut().zip(&self.told_period_ms) {
            story.told_period_ms = match period_ms {
                MISSING => None,
                period_ms => Some(period_ms.try_into().ok()?),
            };
        }
        for &(row, sent_ms, took_ms, in_ms) in &self.opens {
            let told = made_call(sent_ms, took_ms)?;
            stories.get_mut(row as usize)?.opens = Some(ToldOpening { told, in_ms });
        }
        for &(row, at_ms) in &self.undrawn {
            stories.get_mut(row as usize)?.undrawn_ms = Some(at_ms);
        }
        for &(row, rank, sent_ms, took_ms) in &self.placed {
            let told = made_call(sent_ms, took_ms)?;
            stories.get_mut(row as usize)?.placed = Some(Placed { rank, told });
        }
        for &row in &self.second_pass {
            stories.get_mut(row as usize)?.second_pass = true;
        }
        for &row in &self.asked_again {
            stories.get_mut(row as usize)?.asked_again = true;
        }
        for &(row, since_ms) in &self.unanswered_since {
            stories.get_mut(row as usize)?.unanswered_since_ms = Some(since_ms);
        }
        Some(stories)
    }

    /// How long the columns are that have a number for each story.
    fn lengths(&self) -> [usize; 18] {
        [
            self.worker.len(),
            self.user.len(),
            self.end.len(),
            self.ended_ms.len(),
            self.arrived_sent_ms.len(),
            self.arrived_took_ms.len(),
            self.waiting_sent_ms.len(),
            self.waiting_took_ms.len(),
            self.entered_sent_ms.len(),
            self.entered_took_ms.len(),
            self.told_eta_s.len(),
            self.told_from_s.len(),
            self.told_to_s.len(),
            self.told_rank.len(),
            self.told_at_ms.len(),
            self.silence_ms.len(),
            self.lapses.len(),
            self.rises.len(),
        ]
    }

    /// The first expected wait: none in the inner option if the story has none, in the outer one if its numbers are damaged.
    fn first_told(&self, row: usize) -> Option<Option<ToldWait>> {
        let columns =
            [&self.told_eta_s, &self.told_from_s, &self.told_to_s, &self.told_rank, &self.told_at_ms];
        let mut numbers = [MISSING; 5];
        for (number, column) in numbers.iter_mut().zip(columns) {
            *number = *column.get(row)?;
        }
        if numbers == [MISSING; 5] {
            return Some(None);
        }
        let [eta_s, from_s, to_s, rank, at_ms] = numbers;
        let seconds = |number: i64| u32::try_from(number).ok();
        Some(Some(ToldWait {
            eta_s: seconds(eta_s)?,
            range_s: (seconds(from_s)?, seconds(to_s)?),
            rank: u64::try_from(rank).ok()?,
            at_ms: seconds(at_ms)?,
        }))
    }

    fn story(&self, row: usize) -> Option<Story> {
        Some(Story {
            arrived: call(*self.arrived_sent_ms.get(row)?, *self.arrived_took_ms.get(row)?)?,
            last_waiting: call(*self.waiting_sent_ms.get(row)?, *self.waiting_took_ms.get(row)?)?,
            entered: call(*self.entered_sent_ms.get(row)?, *self.entered_took_ms.get(row)?)?,
            first_told: self.first_told(row)?,
            opens: None,
            undrawn_ms: None,
            placed: None,
            longest_silence_ms: *self.silence_ms.get(row)?,
            lapses: *self.lapses.get(row)?,
            silences: Vec::new(),
            excused: None,
            told_period_ms: None,
            rises: *self.rises.get(row)?,
            worst_rise: None,
            pass: self.pass.get(row).copied().and_then(NonZeroU64::new),
            second_pass: false,
            asked_again: false,
            unanswered_since_ms: None,
            who: (*self.worker.get(row)?, *self.user.get(row)?),
            end: match self.end.get(row)? {
                0 => End::Entered,
                1 => End::Left,
                2 => End::Gone,
                3 => End::Waiting,
                4 => End::Outside,
                5 => End::NoPlace,
                _ => return None,
            },
            ended_ms: *self.ended_ms.get(row)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_survive_the_way_through_columns() {
        let full = Story {
            arrived: Some(Call { sent_ms: 0, heard_ms: 3 }),
            last_waiting: Some(Call { sent_ms: 3000, heard_ms: 3001 }),
            entered: Some(Call { sent_ms: 6000, heard_ms: 6000 }),
            first_told: Some(ToldWait { eta_s: 0, range_s: (0, 9), rank: 1, at_ms: 3 }),
            opens: Some(ToldOpening { told: Call { sent_ms: 2_000, heard_ms: 2_004 }, in_ms: 3_000 }),
            undrawn_ms: Some(2_004),
            placed: Some(Placed { rank: 7, told: Call { sent_ms: 3000, heard_ms: 3001 } }),
            longest_silence_ms: 3000,
            lapses: 2,
            silences: [(3_000, 9_000), (12_000, 19_000)]
                .map(|(kept_ms, sent_ms)| Silence { kept_ms, ended: Call { sent_ms, heard_ms: sent_ms + 4 } })
                .to_vec(),
            excused: Some(Excused { from_ms: 12_000, to_ms: 19_000 }),
            told_period_ms: Some(3_000),
            rises: 2,
            worst_rise: Some(Rise { from: 1, to: 5, at_ms: 3001 }),
            pass: NonZeroU64::new(u64::MAX),
            second_pass: true,
            asked_again: true,
            unanswered_since_ms: Some(7_000),
            who: (3, 77),
            end: End::Entered,
            ended_ms: 6000,
        };
        let bare = Story { ended_ms: 1, ..Story::new((0, 0)) };
        for end in [End::Left, End::Gone, End::Waiting, End::NoPlace] {
            let stories = [full.clone(), bare.clone(), Story { end, ..full.clone() }];
            let json = serde_json::to_string(&Columns::of(&stories)).expect("columns");
            let columns: Columns = serde_json::from_str(&json).expect("columns");
            assert_eq!(columns.stories().expect("columns"), stories);
        }
    }

    #[test]
    fn a_file_from_before_some_columns_is_read() {
        let story = Story { pass: NonZeroU64::new(7), told_period_ms: Some(3), ..Story::new((0, 1)) };
        let mut old = serde_json::to_value(Columns::of(&[story])).expect("columns");
        for column in ["pass", "told_period_ms"] {
            old.as_object_mut().expect("columns").remove(column).expect("a column");
        }
        let columns: Columns = serde_json::from_value(old).expect("columns");
        assert_eq!(columns.stories().expect("columns"), [Story::new((0, 1))]);
    }

    /// Each column with one row less, and each number that no story has: no user may be lost without a word.
    #[test]
    fn a_damaged_column_is_refused() {
        let story = |user| Story {
            arrived: Some(Call { sent_ms: 1, heard_ms: 3 }),
            entered: Some(Call { sent_ms: 6, heard_ms: 7 }),
            first_told: Some(ToldWait { eta_s: 0, range_s: (0, 9), rank: 1, at_ms: 3 }),
            ..Story::new((0, user))
        };
        let sound = serde_json::to_value(Columns::of(&[story(1), story(2)])).expect("columns");
        let is_damaged = |json: &serde_json::Value| {
            let columns = serde_json::from_value::<Columns>(json.clone());
            columns.ok().and_then(|columns| columns.stories()).is_none()
        };
        assert!(!is_damaged(&sound));
        let names: Vec<_> = sound.as_object().expect("columns").keys().cloned().collect();
        for name in names.iter().filter(|name| sound[*name].as_array().is_some_and(|rows| rows.len() == 2)) {
            let mut short = sound.clone();
            short[name].as_array_mut().expect("a column").pop();
            assert!(is_damaged(&short), "{name}");
        }
        for (name, number) in [
            ("entered_sent_ms", 1_i64 << 62),
            ("entered_sent_ms", -1),
            ("entered_took_ms", -2),
            ("entered_took_ms", u32::MAX.into()),
            ("waiting_sent_ms", 5),
            ("arrived_took_ms", -1),
            ("told_eta_s", -1),
            ("told_rank", -2),
            ("told_at_ms", 1 << 40),
            ("told_period_ms", -2),
            ("told_period_ms", 1 << 40),
        ] {
            let mut wrong = sound.clone();
            wrong[name][1] = number.into();
            assert!(is_damaged(&wrong), "{name}: {number}");
        }
    }

    #[test]
    fn columns_of_different_lengths_are_refused() {
        let mut columns = Columns::default();
        columns.user.push(1);
        assert_eq!(columns.stories(), None);
    }
}
