//! Passes: signed statements that the protected service checks offline.
//!
//! A pass is a JWT ([RFC 7519](https://www.rfc-editor.org/rfc/rfc7519)). Its `jti` names the entry: zone, epoch and number.
//! Invariant: signatures are deterministic (ES256 as in RFC 6979), so that an entry has the same pass, byte for byte, from
//! every server and at every repetition.

use std::{iter, path::PathBuf};

use aws_lc_rs::{
    digest::{SHA256, digest},
    encoding::{AsDer as _, Pkcs8V1Der},
    rand::SystemRandom,
    rsa,
    signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use gate::PassClaims;
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer as _},
    pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding, SecretDocument},
};

/// The signature algorithm of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA on P-256. Supported everywhere.
    Es256,
    /// Ed25519. The fastest to sign.
    EdDsa,
    /// RSA with PKCS#1 v1.5, for gateways that support nothing else.
    Rs256,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Es256, Self::EdDsa, Self::Rs256];

    /// The algorithm's name in a JWT header (RFC 7518, RFC 8037).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
        }
    }
}

/// How passes are signed, and what they say.
#[derive(Clone, Debug)]
pub struct PassSettings {
    /// The algorithm of the signature.
    pub algorithm: Algorithm,
    /// Claim `aud`.
    pub audience: String,
    /// Claim `iss`.
    pub issuer: Option<String>,
    /// The key's file; none where the key is made in the data directory.
    pub key_file: Option<PathBuf>,
    /// The file of the key that will sign next.
    pub next_key_file: Option<PathBuf>,
    /// The file of the key that signed before.
    pub previous_key_file: Option<PathBuf>,
}

/// A key that signs passes.
pub enum Signer {
    /// ECDSA on P-256.
    Es256(Box<SigningKey>),
    /// Ed25519.
    EdDsa(Ed25519KeyPair),
    /// RSA.
    Rs256(RsaKeyPair),
}

/// A text is not a key for passes, or no key can be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "is not a key for passes: use PKCS#8 in PEM (`BEGIN PRIVATE KEY`) with a P-256, Ed25519 or RSA key of 2048 bits or \
     more; `openssl pkcs8 -topk8 -nocrypt` converts other forms"
)]
pub struct NoKey;

impl Signer {
    /// Makes a key. Returns it as PEM.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn make(algorithm: Algorithm) -> Result<String, NoKey> {
        let pem = |der: &[u8]| {
            let document = SecretDocument::try_from(der).map_err(|_| NoKey)?;
            Ok(document.to_pem("PRIVATE KEY", LineEnding::LF).map_err(|_| NoKey)?.to_string())
        };
        match algorithm {
            Algorithm::Es256 => loop {
                let mut secret = [0; 32];
                aws_lc_rs::rand::fill(&mut secret).map_err(|_| NoKey)?;
                // One number in 2^32 is not a key.
                if let Ok(key) = SigningKey::from_slice(&secret) {
                    return Ok(key.to_pkcs8_pem(LineEnding::LF).map_err(|_| NoKey)?.to_string());
                }
            },
            Algorithm::EdDsa => {
                let key = Ed25519KeyPair::generate().map_err(|_| NoKey)?;
                pem(key.to_pkcs8v1().map_err(|_| NoKey)?.as_ref())
            }
            Algorithm::Rs256 => {
                let key = RsaKeyPair::generate(rsa::KeySize::Rsa2048).map_err(|_| NoKey)?;
                let der: Pkcs8V1Der<'_> = key.as_der().map_err(|_| NoKey)?;
                pem(der.as_ref())
            }
        }
    }

    /// Reads a key from PEM.
    ///
    /// # Errors
    /// [`NoKey`] if the text is not a suitable key.
    pub fn read(pem: &str) -> Result<Self, NoKey> {
        let pem = pem.trim();
        if let Ok(key) = SigningKey::from_pkcs8_pem(pem) {
            return Ok(Self::Es256(Box::new(key)));
        }
        let (label, der) = SecretDocument::from_pem(pem).map_err(|_| NoKey)?;
        if label != "PRIVATE KEY" {
            return Err(NoKey);
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.as_bytes()) {
            return Ok(Self::EdDsa(key));
        }
        let key = RsaKeyPair::from_pkcs8(der.as_bytes()).map_err(|_| NoKey)?;
        if key.public_modulus_len() * 8 < 2_048 { Err(NoKey) } else { Ok(Self::Rs256(key)) }
    }

    /// The key's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Es256(_) => Algorithm::Es256,
            Self::EdDsa(_) => Algorithm::EdDsa,
            Self::Rs256(_) => Algorithm::Rs256,
        }
    }

    fn sign(&self, message: &[u8], out: &mut String) {
        match self {
            Self::Es256(key) => {
                let signature: Signature = key.sign(message);
                BASE64.encode_string(signature.to_bytes(), out);
            }
            Self::EdDsa(key) => BASE64.encode_string(key.sign(message), out),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
                    .expect("a checked key signs any message");
                BASE64.encode_string(signature, out);
            }
        }
    }

    /// The public key's members, in the order that RFC 7638 requires.
    fn members(&self) -> String {
        match self {
            Self::Es256(key) => {
                let point = key.verifying_key().to_sec1_point(false);
                let (x, y) = point.as_bytes()[1..].split_at(32);
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                format!(r#""crv":"P-256","kty":"EC","x":"{x}","y":"{y}""#)
            }
            Self::EdDsa(key) => {
                format!(r#""crv":"Ed25519","kty":"OKP","x":"{}""#, BASE64.encode(key.public_key()))
            }
            Self::Rs256(key) => {
                let (e, n) = (key.public_key().exponent(), key.public_key().modulus());
                let (e, n) = (e.big_endian_without_leading_zero(), n.big_endian_without_leading_zero());
                format!(r#""e":"{}","kty":"RSA","n":"{}""#, BASE64.encode(e), BASE64.encode(n))
            }
        }
    }

    /// The key's name: its thumbprint (RFC 7638).
    pub(crate) fn kid(&self) -> String {
        BASE64.encode(digest(&SHA256, format!("{{{}}}", self.members()).as_bytes()))
    }

    fn jwk(&self) -> String {
        let (alg, kid) = (self.algorithm().as_str(), self.kid());
        format!(r#"{{{},"alg":"{alg}","kid":"{kid}","use":"sig"}}"#, self.members())
    }
}

/// Signs passes.
pub struct Passes {
    signer: Signer,
    /// The encoded header, with its dot.
    header: String,
    /// The payload before the zone.
    opening: String,
    /// The names of the published keys. The first one is the signer's.
    kids: Vec<String>,
    jwks: Bytes,
}

impl Passes {
    /// Signs with `signer`, and publishes its key and those of `others`.
    #[must_use]
    pub fn new(signer: Signer, others: &[Signer], audience: &str, issuer: Option<&str>) -> Self {
        let alg = signer.algorithm().as_str();
        let header = format!(r#"{{"alg":"{alg}","kid":"{}","typ":"JWT"}}"#, signer.kid());
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let issuer = issuer.map_or(String::new(), |issuer| format!(r#""iss":{},"#, text(issuer)));
        let published = || iter::once(&signer).chain(others);
        let jwks: Vec<String> = published().map(Signer::jwk).collect();
        let jwks = format!(r#"{{"keys":[{}]}}"#, jwks.join(","));
        let kids = published().map(Signer::kid).collect();
        Self {
            header: BASE64.encode(header) + ".",
            opening: format!(r#"{{{issuer}"aud":{},"zone":""#, text(audience)),
            kids,
            jwks: jwks.into(),
            signer,
        }
    }

    /// Whether the key is published that signs the passes of `other`.
    #[must_use]
    pub fn publishes(&self, other: &Self) -> bool {
        self.kids.contains(&other.kids[0])
    }

    /// Appends the pass of an entry to `out`. `zone` must be a zone's name.
    pub fn write(&self, zone: &str, claims: &PassClaims, out: &mut String) {
        use std::fmt::Write as _;
        let PassClaims { epoch, seq, entered_unix_s: entered, ttl_s } = *claims;
        let mut payload = String::with_capacity(self.opening.len() + 2 * zone.len() + 128);
        payload.push_str(&self.opening);
        let expires = entered.saturating_add(ttl_s.into());
        let written = write!(
            payload,
            r#"{zone}","jti":"{zone}/{epoch:08x}/{seq}","iat":{entered},"nbf":{entered},"exp":{expires}}}"#
        );
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        let start = out.len();
        out.push_str(&self.header);
        BASE64.encode_string(payload, out);
        let mut signature = String::with_capacity(344);
        self.signer.sign(&out.as_bytes()[start..], &mut signature);
        out.push('.');
        out.push_str(&signature);
    }

    /// The public keys, as a JWK Set (RFC 7517).
    #[must_use]
    pub fn jwks(&self) -> Bytes {
        self.jwks.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    };
    use serde_json::Value;

    fn decode(text: &Value) -> Vec<u8> {
        BASE64.decode(text.as_str().expect("a text")).expect("base64url")
    }

    /// Checks a pass with the published key; for ES256 with another implementation than the signer's.
    fn verified(passes: &Passes, pass: &str) -> (Value, Value) {
        let parts: Vec<&str> = pass.split('.').collect();
        let json =
            |part: &str| serde_json::from_slice(&BASE64.decode(part).expect("base64url")).expect("JSON");
        let (header, payload): (Value, Value) = (json(parts[0]), json(parts[1]));
        let jwks: Value = serde_json::from_slice(&passes.jwks()).expect("JSON");
        let keys = jwks["keys"].as_array().expect("a list");
        let key = keys.iter().find(|key| key["kid"] == header["kid"]).expect("published");
        assert_eq!(key["alg"], header["alg"]);
        let signed = format!("{}.{}", parts[0], parts[1]);
        let signature = BASE64.decode(parts[2]).expect("base64url");
        let right = match key["kty"].as_str().expect("a text") {
            "EC" => {
                let point = [vec![4], decode(&key["x"]), decode(&key["y"])].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed.as_bytes(), &signature)
            }
            "OKP" => {
                UnparsedPublicKey::new(&ED25519, decode(&key["x"])).verify(signed.as_bytes(), &signature)
            }
            _ => RsaPublicKeyComponents { n: decode(&key["n"]), e: decode(&key["e"]) }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                signed.as_bytes(),
                &signature,
            ),
        };
        right.expect("the signature holds");
        (header, payload)
    }

    #[test]
    fn passes_of_each_algorithm_are_valid_and_repeatable() {
        let claims = PassClaims { epoch: 0xAB, seq: 7, entered_unix_s: 1_700_000_000, ttl_s: 300 };
        for algorithm in Algorithm::ALL {
            let pem = Signer::make(algorithm).expect("made");
            let signer = || Signer::read(&pem).expect("read back");
            assert_eq!(signer().algorithm(), algorithm);
            let passes = Passes::new(signer(), &[], "shop \"1\"", Some("weir"));
            let (mut pass, mut again) = (String::new(), String::new());
            passes.write("Z", &claims, &mut pass);
            Passes::new(signer(), &[], "shop \"1\"", Some("weir")).write("Z", &claims, &mut again);
            assert_eq!(pass, again, "{algorithm:?}");
            let (header, payload) = verified(&passes, &pass);
            assert_eq!(
                (header["alg"].as_str(), header["typ"].as_str()),
                (Some(algorithm.as_str()), Some("JWT"))
            );
            let expected = serde_json::json!({
                "iss": "weir", "aud": "shop \"1\"", "zone": "Z", "jti": "Z/000000ab/7",
                "iat": 1_700_000_000, "nbf": 1_700_000_000, "exp": 1_700_000_300
            });
            assert_eq!(payload, expected);
        }
    }

    #[test]
    fn servers_in_neighbouring_steps_of_a_rotation_publish_each_others_keys() {
        let made = |algorithm| Signer::make(algorithm).expect("made");
        let (old, new) = (made(Algorithm::Es256), made(Algorithm::EdDsa));
        let passes = |signs: &str, others: &[&str]| {
            let signer = |pem: &&str| Signer::read(pem).expect("read back");
            let others: Vec<Signer> = others.iter().map(signer).collect();
            Passes::new(signer(&signs), &others, "a", None)
        };
        let steps = [passes(&old, &[]), passes(&old, &[&new]), passes(&new, &[&old]), passes(&new, &[])];
        let claims = PassClaims { epoch: 1, seq: 1, entered_unix_s: 1, ttl_s: 60 };
        for pair in steps.windows(2) {
            for (signing, checking) in [(&pair[0], &pair[0]), (&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                let mut pass = String::new();
                signing.write("Z", &claims, &mut pass);
                assert!(checking.publishes(signing));
                let (_, payload) = verified(checking, &pass);
                assert!(payload.get("iss").is_none());
            }
        }
        assert!(!steps[0].publishes(&steps[2]) && !steps[3].publishes(&steps[1]), "two steps apart");
    }

    #[test]
    fn the_thumbprint_is_that_of_the_rfc() {
        // RFC 8037, appendix A.3.
        let seed = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
        let key =
            Ed25519KeyPair::from_seed_unchecked(&BASE64.decode(seed).expect("base64url")).expect("a key");
        assert_eq!(Signer::EdDsa(key).kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }
}
