//! The verifier: computes everything again from what was published.
//!
//! Invariants: whatever a record or a receipt says is compared with what follows from the checkpoint and the randomness.
//! What cannot be seen from the files is said. The verification ends at the first fault.

use crate::{
    announced::Announced,
    checkpoint::Checkpoint,
    drand::QUICKNET,
    drawn::Drawn,
    fault::Fault,
    note::{Note, VerifierKey},
    randomness::{OrderSource, Randomness},
    record::{Receipt, Record},
    report::Report,
    seed::Seed,
    spelling::{to_base64, to_instant},
    statement::Statement,
    tree::{Tree, check_path},
};

/// Verifies a whole draw. `known` is the operator's key, from elsewhere than the record. The second value is the draw, if it
/// is right: receipts can be held against it.
#[must_use]
pub fn verify(record: &Record, known: Option<&VerifierKey>) -> (Report, Option<Drawn>) {
    let mut report = Report::default();
    match record_steps(record, known, &mut report) {
        Ok(drawn) => (report, Some(drawn)),
        Err(fault) => {
            report.fault = Some(fault);
            (report, None)
        }
    }
}

/// Verifies a receipt: against a draw that [`verify`] found right, or alone. Alone, the position cannot be computed again.
#[must_use]
pub fn verify_receipt(receipt: &Receipt, drawn: Option<&Drawn>, known: Option<&VerifierKey>) -> Report {
    let mut report = Report::default();
    report.fault = receipt_steps(receipt, drawn, known, &mut report).err();
    report
}

fn record_steps(record: &Record, known: Option<&VerifierKey>, report: &mut Report) -> Result<Drawn, Fault> {
    let (checkpoint, key) = signed_checkpoint("record", (&record.key, &record.checkpoint), known, report)?;
    let places = record.places(checkpoint.places())?;
    let root = Tree::new(&places).root();
    if root != *checkpoint.root() {
        return Err(Fault::OtherList(format!(
            "its root is {}, and the checkpoint has {}",
            to_base64(root),
            to_base64(checkpoint.root())
        )));
    }
    report.step(format!(
        "the list of places is the one that was frozen: {} places, root {}",
        places.count(),
        to_base64(root)
    ));
    let drawn = Drawn::new(&checkpoint, &places, &record.randomness, &key)?;
    report.step(format!("{} of the places are in line", places.in_line()));
    tell_randomness(&checkpoint, &record.randomness, &key, report)?;
    match drawn.seed() {
        Some(seed) => report
            .step(format!("the order of all {} was computed again, from the seed {seed}", places.in_line())),
        None => report.step(format!("the order of all {} is that of arrival", places.in_line())),
    }
    report.limit(
        "nobody can see from this record who has which place, and whether the places that are not in line were really left",
    );
    Ok(drawn)
}

fn receipt_steps(
    receipt: &Receipt,
    drawn: Option<&Drawn>,
    known: Option<&VerifierKey>,
    report: &mut Report,
) -> Result<(), Fault> {
    let (checkpoint, key) = signed_checkpoint("receipt", (&receipt.key, &receipt.checkpoint), known, report)?;
    let fault = |why: String| Err(Fault::Receipt(why));
    if let Some(drawn) = drawn {
        if drawn.key() != &key {
            return fault(format!("its key is {key}, and the record has {}", drawn.key()));
        }
        if drawn.checkpoint() != &checkpoint {
            return fault("its checkpoint is not the checkpoint of the record".to_owned());
        }
    }
    let terms = checkpoint.terms();
    for (what, told, signed) in
        [("event", &receipt.event, &terms.event), ("zone", &receipt.zone, &terms.zone)]
    {
        if told != signed {
            return fault(format!(
                "its {what} is `{}`, and the checkpoint has `{signed}`",
                told.escape_debug()
            ));
        }
    }
    let Receipt { place, in_line, position, .. } = *receipt;
    if !check_path(place, in_line, &receipt.hashes()?, checkpoint.places(), checkpoint.root()) {
        let which = if in_line { "in line" } else { "not in line" };
        return fault(format!(
            "its path does not lead from place {place}, {which}, to the checkpoint's root"
        ));
    }
    let was = if in_line { "was in line" } else { "was not in line any more" };
    report.step(format!("place {place} {was} at the freeze: its path leads to the root"));
    if position.is_some() != in_line {
        return fault("exactly those who are in line have a position".to_owned());
    }
    match drawn {
        Some(drawn) => {
            if *drawn.randomness() != receipt.randomness {
                return fault("its randomness is not that of the record".to_owned());
            }
            let expected = drawn.position(place);
            if position != expected {
                let words = |position: Option<u32>| position.map_or("none".to_owned(), |p| p.to_string());
                return fault(format!(
                    "its position is {}, and the draw gave place {place} position {}",
                    words(position),
                    words(expected)
                ));
            }
            if let Some(position) = expected {
                report.step(format!("place {place} has position {position} of {}", checkpoint.in_line()));
            } else {
                report.step(format!("place {place} has no position"));
            }
        }
        None => {
            let outcome = receipt.randomness.decide(&checkpoint, &key)?;
            tell_randomness(&checkpoint, &receipt.randomness, &key, report)?;
            if let OrderSource::Random(bytes) = outcome {
                report.step(format!("the seed is {}", Seed::new(&checkpoint, &bytes)));
            }
            if let Some(position) = position {
                if !(1..=checkpoint.in_line()).contains(&position) {
                    return fault(format!("position {position} is not one of 1 to {}", checkpoint.in_line()));
                }
                report.limit(format!(
                    "position {position} was NOT computed again: that needs the record of the whole draw"
                ));
            }
        }
    }
    Ok(())
}

/// The checkpoint of a file, if the file's key has signed it and is the known key.
fn signed_checkpoint(
    of: &'static str,
    (key, note): (&str, &str),
    known: Option<&VerifierKey>,
    report: &mut Report,
) -> Result<(Checkpoint, VerifierKey), Fault> {
    let key = VerifierKey::parse(key)?;
    match known {
        Some(known) if *known != key => {
            return Err(Fault::OtherKey { of, found: key.to_string(), known: known.to_string() });
        }
        Some(_) => report.step(format!("the key is the one that you gave: {key}")),
        None => report.limit(format!(
            "the key is the one in the {of}: compare it with the key that the operator published elsewhere: {key}"
        )),
    }
    let note = Note::parse("the checkpoint", note)?;
    note.verify(&key)?;
    let checkpoint = Checkpoint::parse(note.text())?;
    let terms = checkpoint.terms();
    if terms.key_name != key.name() {
        return Err(Fault::format(
            "the checkpoint's origin",
            format!("it begins with `{}`, and the key is called `{}`", terms.key_name, key.name()),
        ));
    }
    report.step(format!(
        "the checkpoint is signed by {}: event {}, zone {}",
        key.name(),
        terms.event,
        terms.zone
    ));
    let others = note.signatures() - 1;
    if others > 0 {
        report.limit(format!("{others} more signatures are on the checkpoint, such as those of cosigners; they were not checked"));
    }
    Ok((checkpoint, key))
}

/// Says what was checked about the randomness, and what was not. It has decided already.
fn tell_randomness(
    checkpoint: &Checkpoint,
    randomness: &Randomness,
    key: &VerifierKey,
    report: &mut Report,
) -> Result<(), Fault> {
    let terms = checkpoint.terms();
    let instant = |unix_s| to_instant(unix_s).unwrap_or_default();
    match randomness {
        Randomness::Drand { round, .. } | Randomness::Later { round, .. } => {
            let at = instant(QUICKNET.round_unix_s(*round));
            report.step(format!(
                "the randomness is round {round} of drand's quicknet, verified by its public key; it came at {at}, after the \
                 freeze at {}",
                instant(terms.frozen_unix_s)
            ));
        }
        Randomness::Stated { statement } => {
            if let Statement::Value(value) = Statement::read(statement, checkpoint, key)? {
                report.step(format!("the operator states, signed, that the randomness is `{value}`"));
            }
        }
        Randomness::Arrival { .. } => report.step("the order of arrival is the fallback of the checkpoint"),
    }
    match &terms.announced {
        Announced::Drand { round } => {
            if randomness.is_fallback() {
                report.limit(format!(
                    "the operator states, signed, that round {round} of drand did not come: look it up at \
                     https://api.drand.sh/{}/public/{round}; if it is there, this draw is wrong",
                    QUICKNET.hash
                ));
            }
            report.limit(format!(
                "that the checkpoint was public before {} is shown only by a copy from before that instant, or by a cosigner: \
                 compare its root with yours",
                instant(QUICKNET.round_unix_s(*round))
            ));
        }
        Announced::Stated { source } => {
            report.limit(if randomness.is_fallback() {
                format!("the operator states, signed, that this did not come: {source}")
            } else {
                format!("whether the value is right must be looked up there: {source}")
            });
            if !randomness.is_fallback() {
                report.limit(
                    "that the operator did not choose the order holds only if nobody could know or guess the value before; if it \
                     has few possible values, an operator can try many checkpoints, for example with other instants, before \
                     signing one",
                );
            }
            report.limit(
                "that the checkpoint was public before the value was known is shown only by a copy from before, or by a cosigner: \
                 compare its root with yours",
            );
        }
    }
    Ok(())
}
