//! The scripts, as Redis gets them.
//!
//! A zone's scripts begin with the text of `lua/zone.lua`; nothing is generated. A test pins the SHA-1 of each, so that a
//! change is meant.

use std::sync::LazyLock;

use aws_lc_rs::digest;

use super::client::Script;

macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $file:literal, $($part:literal),+) => {
        $(#[$doc])*
        pub static $name: LazyLock<Script> = LazyLock::new(|| {
            script($file, concat!($(include_str!(concat!("../../../../lua/", $part)), "\n"),+))
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
    ZONES, "zones", "zones.lua"
);

/// [`ENTER`] without the look at the windows.
#[cfg(feature = "sabotage")]
pub static ENTER_UNCAPPED: LazyLock<Script> =
    LazyLock::new(|| script("enter", &ENTER.text.replace("slots_free = free(true)", "slots_free = 1000000")));

/// The scripts of a zone without the look at whose state it is.
#[cfg(feature = "sabotage")]
pub static UNMINDED: LazyLock<[Script; 4]> = LazyLock::new(|| {
    let minded: [&'static Script; 4] = [&JOIN, &ENTER, &BEAT, &POLICY];
    minded.map(|minded| script(minded.name, &minded.text.replace("  mind_process(now)\n", "")))
});

fn script(name: &'static str, text: &str) -> Script {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Script { name, text: text.to_owned(), sha1 }
}
