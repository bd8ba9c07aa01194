//! What servers counted by minute, kept beside the zone: one hash for each day.
//!
//! Invariant: this is no part of the zone's state, so it works before the zone is opened, and its loss costs the zone nothing.

use bytes::Bytes;

use super::{Redis, Result, Zone, client::Client, scripts, text, wire::Garbled, wire::Reply};
use crate::{
    StoreError,
    minutes::{KeptMinute, MINUTES_KEPT, OfferedMinute, Row, read_parts},
};

/// The minutes of a day.
const DAY: u32 = 1_440;

impl<C: Client> Redis<C> {
    /// Keeps what `server` counted.
    pub(super) async fn keep_minutes(
        &self,
        zone: &Zone,
        server: u64,
        offered: Vec<OfferedMinute>,
    ) -> Result<()> {
        for of_day in offered.chunk_by(|one, next| one.minute / DAY == next.minute / DAY) {
            let mut args =
                vec![text(MINUTES_KEPT.as_millis()), Bytes::copy_from_slice(&server.to_be_bytes())];
            for OfferedMinute { minute, counts, part } in of_day {
                args.extend([text(minute % DAY), counts.clone().into(), part.clone().into()]);
            }
            let keys = vec![key(zone, of_day[0].minute)];
            self.client.run(&scripts::MINUTES, keys, args, None).await.map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// What is kept of the minutes from `from` on and before `to`.
    pub(super) async fn minutes(&self, zone: &Zone, from: u32, to: u32) -> Result<Vec<KeptMinute>> {
        let mut all = Vec::new();
        let mut minute = from;
        while minute < to {
            let first = minute / DAY * DAY;
            let end = to.min(first + DAY);
            let args = std::iter::once(Bytes::new()).chain((minute..end).map(|minute| text(minute % DAY)));
            let run = self.client.run(&scripts::MINUTES, vec![key(zone, minute)], args.collect(), None).await;
            let mut reply = Reply::new(run.map_err(StoreError::from)?)?;
            while !reply.is_empty() {
                let at = u32::try_from(reply.number()?).ok().filter(|at| *at < DAY);
                let at = at.ok_or(Garbled("a minute of a day"))?;
                let row = Row { counts: reply.bytes()?.to_vec(), parts: read_parts(&reply.bytes()?) };
                all.extend(row.kept(first + at));
            }
            minute = end;
        }
        Ok(all)
    }
}

/// The hash of the day of a minute.
fn key(zone: &Zone, minute: u32) -> Bytes {
    format!("{}minutes:{}", zone.prefix, minute / DAY).into()
}
