//! Seals a ticket into a token that cannot be forged, and a visit in the same way; and says which keys open it during a change of keys.
//!
//! A token is `base64url(key id, ticket, tag)`: 1 + 22 + 16 bytes, 52 characters. The tag is keyed BLAKE3
//! ([specification](https://github.com/BLAKE3-team/BLAKE3-specs), keyed hash mode) cut to 128 bits. Its key is derived from
//! the sealing key and the zone's name, so that a token of one zone is a forgery in every other zone. A visit has its own
//! derived key, and 28 bytes instead of 22: 60 characters. So has a bypass token, which belongs to no zone and ends with its name.
//!
//! Invariant: the tag is compared, in constant time, before anything in the ticket or visit is read. The key id is outside of
//! it; it only selects one of at most three keys.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq as _;

use crate::{BypassToken, Ticket, Visit, ZoneId};

/// Identifies a sealing key inside tokens.
pub type KeyId = u8;

/// Characters of a token.
pub const SEALED_LEN: usize = 52;

const TAG_LEN: usize = 16;
const BODY_LEN: usize = 1 + Ticket::LEN;
const RAW_LEN: usize = BODY_LEN + TAG_LEN;

/// A secret that seals tickets.
#[derive(Clone)]
pub struct SealKey {
    /// The key's id inside tokens.
    pub id: KeyId,
    /// 256 random bits.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealKey {{ id: {}, secret: hidden }}", self.id)
    }
}

/// The keys in force: one seals new tokens; during a rotation others are accepted. Their ids differ.
///
/// Servers change keys one after another, and any server may get any token. Therefore every server accepts the next key
/// before the first one seals with it, and the previous key until no token of it is left.
#[derive(Clone, Debug)]
pub struct Seals {
    /// Seals new tokens.
    pub current: SealKey,
    /// Accepted, because other servers may seal with it already.
    pub next: Option<SealKey>,
    /// Accepted, because users have tokens that it sealed.
    pub previous: Option<SealKey>,
}

impl Seals {
    /// One key, and no rotation.
    #[must_use]
    pub fn only(current: SealKey) -> Self {
        Self { current, next: None, previous: None }
    }

    /// Whether the tokens that `other` seals are accepted.
    #[must_use]
    pub fn accepts(&self, other: &Self) -> bool {
        let known = [Some(&self.current), self.next.as_ref(), self.previous.as_ref()];
        known.into_iter().flatten().any(|key| bool::from(key.secret.ct_eq(&other.current.secret)))
    }

    /// The sealer for one zone.
    #[must_use]
    pub fn sealer(&self, zone: &ZoneId) -> Sealer {
        Sealer(self.bound_to(zone.as_str().as_bytes(), b""))
    }

    /// The sealer for the visits of one zone. A ticket's token is no visit, and a visit is no token.
    #[must_use]
    pub fn visit_sealer(&self, zone: &ZoneId) -> VisitSealer {
        // No name of a zone has this byte.
        VisitSealer(self.bound_to(zone.as_str().as_bytes(), b"\0visit"))
    }

    /// The sealer for bypass tokens, which belong to no zone.
    #[must_use]
    pub fn bypass_sealer(&self) -> BypassSealer {
        BypassSealer(self.bound_to(b"", b"\0bypass"))
    }

    fn bound_to(&self, zone: &[u8], what: &[u8]) -> Ring {
        let derive = |key: &SealKey| {
            let bound = blake3::Hasher::new_keyed(&key.secret).update(zone).update(what).finalize();
            (key.id, *bound.as_bytes())
        };
        Ring {
            current: derive(&self.current),
            next: self.next.as_ref().map(derive),
            previous: self.previous.as_ref().map(derive),
        }
    }
}

/// The token was not given out for this zone: it is forged, altered, of another zone, or sealed by a retired key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token was not given out for this zone")]
pub struct BadSeal;

/// The keys of one zone, for one use. Holds keys, therefore not `Debug`.
#[derive(Clone)]
struct Ring {
    current: (KeyId, [u8; 32]),
    next: Option<(KeyId, [u8; 32])>,
    previous: Option<(KeyId, [u8; 32])>,
}

impl Ring {
    /// Fills in the key's id, which is first in `raw`, and the tag, which is last.
    fn seal(&self, raw: &mut [u8]) {
        raw[0] = self.current.0;
        let (body, tag) = raw.split_at_mut(raw.len() - TAG_LEN);
        tag.copy_from_slice(&blake3::keyed_hash(&self.current.1, body).as_bytes()[..TAG_LEN]);
    }

    /// Checks the tag.
    fn check(&self, raw: &[u8]) -> Result<(), BadSeal> {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::on(crate::sabotage::Rule::AnySeal) {
            return Ok(());
        }
        let (body, tag) = raw.split_at(raw.len() - TAG_LEN);
        let known = [Some(&self.current), self.next.as_ref(), self.previous.as_ref()];
        let (_, key) = known.into_iter().flatten().find(|(id, _)| *id == raw[0]).ok_or(BadSeal)?;
        let same = tag.ct_eq(&blake3::keyed_hash(key, body).as_bytes()[..TAG_LEN]);
        if bool::from(same) { Ok(()) } else { Err(BadSeal) }
    }
}

/// Seals and opens the tokens of one zone. Holds keys, therefore not `Debug`.
#[derive(Clone)]
pub struct Sealer(Ring);

impl Sealer {
    /// Seals a ticket into a token, as ASCII. Does not allocate.
    #[must_use]
    pub fn seal(&self, ticket: &Ticket) -> [u8; SEALED_LEN] {
        let mut raw = [0; RAW_LEN];
        raw[1..BODY_LEN].copy_from_slice(&ticket.to_bytes());
        self.0.seal(&mut raw);
        let mut token = [0; SEALED_LEN];
        let written = BASE64_URL_SAFE_NO_PAD.encode_slice(raw, &mut token);
        debug_assert_eq!(written, Ok(SEALED_LEN), "39 bytes are 52 characters");
        token
    }

    /// Opens a token and returns its ticket. Does not allocate.
    ///
    /// # Errors
    /// [`BadSeal`] if this zone's keys did not seal it.
    pub fn open(&self, token: &[u8]) -> Result<Ticket, BadSeal> {
        // 39 bytes are exactly 52 characters without padding bits, so each token has only one spelling.
        let mut raw = [0; RAW_LEN];
        if token.len() != SEALED_LEN || BASE64_URL_SAFE_NO_PAD.decode_slice(token, &mut raw) != Ok(RAW_LEN) {
            return Err(BadSeal);
        }
        self.0.check(&raw)?;
        let mut bytes = [0; Ticket::LEN];
        bytes.copy_from_slice(&raw[1..BODY_LEN]);
        Ok(Ticket::from_bytes(&bytes))
    }

    /// Whether the current key sealed this token, which must be one that [`Sealer::seal`] returned at some time.
    #[must_use]
    pub fn is_current(&self, token: &[u8; SEALED_LEN]) -> bool {
        let mut first = [0; 3];
        BASE64_URL_SAFE_NO_PAD.decode_slice(&token[..4], &mut first) == Ok(3) && first[0] == self.0.current.0
    }
}

/// Characters of a sealed visit.
pub const VISIT_LEN: usize = 60;

const VISIT_RAW_LEN: usize = 1 + Visit::LEN + TAG_LEN;

/// Seals and opens the visits of one zone. Holds keys, therefore not `Debug`.
#[derive(Clone)]
pub struct VisitSealer(Ring);

impl VisitSealer {
    /// Seals a visit, as ASCII. Does not allocate.
    #[must_use]
    pub fn seal(&self, visit: &Visit) -> [u8; VISIT_LEN] {
        let mut raw = [0; VISIT_RAW_LEN];
        raw[1..=Visit::LEN].copy_from_slice(&visit.to_bytes());
        self.0.seal(&mut raw);
        let mut text = [0; VISIT_LEN];
        let written = BASE64_URL_SAFE_NO_PAD.encode_slice(raw, &mut text);
        debug_assert_eq!(written, Ok(VISIT_LEN), "45 bytes are 60 characters");
        text
    }

    /// Opens a sealed visit. Does not allocate. It says nothing about whether the visit is still open.
    ///
    /// # Errors
    /// [`BadSeal`] if this zone's keys did not seal it.
    pub fn open(&self, text: &[u8]) -> Result<Visit, BadSeal> {
        let mut raw = [0; VISIT_RAW_LEN];
        if text.len() != VISIT_LEN || BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut raw) != Ok(VISIT_RAW_LEN)
        {
            return Err(BadSeal);
        }
        self.0.check(&raw)?;
        let mut bytes = [0; Visit::LEN];
        bytes.copy_from_slice(&raw[1..=Visit::LEN]);
        Ok(Visit::from_bytes(&bytes))
    }
}

/// The longest bypass token, in characters.
const BYPASS_MAX_LEN: usize = (BYPASS_RAW_MAX_LEN * 4).div_ceil(3);

const BYPASS_RAW_MAX_LEN: usize = 1 + BypassToken::HEAD_LEN + BypassToken::MAX_NAME_LEN + TAG_LEN;

/// Seals and opens bypass tokens. Holds keys, therefore not `Debug`.
#[derive(Clone)]
pub struct BypassSealer(Ring);

impl BypassSealer {
    /// Seals a token, as text.
    #[must_use]
    pub fn seal(&self, token: &BypassToken) -> String {
        let mut raw = vec![0];
        raw.extend(token.to_bytes());
        raw.extend([0; TAG_LEN]);
        self.0.seal(&mut raw);
        BASE64_URL_SAFE_NO_PAD.encode(raw)
    }

    /// Opens what [`Self::seal`] made.
    ///
    /// # Errors
    /// [`BadSeal`] if these keys did not seal it.
    pub fn open(&self, text: &[u8]) -> Result<BypassToken, BadSeal> {
        if text.len() > BYPASS_MAX_LEN {
            return Err(BadSeal);
        }
        let raw = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| BadSeal)?;
        if raw.len() < 1 + BypassToken::HEAD_LEN + TAG_LEN {
            return Err(BadSeal);
        }
        self.0.check(&raw)?;
        BypassToken::from_bytes(&raw[1..raw.len() - TAG_LEN]).ok_or(BadSeal)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::FirstTold;

    fn zone(name: &str) -> ZoneId {
        ZoneId::parse(name).expect("a name")
    }

    fn key(id: KeyId) -> SealKey {
        SealKey { id, secret: [id; 32] }
    }

    fn ticket(seq: u64) -> Ticket {
        Ticket {
            epoch: 7,
            seq,
            issued_ms: 1_790_000_000_000,
            first_told: Some(FirstTold::exactly(90)),
            told_s: None,
        }
    }

    /// The steps of a rotation from key 1 to key 2. The first is before it.
    fn rotation() -> [Seals; 4] {
        [
            Seals::only(key(1)),
            Seals { next: Some(key(2)), ..Seals::only(key(1)) },
            Seals { previous: Some(key(1)), ..Seals::only(key(2)) },
            Seals::only(key(2)),
        ]
    }

    #[test]
    fn servers_in_neighbouring_steps_of_a_rotation_accept_each_others_tokens() {
        let (a, b) = (zone("A"), zone("B"));
        for pair in rotation().windows(2) {
            for (sealing, opening) in [(&pair[0], &pair[0]), (&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                let token = sealing.sealer(&a).seal(&ticket(5));
                assert_eq!(opening.sealer(&a).open(&token), Ok(ticket(5)), "{opening:?} refuses {sealing:?}");
                assert!(opening.accepts(sealing));
                assert_eq!(opening.sealer(&b).open(&token), Err(BadSeal), "a token of another zone");
                assert_eq!(opening.sealer(&a).is_current(&token), opening.current.id == sealing.current.id);
            }
        }
    }

    #[test]
    fn servers_that_are_two_steps_apart_may_refuse_each_others_tokens() {
        let [before, announced, switched, forgotten] = rotation();
        for (opening, sealing) in [(&before, &switched), (&forgotten, &announced), (&forgotten, &before)] {
            let token = sealing.sealer(&zone("A")).seal(&ticket(5));
            assert_eq!(opening.sealer(&zone("A")).open(&token), Err(BadSeal), "{opening:?}, {sealing:?}");
            assert!(!opening.accepts(sealing));
        }
    }

    #[test]
    fn debug_output_hides_secrets() {
        assert!(!format!("{:?}", key(200)).contains("200, 200"));
    }

    fn visit(seq: u64) -> Visit {
        Visit { epoch: 7, seq, began_s: 1_790_000_000, seen_s: 1_790_000_100, address: 0x0123_4567_89AB_CDEF }
    }

    #[test]
    fn a_visit_opens_in_its_zone_and_at_its_neighbours_in_a_rotation_only() {
        let (a, b) = (zone("A"), zone("B"));
        for pair in rotation().windows(2) {
            let sealed = pair[0].visit_sealer(&a).seal(&visit(5));
            assert_eq!(pair[1].visit_sealer(&a).open(&sealed), Ok(visit(5)));
            assert_eq!(pair[1].visit_sealer(&b).open(&sealed), Err(BadSeal), "a visit of another zone");
        }
        let [_, announced, _, forgotten] = rotation();
        let sealed = announced.visit_sealer(&a).seal(&visit(5));
        assert_eq!(forgotten.visit_sealer(&a).open(&sealed), Err(BadSeal));
    }

    #[test]
    fn a_token_is_no_visit() {
        let (seals, zone) = (Seals::only(key(1)), zone("A"));
        // The same bytes, sealed for the other use.
        let mut raw = [1; VISIT_RAW_LEN];
        seals.sealer(&zone).0.seal(&mut raw);
        assert_eq!(seals.visit_sealer(&zone).0.check(&raw), Err(BadSeal));
        seals.visit_sealer(&zone).0.seal(&mut raw);
        assert_eq!(seals.visit_sealer(&zone).0.check(&raw), Ok(()));
        assert_eq!(seals.visit_sealer(&zone).open(&seals.sealer(&zone).seal(&ticket(5))), Err(BadSeal));
    }

    fn permit(name: &str) -> BypassToken {
        BypassToken { name: name.to_owned(), expires_s: 1_790_000_000, address: 0x0123_4567_89AB_CDEF }
    }

    #[test]
    fn a_bypass_token_opens_at_neighbours_in_a_rotation_and_is_nothing_else() {
        for pair in rotation().windows(2) {
            let sealed = pair[0].bypass_sealer().seal(&permit("press"));
            assert_eq!(pair[1].bypass_sealer().open(sealed.as_bytes()), Ok(permit("press")));
        }
        let [_, announced, _, forgotten] = rotation();
        let sealed = announced.bypass_sealer().seal(&permit("press"));
        assert_eq!(forgotten.bypass_sealer().open(sealed.as_bytes()), Err(BadSeal));
        let (seals, zone) = (Seals::only(key(1)), zone("A"));
        let bypass = seals.bypass_sealer();
        assert_eq!(bypass.open(&seals.sealer(&zone).seal(&ticket(5))), Err(BadSeal), "a place");
        assert_eq!(bypass.open(&seals.visit_sealer(&zone).seal(&visit(5))), Err(BadSeal), "a visit");
        let longest = bypass.seal(&permit(&"n".repeat(BypassToken::MAX_NAME_LEN)));
        assert_eq!(longest.len(), BYPASS_MAX_LEN);
        assert!(bypass.open(longest.as_bytes()).is_ok() && bypass.open(b"").is_err());
    }

    proptest! {
        #[test]
        fn an_altered_bypass_token_does_not_open(
            name in "[a-z:.]{1,64}", expires_s in 0u64..1 << 40, address: u64, position: prop::sample::Index, to: u8,
        ) {
            let sealer = Seals::only(key(9)).bypass_sealer();
            let token = BypassToken { name, expires_s, address };
            let mut text = sealer.seal(&token).into_bytes();
            prop_assert_eq!(sealer.open(&text), Ok(token));
            let position = position.index(text.len());
            prop_assume!(text[position] != to);
            text[position] = to;
            prop_assert_eq!(sealer.open(&text), Err(BadSeal));
        }

        #[test]
        fn a_sealed_visit_opens_unless_it_is_altered(
            epoch: u32, seq in 0u64..1 << 48, began_s in 0u64..1 << 40, seen_s in 0u64..1 << 40, address: u64,
            position in 0..VISIT_LEN, to: u8,
        ) {
            let sealer = Seals::only(key(9)).visit_sealer(&zone("Z"));
            let visit = Visit { epoch, seq, began_s, seen_s, address };
            let mut text = sealer.seal(&visit);
            prop_assert_eq!(sealer.open(&text), Ok(visit));
            prop_assume!(text[position] != to);
            text[position] = to;
            prop_assert_eq!(sealer.open(&text), Err(BadSeal));
        }

        #[test]
        fn a_sealed_ticket_opens(
            epoch: u32, seq in 0u64..1 << 48, issued_ms in 0u64..1 << 48,
            first in 0..=Ticket::NEVER_S, told in proptest::option::of(0..Ticket::NEVER_S),
        ) {
            let sealer = Seals::only(key(9)).sealer(&zone("Z"));
            let ticket = Ticket { epoch, seq, issued_ms, first_told: FirstTold::from_bits(first), told_s: told };
            prop_assert_eq!(sealer.open(&sealer.seal(&ticket)), Ok(ticket));
        }

        #[test]
        fn an_altered_token_does_not_open(position in 0..SEALED_LEN, to: u8, seq in 0u64..1 << 40) {
            let sealer = Seals { next: Some(key(7)), previous: Some(key(8)), ..Seals::only(key(9)) }.sealer(&zone("Z"));
            let mut token = sealer.seal(&ticket(seq));
            prop_assume!(token[position] != to);
            token[position] = to;
            prop_assert_eq!(sealer.open(&token), Err(BadSeal));
        }

        #[test]
        fn random_bytes_do_not_open(token in proptest::collection::vec(any::<u8>(), 0..80)) {
            let sealer = Seals { next: Some(key(7)), previous: Some(key(8)), ..Seals::only(key(9)) }.sealer(&zone("Z"));
            prop_assert_eq!(sealer.open(&token), Err(BadSeal));
        }
    }
}
