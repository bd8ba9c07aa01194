//! Page templates: HTML with placeholders.
//!
//! Invariants: a template has only known placeholders. Each value is escaped for its position, so that it cannot change the
//! page's structure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::language::Language;

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
    /// Settings for the page's script, in addition to the texts.
    pub settings: Map<String, Value>,
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

    fn get(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Template {
    /// Reads a template. `texts` may be of any language; only their names matter.
    ///
    /// # Errors
    /// [`UnknownPlaceholder`], for the first unknown placeholder.
    pub fn read(html: &str, texts: &Texts) -> Result<Self, UnknownPlaceholder> {
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
                other => match other.strip_prefix("text.").filter(|name| texts.0.contains_key(*name)) {
                    Some(name) => Piece::Words(name.to_owned()),
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
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => page.push_str(text),
                Piece::Lang => page.push_str(filling.language.tag()),
                Piece::OtherLang => page.push_str(filling.language.other().tag()),
                Piece::Zone => escape(filling.zone, &mut page),
                Piece::Version => page.push_str(filling.version),
                Piece::Settings => write_settings(filling, &mut page),
                Piece::Words(name) => escape(filling.texts.get(name), &mut page),
            }
        }
        page
    }
}

fn escape(text: &str, page: &mut String) {
    for char in text.chars() {
        match char {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            char => page.push(char),
        }
    }
}

/// Writes the settings as JSON that cannot end a script element.
fn write_settings(filling: &Filling<'_>, page: &mut String) {
    let mut settings = filling.settings.clone();
    settings.insert("lang".to_owned(), filling.language.tag().into());
    settings.insert("texts".to_owned(), filling.texts.0.clone().into());
    settings.insert("zone".to_owned(), filling.zone.into());
    for char in Value::from(settings).to_string().chars() {
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
        let filling =
            Filling { language: Language::Korean, texts: &texts, zone: "a<z", version: "v", settings };
        let page = template.fill(&filling);
        let (before, after) = page.split_once("en v").expect("the other language, and the version");
        assert_eq!(before, "<html lang=ko><p>a&lt;z A &lt;b&gt; &amp; &quot;c&quot;</p>");
        assert!(!after.contains(['<', '>', '&']), "{after}");
        let sent: Value =
            serde_json::from_str(after.strip_suffix("{{").expect("an open brace pair stays")).expect("JSON");
        assert_eq!((&sent["url"], &sent["zone"]), (&"</script>&".into(), &"a<z".into()));
        assert_eq!((&sent["lang"], &sent["texts"]["go"]), (&"ko".into(), &"Go".into()));
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
