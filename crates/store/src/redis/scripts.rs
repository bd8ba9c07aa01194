//! The scripts, as they are sent to Redis.
//!
//! The scripts that use the rules of a line begin with the text of `lua/zone.lua` and end with that of `lua/end.lua`. Those of the register
//! begin with `lua/register.lua`. The others stand alone.
//!
//! Invariant: a test pins the SHA-1 of each script, so that none changes by accident.

use std::sync::LazyLock;

use super::client::Script;

macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $file:literal, $($part:literal),+) => {
        $(#[$doc])*
        pub static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new($file, concat!($(include_str!(concat!("../../../../lua/", $part)), "\n"),+))
        });
    };
}

script!(
    /// Gives out tickets.
    JOIN, "join", "zone.lua", "join.lua", "end.lua"
);
script!(
    /// Finds the tickets of earlier joins by their keys.
    FIND, "find", "find.lua"
);
script!(
    /// Decides claims.
    ENTER, "enter", "zone.lua", "enter.lua", "end.lua"
);
script!(
    /// Takes in polls, does what is due, and returns the zone's counts and bits.
    BEAT, "beat", "zone.lua", "beat.lua", "end.lua"
);
script!(
    /// Lists who waits.
    CENSUS, "census", "zone.lua", "census.lua", "end.lua"
);
script!(
    /// Deals a line anew by a draw.
    DEAL, "deal", "zone.lua", "deal.lua", "end.lua"
);
script!(
    /// Takes in which visitors were active, and ends idle visits.
    VISITS, "visits", "zone.lua", "visits.lua", "end.lua"
);
script!(
    /// Lets holders leave.
    LEAVE, "leave", "zone.lua", "leave.lua", "end.lua"
);
script!(
    /// Binds an entry to an address.
    BIND, "bind", "bind.lua"
);
script!(
    /// Notes that a server calls no more.
    RETIRE, "retire", "zone.lua", "retire.lua", "end.lua"
);
script!(
    /// Creates the state of a new zone.
    NEW, "new", "zone.lua", "new.lua", "end.lua"
);
script!(
    /// Changes a zone's policy. A zone without a state begins as after a loss.
    POLICY, "policy", "zone.lua", "policy.lua", "end.lua"
);
script!(
    /// Merges what a server remembers into the state.
    RESTORE, "restore", "zone.lua", "restore.lua", "end.lua"
);
script!(
    /// Begins a new epoch of a zone whose state lacks a part, or whose scripts fail.
    MEND, "mend", "zone.lua", "mend.lua", "end.lua"
);
script!(
    /// Reads the register, creates it, or writes it back.
    ZONES, "zones", "register.lua", "zones.lua"
);
script!(
    /// Changes one zone of the register.
    DEFINE, "define", "register.lua", "define.lua"
);
script!(
    /// Keeps what was learnt about the people of a zone.
    LEARNED, "learned", "learned.lua"
);
script!(
    /// Keeps the record of a draw.
    DRAW, "draw", "draw.lua"
);
script!(
    /// Keeps what servers counted by minute, or reads it.
    MINUTES, "minutes", "minutes.lua"
);
script!(
    /// Registers a server, and lists all.
    SERVERS, "servers", "servers.lua"
);
script!(
    /// Keeps what is left in the zones.
    STOCK, "stock", "stock.lua"
);
