//! Whether a line's people are counted as they were: how many left at each age, and how long all of them could have.

use crate::{
    law::Patience,
    line::{Scenario, World},
    table::{base, say},
};

/// The lower bounds of the ages of the counts, in seconds.
const BOUNDS_S: [f64; 13] = [0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 360.0];

/// Of each age: how many left, and the seconds that people waited.
type Counts = [[f64; 2]; BOUNDS_S.len() - 1];

impl World<'_> {
    fn counted(&self) -> Counts {
        let bytes = self.learned_by_first_server().to_bytes();
        let number = |i: usize| f32::from_le_bytes(bytes[1 + 4 * i..][..4].try_into().expect("four bytes"));
        std::array::from_fn(|age| [number(2 * age).into(), number(2 * age + 1).into()])
    }

    fn true_counts(&self) -> Counts {
        std::array::from_fn(|age| {
            let (from_s, to_s) = (BOUNDS_S[age], BOUNDS_S[age + 1]);
            let of = |user: &crate::line::User| {
                let until_s = (user.leaves_ms.min(user.entered_ms) - user.joined_ms) as f64 / 1_000.0;
                let left = user.leaves_ms < user.entered_ms && (from_s..to_s).contains(&until_s);
                [f64::from(u8::from(left)), (until_s.min(to_s) - from_s).max(0.0)]
            };
            self.users.iter().map(of).fold([0.0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
        })
    }
}

/// The ages of the last people of a line are no exception, nor are those at which people have stopped leaving. In the first
/// seconds people are noticed too late to say at which age they left.
#[test]
fn who_leaves_is_counted_at_the_right_age() {
    let lines = [
        Scenario { patience: Patience::Exponential, ..base() },
        Scenario { patience: Patience::Even(0.42), ..base() },
        Scenario { patience: Patience::Even(0.6), scale_s: Some(60.0), ..base() },
        Scenario { servers: 2, ..base() },
    ];
    for line in lines {
        let mut world = World::new(&line, 7);
        world.play(false);
        let (found, is) = (world.counted(), world.true_counts());
        say(&format!("{:?}: {found:.0?}\nis {is:.0?}", line.patience));
        for (age, ([left, waited_s], [is_left, is_s])) in found.into_iter().zip(is).enumerate().skip(3) {
            // Where people stop leaving, the last ones are seen some seconds late: with them, their time counts.
            assert!((0.85..1.35).contains(&(waited_s / is_s)), "age {age}: {waited_s} s for {is_s} s");
            // Some of those who left just before the end of an age are counted behind it.
            let expected = is_left * waited_s / is_s;
            let most = 0.07 * expected + 2.0 * expected.sqrt() + 0.002 * waited_s;
            assert!((left - expected).abs() < most, "age {age}: {left} left, and not {expected}");
        }
    }
}
