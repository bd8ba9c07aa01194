//! The example of a protected service with passes of a real server: it refuses every pass that a service must refuse.

use std::{fs, net::SocketAddr, sync::Arc};

use gate::PassClaims;
use jsonwebtoken::{Algorithm, EncodingKey, Header, dangerous::insecure_decode, decode_header, encode};
use protected_service::{door::Door, http::Service, keys::Keys};
use serde_json::Value;
use server::passes::{Passes, Signer};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    app::{Answer, body},
    client::{Client, Reply},
    weir::{Setup, Weir, zone},
};

/// The example service before one zone of a server.
struct Sample {
    at: SocketAddr,
    waiting_room: String,
    _runtime: Runtime,
}

impl Sample {
    fn before(weir: &Weir, audience: &str) -> Self {
        let runtime = Runtime::new().expect("threads");
        let server = format!("http://{}", weir.public);
        let waiting_room = format!("{server}/wait/Z");
        let door = Door::new(Keys::of(&server).expect("an address"), audience, "Z");
        let service = Arc::new(Service { door, waiting_room: waiting_room.clone() });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let at = listener.local_addr().expect("bound");
        runtime.spawn(service.serve(listener));
        Self { at, waiting_room, _runtime: runtime }
    }

    fn ask(&self, request: &str) -> Reply {
        let mut client = Client::connect(self.at).expect("it accepts");
        client.send(request).expect("it reads");
        client.reply().expect("it replies")
    }

    fn get(&self, path: &str, cookie: &str) -> Reply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: test\r\nCookie: other=1; {cookie}\r\n\r\n"))
    }

    fn enter(&self, pass: &str) -> Reply {
        let form = format!("pass={pass}");
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let length = form.len();
        self.ask(&format!(
            "POST /enter HTTP/1.1\r\nHost: test\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{form}"
        ))
    }

    fn refuses(&self, pass: &str, why: &str) {
        let reply = self.enter(pass);
        assert_eq!((reply.status, reply.header("set-cookie")), (403, None), "{why}: {reply:?}");
        assert!(reply.text().contains(why) && reply.text().contains(&self.waiting_room), "{why}: {reply:?}");
    }
}

fn pass_of(weir: &Weir, zone: &str) -> String {
    Answer::of(&weir.post("/traffic/wait", &body(zone, None))).pass().to_owned()
}

/// A valid pass is accepted once and gives a session. A pass that is spent, forged, expired, or for another key, zone
/// or audience is refused and spends nothing.
pub(crate) fn a_pass_is_accepted_once_and_nothing_else_is() {
    let zones = zone("Z", 600, "") + &zone("OTHER", 600, "");
    let weir = Setup::new(&zones).start();
    let sample = Sample::before(&weir, "weir");
    let pass = pass_of(&weir, "Z");

    let outside = sample.get("/", "");
    assert_eq!((outside.status, outside.header("location")), (303, Some(sample.waiting_room.as_str())));
    assert_eq!(sample.get("/session", "session=00").status, 401);

    let mut bent = pass.clone();
    let at = pass.rfind('.').expect("three parts") + 10;
    let other = if pass.as_bytes()[at] == b'A' { "B" } else { "A" };
    bent.replace_range(at..=at, other);
    sample.refuses(&bent, "forged");
    sample.refuses("", "not a pass");
    sample.refuses("a.b.c", "not a pass");
    sample.refuses(&pass_of(&weir, "OTHER"), "another service");
    sample.refuses(&signed_with_what_is_public(&weir, &pass), "forged");
    Sample::before(&weir, "somebody-else").refuses(&pass, "another service");
    let elsewhere = Setup::new(&zones).start();
    let stranger = pass_of(&elsewhere, "Z");
    Sample::before(&weir, "weir").refuses(&stranger, "unknown key");
    let early = sample.enter(&stranger);
    assert_eq!(
        (early.status, early.header("retry-after")),
        (503, Some("10")),
        "Weir was asked a moment ago: {early:?}"
    );

    // Passes signed with the real key.
    let now = insecure_decode::<Value>(&pass).expect("a JWT").claims["iat"].as_u64().expect("a date");
    sample.refuses(&signed(&weir, "weir", now - 120), "expired");
    sample.refuses(&signed(&weir, "weir", now + 120), "expired");
    sample.refuses(&signed(&weir, "somebody-else", now), "another service");

    let entered = sample.enter(&pass);
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")), "{entered:?}");
    let cookie = entered.header("set-cookie").expect("a session");
    assert!(cookie.contains("; HttpOnly; SameSite=Lax;"), "{cookie}");
    let session = cookie.split(';').next().expect("its name and value");
    assert_eq!((sample.get("/", session).status, sample.get("/session", session).status), (200, 204));
    sample.refuses(&pass, "used already");
    assert_eq!(sample.enter(&pass_of(&weir, "Z")).status, 303, "the next one is good");
    assert_eq!(sample.get("/nothing", session).status, 404);
}

/// A pass for an entry at this time and for this audience, signed with the server's own key.
fn signed(weir: &Weir, audience: &str, entered_unix_s: u64) -> String {
    let pem = fs::read_to_string(weir.setup().data().join("pass-es256.pem")).expect("made at the start");
    let passes = Passes::new(Signer::read(&pem).expect("a key"), &[], audience, None);
    let mut pass = String::new();
    passes.write("Z", &PassClaims { epoch: 1, seq: 999, entered_unix_s, ttl_s: 60 }, &mut pass);
    pass
}

/// The same claims, signed with the published keys as a shared secret. A verifier that trusts the algorithm in the
/// pass would accept it.
fn signed_with_what_is_public(weir: &Weir, pass: &str) -> String {
    let claims = insecure_decode::<Value>(pass).expect("a JWT").claims;
    let secret = EncodingKey::from_secret(&weir.get("/.well-known/jwks.json").body);
    let kid = decode_header(pass).expect("a JWT").kid;
    encode(&Header { kid, ..Header::new(Algorithm::HS256) }, &claims, &secret).expect("signs")
}
