//! The address of a Redis, and the settings of the connections to it.
//!
//! Invariant: no `Debug`, no `Display` and no error contains a password.

use std::{fmt, str::FromStr, time::Duration};

pub use crate::password::Password;

/// The client library that carries the calls to Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Library {
    /// <https://docs.rs/fred>, the default: see `docs/decisions/fred-by-default.md`.
    #[default]
    Fred,
    /// <https://docs.rs/redis>.
    RedisRs,
}

/// How the servers of a Redis are organised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server: `redis://`, `rediss://`. If several hosts are given, the one that is the primary is used.
    Standalone,
    /// A cluster: `redis-cluster://`, `rediss-cluster://`. The hosts are seeds.
    Cluster,
    /// One primary, found through Sentinel: `redis-sentinel://`, `rediss-sentinel://`, with `?service=NAME`. The hosts
    /// are the Sentinels.
    Sentinel,
}

/// The address of a Redis. `Debug` and `Display` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// How the hosts are organised.
    pub topology: Topology,
    /// Host and port, at least one. An IPv6 address has no brackets here.
    pub hosts: Vec<(String, u16)>,
    /// The ACL user. Without one, Redis uses `default`.
    pub user: Option<String>,
    /// The password, if one is set.
    pub password: Option<Password>,
    /// Whether connections use TLS.
    pub tls: bool,
    /// The name under which Sentinel knows the primary.
    pub service: Option<String>,
}

/// Why a text is not an address: what is wrong, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressFault(String);

fn fault<T>(text: impl Into<String>) -> Result<T, AddressFault> {
    Err(AddressFault(text.into()))
}

impl Address {
    /// Parses `redis://[user[:password]@]host:port[,host:port…][/0]`. The scheme is `redis`, `redis-cluster` or
    /// `redis-sentinel` (with `?service=NAME`); `rediss` in place of `redis` selects TLS. User and password may be
    /// percent-encoded. An IPv6 address is written in brackets. `:password@` is a password without a user.
    ///
    /// # Errors
    /// The error says what is wrong and what to write instead. It never contains the password.
    pub fn parse(text: &str) -> Result<Self, AddressFault> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return fault("the address of a Redis begins with a scheme, as in redis://127.0.0.1:6379");
        };
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").unwrap_or("?")),
        };
        let topology = match kind {
            "" => Topology::Standalone,
            "-cluster" => Topology::Cluster,
            "-sentinel" => Topology::Sentinel,
            _ => {
                return fault(
                    "the scheme must be redis, redis-cluster or redis-sentinel (rediss… with TLS), as in \
                     redis://127.0.0.1:6379",
                );
            }
        };
        // Split at the last `@`: the password may contain one.
        let (credentials, rest) =
            rest.rsplit_once('@').map_or((None, rest), |(before, after)| (Some(before), after));
        if credentials.is_some_and(repeats_login) {
            return fault(
                "the user and the password stand once, before the first host: user:password@host:6379,host:6379; an @ that \
                 belongs to the password is written %40",
            );
        }
        let (user, password) = match credentials {
            None => (None, None),
            Some(text) => {
                let (user, password) =
                    text.split_once(':').map_or((text, None), |(user, word)| (user, Some(word)));
                (
                    decoded("user", user)?,
                    password.map(|word| decoded("password", word)).transpose()?.flatten(),
                )
            }
        };
        if user.is_some() && password.is_none() {
            return fault("there is a user without a password; write user:password@ or :password@");
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (hosts, path) = rest.split_once('/').map_or((rest, ""), |(hosts, path)| (hosts, path));
        if !matches!(path, "" | "0") {
            return fault("only database 0 can be used; leave out what follows the hosts");
        }
        let hosts = hosts.split(',').enumerate().map(host).collect::<Result<Vec<_>, _>>()?;
        let service = match (topology, query) {
            (Topology::Sentinel, Some(query)) => match query.strip_prefix("service=") {
                Some(name) if !name.is_empty() && !name.contains('&') => decoded("service", name)?,
                _ => return fault("the only parameter is the name of the primary: ?service=NAME"),
            },
            (Topology::Sentinel, None) => {
                return fault("redis-sentinel needs the name of the primary: add ?service=NAME");
            }
            (_, Some(_)) => return fault("only redis-sentinel takes parameters (?…): leave them out"),
            (_, None) => None,
        };
        Ok(Self { topology, hosts, user, password: password.map(Password::new), tls, service })
    }
}

impl FromStr for Address {
    type Err = AddressFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Whether what is before the last `@` has a host, too. That host would count as a part of the password, and be lost.
fn repeats_login(credentials: &str) -> bool {
    credentials.match_indices(',').any(|(at, _)| {
        let Some((_, first)) = credentials[..at].rsplit_once('@') else { return false };
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        let begins_login = credentials[at + 1..].contains(':');
        !first.is_empty() && first.bytes().all(is_name) && (begins_login || host((0, first)).is_ok())
    })
}

/// Parses one host. An invalid host may be a misplaced password, so errors give its position and not its text.
fn host((index, text): (usize, &str)) -> Result<(String, u16), AddressFault> {
    let number = index + 1;
    let Some((name, port)) = text.rsplit_once(':') else {
        return fault(format!("host {number} has no port; write host:6379"));
    };
    let name = match name.strip_prefix('[').map(|inner| inner.strip_suffix(']')) {
        Some(Some(inner)) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
        Some(_) => {
            return fault(format!("host {number} is not an IPv6 address in brackets; write [::1]:6379"));
        }
        None if name.contains(':') => {
            return fault(format!(
                "host {number} has too many colons; an IPv6 address is written [::1]:6379, and a password ends with @"
            ));
        }
        None if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            return fault(format!("host {number} has no name before its port; write host:6379"));
        }
        None => name,
    };
    match port.parse() {
        Ok(port) if port > 0 => Ok((name.to_owned(), port)),
        _ => fault(format!("the port of host {number} must be from 1 to 65535")),
    }
}

/// Percent-decodes a text; `None` for an empty one.
fn decoded(what: &str, text: &str) -> Result<Option<String>, AddressFault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return fault(format!(
                "in the {what}, a % must be followed by two hexadecimal digits; write %25 for the % itself"
            ));
        };
        bytes.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(_) => fault(format!("the percent-decoded {what} is not UTF-8")),
    }
}

/// `HOST:PORT`, with brackets around an IPv6 address.
#[must_use]
pub fn authority((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let kind = match self.topology {
            Topology::Standalone => "",
            Topology::Cluster => "-cluster",
            Topology::Sentinel => "-sentinel",
        };
        write!(f, "{scheme}{kind}://")?;
        if self.user.is_some() || self.password.is_some() {
            write!(f, "{}:***@", self.user.as_deref().unwrap_or(""))?;
        }
        for (index, server) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", authority(server))?;
        }
        match &self.service {
            Some(name) => write!(f, "?service={name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who a client is, for servers that ask for a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The client's certificate and those above it, PEM.
    pub certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A user with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The ACL user. Without one, Redis uses `default`.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

/// The settings of the connections to a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The client library.
    pub library: Library,
    /// The CA certificates (PEM) that server certificates are checked against. Without them, the system's are used.
    pub ca_pem: Option<Vec<u8>>,
    /// The certificate that connections with TLS show, if Redis asks for one.
    pub identity: Option<Identity>,
    /// The login at the Sentinels. Without it, they get the login of the address, and if they do not take that, none.
    pub sentinel: Option<Login>,
    /// How long a connection attempt may take.
    pub connect_timeout: Duration,
    /// How long a call may take, without the time of [`Confirm`](crate::client::Confirm).
    pub command_timeout: Duration,
    /// How many calls may be in flight. Further calls are refused at once.
    pub max_in_flight: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            library: Library::default(),
            ca_pem: None,
            identity: None,
            sentinel: None,
            connect_timeout: Duration::from_secs(2),
            command_timeout: Duration::from_secs(2),
            max_in_flight: 4_096,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[(&str, u16)]) -> Vec<(String, u16)> {
        list.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect()
    }

    #[test]
    fn each_part_is_parsed() {
        let address = Address::parse("redis://10.0.0.1:6379").expect("it is an address");
        assert_eq!(address.topology, Topology::Standalone);
        assert_eq!(address.hosts, hosts(&[("10.0.0.1", 6379)]));
        assert_eq!((address.user, address.password, address.tls, address.service), (None, None, false, None));

        let address = Address::parse("rediss-cluster://weir:p%40ss:w%2Frd@a.example:7000,[::1]:7001/0")
            .expect("it is an address");
        assert_eq!((address.topology, address.tls), (Topology::Cluster, true));
        assert_eq!(address.hosts, hosts(&[("a.example", 7000), ("::1", 7001)]));
        assert_eq!(
            (address.user.as_deref(), address.password),
            (Some("weir"), Some(Password::new("p@ss:w/rd")))
        );

        let address = Address::parse("redis-sentinel://:word@s1:26379,s2:26379?service=main")
            .expect("it is an address");
        assert_eq!((address.user, address.password), (None, Some(Password::new("word"))));
        assert_eq!((address.topology, address.service.as_deref()), (Topology::Sentinel, Some("main")));
    }

    #[test]
    fn a_password_may_contain_separators() {
        let address = Address::parse("redis://u:a/b?c@d@h:1").expect("it is an address");
        assert_eq!(address.password, Some(Password::new("a/b?c@d")));
        assert_eq!(address.hosts, hosts(&[("h", 1)]));
    }

    #[test]
    fn a_login_before_a_second_host_is_refused_because_the_first_host_would_be_lost() {
        for text in [
            "redis-cluster://u:secret@h:1,u:secret@h2:2",
            "redis-cluster://:secret@h,:secret@h2:2",
            "redis-cluster://u:secret@[::1]:1,u:secret@h2:2,u:secret@h3:3",
            "redis-sentinel://u:secret@h:1,secret@h2:2?service=main",
            "redis-cluster://u:secret@h:1,h2:2,u:secret@h3:3",
        ] {
            let said = Address::parse(text).expect_err("refused").to_string();
            assert!(said.contains("stand once, before the first host") && !said.contains("secret"), "{said}");
        }
        for password in ["a@b,c", "a,b@c", "a@,:", "a@b c,:"] {
            let address = Address::parse(&format!("redis://u:{password}@h:1")).expect("it is an address");
            assert_eq!(address.password, Some(Password::new(password)));
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::parse("rediss://weir:secret@[::1]:6379,h:2").expect("it is an address");
        assert_eq!(address.to_string(), "rediss://weir:***@[::1]:6379,h:2");
        assert_eq!(format!("{address:?}"), address.to_string());
        for text in [
            "redis://weir:secret%2@h:1",
            "redis://weir:secret@h",
            "redis://w:secret@h:1/2",
            "secret",
            "redis://u:secret:h:1",
            "redis://u:secret",
        ] {
            let fault = Address::parse(text).expect_err("it is faulty");
            assert!(!fault.to_string().contains("secret"), "{fault}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, says) in [
            ("127.0.0.1:6379", "begins with a scheme"),
            ("http://127.0.0.1:6379", "must be redis, redis-cluster"),
            ("redis-ring://h:1", "must be redis, redis-cluster"),
            ("redis://", "has no port; write host:6379"),
            ("redis://h", "has no port; write host:6379"),
            ("redis://h:1,", "has no port"),
            ("redis://:6379", "has no name"),
            ("redis://h:0", "must be from 1 to 65535"),
            ("redis://h:65536", "must be from 1 to 65535"),
            ("redis://h:six", "must be from 1 to 65535"),
            ("redis://::1:6379", "written [::1]:6379"),
            ("redis://[::x]:6379", "not an IPv6 address in brackets"),
            ("redis://h:1/7", "only database 0"),
            ("redis://h:1?x=1", "leave them out"),
            ("redis://user@h:1", "without a password"),
            ("redis://u:%zz@h:1", "two hexadecimal digits"),
            ("redis://u:%ff@h:1", "not UTF-8"),
            ("redis-sentinel://h:1", "add ?service=NAME"),
            ("redis-sentinel://h:1?service=", "?service=NAME"),
        ] {
            let fault = Address::parse(text).expect_err("it is faulty").to_string();
            assert!(fault.contains(says), "{text}: {fault}");
        }
    }
}
