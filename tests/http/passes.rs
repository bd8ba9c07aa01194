//! Passes, verified as a protected service would: with the published keys and an independent library.

use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, jwk};
use serde::Deserialize;

use rustix::process::Signal;

use crate::{
    app::{Answer, body},
    clock::{eventually, now},
    keys::KeyFiles,
    weir::{Setup, Weir, zone},
};

/// The claims of a pass. An unknown claim fails the test.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    #[serde(default)]
    pub(crate) iss: Option<String>,
    pub(crate) aud: String,
    pub(crate) zone: String,
    pub(crate) jti: String,
    pub(crate) iat: u64,
    pub(crate) nbf: u64,
    pub(crate) exp: u64,
}

/// The published keys.
pub(crate) struct JwkSet(jwk::JwkSet);

impl JwkSet {
    /// Reads the keys that this server publishes.
    pub(crate) fn of(weir: &Weir) -> Self {
        let reply = weir.get("/.well-known/jwks.json");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.header("cache-control").is_some_and(|v| v.contains("max-age")), "{reply:?}");
        for secret in ["\"d\"", "\"p\"", "\"q\"", "\"k\""] {
            assert!(!reply.text().contains(secret), "a secret in public: {}", reply.text());
        }
        Self(serde_json::from_slice(&reply.body).expect("a JWK set"))
    }

    /// Verifies key, signature, audience and dates of a pass, and returns its claims.
    pub(crate) fn verify(&self, pass: &str) -> Claims {
        let header = decode_header(pass).expect("a JWT");
        assert_eq!(header.typ.as_deref(), Some("JWT"));
        let key = self.0.find(header.kid.as_deref().expect("a kid")).expect("a published key of that kid");
        let said = key.common.key_algorithm.expect("published with its algorithm").to_string();
        assert_eq!(said, format!("{:?}", header.alg), "the key is for another algorithm");
        let mut rules = Validation::new(header.alg);
        rules.set_audience(&["test-audience", "weir"]);
        rules.set_required_spec_claims(&["aud", "exp", "nbf"]);
        rules.validate_nbf = true;
        rules.leeway = 1;
        let key = DecodingKey::from_jwk(key).expect("a key to verify with");
        let claims = decode::<Claims>(pass, &key, &rules).expect("a good pass").claims;
        assert!(claims.iat == claims.nbf && claims.nbf < claims.exp && !claims.jti.is_empty(), "{claims:?}");
        // After a change of one bit of the signature, verification fails.
        let mut bent = pass.to_owned();
        let last = if bent.ends_with('w') { 'g' } else { 'w' };
        bent.replace_range(bent.len() - 2..bent.len() - 1, &last.to_string());
        if bent != pass {
            assert!(decode::<Claims>(&bent, &key, &rules).is_err(), "a bent pass is taken");
        }
        claims
    }
}

/// The `jti` of a pass. Other tests verify the signature.
pub(crate) fn jti(pass: &str) -> String {
    let claims = jsonwebtoken::dangerous::insecure_decode::<Claims>(pass).expect("a JWT");
    claims.claims.jti
}

fn verifies(algorithm: &str) {
    let pass = format!(
        "[pass]\nalgorithm = \"{algorithm}\"\naudience = \"test-audience\"\nissuer = \"https://weir.test\"\n"
    );
    let weir = Setup::new(&(pass + &zone("A", 10, "pass_ttl_s = 120") + &zone("B", 10, ""))).start();
    let keys = JwkSet::of(&weir);
    let mut jtis = Vec::new();
    for (zone, ttl) in [("A", 120), ("A", 120), ("B", 300)] {
        let answer = Answer::of(&weir.post("/traffic/wait", &body(zone, None)));
        assert_eq!(format!("{:?}", decode_header(answer.pass()).expect("a JWT").alg), algorithm);
        let claims = keys.verify(answer.pass());
        assert_eq!((claims.zone.as_str(), claims.exp - claims.iat), (zone, ttl));
        assert_eq!(
            (claims.aud.as_str(), claims.iss.as_deref()),
            ("test-audience", Some("https://weir.test"))
        );
        jtis.push(claims.jti);
    }
    jtis.sort_unstable();
    jtis.dedup();
    assert_eq!(jtis.len(), 3, "each entry is named once: {jtis:?}");
}

pub(crate) fn es256_verifies() {
    verifies("ES256");
}

pub(crate) fn ed_dsa_verifies() {
    verifies("EdDSA");
}

pub(crate) fn rs256_verifies() {
    verifies("RS256");
}

/// Operators change how long passes are valid. A pass that was given keeps its expiry, and one that is spent stays so.
pub(crate) fn expiry_is_fixed_at_the_entry() {
    let lives = |seconds: u32| zone("Z", 600, &format!("pass_ttl_s = {seconds}"));
    let weir = Setup::new(&lives(60)).start();
    let reload = |seconds: u32| {
        let before = weir.log().len();
        weir.setup().write_config(&lives(seconds));
        weir.signal(Signal::HUP);
        eventually("it was read again", || weir.log()[before..].contains("read again").then_some(()));
    };
    let keys = JwkSet::of(&weir);
    let life = |answer: &Answer| {
        let claims = keys.verify(answer.pass());
        claims.exp - claims.iat
    };
    let join = || Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let ask = |answer: &Answer| weir.post("/traffic/entry", &body("Z", Some(&answer.token)));
    let (joined, short) = (now(), join());
    assert_eq!(life(&short), 60);
    reload(3_600);
    let long = join();
    assert_eq!(life(&long), 3_600);
    assert_eq!(Answer::of(&ask(&short)).pass(), short.pass());
    reload(61);
    assert_eq!(Answer::of(&ask(&short)).pass(), short.pass());
    eventually("half of its life is over", || (joined.elapsed().as_secs() >= 30).then_some(()));
    assert_eq!(Answer::of(&ask(&long)).pass(), long.pass());
    eventually("the first pass is spent", || (ask(&short).status == 410).then_some(()));
    reload(3_600);
    for _ in 0..2 {
        assert_eq!(ask(&short).problem(), "gone", "it is not revived");
        assert_eq!(Answer::of(&ask(&long)).pass(), long.pass());
    }
}

/// A restarted server keeps its keys, and earlier passes stay valid.
pub(crate) fn pass_outlives_a_restart() {
    let mut weir = Setup::zone(10, "").start();
    let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let before = JwkSet::of(&weir).verify(answer.pass());
    weir.kill_and_restart();
    assert_eq!(JwkSet::of(&weir).verify(answer.pass()), before);
}

/// With a new key and the previous one, earlier passes and tokens stay valid. Without the previous one they do not.
pub(crate) fn keys_rotate() {
    let (old, new) = (KeyFiles::old(), KeyFiles::new());
    let zone = zone("Z", 10, "");
    let weir = Setup::new(&(old.named("key_file") + &zone)).start();
    let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let before = JwkSet::of(&weir).verify(answer.pass());
    let setup = weir.stop();
    setup.write_config(&(new.named("key_file") + &old.named("previous_key_file") + &zone));
    let weir = setup.start();
    let keys = JwkSet::of(&weir);
    assert_eq!(keys.verify(answer.pass()), before, "the pass from before the rotation");
    let again = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&answer.token))));
    assert_eq!(keys.verify(again.pass()), before, "the same entry, signed with the new key");
    assert_ne!(again.token[..2], answer.token[..2], "sealed with the new key");
    let setup = weir.stop();

    setup.write_config(&(new.named("key_file") + &zone));
    let weir = setup.start();
    let refused = weir.post("/traffic/entry", &body("Z", Some(&answer.token)));
    assert_eq!(refused.problem(), "bad_token");
    assert_eq!(Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&again.token)))).pass(), again.pass());
}
