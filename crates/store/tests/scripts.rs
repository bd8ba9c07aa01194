//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 17] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::CENSUS,
        &scripts::DEAL,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
        &scripts::RETIRE,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::MEND,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::LEARNED,
        &scripts::DRAW,
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 17] = [
    ("join", "2580e6e0785189585ffcff682bd145460fcf6e80"),
    ("enter", "ba71550114e89ca5c895f9d8f185fc3df3dbe53b"),
    ("beat", "daa7408cd430d381e9ed7e4b70df6ea285e55295"),
    ("census", "33eb3902dc5d26c72fcdfac1f01f926ddf1b22ae"),
    ("deal", "236747d2078fe0c6230e67951302572b94d1cf61"),
    ("visits", "3f658ac55be0fe68419048fa28ca2beaa31edf0d"),
    ("leave", "2d323cbeba19efcab17a2b7020984cdbf33c0b1c"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "e317d75e2aadd4e1d3754f6e7f1de9558bd28047"),
    ("policy", "135ef1e3a4e192f09d61bd4e32b44b67e2f9bd56"),
    ("restore", "2498dd78a10026ec7ab3ff4d4a08032be60290de"),
    ("mend", "316ee68a1015e20661897747afb357c1e451830e"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("draw", "7928eb684e7e5a26d0c0727a706ce11561b794c8"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
