//! Takes addresses, e-mail addresses and tokens out of texts for a collector.
//!
//! The log of a server may name a client's address; a collector is another system, often another company's. A text cannot say which of its
//! addresses is a client's, so all of them are replaced, those of stores and servers, too. Invariant: what stays has no IP address, no
//! `@` within a word, and no long word that could be a token. Digests in hex stay.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

/// What stands in place of what is hidden.
const HIDDEN: &str = "(hidden)";

/// The shortest word that may be a token. Weir's own have 46 characters and more.
const TOKEN: usize = 32;

/// The text without what is hidden.
pub(super) fn hide(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut copied = 0;
    let mut rest = 0;
    while rest < text.len() {
        let start = rest + text[rest..].find(is_of_word).unwrap_or(text.len() - rest);
        let end = start + text[start..].find(|c| !is_of_word(c)).unwrap_or(text.len() - start);
        // A full stop or a colon behind a word is not part of it.
        let word = text[start..end].trim_end_matches(['.', ':', '-']);
        if is_private(word) {
            shown.push_str(&text[copied..start]);
            shown.push_str(HIDDEN);
            copied = start + word.len();
        }
        rest = end;
    }
    if copied == 0 { Cow::Borrowed(text) } else { Cow::Owned(shown + &text[copied..]) }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".:@%+-_[]~".contains(c)
}

fn is_private(word: &str) -> bool {
    let bare = word.trim_matches(['[', ']', '.']);
    // Behind an IPv6 address there may be the name of a network interface.
    let unscoped = bare.split('%').next().unwrap_or(bare);
    let is_address = [word, bare, unscoped].iter().any(|word| {
        word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok() || is_of_version_6(word)
    });
    let may_be_token = |part: &str| {
        let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        part.len() >= TOKEN
            && !is_hex
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_+".contains(&b))
    };
    is_address || word.contains('@') || word.split(['.', ':']).any(may_be_token)
}

/// Whether a word looks like an IPv6 address, also if a library has written a port behind it without brackets. A time of day has fewer
/// colons.
fn is_of_version_6(word: &str) -> bool {
    let is_written_so = word.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
    is_written_so && (word.contains("::") || word.matches(':').count() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_tokens_are_hidden_and_the_rest_stays() {
        let token = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfGhIjKlMnOp";
        let digest = "4bf92f3577b34da6a3ce929d0e0e47364bf92f3577b34da6a3ce929d0e0e4736";
        for (text, shown) in [
            ("", ""),
            ("the store is back", "the store is back"),
            ("cell.one: 3 of 4, 12:30:05, v0.1.0", "cell.one: 3 of 4, 12:30:05, v0.1.0"),
            ("from 203.0.113.7.", "from (hidden)."),
            ("from 203.0.113.7:443: gone", "from (hidden): gone"),
            ("2001:db8::7, [2001:db8::7]:80 and ::1", "(hidden), (hidden) and (hidden)"),
            ("fe80::1%eth0, [2001:db8::7%eth0]:80", "(hidden), (hidden)"),
            ("redis: ::1:24998: Connection refused", "redis: (hidden): Connection refused"),
            ("::ffff:127.0.0.1:24998, 2001:db8:0:1:2:3:4:5:6379", "(hidden), (hidden)"),
            ("store::redis at 09:30:05", "store::redis at 09:30:05"),
            ("redis://weir:pass@127.0.0.1:6379/0", "redis://(hidden)/0"),
            ("by kim@shop.example", "by (hidden)"),
            (&format!("/wait?token={token}&x=1"), "/wait?token=(hidden)&x=1"),
            (&format!("Bearer eyJ0eXAi.{token}.{token}"), "Bearer (hidden)"),
            (digest, digest),
            ("장애: 203.0.113.7에서", "장애: (hidden)에서"),
        ] {
            assert_eq!(hide(text), shown, "{text}");
        }
    }
}
