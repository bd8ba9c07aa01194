//! What is demanded of the parsers, whatever the bytes. The fuzzer calls these with bytes of its own, the tests with
//! the seeds.

use admission::{Definition, SEALED_LEN, SealKey, Sealer, Seals, Ticket, ZoneId};
use server::{config, http::request, stores::StoreSettings};

fn sealer(zone: &str, secret: u8) -> Sealer {
    let seals = Seals { current: SealKey { id: 1, secret: [secret; 32] }, previous: None };
    seals.sealer(&ZoneId::parse(zone).expect("a zone's name"))
}

/// What opens is what sealing its ticket gives, to the letter. (That nothing else opens can't be demanded here: a
/// fuzzer watches the comparison of the tags, and learns to forge.)
pub(crate) fn token(data: &[u8]) {
    let (ours, other_zone, other_key) = (sealer("A", 1), sealer("B", 1), sealer("A", 2));
    let sealed_only = |token: &[u8]| {
        if let Ok(ticket) = ours.open(token) {
            assert_eq!(ours.seal(&ticket), token, "one token, one spelling");
        }
    };
    sealed_only(data);
    // The first bytes make a ticket, the others bend its token.
    let Some((head, rest)) = data.split_first_chunk::<24>() else {
        return;
    };
    let number = |at: usize, bytes: usize| head[at..at + bytes].iter().fold(0, |n, &b| n << 8 | u64::from(b));
    let told = |at| u32::try_from(number(at, 3)).ok().filter(|s| *s < Ticket::NEVER_S);
    let ticket = Ticket {
        epoch: u32::try_from(number(0, 4)).expect("four bytes"),
        seq: number(4, 6),
        issued_ms: number(10, 6),
        first_told_s: told(16),
        told_s: told(19),
    };
    let sealed = ours.seal(&ticket);
    assert_eq!(ours.open(&sealed), Ok(ticket));
    assert!(other_zone.open(&sealed).is_err() && other_key.open(&sealed).is_err());
    let mut bent = sealed.to_vec();
    for pair in rest.chunks_exact(2) {
        bent[usize::from(pair[0]) % SEALED_LEN] ^= pair[1];
    }
    bent.truncate(bent.len() - usize::from(head[22] & 1));
    sealed_only(&bent);
}

/// A request is read as JSON says, or refused with a reason.
pub(crate) fn request(data: &[u8]) {
    for entry in [false, true] {
        match request::parse(data, entry) {
            Ok(ask) => {
                let body: serde_json::Value = serde_json::from_slice(data).expect("what is read is JSON");
                assert_eq!(body["zoneId"], *ask.zone);
                assert_eq!(body["token"].as_str(), ask.token.as_deref());
                assert!(ask.token.is_some() || !entry);
                assert!(request::parse(data, false).is_ok(), "what `entry` takes, `wait` takes too");
            }
            Err(problem) => {
                assert_eq!(problem.code.status, 400);
                assert_eq!(problem.into_response().status(), 400);
            }
        }
    }
}

/// A configuration is one to serve with, or refused in one line that names the file.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match config::from_text("weir.toml", text) {
        Ok(config) => {
            let keeps_zones = !matches!(config.store, StoreSettings::Memory);
            assert!(keeps_zones || !config.zones.is_empty());
            for (_, Definition { policy, .. }) in config.zones {
                assert_eq!(policy.check(), Ok(policy));
            }
        }
        Err(fault) => {
            let line = fault.to_string();
            assert!(line.starts_with("weir.toml") && line.lines().count() == 1, "{line:?}");
        }
    }
}
