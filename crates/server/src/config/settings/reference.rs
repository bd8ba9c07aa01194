//! The book's references: `docs/reference/settings.md` is made from the table of settings, and the table in
//! `docs/reference/policy.md` from the table of a policy's fields.
//!
//! To write both anew: `WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference`.

use std::fs;

use admission::{FIELDS, Field, FieldKind};

use super::{Kind, SETTINGS, Setting};

fn values(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Number(low, high) => format!("{low} to {high}"),
        Kind::Share => "share from 0 to 1".to_owned(),
        Kind::List => "list; separated by commas outside the file".to_owned(),
        Kind::Secret => "secret text; no flag".to_owned(),
    }
}

/// A cell of a table: a bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn row(setting: &Setting) -> String {
    let flag = if setting.has_flag() { format!("`--{}`, ", setting.flag()) } else { String::new() };
    format!(
        "| `{}` | {} | {} | {} | {flag}`{}` |\n",
        setting.name,
        cell(setting.help),
        values(setting.kind),
        cell(setting.default_text().unwrap_or_default()),
        setting.variable(),
    )
}

fn page() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         <!-- Made from crates/server/src/config/settings/table.rs. Do not edit: WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference -->\n\n\
         Every setting has a name in the file, a flag and a variable. A flag wins over a variable, a variable wins over the \
         file, and the file wins over the default. A dot in a name stands for a table of the file: `pass.issuer` is `issuer` in \
         `[pass]`. Zones, cells, routes, admin tokens and targets are tables of the file only: see \
         [Start and configure](../operate/configuration.md). `weir --help` prints what has a flag.\n",
    );
    let table = |name: &'static str| name.split_once('.').map_or("", |(table, _)| table);
    let mut tables = vec![""];
    for setting in SETTINGS {
        if !tables.contains(&table(setting.name)) {
            tables.push(table(setting.name));
        }
    }
    for of in tables {
        let title = if of.is_empty() { "The server".to_owned() } else { format!("`[{of}]`") };
        page.push_str("\n## ");
        page.push_str(&title);
        page.push_str(
            "\n\n| name | what it does | value | default | flag, variable |\n|---|---|---|---|---|\n",
        );
        page.extend(SETTINGS.iter().filter(|setting| table(setting.name) == of).map(row));
    }
    page
}

#[test]
fn reference_of_settings_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/settings.md");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(file, page()).expect("the page can be written");
    }
    let kept = fs::read_to_string(file).unwrap_or_default();
    assert!(
        kept == page(),
        "{file} is not what the table of settings says: WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference"
    );
}

/// A number with commas between thousands.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let first = match digits.len() % 3 {
        0 => 3,
        some => some,
    };
    let mut text = digits[..first.min(digits.len())].to_owned();
    for at in (first..digits.len()).step_by(3) {
        text.extend([",", &digits[at..at + 3]]);
    }
    text
}

fn policy_row(field: &Field) -> String {
    let (unit, range, default) = match field.kind {
        FieldKind::Number { unit, low, high, .. } => {
            (unit, format!("{} to {}", grouped(low), grouped(high)), grouped(field.default()))
        }
        FieldKind::Word { words, .. } => {
            let code = |word: &&str| format!("`{word}`");
            let all: Vec<_> = words.iter().map(code).collect();
            ("", all.join(", "), all[field.default() as usize].clone())
        }
        FieldKind::Instant => ("", "an instant, or `none`".to_owned(), "`none`".to_owned()),
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("| `{}` |{space}{unit} | {range} | {default} | {} |\n", field.name, cell(field.help))
}

const POLICY_HEAD: &str = "| name | unit | range | default | meaning |\n|---|---|---|---|---|\n";

/// The text around the table is written by hand.
#[test]
fn reference_of_policies_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/policy.md");
    let kept = fs::read_to_string(file).expect("the page can be read");
    let (before, rest) = kept.split_once(POLICY_HEAD).expect("the page has the table");
    let (_, after) = rest.split_once("\n\n").expect("the page goes on after the table");
    let rows: String = FIELDS.iter().map(policy_row).collect();
    let page = format!("{before}{POLICY_HEAD}{rows}\n{after}");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(file, &page).expect("the page can be written");
    }
    let kept = fs::read_to_string(file).unwrap_or_default();
    assert!(
        kept == page,
        "{file} is not what the table of fields says: WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference"
    );
}

#[test]
fn thousands_are_grouped() {
    let all = [0, 12, 999, 1_000, 60_000, 600_000, 4_294_967_295];
    assert_eq!(all.map(grouped), ["0", "12", "999", "1,000", "60,000", "600,000", "4,294,967,295"]);
}
