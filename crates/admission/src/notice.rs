//! The operators' notice to people who wait: a short text in a few languages.
//!
//! No rule reads it. Invariants: every [`Notice`] is within the limits below, and its languages are sorted, so that equal
//! notices are written alike.

use std::collections::BTreeMap;

/// A text per language for people who wait; may be empty. It is plain text: whatever displays it must escape it.
///
/// A language is a simple tag of BCP 47 ([RFC 5646](https://www.rfc-editor.org/rfc/rfc5646)) in lower case: two or three
/// letters, then optional parts of two to eight letters or digits, as in `en`, `ko`, `pt-br`. A text has 1 to
/// [`Notice::TEXT_MAX`] characters. Line feeds are its only control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice(BTreeMap<Box<str>, Box<str>>);

/// Why texts are not a valid notice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoticeFault {
    /// Too many languages.
    #[error("there are {count} languages, and {max} are the most", max = Notice::LANGUAGES_MAX)]
    Languages {
        /// The number of languages.
        count: usize,
    },
    /// Not a language tag.
    #[error("`{0}` is not a language tag; write it in lower case, as in en, ko or pt-br")]
    Language(String),
    /// The text is empty or too long.
    #[error("the text in `{language}` has {length} characters, and must have 1 to {max}", max = Notice::TEXT_MAX)]
    Length {
        /// The text's language.
        language: String,
        /// The text's length, in characters.
        length: usize,
    },
    /// The text has a control character other than a line feed.
    #[error("the text in `{language}` has the control character {}; of those, only line feeds may be in it", character.escape_unicode())]
    Control {
        /// The text's language.
        language: String,
        /// The first such character.
        character: char,
    },
}

impl Notice {
    /// The largest number of languages.
    pub const LANGUAGES_MAX: usize = 8;
    /// The longest text, in characters.
    pub const TEXT_MAX: usize = 500;
    /// The longest language tag, in characters.
    pub const LANGUAGE_LEN_MAX: usize = 35;

    /// Its languages in words.
    #[must_use]
    pub fn sentence(&self) -> String {
        let languages: Vec<_> = self.0.keys().map(|language| &**language).collect();
        match languages.as_slice() {
            [] => "no notice".to_owned(),
            some => format!("a notice in {}", some.join(", ")),
        }
    }

    /// Makes a notice of languages and texts. If a language comes twice, the later text counts. A line may end with a carriage return and
    /// a line feed; the carriage return is left out.
    ///
    /// # Errors
    /// The first [`NoticeFault`], in the order of the texts; too many languages are reported last.
    pub fn new<L: AsRef<str>, T: AsRef<str>>(
        texts: impl IntoIterator<Item = (L, T)>,
    ) -> Result<Self, NoticeFault> {
        let mut notice = BTreeMap::new();
        for (language, text) in texts {
            let (language, text) = (language.as_ref(), text.as_ref().replace("\r\n", "\n"));
            if !is_language(language) {
                return Err(NoticeFault::Language(language.chars().take(Self::LANGUAGE_LEN_MAX).collect()));
            }
            let length = text.chars().count();
            if !(1..=Self::TEXT_MAX).contains(&length) {
                return Err(NoticeFault::Length { language: language.to_owned(), length });
            }
            if let Some(character) = text.chars().find(|&c| c.is_control() && c != '\n') {
                return Err(NoticeFault::Control { language: language.to_owned(), character });
            }
            notice.insert(language.into(), text.into());
        }
        match notice.len() {
            count if count > Self::LANGUAGES_MAX => Err(NoticeFault::Languages { count }),
            _ => Ok(Self(notice)),
        }
    }

    /// Whether there is no text in any language.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text in exactly this language.
    #[must_use]
    pub fn get(&self, language: &str) -> Option<&str> {
        self.0.get(language).map(AsRef::as_ref)
    }

    /// Languages and texts, sorted by language.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(language, text)| (language.as_ref(), text.as_ref()))
    }
}

fn is_language(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let first = parts.next().unwrap_or_default();
    tag.len() <= Notice::LANGUAGE_LEN_MAX
        && (2..=3).contains(&first.len())
        && first.bytes().all(|b| b.is_ascii_lowercase())
        && parts.all(|part| {
            (2..=8).contains(&part.len())
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(language: &str, text: &str) -> String {
        Notice::new([(language, text)]).expect_err("no notice").to_string()
    }

    #[test]
    fn a_language_is_a_lower_case_tag() {
        for good in ["en", "ko", "fil", "pt-br", "zh-hant-tw", "es-419"] {
            assert!(Notice::new([(good, "x")]).is_ok(), "{good}");
        }
        for bad in [
            "",
            "e",
            "EN",
            "en-US",
            "en_us",
            "engl",
            "en-",
            "-en",
            "en-a",
            "e1",
            "en us",
            "en-123456789",
            "한",
        ] {
            assert!(fault(bad, "x").contains("is not a language"), "{bad}");
        }
        assert!(fault(&format!("en{}", "-abcdefgh".repeat(5)), "x").len() < 150);
    }

    #[test]
    fn a_text_is_plain_and_short() {
        assert!(Notice::new([("en", "One.\nTwo.")]).is_ok());
        assert!(Notice::new([("ko", "가".repeat(500))]).is_ok(), "characters count, not bytes");
        assert!(fault("en", "").contains("0 characters"));
        assert!(fault("ko", &"가".repeat(501)).contains("501 characters"));
        for bad in ['\t', '\r', '\0', '\x1b', '\u{85}'] {
            assert!(fault("en", &format!("a{bad}")).contains("control"), "{bad:?}");
        }
    }

    #[test]
    fn the_number_of_languages_is_limited() {
        let tags: Vec<String> = (b'a'..=b'i').map(|b| format!("x{}", char::from(b))).collect();
        let texts = |count: usize| tags[..count].iter().map(|tag| (tag, "x"));
        assert!(Notice::new(texts(8)).is_ok());
        assert_eq!(Notice::new(texts(9)), Err(NoticeFault::Languages { count: 9 }));
        assert!(Notice::default().is_empty() && !Notice::new(texts(1)).expect("one").is_empty());
    }
}
