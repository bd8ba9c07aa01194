//! Who may do what on the admin API: roles, and the tokens that give them.
//!
//! A token is 256 random bits as text, shown once, when it is made. Kept is its SHA-256 alone: of so much chance a plain
//! digest can't be guessed backwards. Invariants: every token that is known is compared, in constant time, whether one before
//! it fitted or not; nothing here prints a token, nor its digest where a token was presented.

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, SHA256_OUTPUT_LEN, digest},
    rand,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::problem::{FORBIDDEN, Problem, UNAUTHORIZED};

/// The most tokens that a server knows.
pub const MAX_TOKENS: usize = 256;

/// What tokens begin with, so that people and scanners for leaked secrets know one when they see it.
const PREFIX: &str = "weir_";

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// The name of whoever reaches a listener on the loopback that knows no tokens.
const LOCAL: &str = "local";

/// What a caller may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See everything.
    Viewer,
    /// Change the zones there are.
    Operator,
    /// Make, replace and delete zones, and take servers out of service.
    Admin,
}

impl Role {
    /// All roles with the words that configuration and replies use.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Viewer, "viewer"), (Self::Operator, "operator"), (Self::Admin, "admin")];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word)
    }
}

/// A token's SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

impl TokenDigest {
    fn of(token: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(bytes)
    }

    /// Reads 64 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a digest)")
    }
}

/// A token as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Whose it is, as changes are told. No other token has it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// What is kept of it.
    pub sha256: TokenDigest,
}

impl AdminToken {
    /// Whether a text may name a token: 1 to 64 of `A-Z a-z 0-9 _ . @ -`, and not what those without one are called.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_.@-".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(right) && text != LOCAL
    }

    /// Makes a token: the text, to be shown once, and what is kept of it.
    ///
    /// # Errors
    /// Where the system gives no random numbers.
    pub fn make() -> Result<(String, TokenDigest), aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        rand::fill(&mut bytes)?;
        let token = format!("{PREFIX}{}", BASE64.encode(bytes));
        let digest = TokenDigest::of(token.as_bytes());
        Ok((token, digest))
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, or `local`.
    pub name: Arc<str>,
    /// What the caller may do.
    pub role: Role,
    /// Whether a token was asked for, and shown.
    pub authenticated: bool,
}

impl Caller {
    /// Refuses who may not do what `needed` may.
    ///
    /// # Errors
    /// [`FORBIDDEN`], with both roles.
    pub fn needs(&self, needed: Role) -> Result<(), Problem> {
        if self.role >= needed {
            return Ok(());
        }
        let (had, needed) = (self.role.as_str(), needed.as_str());
        let problem =
            Problem::new(FORBIDDEN, format!("this needs the role {needed}, and {} is {had}", self.name));
        Err(problem.with([("needed", needed.into()), ("had", had.into())]))
    }
}

/// Who is known.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<(Arc<str>, Role, TokenDigest)>,
}

impl Access {
    /// Knows these. With none, everybody is `local`, who may do everything: for a listener that only this machine reaches.
    #[must_use]
    pub fn new(tokens: &[AdminToken]) -> Self {
        let known = |token: &AdminToken| (Arc::from(token.name.as_str()), token.role, token.sha256);
        Self { tokens: tokens.iter().map(known).collect() }
    }

    /// Who sends these headers.
    ///
    /// # Errors
    /// [`UNAUTHORIZED`] where no token is known, or another one is shown.
    pub fn who(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.tokens.is_empty() {
            return Ok(Caller { name: LOCAL.into(), role: Role::Admin, authenticated: false });
        }
        let shown = bearer(headers).ok_or_else(|| {
            Problem::new(
                UNAUTHORIZED,
                "send `Authorization: Bearer` and a token, as `weir token new` makes them",
            )
        })?;
        let shown = TokenDigest::of(shown);
        let mut found = None;
        for (name, role, known) in &self.tokens {
            if verify_slices_are_equal(&known.0, &shown.0).is_ok() {
                found = Some((name, *role));
            }
        }
        let (name, role) = found.ok_or_else(|| Problem::new(UNAUTHORIZED, "the token is not known here"))?;
        Ok(Caller { name: Arc::clone(name), role, authenticated: true })
    }
}

/// The token of the one `Authorization` there is; RFC 6750, 2.1.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (all.next()?.as_bytes(), all.next()) else { return None };
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn shown(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).expect("text"))])
    }

    #[test]
    fn tokens_are_known_by_their_digest() {
        let made: Vec<_> = (0..3).map(|_| AdminToken::make().expect("random numbers")).collect();
        let tokens = ["vera", "otto", "ada"].iter().zip(Role::ALL).zip(&made).map(
            |((name, (role, _)), (_, sha256))| AdminToken { name: (*name).to_owned(), role, sha256: *sha256 },
        );
        let access = Access::new(&tokens.collect::<Vec<_>>());
        for (at, (token, digest)) in made.iter().enumerate() {
            assert!(token.len() == 48 && token.starts_with(PREFIX), "{token}");
            assert_eq!(TokenDigest::parse(&digest.to_string()), Some(*digest));
            for scheme in ["Bearer", "bearer"] {
                let caller = access.who(&shown(&format!("{scheme} {token}"))).expect("known");
                assert_eq!((caller.role, caller.authenticated), (Role::ALL[at].0, true));
            }
        }
        let (token, _) = &made[0];
        let twice = HeaderMap::from_iter([(
            AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {token}")).expect("text"),
        )]);
        let mut twice = twice;
        twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        for wrong in [
            HeaderMap::new(),
            shown(""),
            shown("Bearer"),
            shown("Bearer "),
            shown(&format!("Basic {token}")),
            shown(token),
            shown(&format!("Bearer {}", &token[..47])),
            shown(&format!("Bearer {token}A")),
            shown(&format!("Bearer {}", digest(&SHA256, b"").as_ref().len())),
            twice,
        ] {
            assert_eq!(access.who(&wrong).expect_err("unknown").code, UNAUTHORIZED, "{wrong:?}");
        }
    }

    #[test]
    fn without_tokens_everybody_is_local() {
        let caller = Access::default().who(&shown("Bearer x")).expect("anybody");
        assert_eq!((&*caller.name, caller.role, caller.authenticated), (LOCAL, Role::Admin, false));
        assert!(!AdminToken::is_name(LOCAL), "nobody else is called so");
    }

    #[test]
    fn a_role_may_do_what_those_before_it_may() {
        for (had_at, (had, had_word)) in Role::ALL.into_iter().enumerate() {
            let caller = Caller { name: "x".into(), role: had, authenticated: true };
            for (needed_at, (needed, needed_word)) in Role::ALL.into_iter().enumerate() {
                match caller.needs(needed) {
                    Ok(()) => assert!(had_at >= needed_at),
                    Err(problem) => {
                        assert!(had_at < needed_at);
                        let body: serde_json::Value = serde_json::from_str(&problem.body()).expect("JSON");
                        assert_eq!((&body["needed"], &body["had"]), (&needed_word.into(), &had_word.into()));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_kept_is_not_shown() {
        let (token, digest) = AdminToken::make().expect("random numbers");
        let kept = AdminToken { name: "ada".to_owned(), role: Role::Admin, sha256: digest };
        let shown = format!("{kept:?} {:?}", Access::new(std::slice::from_ref(&kept)));
        assert!(!shown.contains(&token) && !shown.contains(&digest.to_string()), "{shown}");
    }
}
