//! Texts in HTML.
//!
//! Invariant: an escaped text is text, in an element and in a quoted attribute.

/// Writes a text so that it stands as it is in a page.
pub(crate) fn escape(text: &str, page: &mut String) {
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
