//! Why a zone's store is away, in one word and in the store's own words.
//!
//! Log, metric, `/readyz`, the admin API, the console and the doctor all read this one record. Invariant: the kinds are few, so that
//! each can be a label of a metric.

use std::{
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use store::StoreError;
use tokio::time::Instant;

/// The longest text that is kept of an error, in bytes.
const MAX_TEXT: usize = 300;

/// How many lines about single zones the log gets in one [`WINDOW_S`]. If a store with a thousand zones dies, its own line is enough.
const MAX_LINES: u64 = 20;
const WINDOW_S: u64 = 10;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $advice:literal;)+) => {
        /// A kind of trouble.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum TroubleKind {
            $($(#[$doc])* $kind,)+
        }

        impl TroubleKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its name in metrics and in `/readyz`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// What an operator can do.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(Self::$kind => $advice),+ }
            }
        }
    };
}

kinds! {
    /// The server can't be reached.
    Unreachable, "unreachable", "look whether the store runs, and whether this machine reaches its address";
    /// The server takes calls and does not answer in time.
    NoAnswer, "no_answer", "look at the store's load, its disk, and the network between";
    /// Redis has as many clients as it takes.
    TooManyClients, "max_clients",
        "raise maxclients of Redis and its limit of open files, or end idle connections of other programs (redis-cli CLIENT LIST)";
    /// Redis reached `maxmemory`.
    OutOfMemory, "out_of_memory", "give Redis more memory, or raise maxmemory; its policy must be noeviction";
    /// No replica confirms writes.
    NoReplica, "no_replica",
        "start a replica, or lower min-replicas-to-write or redis.durability if you accept the loss of the last entries";
    /// The server is a replica.
    ReadOnly, "read_only", "the address leads to a replica; it must lead to the primary";
    /// The server reads its data.
    Loading, "loading", "wait until Redis has read its data";
    /// Redis can't write its disk, or the embedded store its files.
    NoDisk, "disk", "make room on the disk of the store, and look whether it can be written: the text names the cause, or the log of Redis does";
    /// A script or command blocks the server.
    Blocked, "busy", "a command of another client blocks Redis; redis-cli SCRIPT KILL ends a script";
    /// The user may not run a command.
    Denied, "denied", "give the user of Weir the rights of deploy/redis/weir.acl, and check its password";
    /// The slot of the zone is being moved, and the move does not go on.
    SlotMoving, "slot_moving", "finish the move of the slot: redis-cli --cluster fix HOST:PORT";
    /// No server of the cluster has the slot, or the cluster counts as down.
    NoSlot, "no_slot", "look at redis-cli --cluster check HOST:PORT: a slot has no primary";
    /// The server is of another kind than the address says, or knows no scripts.
    WrongKind, "wrong_kind", "the address leads to another kind of server than it says; weir doctor names the right form of it";
    /// A newer version of Weir wrote the state.
    Newer, "newer", "upgrade this server: it leaves alone what the newer version wrote, and the newer servers go on";
    /// A script failed.
    Script, "script", "the value of a key of this zone cannot be used; keep a copy of Redis's data, and report it";
    /// Keys of the zone vanish faster than it makes sense to begin its state anew.
    KeysVanish, "keys_vanish",
        "Redis must not evict (maxmemory-policy noeviction, and memory enough), and nobody else may delete keys; weir doctor looks at the policy";
    /// The embedded store can't use what it has of the zone.
    Unreadable, "unreadable", "put back a good copy of the store's files, or give the zone another id";
    /// Anything else.
    Other, "other", "see the text";
}

impl TroubleKind {
    /// The kind with this name. A server of another version may have others.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The kind of an error of a store.
    #[must_use]
    pub fn of(error: &StoreError) -> Self {
        let StoreError::Away(why) = error else {
            return if matches!(error, StoreError::Unreadable(_)) { Self::Unreadable } else { Self::Other };
        };
        let has = |word: &str| why.contains(word);
        // Redis's own words first: an error of a script names the code as well as the script.
        let by_code = [
            ("OOM ", Self::OutOfMemory),
            ("max number of clients", Self::TooManyClients),
            ("NOREPLICAS", Self::NoReplica),
            ("no replica has the change", Self::NoReplica),
            ("READONLY", Self::ReadOnly),
            ("is not the primary", Self::ReadOnly),
            ("LOADING", Self::Loading),
            ("MASTERDOWN", Self::Loading),
            ("MISCONF", Self::NoDisk),
            // Of the system, about the embedded store's files.
            ("No space left", Self::NoDisk),
            ("File too large", Self::NoDisk),
            ("Disk quota exceeded", Self::NoDisk),
            ("Read-only file system", Self::NoDisk),
            ("Input/output error", Self::NoDisk),
            ("BUSY ", Self::Blocked),
            ("NOPERM", Self::Denied),
            ("NOAUTH", Self::Denied),
            ("WRONGPASS", Self::Denied),
            ("can't run this command", Self::Denied),
            ("ACL failure in script", Self::Denied),
            ("TRYAGAIN", Self::SlotMoving),
            ("CLUSTERDOWN", Self::NoSlot),
            ("no server has slot", Self::NoSlot),
            ("unknown command", Self::WrongKind),
            ("cluster support disabled", Self::WrongKind),
            ("is a Sentinel", Self::WrongKind),
            ("is no Sentinel", Self::WrongKind),
            ("does not know the service", Self::WrongKind),
            ("a newer version of Weir wrote it", Self::Newer),
            ("WRONGTYPE", Self::Script),
            ("user_script", Self::Script),
            ("vanish again and again", Self::KeysVanish),
            ("could not be rebuilt", Self::KeysVanish),
            ("is missing", Self::Script),
            ("was changed", Self::Script),
            ("no answer", Self::NoAnswer),
            ("did not answer with", Self::Other),
        ];
        by_code.into_iter().find(|(word, _)| has(word)).map_or(Self::Unreachable, |(_, kind)| kind)
    }
}

/// Why a zone's store is away, and since when.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The kind.
    pub kind: TroubleKind,
    /// The store's words.
    pub why: Arc<str>,
    /// When the store failed first.
    pub since: Instant,
}

impl Trouble {
    pub(crate) fn new(error: &StoreError, since: Instant) -> Self {
        let mut why = error.to_string();
        if why.len() > MAX_TEXT {
            why.truncate(why.floor_char_boundary(MAX_TEXT));
        }
        Self { kind: TroubleKind::of(error), why: why.into(), since }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.why)
    }
}

/// Whether the log takes one more line about a single zone now.
pub(crate) fn may_log() -> bool {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    /// The window's number, and how many lines it has.
    static LINES: AtomicU64 = AtomicU64::new(0);
    let window = BEGAN.elapsed().as_secs() / WINDOW_S + 1;
    let count = |lines: u64| if lines >> 16 == window { lines + 1 } else { window << 16 | 1 };
    let before = LINES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lines| Some(count(lines)));
    let lines = before.map_or(0, count) & 0xFFFF;
    if lines == MAX_LINES {
        tracing::warn!("more zones are away than the log names; /readyz of the admin listener names them");
    }
    lines < MAX_LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_redis_has_its_kind() {
        for (why, kind) in [
            ("eu: OOM command not allowed when used memory > 'maxmemory'.", TroubleKind::OutOfMemory),
            ("NOREPLICAS Not enough good replicas to write.", TroubleKind::NoReplica),
            ("no replica has the change: 0 of 1 replicas confirmed in time", TroubleKind::NoReplica),
            ("READONLY You can't write against a read only replica.", TroubleKind::ReadOnly),
            ("TRYAGAIN Multiple keys request during rehashing of slot", TroubleKind::SlotMoving),
            ("CLUSTERDOWN Hash slot not served", TroubleKind::NoSlot),
            (
                "can't write /var/lib/weir/weir.redb: No space left on device (os error 28)",
                TroubleKind::NoDisk,
            ),
            ("no server has slot 12", TroubleKind::NoSlot),
            ("127.0.0.1:6379: ERR max number of clients reached", TroubleKind::TooManyClients),
            ("127.0.0.1:6379: is no Sentinel (ERR unknown command 'SENTINEL')", TroubleKind::WrongKind),
            ("ERR The user executing the script can't run this command or subcommand", TroubleKind::Denied),
            (
                "ERR ACL failure in script: User weir has no permissions to run the 'hset' command script: 16e3, on @user_script:9.",
                TroubleKind::Denied,
            ),
            ("MISCONF Redis is configured to save RDB snapshots", TroubleKind::NoDisk),
            ("BUSY Redis is busy running a script.", TroubleKind::Blocked),
            ("ERR user_script:1: bad argument #2 to 'unpack_struct'", TroubleKind::Script),
            ("ERR unknown command 'EVALSHA', with args beginning with:", TroubleKind::WrongKind),
            (
                "127.0.0.1:6379: belongs to no cluster (ERR This instance has cluster support disabled); write …",
                TroubleKind::WrongKind,
            ),
            ("no answer within 2000 ms", TroubleKind::NoAnswer),
            (
                "a newer version of Weir wrote it: the state of the zone has 70 numbers, and this version knows 68; upgrade this server",
                TroubleKind::Newer,
            ),
            ("keys of the zone vanish again and again: its state was lost 9 times", TroubleKind::KeysVanish),
            ("127.0.0.1:6379: Connection refused (os error 111)", TroubleKind::Unreachable),
        ] {
            assert_eq!(TroubleKind::of(&StoreError::Away(why.to_owned())), kind, "{why}");
        }
    }
}
