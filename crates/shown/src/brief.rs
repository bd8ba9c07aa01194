//! Short errors. An error quotes what is wrong, and that may be a whole file.

use std::borrow::Cow;

/// The most characters that are shown whole of what an error quotes. The path of a file has fewer.
const WHOLE: usize = 256;

/// How many characters are shown of a longer text: of its beginning, and of its end.
const SHOWN: [usize; 2] = [120, 40];

/// A text, or the beginning and the end of a long one.
#[must_use]
pub fn ends(text: &str) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= WHOLE {
        return text.into();
    }
    let [first, last] = SHOWN;
    let beginning: String = text.chars().take(first).collect();
    let end: String = text.chars().skip(count - last).collect();
    format!("{beginning}…{end}").into()
}

/// An error without the middle of each long word and each long quotation. A list of many short words stays.
#[must_use]
pub fn brief(text: &str) -> String {
    let mut said = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let quoted = if matches!(first, '`' | '"') { quotation(rest, first) } else { None };
        // A quote without a second one is a character as any other.
        let length = quoted.unwrap_or_else(|| rest.find([' ', '`', '"']).map_or(rest.len(), |at| at.max(1)));
        let (part, after) = rest.split_at(length);
        said.push_str(&ends(part));
        rest = after;
    }
    said
}

/// The length of the quotation with which a text begins. A backslash takes the next character with it.
fn quotation(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    let is_end = |(_, char): &(usize, char)| {
        let ends = *char == quote && !is_escaped;
        is_escaped = *char == '\\' && !is_escaped;
        ends
    };
    text.char_indices().skip(1).find(is_end).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_the_ends_of_a_long_text() {
        for same in ["", "`", "a `b", "is `a b`, and must be \"x\"", &"one, ".repeat(900), "\"", "x\"\\"] {
            assert_eq!(brief(same), same);
        }
        let [word, text] = ["오".repeat(9_000), "a b ".repeat(9_000)];
        let short = format!("{}…{}", "오".repeat(120), "오".repeat(40));
        assert_eq!(
            brief(&format!("is {word}, and")),
            format!("is {}…{},{}", "오".repeat(120), "오".repeat(39), " and")
        );
        assert_eq!(ends(&word), short);
        for quote in ['`', '"'] {
            let said = brief(&format!("x {quote}{text}{quote}: no, {quote}y{quote}"));
            assert!(said.starts_with(&format!("x {quote}a b a")), "{said}");
            assert!(said.ends_with(&format!("b {quote}: no, {quote}y{quote}")) && said.len() < 250, "{said}");
        }
        // As Rust shows a text that has quotes.
        let said = brief(&format!("{:?} is wrong", format!("\"{text}\" \\").repeat(3)));
        assert!(said.ends_with("\\\" \\\\\" is wrong") && said.len() < 250, "{said}");
    }
}
