//! The parts of an operator's request besides its body: the zone of the path, the fields of the query, the caller.
//!
//! Invariant: a part that cannot be read leads to a problem document.

use admission::{ZoneId, parse_instant};
use axum::extract::{FromRequestParts, Path};
use gate::definitions::Author;
use hyper::http::request::Parts;

use super::precondition::Wanted;
use crate::{
    access::Caller,
    fields::shown,
    http::{
        problem::{Problem, UNKNOWN_ZONE, WRONG_TYPE},
        query::{Others, fields},
    },
    stats::MINUTES,
};

/// The zone that the path names. The handler checks whether it exists.
pub(super) struct ZoneInPath(pub(super) ZoneId);

impl<S: Send + Sync> FromRequestParts<S> for ZoneInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let zone = path.ok().and_then(|Path(id)| ZoneId::parse(&id).ok());
        zone.map(Self).ok_or_else(|| UNKNOWN_ZONE.into())
    }
}

/// Who makes a change: the caller for the access rules, and the author for the audit log.
#[derive(Clone)]
pub(super) struct Operator {
    pub(super) caller: Caller,
    pub(super) author: Author,
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let put = "`check_operator` is around every handler of the admin API";
        let caller = parts.extensions.get::<Caller>().expect(put).clone();
        Ok(Self { caller, author: parts.extensions.get::<Author>().expect(put).clone() })
    }
}

/// A query without fields.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let [] = fields(parts.uri.query(), [], Others::Refused)?;
        Ok(Self)
    }
}

/// `dry_run`: whether to change nothing, and to say what would change.
pub(super) struct DryRun(pub(super) bool);

impl<S: Sync> FromRequestParts<S> for DryRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let [dry_run] = fields(parts.uri.query(), ["dry_run"], Others::Refused)?;
        flag("dry_run", dry_run.as_deref(), false).map(Self)
    }
}

/// An event that the path names below its zone. The handler checks whether both exist.
pub(super) struct EventInPath {
    pub(super) zone: ZoneId,
    pub(super) event: String,
}

impl<S: Send + Sync> FromRequestParts<S> for EventInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let named = path.ok().and_then(|Path((zone, event))| Some((ZoneId::parse(&zone).ok()?, event)));
        named.map(|(zone, event)| Self { zone, event }).ok_or_else(|| UNKNOWN_ZONE.into())
    }
}

/// A change of an existing zone, apart from the new definition.
pub(super) struct ZoneChange {
    pub(super) dry_run: bool,
    pub(super) wanted: Wanted,
    pub(super) zone: ZoneId,
}

impl<S: Send + Sync> FromRequestParts<S> for ZoneChange {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let DryRun(dry_run) = DryRun::from_request_parts(parts, state).await?;
        let wanted = Wanted::read(&parts.headers)?;
        let ZoneInPath(zone) = ZoneInPath::from_request_parts(parts, state).await?;
        Ok(Self { dry_run, wanted, zone })
    }
}

/// Reads `true` or `false` of the query; `usual` if it is not there.
pub(super) fn flag(name: &str, text: Option<&str>, usual: bool) -> Result<bool, Problem> {
    match text {
        None => Ok(usual),
        Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::new(WRONG_TYPE, format!("`{name}` must be true or false, in the address"))),
    }
}

/// Reads a number of minutes of the query.
pub(super) fn minutes(name: &str, text: &str) -> Result<usize, Problem> {
    let number: i64 = text
        .parse()
        .map_err(|_| Problem::new(WRONG_TYPE, format!("`{name}` must be a whole number, in the address")))?;
    let found = usize::try_from(number).ok().filter(|number| (1..=MINUTES).contains(number));
    found.ok_or_else(|| {
        let most = u32::try_from(MINUTES).expect("a few hundred");
        let detail = format!("`{name}` is {number}, and must be 1 to {most}");
        Problem::out_of_range(name, number.into(), 1, most, detail)
    })
}

/// Reads an instant of the query, in seconds since 1970.
pub(super) fn instant(name: &str, text: &str) -> Result<u32, Problem> {
    text.parse().map_err(|_| {
        let what = format!("`{name}` must be a whole number of seconds since 1970, in the address");
        Problem::new(WRONG_TYPE, what)
    })
}

/// Reads an instant of the query as events have it, and returns it in seconds since 1970.
pub(super) fn event_instant(name: &str, text: &str) -> Result<u32, Problem> {
    parse_instant(text).map_err(|fault| {
        let what = format!("`{name}`, in the address: {:?} {fault}", shown(text));
        Problem::new(WRONG_TYPE, what)
    })
}
