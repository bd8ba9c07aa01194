//! Addresses to show. They may have a user with a password, or a key in the query.
//!
//! Invariant: nothing of a user, a password, a query or a fragment is shown, also of what is no address.

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
