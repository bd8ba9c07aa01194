//! A bypass token: a named permit with an end, as its holder carries it.
//!
//! The name says which routes the token fits; what such a route does with the request is the route's business. Invariant: after
//! [`BypassToken::expires_s`] a token is worth nothing, and no server makes it longer.

/// A named permit. [`crate::BypassSealer`] seals it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassToken {
    /// The name that routes ask for; see [`BypassToken::is_name`].
    pub name: String,
    /// When it ends, in seconds since 1970. Below 2^40.
    pub expires_s: u64,
    /// A digest of the only client address that may use it; 0 where any may.
    pub address: u64,
}

impl BypassToken {
    /// The longest name, in bytes.
    pub const MAX_NAME_LEN: usize = 64;

    /// Bytes before the name.
    pub(crate) const HEAD_LEN: usize = 13;

    /// Whether a text may be a name: 1 to 64 of `A-Z a-z 0-9 _ . : -`, so that the id of a zone is one.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        (1..=Self::MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(right)
    }

    /// Whether it counts at `unix_s`, in seconds since 1970, for a client whose address has this digest.
    #[must_use]
    pub fn counts(&self, unix_s: u64, address: u64) -> bool {
        unix_s < self.expires_s && (self.address == 0 || self.address == address)
    }

    /// The bytes, big-endian: end 5, address 8, name.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_LEN + self.name.len());
        bytes.extend_from_slice(&self.expires_s.to_be_bytes()[3..]);
        bytes.extend_from_slice(&self.address.to_be_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` if it is something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, name) = bytes.split_at_checked(Self::HEAD_LEN)?;
        let number = |part: &[u8]| part.iter().fold(0, |n, &b| n << 8 | u64::from(b));
        let name = std::str::from_utf8(name).ok().filter(|name| Self::is_name(name))?;
        Some(Self { name: name.to_owned(), expires_s: number(&head[..5]), address: number(&head[5..]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_until_its_end_and_for_its_address_only() {
        let any = BypassToken { name: "press".to_owned(), expires_s: 100, address: 0 };
        assert!(any.counts(99, 7) && !any.counts(100, 7) && !any.counts(u64::MAX, 7));
        let bound = BypassToken { address: 7, ..any };
        assert!(bound.counts(99, 7) && !bound.counts(99, 8) && !bound.counts(100, 7));
    }

    #[test]
    fn names_are_those_of_zones() {
        for right in ["a", "shop:press-1_x.y", &"n".repeat(64)] {
            assert!(BypassToken::is_name(right), "{right}");
        }
        for wrong in ["", "a b", "é", "a/b", &"n".repeat(65)] {
            assert!(!BypassToken::is_name(wrong), "{wrong}");
        }
    }
}
