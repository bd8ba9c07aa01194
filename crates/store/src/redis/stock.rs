//! What is left in the zones, as texts that a store does not read. It is not in the register, because it changes each second: a change of
//! the register makes each server read all of it.
//!
//! Invariants: of two entries of a zone the later one counts. A change is made only if the zone has the entry that it expects.

use bytes::Bytes;

use super::{Redis, Result, client::Client, scripts, text, wire::Garbled, wire::Reply};

const KEY: Bytes = Bytes::from_static(b"weir:v1:{zones}:stock");

/// The longest text, in bytes.
pub const STOCK_LEN_MAX: usize = 8_192;

/// The most zones that are told to Redis in one call: a script takes some thousand arguments.
const AGAIN_MAX: usize = 1_024;

/// What was set for a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The zone, as it was written.
    pub zone: String,
    /// When it was set, in microseconds since 1970 by the clock of the node that took it. No two changes have the same instant.
    pub at_us: u64,
    /// What was set; empty if nothing is told any more.
    pub text: String,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockSet {
    /// It is made.
    Done,
    /// The zone has another entry than expected. It is among the entries that came along.
    Otherwise,
    /// Too many zones have an entry.
    TooMany,
}

/// The answer of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockNews {
    /// What became of the change; [`StockSet::Done`] where none was asked for.
    pub set: StockSet,
    /// The latest instant of all entries; 0 if there is none.
    pub latest_us: u64,
    /// The entries that are later than what the server has.
    pub entries: Vec<Entry>,
}

impl<C: Client> Redis<C> {
    /// The entries later than `has_us`; all of them for 0.
    ///
    /// # Errors
    /// [`StoreError::Away`](crate::StoreError::Away) and [`StoreError::Busy`](crate::StoreError::Busy).
    pub async fn stock(&self, has_us: u64) -> Result<StockNews> {
        self.ask_stock(vec![text(has_us), Bytes::new()]).await
    }

    /// Takes a zone from the entry of `expected_us` (0 for none) to another text. Also returns the entries later than `has_us`.
    ///
    /// # Errors
    /// As [`Self::stock`]. The change may be made then.
    ///
    /// # Panics
    /// If the text is longer than [`STOCK_LEN_MAX`].
    pub async fn set_stock(&self, has_us: u64, zone: &str, expected_us: u64, new: &str) -> Result<StockNews> {
        assert!(new.len() <= STOCK_LEN_MAX, "a text of {} bytes", new.len());
        let [mode, zone, new] =
            ["set", zone, new].map(|argument| Bytes::copy_from_slice(argument.as_bytes()));
        self.ask_stock(vec![text(has_us), mode, zone, text(expected_us), new]).await
    }

    /// Writes entries back that Redis lost. Later ones that it has stay. Returns all entries.
    ///
    /// # Errors
    /// As [`Self::stock`].
    pub async fn restore_stock(&self, entries: &[Entry]) -> Result<StockNews> {
        let mut news = StockNews { set: StockSet::Done, latest_us: 0, entries: Vec::new() };
        for some in entries.chunks(AGAIN_MAX) {
            let mut args = vec![text(0), Bytes::from_static(b"again")];
            for Entry { zone, at_us, text } in some {
                args.extend([zone.clone().into(), Bytes::from(format!("{at_us} {text}"))]);
            }
            news = self.ask_stock(args).await?;
        }
        Ok(news)
    }

    async fn ask_stock(&self, args: Vec<Bytes>) -> Result<StockNews> {
        let mut reply = Reply::new(self.client.run(&scripts::STOCK, vec![KEY], args, None).await?)?;
        let set = match &*reply.bytes()? {
            b"1" => StockSet::Done,
            b"0" => StockSet::Otherwise,
            b"2" => StockSet::TooMany,
            _ => return Err(Garbled("the result of a change of what is left").into()),
        };
        let latest_us = reply.number()?;
        let mut entries = Vec::with_capacity(reply.len() / 2);
        while !reply.is_empty() {
            let (zone, entry) = (reply.bytes()?, reply.bytes()?);
            // What no server wrote does not count.
            entries.extend(one(&zone, &entry));
        }
        Ok(StockNews { set, latest_us, entries })
    }
}

fn one(zone: &[u8], entry: &[u8]) -> Option<Entry> {
    let (at_us, text) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
    let zone = std::str::from_utf8(zone).ok()?.to_owned();
    (text.len() <= STOCK_LEN_MAX).then_some(Entry { zone, at_us: at_us.parse().ok()?, text: text.to_owned() })
}
