//! The language of a page.
//!
//! Invariant: there is always a language, and a choice in the address wins over the browser's preference.

use hyper::header::{ACCEPT_LANGUAGE, HeaderMap, HeaderValue};

/// A language of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Also used if no other language fits.
    English,
    /// 한국어
    Korean,
}

/// The most entries of `Accept-Language` that are read; more than browsers send.
const MOST: usize = 32;

impl Language {
    /// All languages.
    pub const ALL: [Self; 2] = [Self::English, Self::Korean];

    /// The language's tag, as in `lang="ko"`.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Korean => "ko",
        }
    }

    /// The language that the page offers as an alternative.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::English => Self::Korean,
            Self::Korean => Self::English,
        }
    }

    /// The language of a tag, for any region: `ko-KR` is Korean.
    fn of(tag: &str) -> Option<Self> {
        let primary = tag.split('-').next().unwrap_or_default();
        Self::ALL.into_iter().find(|language| language.tag().eq_ignore_ascii_case(primary))
    }

    /// The language of `?lang=`, otherwise the one with the highest weight in `Accept-Language`
    /// ([RFC 9110, 12.5.4](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.4)).
    #[must_use]
    pub fn choose(query: Option<&str>, headers: &HeaderMap) -> Self {
        let asked = form_urlencoded::parse(query.unwrap_or_default().as_bytes())
            .find_map(|(name, value)| (name == "lang").then(|| Self::of(&value)))
            .flatten();
        let liked = || {
            let accepted = headers.get(ACCEPT_LANGUAGE).map(HeaderValue::to_str)?.ok()?;
            let mut best: Option<(Self, u16)> = None;
            for range in accepted.split(',').take(MOST) {
                let (tag, weight) = range.split_once(';').unwrap_or((range, "q=1"));
                let weight = weight.trim().strip_prefix("q=").and_then(thousandths).unwrap_or(0);
                if let Some(language) = Self::of(tag.trim())
                    && weight > best.map_or(0, |(_, weight)| weight)
                {
                    best = Some((language, weight));
                }
            }
            best.map(|(language, _)| language)
        };
        asked.or_else(liked).unwrap_or(Self::English)
    }
}

/// A weight such as `0.8`, in thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let right = matches!(whole, "0" | "1") && part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
    let part = format!("{part:0<3}").parse::<u16>().ok()?;
    right.then(|| (if whole == "1" { 1_000 } else { part }).min(1_000))
}

/// `1234567` as `1,234,567`: in English and in Korean.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_wins_over_the_browser_and_english_is_the_default() {
        let accepts =
            |text: &'static str| HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(text))]);
        let choose = |query: &str, text| Language::choose(Some(query), &accepts(text)).tag();
        assert_eq!(choose("lang=ko", "en"), "ko");
        assert_eq!(choose("a=b&lang=en-GB", "ko"), "en");
        assert_eq!(choose("lang=xx", "ko-KR,ko;q=0.9"), "ko", "an unknown language is ignored");
        assert_eq!(choose("", "de, en;q=0.5, ko;q=0.8"), "ko");
        assert_eq!(choose("", "ko;q=0, en;q=0.1"), "en");
        assert_eq!(choose("", "KO"), "ko");
        for odd in ["", "*", "fr", ";;q=,,", "ko;q=9", "ko;q=0.1234", "ko;q=-1", "korean"] {
            assert_eq!(choose("", odd), "en", "{odd}");
        }
        assert_eq!(Language::choose(None, &HeaderMap::new()), Language::English);
    }
}
