//! Access to the admin API: roles, and the tokens that grant them.
//!
//! A token is 256 random bits as text. It is shown once, when it is made; afterwards only its SHA-256 is stored. A plain
//! digest suffices, because that many random bits cannot be guessed. Invariants: a presented token is compared with every
//! known token, in constant time, even after a match; no code here prints a token or the digest of a presented token.

use std::sync::Arc;

use aws_lc_rs::rand;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use check::digest::SecretDigest;
use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::problem::{FORBIDDEN, Problem, UNAUTHORIZED};

/// The most tokens of a server.
pub const MAX_TOKENS: usize = 256;

/// The prefix of tokens. People and scanners for leaked secrets recognize tokens by it.
const PREFIX: &str = "weir_";

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// The name of callers on a loopback listener without tokens.
const LOCAL: &str = "local";

/// What a caller may do. From the viewer on, each role includes the roles before it. The shop's is beside them: what it may do, an
/// operator may do, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Say what is left in zones, and nothing else: for a shop's programs.
    Shop,
    /// See everything.
    Viewer,
    /// Change existing zones, and the routes.
    Operator,
    /// Create, replace and delete zones, and take servers out of service.
    Admin,
}

impl Role {
    /// All roles with their names in configuration files and replies.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Shop, "shop"),
        (Self::Viewer, "viewer"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
    ];

    /// The role's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word)
    }
}

/// A token in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// The name of its holder, as changes are recorded. Unique.
    pub name: String,
    /// The holder's role.
    pub role: Role,
    /// The token's digest.
    pub sha256: SecretDigest,
}

impl AdminToken {
    /// Whether a text may name a token: 1 to 64 characters of `A-Z a-z 0-9 _ . @ -`, but not `local`.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_.@-".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(right) && text != LOCAL
    }

    /// Makes a token. Returns its text, to be shown once, and its digest, to be stored.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn make() -> Result<(String, SecretDigest), aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        rand::fill(&mut bytes)?;
        let token = format!("{PREFIX}{}", BASE64.encode(bytes));
        let digest = SecretDigest::of(token.as_bytes());
        Ok((token, digest))
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, or `local`.
    pub name: Arc<str>,
    /// What the caller may do.
    pub role: Role,
    /// Whether the caller presented a valid token. False if the listener needs none.
    pub authenticated: bool,
}

impl Caller {
    /// Checks that the caller has at least the role `needed`.
    ///
    /// # Errors
    /// A [`FORBIDDEN`] problem that names both roles.
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

/// The known tokens.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<(Arc<str>, Role, SecretDigest)>,
    /// Nobody is admitted, though there are no tokens, because the last one was withdrawn.
    is_closed: bool,
}

impl Access {
    /// Knows these tokens. Without tokens, every caller is `local` and may do everything; only for a listener on the loopback.
    #[must_use]
    pub fn new(tokens: &[AdminToken]) -> Self {
        let known = |token: &AdminToken| (Arc::from(token.name.as_str()), token.role, token.sha256);
        Self { tokens: tokens.iter().map(known).collect(), is_closed: false }
    }

    /// Knows these tokens from now on, in place of its own. If there are none any more, it admits nobody: whoever withdraws the last
    /// token does not mean to admit everybody.
    #[must_use]
    pub fn renewed(&self, tokens: &[AdminToken]) -> Self {
        Self { is_closed: tokens.is_empty() && !self.is_open(), ..Self::new(tokens) }
    }

    /// Whether nobody is admitted, because the last token was withdrawn.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether every caller is admitted, because there are no tokens.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && !self.is_closed
    }

    /// The caller that these headers identify.
    ///
    /// # Errors
    /// An [`UNAUTHORIZED`] problem if the headers contain no token, or an unknown one.
    pub fn who(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_open() {
            return Ok(Caller { name: LOCAL.into(), role: Role::Admin, authenticated: false });
        }
        if self.is_closed {
            let what = "the last [[admin_token]] of this server was withdrawn; write one into its configuration and send SIGHUP, or \
                        restart it";
            return Err(Problem::new(UNAUTHORIZED, what));
        }
        let shown = bearer(headers).ok_or_else(|| {
            Problem::new(
                UNAUTHORIZED,
                "send `Authorization: Bearer` and a token, as `weir token new` makes them",
            )
        })?;
        let shown = SecretDigest::of(shown);
        let mut found = None;
        for (name, role, known) in &self.tokens {
            if known.is_same(&shown) {
                found = Some((name, *role));
            }
        }
        let (name, role) = found.ok_or_else(|| Problem::new(UNAUTHORIZED, "the token is not known here"))?;
        Ok(Caller { name: Arc::clone(name), role, authenticated: true })
    }
}

/// The token in the `Authorization` header; `None` if there is not exactly one. RFC 6750, section 2.1.
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
    fn a_token_is_recognized_by_its_digest() {
        let made: Vec<_> = (0..3).map(|_| AdminToken::make().expect("random numbers")).collect();
        let tokens = ["vera", "otto", "ada"].iter().zip(&Role::ALL[1..]).zip(&made).map(
            |((name, (role, _)), (_, sha256))| AdminToken {
                name: (*name).to_owned(),
                role: *role,
                sha256: *sha256,
            },
        );
        let access = Access::new(&tokens.collect::<Vec<_>>());
        for (at, (token, digest)) in made.iter().enumerate() {
            assert!(token.len() == 48 && token.starts_with(PREFIX), "{token}");
            assert_eq!(SecretDigest::parse(&digest.to_string()), Some(*digest));
            for scheme in ["Bearer", "bearer"] {
                let caller = access.who(&shown(&format!("{scheme} {token}"))).expect("known");
                assert_eq!((caller.role, caller.authenticated), (Role::ALL[1 + at].0, true));
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
            shown("Bearer 32"),
            twice,
        ] {
            assert_eq!(access.who(&wrong).expect_err("unknown").code, UNAUTHORIZED, "{wrong:?}");
        }
    }

    #[test]
    fn without_tokens_every_caller_is_local() {
        let caller = Access::default().who(&shown("Bearer x")).expect("anybody");
        assert_eq!((&*caller.name, caller.role, caller.authenticated), (LOCAL, Role::Admin, false));
        assert!(!AdminToken::is_name(LOCAL), "no token may have this name");
    }

    #[test]
    fn without_its_last_token_it_admits_nobody() {
        let token = |name: &str| {
            let (token, sha256) = AdminToken::make().expect("random numbers");
            (
                shown(&format!("Bearer {token}")),
                AdminToken { name: name.to_owned(), role: Role::Admin, sha256 },
            )
        };
        let ((ada, of_ada), (otto, of_otto)) = (token("ada"), token("otto"));
        let with_ada = Access::default().renewed(&[of_ada]);
        let without = with_ada.renewed(&[]);
        assert!(!with_ada.is_closed() && without.is_closed() && !without.is_open());
        for access in [&without, &without.renewed(&[])] {
            for headers in [&ada, &HeaderMap::new()] {
                assert_eq!(access.who(headers).expect_err("nobody").code, UNAUTHORIZED);
            }
        }
        let with_otto = without.renewed(&[of_otto]);
        assert!(with_otto.who(&otto).is_ok() && with_otto.who(&ada).is_err() && !with_otto.is_closed());
        assert!(Access::default().renewed(&[]).who(&ada).is_ok(), "it had none before");
    }

    #[test]
    fn a_role_includes_the_roles_before_it() {
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
    fn debug_output_hides_tokens_and_digests() {
        let (token, digest) = AdminToken::make().expect("random numbers");
        let stored = AdminToken { name: "ada".to_owned(), role: Role::Admin, sha256: digest };
        let shown = format!("{stored:?} {:?}", Access::new(std::slice::from_ref(&stored)));
        assert!(!shown.contains(&token) && !shown.contains(&digest.to_string()), "{shown}");
    }
}
