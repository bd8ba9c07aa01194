//! Access: passwords, users and certificates.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redis_script::{
    address::{Address, Identity, Library, Login, Password, Settings},
    client::{AnyClient, Value},
};
use tempfile::TempDir;

use crate::{
    Cluster, Standalone, assert_away, connect, count, keys, patient, redis::Options, settings, try_connect,
    with_both,
};

with_both!(
    user_and_password,
    minimal_permissions_are_enough,
    certificates,
    certificates_in_a_cluster,
    other_certificates_are_refused,
    certificates_of_clients,
    sentinels_with_their_own_login,
    password_is_replaced,
);

async fn user_and_password(library: Library) {
    let server = Standalone::start();
    server.command(&["ACL", "SETUSER", "weir", "on", ">p@ss:w/rd", "~*", "+@all"]);
    server.command(&["CONFIG", "SET", "requirepass", "other"]);
    let url = |login: &str| server.url().replace("://", &format!("://{login}"));
    let client = connect(&url("weir:p%40ss:w%2Frd@"), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    let client = connect(&url(":other@"), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(2)));
    let refused = try_connect(&url("weir:guess@"), &patient(library)).await.map(drop);
    assert_away(&refused, "WRONGPASS");
    assert!(!format!("{refused:?}").contains("guess"), "{refused:?}");
    assert_away(&try_connect(&url(""), &patient(library)).await.map(drop), "NOAUTH");
}

/// The smallest permissions that a user needs. The book's page about Redis lists them.
async fn minimal_permissions_are_enough(library: Library) {
    let options = Options::new().arg(&[
        "--user",
        "weir",
        "on",
        ">word",
        "~*",
        "+@scripting",
        "+@write",
        "+@read",
        "+@connection",
    ]);
    let server = Standalone::start_with(&options);
    let client = connect(&server.url().replace("://", "://weir:word@"), &settings(library)).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
}

/// A CA and a server certificate that it signed, in files.
struct Certificates {
    dir: TempDir,
    ca_pem: String,
}

impl Certificates {
    fn make() -> Self {
        let dir = tempfile::Builder::new().prefix("weir-tls-").tempdir().expect("a temporary directory");
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let ca = CertifiedIssuer::self_signed(ca, key).expect("a certificate");
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut server = CertificateParams::new(names).expect("these are names");
        // With the CA's name, OpenSSL would take the certificate for its own issuer.
        server.distinguished_name.push(DnType::CommonName, "server");
        let server = server.signed_by(&key, &ca).expect("a certificate");
        let ca_pem = ca.pem();
        for (name, text) in [("ca", ca_pem.clone()), ("crt", server.pem()), ("key", key.serialize_pem())] {
            fs::write(dir.path().join(name), text).expect("the temporary directory takes files");
        }
        Self { dir, ca_pem }
    }

    fn settings(&self, settings: Settings) -> Settings {
        Settings { ca_pem: Some(self.ca_pem.clone().into_bytes()), ..settings }
    }

    /// The server's certificate serves as one of a client, too.
    fn with_identity(&self, settings: Settings) -> Settings {
        let read = |name: &str| fs::read(self.dir.path().join(name)).expect("written before");
        let identity = Identity { certificate_pem: read("crt"), key_pem: read("key") };
        Settings { identity: Some(identity), ..self.settings(settings) }
    }

    fn options(&self) -> Options {
        let path = |name: &str| Path::join(self.dir.path(), name).to_str().expect("UTF-8").to_owned();
        Options::new()
            .arg(&[
                "--tls-cert-file",
                &path("crt"),
                "--tls-key-file",
                &path("key"),
                "--tls-ca-cert-file",
                &path("ca"),
            ])
            .arg(&["--tls-auth-clients", "no"])
            .tls()
    }
}

async fn certificates(library: Library) {
    let certificates = Certificates::make();
    let server = Standalone::start_with(&certificates.options());
    let client = connect(&server.url(), &certificates.settings(settings(library))).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    assert_eq!(server.command(&["GET", "a"]).text(), "1");
}

async fn certificates_in_a_cluster(library: Library) {
    let certificates = Certificates::make();
    let cluster = Cluster::start_with(3, 0, &certificates.options());
    let client = connect(&cluster.url(), &certificates.settings(settings(library))).await;
    for key in keys(&cluster, 3) {
        assert_eq!(count(&client, &key).await, Ok(Value::Int(1)), "{key}");
    }
}

async fn other_certificates_are_refused(library: Library) {
    let (theirs, ours) = (Certificates::make(), Certificates::make());
    let server = Standalone::start_with(&theirs.options());
    let refused = try_connect(&server.url(), &ours.settings(patient(library))).await.map(drop);
    assert_away(&refused, "ertificate");
    // The system's CAs do not know it either.
    let refused = try_connect(&server.url(), &patient(library)).await.map(drop);
    assert_away(&refused, "ertificate");
}

/// Redis asks its clients for certificates of the same CA.
async fn certificates_of_clients(library: Library) {
    let (theirs, others) = (Certificates::make(), Certificates::make());
    let server = Standalone::start_with(&theirs.options().arg(&["--tls-auth-clients", "yes"]));
    let client = connect(&server.url(), &theirs.with_identity(settings(library))).await;
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    let without = try_connect(&server.url(), &theirs.settings(patient(library))).await.map(drop);
    assert_away(&without, "");
    let wrong = Settings {
        ca_pem: Some(theirs.ca_pem.clone().into_bytes()),
        ..others.with_identity(patient(library))
    };
    assert_away(&try_connect(&server.url(), &wrong).await.map(drop), "");
}

/// The servers have one password, and the Sentinels another one, or a user.
async fn sentinels_with_their_own_login(library: Library) {
    let primary = Standalone::start();
    primary.command(&["CONFIG", "SET", "requirepass", "servers"]);
    let knows = "sentinel auth-pass main servers\n";
    let login = |user: Option<&str>, password| Login {
        user: user.map(str::to_owned),
        password: Password::new(password),
    };
    for (rules, right, wrong) in [
        ("requirepass sentinels\n", login(None, "sentinels"), login(None, "servers")),
        (
            "requirepass other\nuser weir on >sentinels +@all\n",
            login(Some("weir"), "sentinels"),
            login(Some("weir"), "other"),
        ),
    ] {
        let sentinel = Standalone::sentinel_with("main", &primary, &format!("{knows}{rules}"));
        let url = format!("redis-sentinel://:servers@127.0.0.1:{}?service=main", sentinel.port());
        let with = |login| Settings { sentinel: login, ..patient(library) };
        let client = connect(&url, &Settings { sentinel: Some(right), ..settings(library) }).await;
        count(&client, "a").await.expect("the primary is found");
        assert_away(&try_connect(&url, &with(Some(wrong))).await.map(drop), "WRONGPASS");
        assert_away(&try_connect(&url, &with(None)).await.map(drop), "WRONGPASS");
    }
}

/// Redis gets another password. Connections that are open stay open; later ones use what the password was replaced by.
async fn password_is_replaced(library: Library) {
    let server = Standalone::start();
    server.command(&["ACL", "SETUSER", "weir", "on", ">first", "~*", "+@all"]);
    let url = server.url().replace("://", "://weir:first@");
    let address = Address::parse(&url).expect("an address");
    let client = AnyClient::connect(&address, &patient(library)).await.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(count(&client, "a").await, Ok(Value::Int(1)));
    server.command(&["ACL", "SETUSER", "weir", "resetpass", ">second"]);
    assert_eq!(count(&client, "a").await, Ok(Value::Int(2)));
    let close = || server.command(&["CLIENT", "KILL", "USER", "weir"]);
    close();
    assert_away(&count(&client, "a").await, "WRONGPASS");
    address.password.expect("it has one").replace(&Password::new("second"));
    crate::count_at_last(&client, "a").await;
}
