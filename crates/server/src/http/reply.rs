//! The JSON that polls get.
//!
//! It is written straight into a string, since this happens for every poll. Streams, and the page for visitors of a proxy, write the same `waiting`
//! object.

use std::{
    fmt::{self, Display, Write as _},
    str,
};

use gate::{Eta, Reply, Token, WaitStatus};

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
        Reply::Waiting { token, status } => {
            let mut out = String::with_capacity(256 + stock.map_or(0, |stock| 32 + stock.in_polls.len()));
            out.push_str(r#"{"canEnter":false,"token":""#);
            out.push_str(token_text(token));
            out.push_str(r#"","waiting":"#);
            write_waiting(&mut out, status, Common::of(status, stock), stock);
            out.push('}');
            out
        }
    }
}

pub(super) fn token_text(token: &Token) -> &str {
    str::from_utf8(token).expect("tokens are base64url")
}

/// Whether somebody who is told this is told that everything may be sold out before.
pub(super) fn is_beyond(stock: Option<&InStock>, status: &WaitStatus) -> bool {
    stock.is_some_and(|stock| stock.is_beyond(status.rank, status.reason))
}

/// The part of `waiting` that is the same for all who wait in a zone and are told one period. Streams write it once for them.
pub(super) struct Common<'a> {
    pub(super) polling_period_ms: u32,
    pub(super) stale: bool,
    pub(super) opens_in_ms: u32,
    pub(super) stock: Option<&'a InStock>,
}

impl<'a> Common<'a> {
    /// As it is told with this.
    pub(super) fn of(status: &WaitStatus, stock: Option<&'a InStock>) -> Self {
        let &WaitStatus { polling_period_ms, stale, opens_in_ms, .. } = status;
        Self { polling_period_ms, stale, opens_in_ms, stock }
    }
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

/// Writes the object `waiting`. `common` is [`Common`], or its text.
pub(super) fn write_waiting(
    out: &mut String,
    status: &WaitStatus,
    common: impl Display,
    stock: Option<&InStock>,
) {
    let &WaitStatus { rank, eta, reason, .. } = status;
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
    if is_beyond(stock, status) {
        out.push_str(r#","beyondStock":true"#);
    }
    out.push('}');
}
