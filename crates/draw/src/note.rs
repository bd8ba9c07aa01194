//! Signed notes (<https://c2sp.org/signed-note>): a text, an empty line, and a line for each signature.
//!
//! Only Ed25519 (type 1) is verified. Signatures of other keys, such as cosignatures, are kept and not looked
//! at, as the specification demands. Invariant: a text counts as signed only if exactly one signature of the key that was
//! asked for is there, and fits every byte of the text.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::{
    fault::Fault,
    spelling::{from_base64, from_hex, is_key_name, to_base64, to_hex},
};

/// The longest note, in bytes: room for a dozen signatures of any kind that the specification names. A receipt has two notes.
pub const NOTE_MAX: usize = 50_000;

/// The type of Ed25519 signatures.
const ED25519: u8 = 1;

/// A public key with its name, written `NAME+ID+KEY` as in Go's `sumdb/note`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    id: [u8; 4],
    key: VerifyingKey,
}

impl VerifierKey {
    fn new(name: &str, key: VerifyingKey) -> Result<Self, Fault> {
        if !is_key_name(name) {
            let why = "it is 1 to 128 visible ASCII characters without `+`, such as shop.example/weir";
            return Err(Fault::format(format!("the key's name `{}`", name.escape_debug()), why));
        }
        let digest = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ED25519])
            .chain_update(key.as_bytes())
            .finalize();
        Ok(Self { name: name.to_owned(), id: [digest[0], digest[1], digest[2], digest[3]], key })
    }

    /// Reads `NAME+ID+KEY`.
    ///
    /// # Errors
    /// [`Fault::Format`] if this is not an Ed25519 key in that form, if the id does not fit the name and the key, or if the
    /// key is one of those under which a signature fits many texts.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |why: &str| Fault::format("the public key", why);
        // The key is in base64, which may contain `+`.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(fault("it is not NAME+ID+KEY"));
        };
        let id = from_hex(id).ok_or_else(|| fault("its ID is not 8 digits of lower-case hex"))?;
        let key = from_base64(key).ok_or_else(|| fault("its KEY is not base64"))?;
        let Some((&ED25519, key)) = key.split_first() else {
            return Err(fault("it is not an Ed25519 key (type 1)"));
        };
        let key = <&[u8; 32]>::try_from(key).map_err(|_| fault("its KEY does not have 33 bytes"))?;
        // The library reduces a coordinate that is too large, and so would read two spellings of one key.
        let point = VerifyingKey::from_bytes(key).ok().filter(|_| is_reduced(key));
        let key = point.ok_or_else(|| fault("its KEY is not a point of the curve"))?;
        if key.is_weak() {
            return Err(fault("its KEY is weak: one signature would fit many texts"));
        }
        let read = Self::new(name, key)?;
        if read.id != id {
            return Err(fault("its ID does not fit its name and KEY: one of them was changed"));
        }
        Ok(read)
    }

    /// The key's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Whether the coordinate `y` of a compressed point is below the field's prime, 2^255 - 19.
fn is_reduced(point: &[u8; 32]) -> bool {
    let is_top = point[31] & 0x7f == 0x7f && point[1..31].iter().all(|byte| *byte == 0xff);
    !is_top || point[0] < 0xed
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key: Vec<u8> = std::iter::once(ED25519).chain(*self.key.as_bytes()).collect();
        write!(f, "{}+{}+{}", self.name, to_hex(&self.id), to_base64(key))
    }
}

/// The key that signs checkpoints. Signatures are deterministic (RFC 8032), so signing again gives the same note.
pub struct Signer {
    secret: SigningKey,
    public: VerifierKey,
}

impl Signer {
    /// The key with this secret seed.
    ///
    /// # Errors
    /// [`Fault::Format`] if the name is not 1 to 128 visible ASCII characters without `+`.
    pub fn new(name: &str, secret: &[u8; 32]) -> Result<Self, Fault> {
        let secret = SigningKey::from_bytes(secret);
        let public = VerifierKey::new(name, secret.verifying_key())?;
        Ok(Self { secret, public })
    }

    /// The public key.
    #[must_use]
    pub fn key(&self) -> &VerifierKey {
        &self.public
    }

    /// The signed note of a text.
    ///
    /// # Panics
    /// If the text does not end with a line break, or has an empty line.
    #[must_use]
    pub fn sign(&self, text: &str) -> String {
        assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.starts_with('\n'), "lines of a note");
        let signature = self.secret.sign(text.as_bytes());
        let bytes = [self.public.id.as_slice(), &signature.to_bytes()].concat();
        format!("{text}\n\u{2014} {} {}\n", self.public.name, to_base64(bytes))
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.public)
    }
}

/// A note that was read; nothing of it is verified yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Note<'a> {
    what: &'static str,
    text: &'a str,
    /// The name, and the bytes after it: four of the key's id, then the signature.
    signatures: Vec<(&'a str, Vec<u8>)>,
}

impl<'a> Note<'a> {
    /// Reads a note. `what` it is goes into faults.
    ///
    /// # Errors
    /// [`Fault::Format`] if it is not a signed note, or longer than [`NOTE_MAX`].
    pub fn parse(what: &'static str, note: &'a str) -> Result<Self, Fault> {
        let fault = |why: &str| Fault::format(what, why);
        if note.len() > NOTE_MAX {
            return Err(fault(&format!("it has {} bytes; at most {NOTE_MAX} are read", note.len())));
        }
        if note.chars().any(|char| char < ' ' && char != '\n') {
            return Err(fault("it has control characters"));
        }
        let at = note.rfind("\n\n").ok_or_else(|| fault("it has no empty line before its signatures"))?;
        let (text, lines) = (&note[..=at], &note[at + 2..]);
        let lines = lines
            .strip_suffix('\n')
            .ok_or_else(|| fault("it does not end with a signature and a line break"))?;
        let read = |(at, line): (usize, &'a str)| {
            let fault = |why: &str| Fault::format(format!("signature {} of {what}", at + 1), why);
            let (name, bytes) = line
                .strip_prefix("\u{2014} ")
                .and_then(|rest| rest.split_once(' '))
                .ok_or_else(|| fault("it is not a dash (U+2014), a name and a signature"))?;
            if name.is_empty() || name.contains(|char: char| char.is_whitespace() || char == '+') {
                return Err(fault("its name is empty, or has a space or a plus"));
            }
            let bytes = from_base64(bytes).filter(|bytes| bytes.len() > 4);
            Ok((name, bytes.ok_or_else(|| fault("it is not base64 of more than four bytes"))?))
        };
        let signatures = lines.split('\n').enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { what, text, signatures })
    }

    /// The text, with its last line break.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The number of signatures, of any key.
    #[must_use]
    pub fn signatures(&self) -> usize {
        self.signatures.len()
    }

    /// Verifies the signature of `key`.
    ///
    /// # Errors
    /// [`Fault::Unsigned`] if it is not there, [`Fault::Forged`] if it does not fit or is there twice.
    pub fn verify(&self, key: &VerifierKey) -> Result<(), Fault> {
        let is_of_key = |(name, bytes): &&(&str, Vec<u8>)| *name == key.name && bytes.starts_with(&key.id);
        let mut of_key = self.signatures.iter().filter(is_of_key);
        let Some((_, bytes)) = of_key.next() else {
            return Err(Fault::Unsigned { what: self.what, key: key.to_string() });
        };
        // Strict: a key or a nonce of small order would let one signature fit many texts. The equation is checked without the
        // cofactor, so all verifiers agree about keys and nonces that are partly of small order.
        let fits = Signature::from_slice(&bytes[4..])
            .is_ok_and(|signature| key.key.verify_strict(self.text.as_bytes(), &signature).is_ok());
        if !fits || of_key.next().is_some() {
            return Err(Fault::Forged { what: self.what, key: key.to_string() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the signed-note package of Go (golang.org/x/mod/sumdb/note), with the public key that it publishes.
    const GO_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const GO_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
                           then you don't know what your problem is.\n\n\
                           \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    #[test]
    fn a_note_of_another_implementation_is_verified() {
        let key = VerifierKey::parse(GO_KEY).expect("a key");
        assert_eq!(key.to_string(), GO_KEY);
        let note = Note::parse("the note", GO_NOTE).expect("a note");
        assert_eq!(note.verify(&key), Ok(()));
        assert!(note.text().ends_with("problem is.\n"));
        let changed = GO_NOTE.replace("your problem,", "the problem,");
        let fault = Note::parse("the note", &changed).and_then(|note| note.verify(&key));
        assert_eq!(fault, Err(Fault::Forged { what: "the note", key: GO_KEY.to_owned() }));
    }

    #[test]
    fn what_is_signed_is_verified_and_signatures_of_others_are_ignored() {
        let signer = Signer::new("shop.example/weir", &[1; 32]).expect("a key");
        let other = Signer::new("shop.example/weir", &[2; 32]).expect("a key");
        let note = signer.sign("a\nb\n");
        assert_eq!(note, signer.sign("a\nb\n"), "deterministic");
        let parsed = Note::parse("the note", &note).expect("a note");
        assert_eq!((parsed.text(), parsed.verify(signer.key())), ("a\nb\n", Ok(())));
        assert_eq!(
            parsed.verify(other.key()),
            Err(Fault::Unsigned { what: "the note", key: other.key().to_string() })
        );
        let line = |note: &str| note.rsplit_once("\n\n").map(|(_, line)| line.to_owned()).expect("a line");
        let cosigner = format!("\u{2014} cosigner.example/ünï {}\n", to_base64([9; 2_424]));
        let both = format!("{}{}{cosigner}{}", &note[..5], line(&other.sign("a\nb\n")), line(&note));
        let parsed = Note::parse("the note", &both).expect("a note");
        assert_eq!((parsed.signatures(), parsed.verify(signer.key())), (3, Ok(())));
        assert_eq!(parsed.verify(other.key()), Ok(()));
        let twice = format!("{note}{}", line(&note));
        let fault = Note::parse("the note", &twice).and_then(|note| note.verify(signer.key()));
        assert!(matches!(fault, Err(Fault::Forged { .. })));
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let signer = Signer::new("k", &[1; 32]).expect("a key");
        let note = signer.sign("a\n");
        let long = format!("{}\n\n\u{2014} k AAAAAAA=\n", "a".repeat(NOTE_MAX));
        let wrong = [
            "",
            "a\n",
            "a\n\n",
            "a\n\n\n",
            note.trim_end(),
            &note.replace('\n', "\r\n"),
            &note.replace('\u{2014}', "-"),
            &format!("{note}\n"),
            &format!("{note}x"),
            &note.replace(" k ", "  "),
            &note.replace(" k ", " k+ "),
            "a\n\n\u{2014} k AAAA\n",
            "a\n\n\u{2014} k AAAAAAA\n",
            &long,
        ];
        for wrong in wrong {
            assert!(Note::parse("the note", wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "a", "a+b", "a b", "\u{e4}", &"a".repeat(129)] {
            assert!(Signer::new(wrong, &[1; 32]).is_ok() == (wrong == "a"), "{wrong}");
        }
    }

    #[test]
    fn each_character_of_a_key_matters() {
        let key = Signer::new("k", &[3; 32]).expect("a key").key().to_string();
        for at in 0..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert!(VerifierKey::parse(&changed).is_err(), "{changed}");
        }
        let parsed = |typed: &[u8]| {
            let id = to_hex(&Sha256::digest([b"k\n".as_slice(), typed].concat())[..4]);
            VerifierKey::parse(&format!("k+{id}+{}", to_base64(typed))).map_err(|fault| fault.to_string())
        };
        // The neutral element: every text has the same signature under it.
        let weak = parsed(&[&[ED25519, 1][..], &[0; 31]].concat());
        assert!(weak.is_err_and(|fault| fault.contains("weak")));
        // y = 3 is a point of the curve; y = p + 3 is another spelling of it.
        assert!(parsed(&[&[ED25519, 3][..], &[0; 31]].concat()).is_ok());
        let spelled = [&[ED25519, 0xf0][..], &[0xff; 30], &[0x7f]].concat();
        assert!(parsed(&spelled).is_err_and(|fault| fault.contains("not a point")));
    }
}
