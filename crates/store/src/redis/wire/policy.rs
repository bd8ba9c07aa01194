//! Policies and definitions as the scripts and the register have them. The table of a policy's fields says which numbers
//! there are.
//!
//! Invariant: servers of different versions share a register. The text of a definition that uses no newer field is the same
//! in all versions, and a text with more numbers than this server knows is refused.

use admission::{
    Definition, Event, FIELDS, FIELDS_LEN, FIRST_FIELDS, Field, FieldUsedBy, Notice, OnStoreFailure, Policy,
    RULE_FIELDS, SECOND_FIELDS, Schedule,
};

use super::Garbled;

/// How many of the fields that the rules read the first version had. In a header, the others come behind everything else.
pub(super) const FIRST_RULES: usize = 7;

/// And how many the version had that counted the people inside.
pub(super) const SECOND_RULES: usize = 9;

fn rule_fields() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| field.used_by == FieldUsedBy::Rules)
}

/// How many numbers of a policy the rules read: the fields, and the draw of an event.
pub(in crate::redis) const POLICY_NUMBERS: usize = RULE_FIELDS + 1;

/// The numbers of a policy that the rules read, in the order of POLICY in `lua/zone.lua`.
pub(in crate::redis) fn policy_numbers(policy: &Policy) -> [u32; POLICY_NUMBERS] {
    let mut numbers = [0; POLICY_NUMBERS];
    for (number, field) in numbers.iter_mut().zip(rule_fields()) {
        *number = field.number(policy);
    }
    numbers[RULE_FIELDS] = policy.opens_at.draw;
    numbers
}

/// The policy with these numbers of [`policy_numbers`], if it is valid. Fields that the rules do not read have their default.
pub(super) fn of_rule_numbers(numbers: &[u32; POLICY_NUMBERS]) -> Option<Policy> {
    let mut policy = policy_of(rule_fields().zip(numbers.iter().copied()))?;
    policy.opens_at.draw = numbers[RULE_FIELDS];
    Some(policy)
}

fn policy_of(numbers: impl Iterator<Item = (&'static Field, u32)>) -> Option<Policy> {
    let mut policy = Policy::default();
    for (field, number) in numbers {
        if !set(field, &mut policy, number) {
            return None;
        }
    }
    policy.check().ok()
}

/// Sets a field to a number that the store has. Returns false if the number is of no word.
///
/// Every version reads each number but 0 of `on_store_failure` as `open`. A zone with such a number, which a newer server or a
/// person wrote, is served on: an error here would stop the zone, or even all zones of the register.
fn set(field: &Field, policy: &mut Policy, number: u32) -> bool {
    let number = match field.name {
        "on_store_failure" => number.min(OnStoreFailure::Open as u32),
        _ => number,
    };
    field.set(policy, number)
}

/// A policy as the register has it: the numbers of its fields, up to the last one that has another value than its default.
/// Older servers can read a policy that uses no newer field.
fn policy_text(policy: &Policy) -> String {
    let used =
        FIELDS.iter().rposition(|field| field.number(policy) != field.default()).map_or(0, |at| at + 1);
    let len = match used {
        0..=FIRST_FIELDS => FIRST_FIELDS,
        // The second version reads texts of this many numbers, or of the first version's.
        _ => used.max(SECOND_FIELDS),
    };
    FIELDS[..len].iter().map(|field| field.number(policy).to_string()).collect::<Vec<_>>().join(" ")
}

/// Parses the text of [`policy_text`]. Fields without a number have their default.
fn parse_policy(text: &str) -> Result<Policy, Garbled> {
    let fault = Garbled("a policy of the register");
    let numbers: Vec<u32> =
        text.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| fault.clone())?;
    match numbers.len() {
        FIRST_FIELDS | SECOND_FIELDS..=FIELDS_LEN => policy_of(FIELDS.iter().zip(numbers)).ok_or(fault),
        _ => Err(fault),
    }
}

/// A definition as the register has it: the policy, then [`Definition::push_texts`]. So an older server can read the zones that have
/// no notice and no event.
pub(in crate::redis) fn definition_text(definition: &Definition) -> String {
    let mut text = policy_text(&definition.policy);
    definition.push_texts(&mut text);
    text
}

/// Parses the text of [`definition_text`].
pub(in crate::redis) fn parse_definition(text: &[u8]) -> Result<Definition, Garbled> {
    let fault = Garbled("a definition of the register");
    let text = std::str::from_utf8(text).map_err(|_| fault.clone())?;
    let mut parts = text.split('\t');
    let policy = parse_policy(parts.next().unwrap_or_default())?;
    let (mut notice, mut events) = (Vec::new(), Vec::new());
    while let Some(name) = parts.next() {
        let text = parts.next().ok_or_else(|| fault.clone())?;
        if name == Definition::EVENT {
            events.push(Event::parse(text).map_err(|_| fault.clone())?);
        } else {
            notice.push((name, text));
        }
    }
    let notice = Notice::new(notice).map_err(|_| fault.clone())?;
    let schedule = Schedule::new(events, &policy).map_err(|_| fault)?;
    Ok(Definition { policy, notice, schedule })
}

#[cfg(test)]
mod tests {
    use admission::{FieldKind, Mode};

    use super::*;

    #[test]
    fn every_field_of_a_policy_is_kept() {
        for field in FIELDS {
            let mut policy = Policy { idle_timeout_s: 3_600, ..Policy::default() };
            let number = match field.kind {
                FieldKind::Number { high, .. } => high,
                FieldKind::Word { words, .. } => u32::try_from(words.len() - 1).expect("few words"),
                FieldKind::Instant => 1_790_000_000,
            };
            assert!(field.set(&mut policy, number), "{}", field.name);
            assert_eq!(parse_policy(&policy_text(&policy)), Ok(policy), "{}", field.name);
        }
    }

    #[test]
    fn notices_survive_a_round_trip() {
        let policy = Policy::default();
        for said in [&[][..], &[("en", "One.\n\nTwo. ")], &[("en", "a"), ("ko", "안내 \u{1f44b}")]] {
            let notice = Notice::new(said.iter().copied()).expect("a notice");
            let definition = Definition { notice, ..policy.into() };
            let text = definition_text(&definition);
            assert_eq!(parse_definition(text.as_bytes()), Ok(definition));
            assert!(text.starts_with(&policy_text(&policy)));
        }
        let before = policy_text(&policy);
        assert_eq!(parse_definition(before.as_bytes()), Ok(policy.into()));
        for bad in ["\ten", "\ten\t", "\tEN\ta", "\ten\ta\tko", "\ten\ta\r"] {
            assert!(parse_definition(format!("{before}{bad}").as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn policies_without_limits_keep_the_old_format() {
        let before = "1 600 10 3000 60 300 1";
        let policy = parse_policy(before).expect("a policy");
        assert_eq!((policy.mode, policy.on_store_failure), (Mode::Hold, OnStoreFailure::Open));
        assert_eq!((policy.waits_per_minute_per_client, policy.entries_per_minute_per_client), (0, 0));
        assert_eq!(policy_text(&policy), before);
        for (waits, entries) in [(5, 0), (0, 60), (7, 600)] {
            let limited = Policy {
                waits_per_minute_per_client: waits,
                entries_per_minute_per_client: entries,
                ..policy
            };
            let text = policy_text(&limited);
            assert_eq!(text, format!("{before} {waits} {entries}"));
            assert_eq!(parse_policy(&text), Ok(limited));
        }
        let too_many = before.to_owned() + &" 0".repeat(FIELDS_LEN + 1 - FIRST_FIELDS);
        for bad in ["", "1 600 10 3000 60 300", "1 600 10 3000 60 300 1 5", &too_many] {
            assert!(parse_policy(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_bound_is_read_and_the_default_is_not_written() {
        let text = "1 600 10 3000 60 300 1 0 0 1000";
        let policy = parse_policy(text).expect("a policy");
        assert_eq!((policy.max_waiting, policy_text(&policy).as_str()), (1_000, text));
        let usual = Policy { max_waiting: Policy::default().max_waiting, ..policy };
        assert_eq!(policy_text(&usual), "1 600 10 3000 60 300 1");
    }

    /// A newer server or a person may have written such a number. Older versions read it as `open`, too.
    #[test]
    fn every_number_of_on_store_failure_but_0_is_open() {
        for number in [1, 2, 7, u32::MAX] {
            let text = format!("1 600 10 3000 60 300 {number}");
            let read = parse_policy(&text).expect("a policy");
            assert_eq!((read.mode, read.on_store_failure), (Mode::Hold, OnStoreFailure::Open), "{number}");
            assert_eq!(of_rule_numbers(&[1, 600, 10, 3_000, 60, 300, number, 900, 0, 0, 0]), Some(read));
            assert_eq!(policy_text(&read), "1 600 10 3000 60 300 1");
        }
        assert!(parse_policy("4 600 10 3000 60 300 0").is_err(), "there is no such mode");
        assert_eq!(of_rule_numbers(&[4, 600, 10, 3_000, 60, 300, 0, 900, 0, 0, 0]), None);
        assert_eq!(of_rule_numbers(&[0, 0, 10, 3_000, 60, 300, 0, 900, 0, 0, 0]), None, "out of its range");
    }

    /// The names in a list of `lua/zone.lua`.
    fn names(list: &str) -> Vec<&'static str> {
        let script = include_str!("../../../../../lua/zone.lua");
        let (_, rest) = script.split_once(&format!("\nlocal {list} = {{")).expect("the list is there");
        rest.split('}').next().unwrap_or_default().split('\'').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_script_has_as_many_numbers() {
        let (header, policy) = (names("FIELDS"), names("POLICY"));
        assert_eq!(header.len(), super::super::HEADER_NUMBERS);
        assert_eq!(policy.len(), POLICY_NUMBERS, "{policy:?}");
        let parts = [
            &policy[..FIRST_RULES],
            &policy[FIRST_RULES..SECOND_RULES],
            &policy[SECOND_RULES..RULE_FIELDS],
            &policy[RULE_FIELDS..],
        ];
        for part in parts {
            assert!(header.windows(part.len()).any(|window| window == part), "{header:?}");
        }
        let inside = header.iter().position(|name| *name == "inside");
        assert_eq!(inside, Some(super::super::PLAIN_NUMBERS));
        assert_eq!(header.iter().position(|name| *name == "opens_at"), Some(super::super::INSIDE_NUMBERS));
        assert_eq!(header.iter().position(|name| *name == "draw"), Some(super::super::OPENING_NUMBERS));
    }

    /// Servers of different versions share a register.
    #[test]
    fn the_text_in_the_register_does_not_change_between_versions() {
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
        assert_eq!(policy_numbers(&Policy::default()), [0, 10_000, 10, 3_000, 60, 300, 0, 900, 0, 0, 0]);
        assert_eq!(policy_numbers(&policy), [1, 600, 12, 4_000, 61, 301, 1, 900, 0, 0, 0]);
        assert_eq!(definition_text(&Definition::default()), "0 10000 10 3000 60 300 0");
        assert_eq!(definition_text(&definition), "1 600 12 4000 61 301 1 5 60\ten\ta\tko\t안내");
        for (mode, number) in [(Mode::Auto, 0), (Mode::Hold, 1), (Mode::Open, 2), (Mode::Closed, 3)] {
            assert_eq!(policy_numbers(&Policy { mode, ..policy })[0], number);
        }
    }
}
