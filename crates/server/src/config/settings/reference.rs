//! The book's references: `docs/reference/settings.md` is made from the table of settings, and
//! `docs/reference/policy.md` is held against the fields of a policy.
//!
//! To write the page of settings anew: `WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference`.

use std::fs;

use admission::Policy;

use super::{Kind, SETTINGS, Setting};

fn values(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Number(low, high) => format!("{low} to {high}"),
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
         <!-- Made from crates/server/src/config/settings.rs. Do not edit: WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference -->\n\n\
         Every setting has a name in the file, a flag and a variable. A flag wins over a variable, a variable wins over the \
         file, and the file wins over the default. A dot in a name stands for a table of the file: `pass.issuer` is `issuer` in \
         `[pass]`. Zones, cells, admin tokens and targets are tables of the file only: see \
         [Start and configure](../operate/configuration.md). `weir --help` prints the same list.\n",
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

/// Names, defaults and ranges are those of the code; the meaning is written by hand.
#[test]
fn reference_of_policies_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/policy.md");
    let page = fs::read_to_string(file).expect("the page can be read");
    // A row has the name in backticks, the unit, the range, the default and the meaning.
    let rows: Vec<[String; 3]> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<String> =
                line.split('|').map(|cell| cell.trim().replace([',', '`'], "")).collect();
            line.starts_with("| `").then(|| [cells[1].clone(), cells[3].clone(), cells[4].clone()])
        })
        .collect();
    let fields = Policy::default().fields();
    assert_eq!(rows.len(), fields.len(), "{file} has a row for each field");
    for ([name, range, default], (field, value)) in rows.iter().zip(fields) {
        assert_eq!((name.as_str(), default.as_str()), (field, value.as_str()), "{file}: name and default");
        let mut policy = Policy::default();
        if let Some(number) = policy.number_mut(field) {
            *number = u32::MAX;
            let fault = policy.check().expect_err("a number out of its range");
            assert!(
                range.contains(&format!("to {}", fault.high)),
                "{file}: {name} is at most {}",
                fault.high
            );
        }
    }
}
