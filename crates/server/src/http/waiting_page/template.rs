//! Page templates: HTML with placeholders.
//!
//! Invariants: a template has only known placeholders. Each value is escaped for its position, so that it cannot change the
//! page's structure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::language::Language;
use crate::html::escape;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Literal text.
    Text(String),
    Lang,
    OtherLang,
    Zone,
    Version,
    Settings,
    /// A text in the page's language, by name.
    Words(String),
    /// A value of one of Weir's own pages, by name.
    Value(String),
    /// The same, as HTML that Weir wrote.
    Raw(String),
}

/// A page with placeholders.
#[derive(Clone, Debug)]
pub struct Template(Vec<Piece>);

/// A placeholder is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: `{{{{{placeholder}}}}}` is not a known placeholder; known are lang, other_lang, zone, version, settings and text.NAME, where NAME is one of {names}"
)]
pub struct UnknownPlaceholder {
    line: usize,
    placeholder: String,
    names: String,
}

/// The values for a page's placeholders.
pub struct Filling<'a> {
    /// The page's language.
    pub language: Language,
    /// The texts in that language.
    pub texts: &'a Texts,
    /// The zone.
    pub zone: &'a str,
    /// Changes when the assets change.
    pub version: &'a str,
    /// Settings for the page's script.
    pub settings: Map<String, Value>,
    /// The values of Weir's own pages, by name: as text, or as HTML for `raw`.
    pub values: &'a [(&'a str, &'a str)],
}

/// The page's texts in one language, by name.
pub struct Texts(Map<String, Value>);

impl Texts {
    /// Reads a JSON object of strings; `None` if it is something else.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        let texts: Map<String, Value> = serde_json::from_str(json).ok()?;
        texts.values().all(Value::is_string).then_some(Self(texts))
    }

    /// The text of this name; empty if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The texts for the script of a waiting page, by name. Those of the page of a proxy's visitor begin with `gate_`.
    #[must_use]
    pub fn for_script(&self) -> Value {
        self.0
            .iter()
            .filter(|(name, _)| !name.starts_with("gate_"))
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Template {
    /// Reads an operator's template. `texts` may be of any language; only their names matter.
    ///
    /// # Errors
    /// [`UnknownPlaceholder`], for the first unknown placeholder.
    pub fn read(html: &str, texts: &Texts) -> Result<Self, UnknownPlaceholder> {
        Self::of_weir(html, texts, &[])
    }

    /// Reads one of Weir's own templates, which may also have placeholders `value.NAME` and `raw.NAME` for these names.
    ///
    /// # Errors
    /// [`UnknownPlaceholder`], for the first unknown placeholder.
    pub fn of_weir(html: &str, texts: &Texts, values: &[&str]) -> Result<Self, UnknownPlaceholder> {
        let mut pieces = Vec::new();
        let mut rest = html;
        while let Some((before, (placeholder, after))) =
            rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
        {
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match placeholder.trim() {
                "lang" => Piece::Lang,
                "other_lang" => Piece::OtherLang,
                "zone" => Piece::Zone,
                "version" => Piece::Version,
                "settings" => Piece::Settings,
                other => match piece(other, texts, values) {
                    Some(piece) => piece,
                    None => {
                        let line = 1 + html[..html.len() - rest.len() + before.len()].matches('\n').count();
                        let placeholder = placeholder.chars().take(64).collect();
                        return Err(UnknownPlaceholder {
                            line,
                            placeholder,
                            names: texts.names().collect::<Vec<_>>().join(", "),
                        });
                    }
                },
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// Makes the page.
    #[must_use]
    pub fn fill(&self, filling: &Filling<'_>) -> String {
        let mut page = String::with_capacity(8_192);
        let value = |name: &str| {
            let found = filling.values.iter().find(|(known, _)| *known == name);
            found.map_or("", |(_, value)| *value)
        };
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => page.push_str(text),
                Piece::Lang => page.push_str(filling.language.tag()),
                Piece::OtherLang => page.push_str(filling.language.other().tag()),
                Piece::Zone => escape(filling.zone, &mut page),
                Piece::Version => page.push_str(filling.version),
                Piece::Settings => write_settings(filling, &mut page),
                Piece::Words(name) => escape(filling.texts.get(name), &mut page),
                Piece::Value(name) => escape(value(name), &mut page),
                Piece::Raw(name) => page.push_str(value(name)),
            }
        }
        page
    }
}

/// The piece of a placeholder with a name.
fn piece(placeholder: &str, texts: &Texts, values: &[&str]) -> Option<Piece> {
    let (kind, name) = placeholder.split_once('.')?;
    match kind {
        "text" if texts.0.contains_key(name) => Some(Piece::Words(name.to_owned())),
        "value" if values.contains(&name) => Some(Piece::Value(name.to_owned())),
        "raw" if values.contains(&name) => Some(Piece::Raw(name.to_owned())),
        _ => None,
    }
}

/// Writes the settings as JSON that cannot end a script element.
fn write_settings(filling: &Filling<'_>, page: &mut String) {
    for char in Value::from(filling.settings.clone()).to_string().chars() {
        match char {
            '<' | '>' | '&' => {
                let written = write!(page, "\\u{:04x}", u32::from(char));
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
            }
            char => page.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Texts {
        Texts::read(r#"{"title":"A <b> & \"c\"","go":"Go"}"#).expect("texts")
    }

    #[test]
    fn placeholders_are_filled_and_escaped_for_their_position() {
        let texts = texts();
        let html =
            "<html lang={{lang}}><p>{{ zone }} {{text.title}}</p>{{other_lang}} {{version}}{{settings}}{{";
        let template = Template::read(html, &texts).expect("right");
        let settings = Map::from_iter([("url".to_owned(), "</script>&".into())]);
        let filling = Filling {
            language: Language::Korean,
            texts: &texts,
            zone: "a<z",
            version: "v",
            settings,
            values: &[],
        };
        let page = template.fill(&filling);
        let (before, after) = page.split_once("en v").expect("the other language, and the version");
        assert_eq!(before, "<html lang=ko><p>a&lt;z A &lt;b&gt; &amp; &quot;c&quot;</p>");
        assert!(!after.contains(['<', '>', '&']), "{after}");
        let sent: Value =
            serde_json::from_str(after.strip_suffix("{{").expect("an open brace pair stays")).expect("JSON");
        assert_eq!(sent["url"], "</script>&");
    }

    #[test]
    fn an_unknown_placeholder_is_reported_with_its_line() {
        for placeholder in ["nonsense", "text.nonsense", "text.", ""] {
            let fault = Template::read(&format!("{{{{lang}}}}\n\n{{{{{placeholder}}}}}"), &texts())
                .expect_err(placeholder);
            assert!(
                fault
                    .to_string()
                    .starts_with(&format!("line 3: `{{{{{placeholder}}}}}` is not a known placeholder")),
                "{fault}"
            );
        }
    }
}
