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

/// What to do where the user lacks a right.
pub(super) const GIVE_RIGHTS: &str = "give the user the rights of deploy/redis/weir.acl";

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
    ("Weir's scripts need INFO, so nobody enters", GIVE_RIGHTS)
}

/// What Redis says to a client that is one too many.
const TOO_MANY_CLIENTS: &str = "max number of clients";

/// How Weir connects to a server.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) tls: bool,
    /// Whether Weir sends a certificate of its own.
    pub(super) certificate: bool,
}

/// What to do about a server with which no connection comes about for this reason. `otherwise` is for reasons that do not say it.
pub(super) fn advice(why: &str, otherwise: &'static str) -> &'static str {
    let lower = why.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["wrongpass", "noauth", "username-password"]) {
        return "correct redis.user and redis.password_file, or the login in the address; ACL LIST in Redis shows its users";
    }
    if says(&["noperm"]) {
        return GIVE_RIGHTS;
    }
    if says(&["write store = "]) {
        return "write store as the text says: the address leads to another kind of server, or names another service";
    }
    if says(&[TOO_MANY_CLIENTS]) {
        return "raise maxclients, and the limit of open files of Redis; CLIENT LIST shows who is connected";
    }
    for answer in ["BUSY", "LOADING"] {
        if let Some(at) = why.find(answer) {
            return refusal(&why[at..]).1;
        }
    }
    if says(&["unknownissuer", "notvalidforname", "certexpired", "invalid peer certificate"]) {
        return "correct redis.ca_file, or the certificate of the server: its authority, its names, its dates";
    }
    if says(&["certificaterequired", "unknownca", "badcertificate", "certificateunknown", "alert"]) {
        return "correct redis.certificate_file and redis.key_file: the server's --tls-ca-cert-file has to know their authority";
    }
    otherwise
}

/// A reason for which a connection failed, and what may be the cause where the reason does not say it.
pub(super) fn with_cause(why: &str, link: Link) -> String {
    const CUT: [&str; 8] = [
        "broken pipe",
        "reset by peer",
        "unexpected end",
        "eof",
        "closed",
        "certificaterequired",
        "timed out",
        "no connection within",
    ];
    let lower = why.to_lowercase();
    if !CUT.iter().any(|word| lower.contains(word)) {
        return why.to_owned();
    }
    let is_silent = lower.contains("timed out") || lower.contains("no connection within");
    let perhaps = match (link.tls, is_silent, link.certificate) {
        (true, true, _) => "it does not speak TLS at this port, or nobody answers there",
        (true, false, true) => {
            "it does not accept the client certificate that Weir sends, or does not speak TLS at this port"
        }
        (true, false, false) => {
            "it demands a client certificate, and Weir sends none (tls-auth-clients no lets servers in that log in by password), \
             or it does not speak TLS at this port"
        }
        (false, true, _) => return why.to_owned(),
        (false, false, _) => {
            "it speaks only TLS at this port (rediss://), or refuses this address (protected-mode)"
        }
    };
    format!("{why}; perhaps {perhaps}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Link = Link { tls: false, certificate: false };
    const TLS: Link = Link { tls: true, certificate: false };

    #[test]
    fn a_connection_that_was_cut_says_what_may_be_the_cause() {
        for why in [
            "h:1: Broken pipe (os error 32)",
            "h:1: received fatal alert: CertificateRequired",
            "unexpected end of file",
        ] {
            assert!(with_cause(why, TLS).contains("Weir sends none"), "{why}");
            let sends = Link { certificate: true, ..TLS };
            assert!(with_cause(why, sends).contains("that Weir sends"), "{why}");
            assert!(with_cause(why, PLAIN).contains("rediss://"), "{why}");
        }
        assert!(with_cause("h:1: timed out", TLS).contains("does not speak TLS"));
        for (why, link) in [("h:1: Connection refused (os error 111)", TLS), ("h:1: timed out", PLAIN)] {
            assert_eq!(with_cause(why, link), why);
        }
    }

    #[test]
    fn what_to_do_follows_from_the_reason() {
        for (why, word) in [
            ("h:1: WRONGPASS invalid username-password pair or user is disabled.", "redis.password_file"),
            ("NOAUTH Authentication required.", "redis.password_file"),
            ("h:1: NOPERM User weir has no permissions to run the 'cluster|slots' command", "weir.acl"),
            ("h:1: BUSY Redis is busy running a script.", "SCRIPT KILL"),
            ("invalid peer certificate: UnknownIssuer", "redis.ca_file"),
            ("received fatal alert: CertificateRequired", "redis.certificate_file"),
            ("received fatal alert: UnknownCA", "redis.certificate_file"),
            ("h:1: ERR max number of clients reached", "raise maxclients"),
            (
                "h:1: does not know the service x; it knows y: write store = \"redis-sentinel://h:1?service=y\"",
                "as the text says",
            ),
            ("Connection refused (os error 111)", "start it"),
        ] {
            assert!(advice(why, "start it").contains(word), "{why}: {}", advice(why, "start it"));
        }
    }
}
