//! Patterns of routes: text in which `*` stands for any characters, also none.

use std::{borrow::Cow, fmt};

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// The text, [folded].
    folded: String,
    /// How much of the folded text is in front of the first star, without a last slash. Every path that fits generously begins so.
    head: usize,
}

/// The longest pattern, in bytes.
const MOST: usize = 256;

/// A text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern has 1 to {MOST} characters; `*` stands for any of them")]
pub struct NotAPattern;

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`NotAPattern`] if it is empty or too long.
    pub fn new(text: &str) -> Result<Self, NotAPattern> {
        if text.is_empty() || text.len() > MOST {
            Err(NotAPattern)
        } else {
            let folded = folded(text).into_owned();
            let head = folded.split('*').next().unwrap_or_default();
            let head = head.strip_suffix('/').unwrap_or(head).len();
            Ok(Self { text: text.to_owned(), folded, head })
        }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole text fits the pattern.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        let mut parts = self.text.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // The first place for each part leaves the most for the others.
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// Whether a path fits literally. `/shop/*` also stands for `/shop`.
    #[must_use]
    pub fn fits_path(&self, path: &str) -> bool {
        self.fits(path)
            || self.text.strip_suffix("/*").is_some_and(|above| !above.contains('*') && above == path)
    }

    /// Whether a path fits for an app that ignores the case of letters and a last slash. `/shop/*` also stands for `/shop`, and
    /// `/*/shop/*` for `/kr/shop`.
    #[must_use]
    pub fn fits_path_generously(&self, path: &str) -> bool {
        fn without_slash(text: &[u8]) -> &[u8] {
            text.strip_suffix(b"/").unwrap_or(text)
        }
        let path = folded(path);
        let (pattern, path) = (self.folded.as_bytes(), path.as_bytes());
        // Most paths fit most patterns at no character.
        let head = &pattern[..self.head];
        if !path.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head)) {
            return false;
        }
        let above = self.folded.strip_suffix("/*").filter(|above| !above.ends_with('*'));
        fits_folded(pattern, path)
            || fits_folded(without_slash(pattern), without_slash(path))
            || above.is_some_and(|above| fits_folded(above.as_bytes(), path))
    }
}

/// A text in which all letters beyond ASCII that differ only in case are the same, and those are ASCII letters that some readers take for
/// one: `K` (the sign of kelvin) and `ſ`, as in Go's `EqualFold` and Python's `re.IGNORECASE`; `ı` and `İ`, as in Java's
/// `equalsIgnoreCase`. ASCII letters stay as they are. Most texts stay whole, and are not copied.
fn folded(text: &str) -> Cow<'_, str> {
    fn one(letter: char) -> char {
        fn single(mut letters: impl Iterator<Item = char>) -> Option<char> {
            letters.next().filter(|_| letters.next().is_none())
        }
        match letter {
            'A'..='Z' => letter,
            // In small letters it is two characters.
            '\u{130}' => 'i',
            _ => {
                let upper = single(letter.to_uppercase()).unwrap_or(letter);
                single(upper.to_lowercase()).unwrap_or(letter)
            }
        }
    }
    if text.is_ascii() || text.chars().all(|letter| one(letter) == letter) {
        return Cow::Borrowed(text);
    }
    text.chars().map(one).collect::<String>().into()
}

/// Whether a text fits a pattern if the case of ASCII letters does not count.
fn fits_folded(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|b| *b == b'*');
    let first = parts.next().unwrap_or_default();
    let Some((start, mut rest)) = text.split_at_checked(first.len()) else { return false };
    if !start.eq_ignore_ascii_case(first) {
        return false;
    }
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts.filter(|part| !part.is_empty()) {
        match rest.windows(part.len()).position(|window| window.eq_ignore_ascii_case(part)) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest[rest.len() - last.len()..].eq_ignore_ascii_case(last)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).expect("a pattern")
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (text, fitting, other) in [
            ("/a", &["/a"][..], &["/ab", "/", ""][..]),
            ("*", &["", "/", "anything"], &[]),
            ("/a/*", &["/a/", "/a/b/c"], &["/a", "/ab"]),
            (
                "*.shop.example",
                &["www.shop.example", ".shop.example"],
                &["shop.example", "a.shop.example.org"],
            ),
            ("*bot*", &["bot", "Robot/1", "a bot b"], &["bo t"]),
            ("a*b*a", &["aba", "abba", "a12b34a"], &["ab", "aa", "abab"]),
            ("ab*ba", &["abba", "ab-ba"], &["aba"]),
        ] {
            for text_that in fitting {
                assert!(pattern(text).fits(text_that), "{text}: {text_that}");
            }
            for text_that in other {
                assert!(!pattern(text).fits(text_that), "{text}: {text_that}");
            }
        }
        assert!(pattern("/shop/*").fits_path("/shop") && !pattern("/shop/*").fits_path("/shopping"));
        assert!(!pattern("/*/*").fits_path("/*"));
    }

    #[test]
    fn a_generous_reader_ignores_case_and_the_last_slash() {
        for (text, fitting, other) in [
            ("/cart", &["/cart", "/cart/", "/CART", "/Cart/"][..], &["/cart/1", "/carts", "/"][..]),
            ("/cart/", &["/cart", "/cart/"], &["/cart/1"]),
            ("/", &["/"], &["/a"]),
            ("/A/*", &["/a", "/a/", "/A/b/"], &["/ab"]),
            ("/*/cart/*", &["/kr/cart", "/kr/Cart/", "/kr/cart/1"], &["/cart", "/kr/carts"]),
            ("/*/*", &["/a/b"], &["/a"]),
            ("*/x*Y*z", &["/X-y-Z", "/xyz", "/a/xyz/"], &["/xzy"]),
            ("/caf\u{e9}/*", &["/CAF\u{e9}/1", "/CAF\u{c9}"], &["/cafe/1"]),
            ("/\u{c5}", &["/\u{e5}", "/\u{212b}"], &["/a"]),
            ("/checkout/*", &["/chec\u{212a}out/1"], &["/che\u{442}kout/1"]),
            ("/sign/*", &["/\u{17f}\u{131}gn", "/S\u{130}GN/1"], &["/\u{df}ign"]),
            ("/\u{17f}/*", &["/s/1"], &["/z/1"]),
        ] {
            for text_that in fitting {
                assert!(pattern(text).fits_path_generously(text_that), "{text}: {text_that}");
            }
            for text_that in other {
                assert!(!pattern(text).fits_path_generously(text_that), "{text}: {text_that}");
            }
        }
    }

    #[test]
    fn a_pattern_has_a_length() {
        assert_eq!((Pattern::new(""), Pattern::new(&"x".repeat(257))), (Err(NotAPattern), Err(NotAPattern)));
    }

    /// The definition, one character after the other.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                slow(rest, text) || text.split_first().is_some_and(|(_, after)| slow(pattern, after))
            }
            (Some((p, pattern)), Some((t, text))) => p == t && slow(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_do_as_the_definition_says(text in "[ab]{0,8}", wanted in "[ab*]{1,6}") {
            let expected = slow(wanted.as_bytes(), text.as_bytes());
            prop_assert_eq!(pattern(&wanted).fits(&text), expected);
            prop_assert_eq!(fits_folded(wanted.to_uppercase().as_bytes(), text.as_bytes()), expected);
        }
    }
}
