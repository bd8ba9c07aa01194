//! A message between servers, as text: `weir1 SENDER ZONE STATE`.
//!
//! `weir1` is the version. The sender has 16 hexadecimal digits, and a server ignores its own messages. The state is a digest
//! of the zone's definition, 16 digits, or `-` for a deleted zone. Invariants: a message only makes a server ask the store,
//! and changes nothing by itself; a text that does not have exactly this form is ignored.

use std::fmt::Write as _;

use admission::{Definition, Field, SECOND_FIELDS, ZoneId};
use aws_lc_rs::digest;
use bytes::Bytes;

use super::SenderId;

/// The first word. Servers with different words ignore each other's messages, and see changes when they ask the store.
const VERSION: &str = "weir1";

/// The digits of a sender or digest.
const DIGITS: usize = 16;

/// The longest message, in bytes.
pub const MAX_LEN: usize = VERSION.len() + 1 + DIGITS + 1 + ZoneId::MAX_LEN + 1 + DIGITS;

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is defined, and its definition has this digest.
    Has(u64),
    /// It was deleted.
    Gone,
}

impl State {
    /// The state of a zone with this definition; `None` if it was deleted.
    #[must_use]
    pub fn of(definition: Option<&Definition>) -> Self {
        let Some(definition) = definition else { return Self::Gone };
        let part = |field: &Field| format!("{}={}", field.name, field.text(&definition.policy));
        let mut text = definition.policy.used_fields(SECOND_FIELDS).map(part).collect::<Vec<_>>().join(" ");
        definition.push_texts(&mut text);
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let first = digest.as_ref().first_chunk().expect("a digest is longer than that");
        Self::Has(u64::from_be_bytes(*first))
    }
}

/// A zone has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The server that sent it.
    pub sender: SenderId,
    /// The zone.
    pub zone: ZoneId,
    /// The zone's state now.
    pub state: State,
}

impl Message {
    /// The message as text.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut text = String::with_capacity(MAX_LEN);
        let sender = self.sender;
        let written = match self.state {
            State::Has(digest) => write!(text, "{VERSION} {sender} {} {digest:016x}", self.zone),
            State::Gone => write!(text, "{VERSION} {sender} {} -", self.zone),
        };
        written.expect("writing to a String does not fail");
        text.into()
    }

    /// Reads a message; `None` if it is not exactly as [`Message::to_bytes`] writes it.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_LEN {
            return None;
        }
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let [Some(VERSION), Some(sender), Some(zone), Some(state), None] =
            std::array::from_fn(|_| words.next())
        else {
            return None;
        };
        let state = if state == "-" { State::Gone } else { State::Has(number(state)?) };
        Some(Self { sender: SenderId(number(sender)?), zone: ZoneId::parse(zone).ok()?, state })
    }
}

fn number(text: &str) -> Option<u64> {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != DIGITS || !text.bytes().all(digit) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use admission::{Notice, Policy};

    use super::*;

    fn message(zone: &str, state: State) -> Message {
        Message { sender: SenderId(0xab), zone: ZoneId::parse(zone).expect("a name"), state }
    }

    #[test]
    fn what_is_written_is_read() {
        let longest = "z".repeat(ZoneId::MAX_LEN);
        for message in [
            message("shop:a", State::Has(7)),
            message("b", State::Gone),
            message(&longest, State::Has(u64::MAX)),
        ] {
            let text = message.to_bytes();
            assert!(text.len() <= MAX_LEN);
            assert_eq!(Message::parse(&text), Some(message));
        }
        // Other versions read it, too.
        let text = message("shop:a", State::Has(7)).to_bytes();
        assert_eq!(text, "weir1 00000000000000ab shop:a 0000000000000007");
    }

    #[test]
    fn nothing_else_is_a_message() {
        let good = "weir1 00000000000000ab shop:a 0000000000000007";
        let long = format!("{good}{}", " ".repeat(MAX_LEN));
        for text in [
            "",
            " ",
            "weir1",
            &good[..good.len() - 1],
            &good.replace("weir1", "weir2"),
            &good.replace("weir1", "WEIR1"),
            &good.replace("ab", "AB"),
            &good.replace("00ab", "+0ab"),
            &good.replace("shop:a", "sh/op"),
            &good.replace("shop:a", ""),
            &good.replace(" shop", "  shop"),
            &good.replace("0000000000000007", "--"),
            &format!("{good} "),
            &format!("{good}\n"),
            &format!(" {good}"),
            &format!("{good} more"),
            &long,
        ] {
            assert_eq!(Message::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Message::parse(b"weir1 00000000000000ab \xff -"), None);
    }

    #[test]
    fn each_field_of_a_definition_counts() {
        let policy = Policy::default();
        let said = |text: &str| Notice::new([("en", text)]).expect("a notice");
        let [one, other] = ["a", "b"].map(|text| Definition { notice: said(text), ..policy.into() });
        assert_ne!(State::of(Some(&one)), State::of(Some(&policy.into())));
        assert_ne!(State::of(Some(&one)), State::of(Some(&other)));
        let others = [
            Policy { mode: admission::Mode::Closed, ..policy },
            Policy { admit_per_minute: 1, ..policy },
            Policy { sub_windows: 1, ..policy },
            Policy { polling_period_ms: 1_000, ..policy },
            Policy { idle_timeout_s: 61, ..policy },
            Policy { pass_ttl_s: 301, ..policy },
            Policy { on_store_failure: admission::OnStoreFailure::Open, ..policy },
            Policy { waits_per_minute_per_client: 1, ..policy },
            Policy { entries_per_minute_per_client: 1, ..policy },
            Policy { max_waiting: 1, ..policy },
        ];
        for other in others {
            assert_ne!(State::of(Some(&other.into())), State::of(Some(&policy.into())), "{other:?}");
        }
        assert_eq!(State::of(None), State::Gone);
    }

    /// Servers of different versions compare digests.
    #[test]
    fn digests_do_not_change_between_versions() {
        let rules = Policy {
            mode: admission::Mode::Hold,
            admit_per_minute: 600,
            sub_windows: 12,
            polling_period_ms: 4_000,
            idle_timeout_s: 61,
            pass_ttl_s: 301,
            on_store_failure: admission::OnStoreFailure::Open,
            ..Policy::default()
        };
        let policy = Policy { waits_per_minute_per_client: 5, entries_per_minute_per_client: 60, ..rules };
        let definition = Definition {
            notice: Notice::new([("en", "a"), ("ko", "안내")]).expect("a notice"),
            ..policy.into()
        };
        assert_eq!(State::of(Some(&Definition::default())), State::Has(0x7fae_3a74_1ccd_5059));
        assert_eq!(State::of(Some(&definition)), State::Has(0xd6e4_317a_1a60_0234));
    }
}
