//! The scripts, as Redis gets them.
//!
//! A zone's scripts begin with the text of `lua/zone.lua`, those of the register with `lua/register.lua`; nothing is generated. A test pins the SHA-1 of each, so that a
//! change is meant.

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
    /// Gives out places.
    JOIN, "join", "zone.lua", "join.lua"
);
script!(
    /// Decides claims.
    ENTER, "enter", "zone.lua", "enter.lua"
);
script!(
    /// Takes in polls, does what is due, shows the zone.
    BEAT, "beat", "zone.lua", "beat.lua"
);
script!(
    /// Makes a zone known, or changes its policy.
    POLICY, "policy", "zone.lua", "policy.lua"
);
script!(
    /// Takes in what a server remembers.
    RESTORE, "restore", "zone.lua", "restore.lua"
);
script!(
    /// The zones that are kept.
    ZONES, "zones", "register.lua", "zones.lua"
);
script!(
    /// Changes one of them.
    DEFINE, "define", "register.lua", "define.lua"
);
script!(
    /// The servers that are there.
    SERVERS, "servers", "servers.lua"
);

/// [`ENTER`] without the look at the windows.
#[cfg(feature = "sabotage")]
pub static ENTER_UNCAPPED: LazyLock<Script> = LazyLock::new(|| {
    Script::new("enter", &ENTER.text.replace("slots_free = free(true)", "slots_free = 1000000"))
});

/// The scripts of a zone without the look at whose state it is.
#[cfg(feature = "sabotage")]
pub static UNMINDED: LazyLock<[Script; 4]> = LazyLock::new(|| {
    let minded: [&'static Script; 4] = [&JOIN, &ENTER, &BEAT, &POLICY];
    minded.map(|minded| Script::new(minded.name, &minded.text.replace("  mind_process(now)\n", "")))
});
