//! What an auditor judged, and floors for it. A run of tests that judged too little fails, because it would find nothing.
//!
//! Invariant: a floor is a number for each hundred runs. It counts for the runs of the test command, which are the same each time, and for
//! other ranges of seeds from [`FEWEST_RUNS`] runs on: fewer can differ by chance.

/// Makes the type `Judged` of an auditor: how often each thing was judged, with its name.
macro_rules! judged {
    ($($(#[$what:meta])* $field:ident = $name:literal;)+) => {
        /// How much an auditor judged.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Judged {
            $($(#[$what])* pub(crate) $field: u64,)+
        }

        impl Judged {
            /// Each count, with its name.
            pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field)),+]
            }

            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}
pub(crate) use judged;

/// The counts in words.
pub(crate) fn words(counts: &[(&str, u64)]) -> String {
    let words: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    words.join(", ")
}

/// Asserts that so many runs, from seed `first` on, judged enough.
///
/// # Panics
/// If they did not.
pub(crate) fn assert_enough(counts: &[(&str, u64)], floors: &[(&str, u64)], (first, runs): (u64, u64)) {
    let too_few = too_few(counts, floors, (first, runs));
    assert!(too_few.is_empty(), "too little was judged: {}", too_few.join("; "));
}

/// The first seed of the test command's runs. They are at least so many.
const FIRST_SEED: u64 = 1;
const FEWEST_OF_TESTS: u64 = 30;

/// The fewest runs for which floors count in another range of seeds.
const FEWEST_RUNS: u64 = 300;

/// What was judged less often than its floor says, which is a number for each hundred runs.
fn too_few(counts: &[(&str, u64)], floors: &[(&str, u64)], (first, runs): (u64, u64)) -> Vec<String> {
    if runs < if first == FIRST_SEED { FEWEST_OF_TESTS } else { FEWEST_RUNS } {
        return Vec::new();
    }
    let found = |name: &str| counts.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    let least = |floor: u64| floor * runs / 100;
    let below = floors.iter().filter(|(name, floor)| found(name) < least(*floor));
    below
        .map(|(name, floor)| format!("{} {name}, at least {} expected", found(name), least(*floor)))
        .collect()
}

#[test]
fn what_is_not_judged_is_noticed() {
    let floors = [("windows", 100), ("pairs", 10)];
    assert!(too_few(&[("windows", 200), ("pairs", 20)], &floors, (1, 200)).is_empty());
    assert_eq!(too_few(&[("windows", 199), ("pairs", 20)], &floors, (1, 200)).len(), 1);
    assert_eq!(too_few(&[("windows", 200)], &floors, (1, 200)), ["0 pairs, at least 20 expected"]);
    assert!(too_few(&[], &floors, (1, 29)).is_empty(), "a few runs are no sample");
    assert!(too_few(&[], &floors, (7_000, 299)).is_empty(), "others differ by chance");
    assert_eq!(too_few(&[], &floors, (7_000, 300)).len(), 2);
}
