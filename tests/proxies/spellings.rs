//! Spellings of the guarded paths: those that are known from attacks, and as many that are generated. A generated one undoes, step by
//! step, what servers do with a path.

use crate::seed::Random;

/// The guarded paths: two of the held zone, and two that are denied.
const GUARDED: [&str; 4] = ["checkout/1", "checkout", "admin/x", "admin"];

/// Known spellings. `{}` is a guarded path without its first slash.
const KNOWN: [&str; 40] = [
    "/{}",
    "/{}/",
    "//x/{}",
    "/\\x/{}",
    "\\/x/{}",
    "//{}",
    "///{}",
    "/./{}",
    "/x/../{}",
    "/{}/../x",
    "/{}/..%2fx",
    "/{}/..;/x",
    "/{}%2f..%2f..%2f",
    "/{}%2f..%2f..%2f..%2fa.css",
    "/x/..%2f{}",
    "/x/%2e%2e/{}",
    "/x/%252e%252e/{}",
    "/x/..;/{}",
    "/x/..;a=b/{}",
    "/x/..%5c{}",
    "/\\{}",
    "\\{}",
    "{}",
    "/%2f{}",
    "/%5c{}",
    "/;a=b/{}",
    "/{};a",
    "/{};a.css",
    "/{}?/a.css",
    "/{}#/a.css",
    "/#/../{}",
    "/{}%3fx",
    "/{}%3f.css",
    "/{}%23.css",
    "/{}%00",
    "/{}%00.css",
    "/{}%20",
    "/{}/%2e",
    "/a.css/../{}",
    "http:/{}",
];

/// The number of generated spellings.
const GENERATED: usize = 170;

/// All spellings, each once.
pub(crate) fn all(random: &mut Random) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |target: String| {
        let is_new = !all.contains(&target);
        if is_new {
            all.push(target);
        }
        is_new
    };
    for path in GUARDED {
        for form in KNOWN {
            add(form.replace("{}", path));
        }
        add(format!("/{}", path.to_ascii_uppercase()));
        // The first letter encoded once and twice, and every letter.
        let (first, rest) = path.split_at(1);
        let code = first.as_bytes()[0];
        add(format!("/%{code:02x}{rest}"));
        add(format!("/%25{code:02x}{rest}"));
        add(path.bytes().fold("/".to_owned(), |text, byte| format!("{text}%{byte:02x}")));
        add(format!("/{}", path.replace('/', "%2f")));
        add(format!("/{}", path.replace('/', "%5c")));
    }
    let mut generated = 0;
    while generated < GENERATED {
        let path = format!("/{}", GUARDED[random.below(GUARDED.len())]);
        let steps = 1 + random.below(4);
        let target = (0..steps).fold(path, |path, _| respelled(&path, random));
        generated += usize::from(add(target));
    }
    all
}

/// A path, spelled in one more way at some place.
fn respelled(path: &str, random: &mut Random) -> String {
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let slash = slashes.get(random.below(slashes.len().max(1))).copied();
    let replaced = |text: &str| match slash {
        Some(at) => format!("{}{text}{}", &path[..at], &path[at + 1..]),
        None => path.to_owned(),
    };
    let step = random.below(26);
    let letter = random.below(path.len());
    let byte = path.as_bytes()[letter];
    let encoded = |code: String| format!("{}{code}{}", &path[..letter], &path[letter + 1..]);
    match step {
        0..=2 => encoded(format!("%{byte:02x}")),
        3 => encoded(format!("%{byte:02X}")),
        4 => encoded(format!("%25{byte:02x}")),
        5 => encoded(char::from(byte).to_ascii_uppercase().to_string()),
        6 => replaced("/x/../"),
        7 => replaced("/./"),
        8 => replaced("//"),
        9 => replaced(";a=b/"),
        10 => replaced("/x/..;v/"),
        11 => replaced("\\"),
        12 => replaced("%2f"),
        13 => replaced("%5c"),
        14 => replaced("/x/%2e%2e/"),
        15 => replaced("/%2e/"),
        16 => replaced("/x%2f..%2f"),
        17 => format!("//x{path}"),
        18 => format!("/\\x{path}"),
        19 => format!("/x/..{path}"),
        20 => format!("{path}/"),
        21 => format!("{path}#x"),
        22 => format!("{path}/y/%2e."),
        23 => format!("http://shop.example{path}"),
        24 => format!("{path}%00"),
        _ => format!("{path}?q=/a.css"),
    }
}
