//! What a server of Redis answers, or why it does not, and what to do about that.

use store::redis::client::Value;

/// A server's name or address, and its port.
pub(super) type HostPort = (String, u16);

/// An answer as text; none if it is a list or nothing.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Why it matters that a server refuses to answer with this error, and what to do.
pub(super) fn refusal(why: &str) -> (&'static str, &'static str) {
    if why.starts_with("BUSY") {
        return (
            "while a script runs, Redis answers nobody, so nobody enters",
            "SCRIPT KILL ends a script that has written nothing; otherwise wait, or restart this server if it has a replica",
        );
    }
    if why.starts_with("LOADING") {
        return ("while it loads its data, nobody enters", "wait, and run the doctor again");
    }
    ("Weir's scripts need INFO, so nobody enters", "give the user the rights of deploy/redis/weir.acl")
}

/// A reason for which a connection failed, and what may be the cause where the reason does not say it.
pub(super) fn with_cause(why: String, tls: bool) -> String {
    const CUT: [&str; 6] =
        ["broken pipe", "reset by peer", "unexpected end", "eof", "closed", "certificaterequired"];
    let lower = why.to_lowercase();
    if !CUT.iter().any(|word| lower.contains(word)) {
        return why;
    }
    match tls {
        true => format!(
            "{why}; perhaps it demands a client certificate, and Weir sends none (tls-auth-clients no lets servers in that \
             log in by password), or it does not speak TLS at this port"
        ),
        false => format!(
            "{why}; perhaps it speaks only TLS at this port (rediss://), or refuses this address (protected-mode)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_cut_says_what_may_be_the_cause() {
        for why in [
            "h:1: Broken pipe (os error 32)",
            "h:1: received fatal alert: CertificateRequired",
            "unexpected end of file",
        ] {
            assert!(with_cause(why.to_owned(), true).contains("client certificate"), "{why}");
            assert!(with_cause(why.to_owned(), false).contains("rediss://"), "{why}");
        }
        let other = "h:1: Connection refused (os error 111)";
        assert_eq!(with_cause(other.to_owned(), true), other);
    }
}
