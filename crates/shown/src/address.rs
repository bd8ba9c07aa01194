//! Addresses to show. They may have a user with a password, or a key in the query.
//!
//! Invariant: nothing of a user, a password, a query or a fragment is shown, also of what is no address.

use std::borrow::Cow;

use clap::error::{ContextKind, ContextValue};

/// An address to show, right or wrong: without a user and a password, and without the query and the fragment.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let (scheme, separator, rest) =
        url.split_once("://").map_or(("", "", url), |(scheme, rest)| (scheme, "://", rest));
    // A password may have the signs that begin a query, so what is before the last @ goes first.
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{separator}{login}{rest}")
}

/// A value that was given, to show: any text. If it may be an address, it is shown without its secrets, and `…` stands for what was cut off
/// at its end.
#[must_use]
pub fn value(given: &str) -> Cow<'_, str> {
    let has_login = given.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    if !has_login && !given.contains("://") {
        return given.into();
    }
    let shown = without_secrets(given);
    let rest = given.rsplit_once('@').map_or(given, |(_, rest)| rest);
    let cut = rest.find(['?', '#']).and_then(|at| rest[at..].chars().next());
    cut.map_or(shown.clone(), |sign| format!("{shown}{sign}…")).into()
}

/// A message, with each value that it quotes as [`value`] shows it.
#[must_use]
pub fn without_quoted_logins(message: &str) -> String {
    let mut said = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(['`', '"']) {
        let (before, from) = rest.split_at(at + 1);
        said.push_str(before);
        rest = from;
        let quote = if before.ends_with('`') { '`' } else { '"' };
        if let Some(end) = end_of_quotation(from, quote) {
            said.push_str(&value(&from[..end]));
            said.push(quote);
            rest = &from[end + 1..];
        }
    }
    said + rest
}

/// Where a quotation ends whose first sign was `quote`. A sign before a letter is one of the quoted text.
fn end_of_quotation(text: &str, quote: char) -> Option<usize> {
    let is_end =
        |(at, _): &(usize, &str)| !text[at + 1..].starts_with(|c: char| c.is_alphanumeric() || c == '@');
    text.match_indices(quote).find(is_end).map(|(at, _)| at)
}

/// A message of the parser of the command line, without the secrets of the addresses that it quotes. An address that stands where none
/// belongs may have a password.
#[must_use]
pub fn without_quoted_secrets(message: String, error: &clap::Error) -> String {
    let quoted = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    quoted.into_iter().fold(message, |message, kind| match error.get(kind) {
        Some(ContextValue::String(text)) if text.contains("://") || text.contains('@') => {
            message.replace(text, &without_secrets(text))
        }
        _ => message,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (url, shown) in [
            ("http://h:1/a", "http://h:1/a"),
            ("h:1", "h:1"),
            ("http://u:s3cret@h:1/a", "http://…@h:1/a"),
            ("u:s3cret@h", "…@h"),
            ("http://u:s3?c#r/e@t@h/", "http://…@h/"),
            ("http://h/a?key=s3cret#s3cret", "http://h/a"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn a_value_is_shown_as_it_is_unless_it_may_be_an_address_with_secrets() {
        for same in ["", "10.0.0.0/33", "a@shop.example", "/x?y=1", "h:1", "redis://h:1"] {
            assert_eq!(value(same), same);
        }
        for (given, shown) in [
            ("http://u:s3cret@h/a", "http://…@h/a"),
            ("u:s3cret@h", "…@h"),
            ("http://h/a?s3cret", "http://h/a?…"),
            ("http://u:s3?c#r@h/a#s3cret?", "http://…@h/a#…"),
        ] {
            assert_eq!(value(given), shown);
        }
    }

    #[test]
    fn what_a_message_quotes_is_shown_without_passwords() {
        for same in ["", "`a` is no b", "an ` alone: u:x@h", "`a@b.example` and `c@b.example` have \"x\""] {
            assert_eq!(without_quoted_logins(same), same);
        }
        for (message, shown) in [
            ("`http://u:s3cret@h` is no host; write `h`", "`http://…@h` is no host; write `h`"),
            ("`s3cret://u:s3cret@h`: `u:s3cret@h`", "`s3cret://…@h`: `…@h`"),
            ("\"u:s3\\\"c`ret @h\": no", "\"…@h\": no"),
            ("is `u:s3c`ret@h`, no", "is `…@h`, no"),
        ] {
            assert_eq!(without_quoted_logins(message), shown);
        }
    }

    #[test]
    fn an_address_that_the_parser_quotes_is_shown_without_its_secrets() {
        let number = Arg::new("number").long("number").value_parser(clap::value_parser!(u8));
        let mode = Arg::new("mode").long("mode").value_parser(["hold"]);
        let command = Command::new("weir").args([number, mode]).subcommand(Command::new("serve"));
        for (given, shown) in [
            (&["http://u:s3cret@h"][..], "'http://…@h'"),
            (&["serve", "http://u:s3cret@h"], "'http://…@h'"),
            (&["serve", "u:s3cret@h"], "'…@h'"),
            (&["--number", "http://u:s3cret@h"], "'http://…@h' for '--number"),
            (&["--mode=http://u:s3cret@h"], "'http://…@h' for '--mode"),
            (&["--s3cret=http://h?s3cret"], "'--s3cret'"),
            (&["serve", "s3cret"], "'s3cret'"),
        ] {
            let words = ["weir"].iter().chain(given);
            let error = command.clone().try_get_matches_from(words).expect_err("refused");
            let said = without_quoted_secrets(error.to_string(), &error);
            assert!(
                said.contains(shown) && !said.contains("u:s3cret") && !said.contains("?s3cret"),
                "{said}"
            );
        }
    }
}
