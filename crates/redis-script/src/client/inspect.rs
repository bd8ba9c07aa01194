//! Questions to single servers, for people who look after a Redis.
//!
//! Invariant: nothing can be asked here that changes anything. Each question has its own connection and its own time limit.

use bytes::Bytes;
use tokio::time::{Instant, timeout};

pub use super::topology::services;
use super::{
    Value,
    link::{Answer, Command, Link as _},
    redis_rs::Connection,
    server::{Access, HostPort},
    topology,
};
use crate::address::{Address, Settings, Topology, authority};

/// Returns those of the commands in ARGV, each with plausible arguments, that the user who asks may not run, and those that the
/// server does not have. It runs none of them.
const REFUSED: &str = "local refused, missing = {}, {}
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  if not known then missing[#missing + 1] = line elseif not may then refused[#refused + 1] = line end
end
return { refused, missing }";

/// A question. None of them changes anything.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// `INFO`.
    Info,
    /// `TIME`.
    Time,
    /// `CLUSTER INFO`.
    ClusterInfo,
    /// `CONFIG GET` of one setting.
    Setting(&'static str),
    /// Which of these commands the user may not run, and which ones the server does not have: two lists.
    Refused(&'a [String]),
    /// `SENTINEL MASTER`: what a Sentinel knows about the primary of a service.
    Service(&'a str),
}

impl Question<'_> {
    fn command(self) -> Command {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        match self {
            Self::Info => Command::new("INFO", []),
            Self::Time => Command::new("TIME", []),
            Self::ClusterInfo => Command::new("CLUSTER", ["INFO"]),
            Self::Setting(name) => Command::new("CONFIG", ["GET", name]),
            Self::Refused(commands) => {
                // Without keys, so that every server of a cluster answers by itself.
                let head = [bytes(REFUSED), Bytes::from_static(b"0")];
                let args = head.into_iter().chain(commands.iter().map(|command| bytes(command))).collect();
                Command { name: "EVAL", args }
            }
            Self::Service(name) => {
                Command { name: "SENTINEL", args: vec![Bytes::from_static(b"MASTER"), bytes(name)] }
            }
        }
    }
}

/// Asks the servers of one Redis.
pub struct Inspector {
    access: Access,
}

impl Inspector {
    /// For the Redis at this address.
    #[must_use]
    pub fn new(address: &Address, settings: &Settings) -> Self {
        Self { access: Access { address: address.clone(), settings: settings.clone() } }
    }

    /// The primaries, by any of the address's hosts that knows. A single host is taken for one without a question.
    ///
    /// # Errors
    /// Why no host knows.
    pub async fn primaries(&self) -> Result<Vec<HostPort>, String> {
        let address = &self.access.address;
        if address.topology == Topology::Standalone && address.hosts.len() == 1 {
            return Ok(address.hosts.clone());
        }
        let (mut doubtful, mut reasons) = (None, Vec::new());
        for host in &address.hosts {
            match topology::ask::<Connection>(&self.access, address.topology, host.clone()).await {
                Ok(layout) => {
                    let mut primaries: Vec<HostPort> =
                        layout.ranges.into_iter().map(|(.., host)| host).collect();
                    primaries.sort_unstable();
                    primaries.dedup();
                    if layout.certain {
                        return Ok(primaries);
                    }
                    doubtful = Some(primaries);
                }
                Err(reason) => reasons.push(reason),
            }
        }
        doubtful.ok_or_else(|| reasons.join("; "))
    }

    /// Asks one server. Returns its answer, or the text of its error.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn ask(&self, server: &HostPort, question: Question<'_>) -> Result<Answer, String> {
        self.ask_over(self.access.open(server).await?, server, question).await
    }

    /// Asks a Sentinel.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn ask_sentinel(&self, server: &HostPort, question: Question<'_>) -> Result<Answer, String> {
        self.ask_over(self.access.open_sentinel(server).await?, server, question).await
    }

    /// How far a server's clock is ahead of the one that `now_ms` reads, in milliseconds, and how far that can be wrong: half
    /// of the time that the question took. The quickest of a few questions counts.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn ahead_ms(&self, server: &HostPort, now_ms: impl Fn() -> u64) -> Result<(i64, i64), String> {
        const QUESTIONS: usize = 5;
        let access = &self.access;
        let limit = access.settings.command_timeout;
        let link: Connection = access.open(server).await?;
        let mut best: Option<(i64, i64)> = None;
        for _ in 0..QUESTIONS {
            let (began, before) = (Instant::now(), now_ms());
            let asked = timeout(limit, link.send(vec![Question::Time.command()])).await;
            let took = began.elapsed();
            let answer = asked.map_err(|_| "no answer in time".to_owned())??.pop();
            let Some(Ok(Value::Array(parts))) = answer else {
                return Err("does not tell the time".to_owned());
            };
            let number = |at: usize| match parts.get(at) {
                Some(Value::Bytes(digits)) => std::str::from_utf8(digits).ok()?.parse::<i64>().ok(),
                _ => None,
            };
            let (Some(s), Some(us)) = (number(0), number(1)) else {
                return Err("the answer to TIME is unknown".to_owned());
            };
            let half_ms = i64::try_from(took.as_millis() / 2).unwrap_or(i64::MAX);
            let here_ms = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(half_ms);
            let ahead = (s * 1_000 + us / 1_000).saturating_sub(here_ms);
            // A millisecond for rounding.
            let error = half_ms + 1;
            if best.is_none_or(|(_, least)| error < least) {
                best = Some((ahead, error));
            }
        }
        best.ok_or_else(|| "no answer".to_owned())
    }

    async fn ask_over(
        &self,
        link: Connection,
        server: &HostPort,
        question: Question<'_>,
    ) -> Result<Answer, String> {
        let limit = self.access.settings.command_timeout;
        let asked = timeout(limit, link.send(vec![question.command()])).await;
        let answers = asked.map_err(|_| format!("{}: no answer in time", authority(server)))?;
        answers?.pop().ok_or_else(|| "no answer".to_owned())
    }
}
