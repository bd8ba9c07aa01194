//! Reads single values, wherever they are given: words, networks and addresses.

use std::net::SocketAddr;

use ipnet::IpNet;
use shown::without_secrets;
use store::redis::address::Address;

use super::{ConfigFault, settings::Origin};

/// The value that a word stands for.
pub(super) fn one_of<T, const N: usize>(
    words: [(T, &'static str); N],
    word: &str,
    origin: &Origin,
) -> Result<T, ConfigFault> {
    let found = words.iter().position(|(_, known)| *known == word);
    let at =
        found.ok_or_else(|| origin.fault(no_such_word(word, &words.each_ref().map(|(_, known)| *known))))?;
    Ok(words.into_iter().nth(at).expect("it was found").0)
}

/// What is said about a word that is not one of `known`.
pub(super) fn no_such_word(word: &str, known: &[&str]) -> String {
    format!("is `{word}`, and must be one of {}", known.join(", "))
}

/// A network, or a single address.
pub(super) fn network(text: &str, origin: &Origin) -> Result<IpNet, ConfigFault> {
    check::written::network(text).map_err(|what| origin.fault(what))
}

/// The address of a socket, which is a number and a port.
pub(super) fn socket_address(text: &str, origin: &Origin, example: &str) -> Result<SocketAddr, ConfigFault> {
    text.parse().map_err(|_| {
        let name = text.rsplit_once(':').filter(|(name, port)| {
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && port.parse::<u16>().is_ok()
        });
        let hint = match name {
            Some(("localhost", port)) => format!("; write 127.0.0.1:{port}"),
            Some(_) => "; names are not looked up".to_owned(),
            None => String::new(),
        };
        origin.fault(format!("`{text}` is not an address with a port; write one as in {example}{hint}"))
    })
}

/// The address of a Redis.
pub(super) fn store_address(text: &str, origin: &Origin) -> Result<Address, ConfigFault> {
    if text.starts_with("redis") {
        return Address::parse(text).map_err(|fault| origin.fault(fault));
    }
    // An address of something else may hold a password, or a key in its query.
    let shown = without_secrets(text);
    Err(origin.fault(format!(
        "`{shown}` is not a store; use `memory`, or the address of a Redis, as in redis://127.0.0.1:6379"
    )))
}
