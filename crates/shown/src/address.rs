//! Addresses to show. They may have a user with a password, or a key in the query.
//!
//! Invariant: nothing of a user, a password, a query or a fragment is shown, also of what is no address.

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

#[cfg(test)]
mod tests {
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
}
