//! The page's HTML with gaps, and what fills them.
//!
//! Invariant: a template that was read has only gaps that can be filled, and what fills them is escaped for where it
//! stands: a page can't be made to say more than its template does.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::language::Language;

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// As it stands.
    Text(String),
    Lang,
    OtherLang,
    Zone,
    Version,
    Settings,
    /// A text in the page's language, by its name.
    Words(String),
}

/// A page with gaps.
#[derive(Clone, Debug)]
pub struct Template(Vec<Piece>);

/// A gap that nothing fills.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: `{{{{{gap}}}}}` is no gap that can be filled; there are lang, other_lang, zone, version, settings and text.NAME, where NAME is one of {names}"
)]
pub struct Unfillable {
    line: usize,
    gap: String,
    names: String,
}

/// What fills a page's gaps.
pub struct Filling<'a> {
    /// The page's language.
    pub language: Language,
    /// Its texts.
    pub texts: &'a Texts,
    /// The zone.
    pub zone: &'a str,
    /// Changes with the assets.
    pub version: &'a str,
    /// What the page's script is told beside the texts.
    pub settings: Map<String, Value>,
}

/// The page's texts in a language, by name.
pub struct Texts(Map<String, Value>);

impl Texts {
    /// Those of a JSON object of strings.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        let texts: Map<String, Value> = serde_json::from_str(json).ok()?;
        texts.values().all(Value::is_string).then_some(Self(texts))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Template {
    /// Reads a page; `texts` are those of any language.
    ///
    /// # Errors
    /// [`Unfillable`], of the first such gap.
    pub fn read(html: &str, texts: &Texts) -> Result<Self, Unfillable> {
        let mut pieces = Vec::new();
        let mut rest = html;
        while let Some((before, (gap, after))) =
            rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
        {
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match gap.trim() {
                "lang" => Piece::Lang,
                "other_lang" => Piece::OtherLang,
                "zone" => Piece::Zone,
                "version" => Piece::Version,
                "settings" => Piece::Settings,
                other => match other.strip_prefix("text.").filter(|name| texts.0.contains_key(*name)) {
                    Some(name) => Piece::Words(name.to_owned()),
                    None => {
                        let line = 1 + html[..html.len() - rest.len() + before.len()].matches('\n').count();
                        let gap = gap.chars().take(64).collect();
                        return Err(Unfillable {
                            line,
                            gap,
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

    /// The page.
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

/// As JSON that is at home in a script element: nothing in it ends that.
fn write_settings(filling: &Filling<'_>, page: &mut String) {
    let mut settings = filling.settings.clone();
    settings.insert("lang".to_owned(), filling.language.tag().into());
    settings.insert("texts".to_owned(), filling.texts.0.clone().into());
    settings.insert("zone".to_owned(), filling.zone.into());
    for char in Value::from(settings).to_string().chars() {
        match char {
            '<' | '>' | '&' => {
                let written = write!(page, "\\u{:04x}", u32::from(char));
                debug_assert!(written.is_ok(), "a String takes all");
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
    fn gaps_are_filled_and_escaped_for_where_they_stand() {
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
        let told: Value =
            serde_json::from_str(after.strip_suffix("{{").expect("what is no gap stays")).expect("JSON");
        assert_eq!((&told["url"], &told["zone"]), (&"</script>&".into(), &"a<z".into()));
        assert_eq!((&told["lang"], &told["texts"]["go"]), (&"ko".into(), &"Go".into()));
    }

    #[test]
    fn an_unknown_gap_is_told_with_its_line() {
        for gap in ["nonsense", "text.nonsense", "text.", ""] {
            let fault = Template::read(&format!("{{{{lang}}}}\n\n{{{{{gap}}}}}"), &texts()).expect_err(gap);
            assert!(fault.to_string().starts_with(&format!("line 3: `{{{{{gap}}}}}` is no gap")), "{fault}");
        }
    }
}
