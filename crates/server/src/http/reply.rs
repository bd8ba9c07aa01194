//! The JSON that polls get.
//!
//! It is written straight into a string, since this happens for every poll. Streams write the same `waiting` object.

use std::{
    fmt::{self, Display, Write as _},
    str,
};

use gate::{Eta, Reason, Reply, Token};

use crate::{passes::Passes, stock::InStock};

/// The body of a reply to a poll. `passes` signs the pass of a holder who entered. `stock` is what is left in the zone, if that is told.
pub(super) fn write(passes: &Passes, zone: &str, reply: &Reply, stock: Option<&InStock>) -> String {
    match reply {
        Reply::Entered { token, pass, .. } => {
            let mut out = String::with_capacity(896);
            out.push_str(r#"{"canEnter":true,"token":""#);
            out.push_str(token_text(token));
            out.push_str(r#"","pass":""#);
            passes.write(zone, pass, &mut out);
            out.push_str("\"}");
            out
        }
        Reply::Waiting { token, rank, eta, reason, polling_period_ms, stale, opens_in_ms } => {
            let mut out = String::with_capacity(256 + stock.map_or(0, |stock| 32 + stock.in_polls.len()));
            out.push_str(r#"{"canEnter":false,"token":""#);
            out.push_str(token_text(token));
            out.push_str(r#"","waiting":"#);
            let common = Common {
                polling_period_ms: *polling_period_ms,
                stale: *stale,
                opens_in_ms: *opens_in_ms,
                stock,
            };
            write_waiting(&mut out, *rank, *eta, *reason, common, is_beyond(stock, *rank, *reason));
            out.push('}');
            out
        }
    }
}

pub(super) fn token_text(token: &Token) -> &str {
    str::from_utf8(token).expect("tokens are base64url")
}

/// The part of `waiting` that is the same for all who wait in a zone, for [`write_waiting`].
pub(super) fn common_part(
    polling_period_ms: u32,
    stale: bool,
    opens_in_ms: u32,
    stock: Option<&InStock>,
) -> String {
    Common { polling_period_ms, stale, opens_in_ms, stock }.to_string()
}

/// Whether somebody who is told this rank is told that everything may be sold out before.
pub(super) fn is_beyond(stock: Option<&InStock>, rank: u64, reason: Option<Reason>) -> bool {
    stock.is_some_and(|stock| stock.is_beyond(rank, reason))
}

struct Common<'a> {
    polling_period_ms: u32,
    stale: bool,
    opens_in_ms: u32,
    stock: Option<&'a InStock>,
}

impl Display for Common<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#","pollingPeriod":{},"stale":{}"#, self.polling_period_ms, self.stale)?;
        if self.opens_in_ms > 0 {
            write!(f, r#","opensInMs":{}"#, self.opens_in_ms)?;
        }
        if let Some(stock) = self.stock {
            f.write_str(&stock.in_polls)?;
        }
        Ok(())
    }
}

/// Writes the object `waiting`. `common` is what [`common_part`] returns, and `beyond` what [`is_beyond`] does.
pub(super) fn write_waiting(
    out: &mut String,
    rank: u64,
    eta: Option<Eta>,
    reason: Option<Reason>,
    common: impl Display,
    beyond: bool,
) {
    let written = match eta {
        Some(Eta { seconds, low_s, high_s }) => {
            write!(out, r#"{{"rank":{rank},"etaSeconds":{seconds},"etaRange":[{low_s},{high_s}]{common}"#)
        }
        None => write!(out, r#"{{"rank":{rank},"etaSeconds":null,"etaRange":null{common}"#),
    };
    debug_assert!(written.is_ok(), "writing to a String does not fail");
    if let Some(reason) = reason {
        out.push_str(r#","reason":""#);
        out.push_str(reason.as_str());
        out.push('"');
    }
    if beyond {
        out.push_str(r#","beyondStock":true"#);
    }
    out.push('}');
}
