//! The least error that the expected waits of a run could have had: that of somebody who knows everything but whom chance makes leave.
//! Reports call it the floor.
//!
//! That person knows who waits, how patient the users of this run are on average, and when every entry comes. The wait of a user is
//! over when as many have entered as are expected to stay until then of those ahead. What remains is the line's own randomness, and
//! the time until a user asks.
//!
//! Invariant: only what happened is used, so this works for any server and any profile.

use crate::{
    format::float,
    story::{End, Story},
};

/// At most so many users are looked at, evenly over the run: each one costs a walk over all who came before.
const MOST_USERS: usize = 200;

/// The times waited are counted in steps of so many milliseconds.
const STEP_MS: u32 = 250;

/// The least mean wait, in seconds.
const LEAST_S: f64 = 1.0;

/// A user who waited.
struct Person {
    came_ms: u32,
    ended_ms: u32,
    /// The time of the first expected wait, and the people ahead then; none if the user did not enter.
    told: Option<(u32, f64)>,
}

/// The mean absolute error, as a share of the mean wait. None if nobody was told a wait and entered.
pub(super) fn least_eta_error(stories: &[Story]) -> Option<f64> {
    let mut people: Vec<Person> = stories.iter().filter_map(person).collect();
    people.sort_unstable_by_key(|person| person.came_ms);
    let mut entries: Vec<u32> = stories.iter().filter_map(|story| Some(story.entered?.heard_ms)).collect();
    entries.sort_unstable();
    let stays = stays(stories);
    let told: Vec<usize> = (0..people.len()).filter(|&i| people[i].told.is_some()).collect();
    let (mut off, mut waited) = (0.0, 0.0);
    for &i in told.iter().step_by(told.len().div_ceil(MOST_USERS).max(1)) {
        let Some((at_ms, ahead)) = people[i].told else { continue };
        let expected_ms = expected_ms(&people[..i], at_ms, ahead, &entries, &stays);
        let actual_ms = f64::from(people[i].ended_ms - at_ms);
        off += (expected_ms - actual_ms).abs() / 1_000.0;
        waited += actual_ms / 1_000.0;
    }
    (!told.is_empty()).then(|| off / waited.max(LEAST_S))
}

fn person(story: &Story) -> Option<Person> {
    let came_ms = story.arrived?.heard_ms;
    let ended_ms = story.entered.map_or(story.ended_ms, |entered| entered.heard_ms);
    let told = story.first_told.filter(|told| story.entered.is_some() && told.at_ms <= ended_ms);
    // A user who came and entered with the same call did not wait.
    (ended_ms > came_ms).then_some(Person {
        came_ms,
        ended_ms,
        told: told.map(|told| (told.at_ms, float(told.rank.saturating_sub(1)))),
    })
}

/// The wait from `at_ms` of somebody with so many people `ahead`, who are like those of `before` that wait then.
fn expected_ms(before: &[Person], at_ms: u32, ahead: f64, entries: &[u32], stays: &[f64]) -> f64 {
    let entered = entries.partition_point(|&entry| entry <= at_ms);
    let wait_ms = |slots: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "fewer than the users")]
        let next = entries.get(entered + slots as usize).or(entries.last());
        next.map_or(0, |entry| entry.saturating_sub(at_ms))
    };
    let (mut waiting, mut staying) = (0.0, 0.0);
    for person in before {
        if person.came_ms > at_ms || person.ended_ms <= at_ms {
            continue;
        }
        let age_ms = at_ms - person.came_ms;
        waiting += 1.0;
        staying += after(stays, age_ms + wait_ms(staying)) / after(stays, age_ms).max(1e-9);
    }
    // Whoever came at nearly the same time may be ahead or behind. The rank says how many are ahead.
    let share = if waiting > 0.0 { staying / waiting } else { 1.0 };
    f64::from(wait_ms(ahead * share))
}

/// The share of the users who stay that long, if they do not enter (Kaplan and Meier 1958), by steps.
fn stays(stories: &[Story]) -> Vec<f64> {
    let spent = |story: &Story| {
        let end_ms = story.entered.map_or(story.ended_ms, |entered| entered.heard_ms);
        Some((end_ms.saturating_sub(story.arrived?.heard_ms) / STEP_MS) as usize)
    };
    let (mut ends, mut leaves) = (Vec::new(), Vec::new());
    for story in stories {
        let Some(step) = spent(story) else { continue };
        if ends.len() <= step {
            ends.resize(step + 1, 0_u64);
            leaves.resize(step + 1, 0_u64);
        }
        ends[step] += 1;
        leaves[step] += u64::from(story.end == End::Left);
    }
    let (mut here, mut share) = (ends.iter().sum::<u64>(), 1.0);
    let after_step = |(ended, left): (u64, u64)| {
        share *= 1.0 - float(left) / float(here.max(1));
        here -= ended;
        share
    };
    ends.into_iter().zip(leaves).map(after_step).collect()
}

/// The share after a time waited.
fn after(stays: &[f64], waited_ms: u32) -> f64 {
    match (waited_ms / STEP_MS) as usize {
        0 => 1.0,
        steps => stays.get(steps - 1).or(stays.last()).copied().unwrap_or(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{Call, ToldWait};

    /// A line of users who come within a second, of whom some leave; one enters every 100 ms. The waits that were told do not matter here.
    fn line(users: u32, leaves_ms: impl Fn(u32) -> Option<u32>) -> Vec<Story> {
        let mut slot_ms = 1_000;
        let told = |number| {
            let came_ms = number * 1_000 / users;
            let mut story = Story::new((1, number));
            story.arrived = Some(Call { sent_ms: came_ms, heard_ms: came_ms });
            // All who came before are still there then.
            story.first_told =
                Some(ToldWait { eta_s: 1, range_s: (1, 1), rank: u64::from(number) + 1, at_ms: 1_000 });
            let leaves_ms = leaves_ms(number).map(|ms| came_ms + ms).filter(|ms| *ms < slot_ms + 100);
            if let Some(leaves_ms) = leaves_ms {
                (story.end, story.ended_ms) = (End::Left, leaves_ms);
            } else {
                slot_ms += 100;
                story.entered = Some(Call { sent_ms: slot_ms, heard_ms: slot_ms });
                (story.end, story.ended_ms) = (End::Entered, slot_ms);
            }
            story
        };
        (0..users).map(told).collect()
    }

    /// Thirty-five of a hundred leave, at times that are spread evenly over a minute. A fixed mixing function stands for chance.
    fn some_leave(number: u32) -> Option<u32> {
        let mixed = number.wrapping_mul(2_654_435_769) >> 8;
        (mixed % 100 < 35).then_some(5_000 + mixed / 100 % 55_000)
    }

    #[test]
    fn a_line_that_nobody_leaves_can_be_foretold() {
        let least = least_eta_error(&line(2_000, |_| None)).expect("they entered");
        assert!(least < 0.001, "{least}");
    }

    #[test]
    fn leavers_make_it_uncertain_by_little() {
        let stories = line(2_000, some_leave);
        let least = least_eta_error(&stories).expect("they entered");
        assert!((0.0001..0.02).contains(&least), "{least}");
        // Somebody who does not know that people leave is wrong by far more.
        let entered = stories.iter().filter_map(|story| Some((story.entered?.heard_ms, story.first_told?)));
        let (off, waited) = entered.fold((0.0, 0.0), |(off, waited), (entered_ms, told)| {
            let actual = f64::from(entered_ms - told.at_ms);
            (off + (float(told.rank) * 100.0 - actual).abs(), waited + actual)
        });
        assert!(off / waited > 10.0 * least, "{}", off / waited);
    }

    #[test]
    fn without_entries_there_is_none() {
        assert_eq!(least_eta_error(&[]), None);
        assert_eq!(least_eta_error(&[Story::new((1, 1))]), None);
    }

    #[test]
    fn who_stays_is_counted_among_those_who_could_leave() {
        // Of four, one leaves after 1 s, one enters after 2 s, and one of the two that are left leaves after 3 s.
        let ended = |number: u32, end, at_ms| {
            let mut story = Story::new((1, number));
            story.arrived = Some(Call { sent_ms: 0, heard_ms: 0 });
            (story.end, story.ended_ms) = (end, at_ms);
            story
        };
        let stories = [
            ended(1, End::Left, 1_000),
            ended(2, End::Entered, 2_000),
            ended(3, End::Left, 3_000),
            ended(4, End::Waiting, 9_000),
        ];
        let stays = stays(&stories);
        let at = |ms| after(&stays, ms);
        assert_eq!((at(0), at(1_000), at(1_250), at(3_000), at(3_250)), (1.0, 1.0, 0.75, 0.75, 0.375));
    }
}
