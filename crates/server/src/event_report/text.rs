//! Texts as they stand in the page.
//!
//! Invariant: a text from outside is escaped, and its invisible characters are replaced.

use admission::instant_text;

use super::Bilingual;
use crate::html::escape;

/// A sentence in both languages, of which the page shows one.
pub(super) fn spoken(said: &Bilingual) -> String {
    format!("<span lang=\"en\">{}</span><span lang=\"ko\">{}</span>", escaped(&said.en), escaped(&said.ko))
}

/// A text from outside, as it can stand in the page and in an attribute.
pub(super) fn escaped(text: &str) -> String {
    // They could disguise the text around them.
    let is_hidden = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let visible: String = text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect();
    let mut escaped = String::with_capacity(visible.len());
    escape(&visible, &mut escaped);
    escaped
}

/// An instant, in UTC.
pub(super) fn instant(unix_s: u64) -> String {
    instant_text(u32::try_from(unix_s).unwrap_or(u32::MAX))
}

/// The hour and the minute of an instant.
pub(super) fn clock(unix_s: u64) -> String {
    let minute = unix_s / 60 % 1_440;
    format!("{:02}:{:02}", minute / 60, minute % 60)
}
