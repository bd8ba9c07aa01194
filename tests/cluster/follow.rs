//! The story of one place: `WEIR_CLUSTER_FOLLOW` names the number of a ticket, and the story of a run says after which scripts its bits change.
//!
//! It reads what the scripts wrote, and changes nothing.

use crate::redis::Data;

const SEGMENT: u64 = 65_536;

/// What the state says of one number.
pub(crate) struct Follow {
    number: u64,
    said: String,
}

impl Follow {
    /// The place that the setting names, if one does.
    pub(crate) fn from_setting() -> Option<Self> {
        let number = std::env::var("WEIR_CLUSTER_FOLLOW").ok()?;
        Some(Self { number: number.parse().expect("the number of a ticket"), said: String::new() })
    }

    /// What to tell of the place, if it is not as it was.
    pub(crate) fn after(&mut self, data: &Data, prefix: &str) -> Option<String> {
        let (segment, bit) = (self.number / SEGMENT, usize::try_from(self.number % SEGMENT).expect("small"));
        let set = |key: &str, bit: usize| {
            let byte = data.text(&format!("{prefix}{segment}:{key}")).get(bit / 8).copied().unwrap_or(0);
            byte >> (7 - bit % 8) & 1 == 1
        };
        let age: usize = (0..4).map(|plane| usize::from(set(&format!("a{plane}"), bit)) << plane).sum();
        let entries = data.text(&format!("{prefix}{segment}:entry"));
        let is_in =
            entries.get(bit * 12..bit * 12 + 12).is_some_and(|entry| entry.iter().any(|byte| *byte != 0));
        let words = [
            (set("live", bit), "waits"),
            (set("here", bit), "present"),
            (is_in, "entered"),
            (set("in", bit), "inside"),
            (set("lost", bit), "gone as servers remember"),
            (set("lost", bit + usize::try_from(SEGMENT).expect("small")), "does not come back"),
        ];
        let mut said: Vec<String> =
            words.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| (*word).to_owned()).collect();
        if set("live", bit) {
            said.push(format!("age {age}"));
        }
        let said = if said.is_empty() { "unknown".to_owned() } else { said.join(", ") };
        (said != self.said).then(|| {
            self.said.clone_from(&said);
            format!("place {}: {said}", self.number)
        })
    }
}
