//! `weir draw verify`: computes a published draw again, and says what was checked.
//!
//! Invariants: it calls nobody, and changes nothing. A file is read up to the limit of its kind. Each file that was named is in
//! the output.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ::draw::{
    Drawn, RECEIPT_MAX, RECORD_MAX, Receipt, Record, Report, VerifierKey, shown, verify, verify_receipt,
};
use serde::Serialize;
use shown::brief;

use super::{CHANGED, UNREADABLE};
use crate::{config::ConfigFault, failure::Failure, output::print, remote::Format};

/// What is to be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    record: PathBuf,
    receipts: Vec<PathBuf>,
    key: Option<VerifierKey>,
    format: Format,
}

/// What was found about one file.
#[derive(Serialize)]
struct Found {
    file: String,
    right: bool,
    checked: Vec<String>,
    fault: Option<String>,
    notes: Vec<String>,
}

impl Draw {
    /// Reads what is wanted. `key` is the operator's, as `NAME+ID+KEY`.
    ///
    /// # Errors
    /// The key is not one.
    pub(super) fn new(
        record: PathBuf,
        receipts: Vec<PathBuf>,
        key: Option<&str>,
        format: Format,
    ) -> Result<Self, ConfigFault> {
        let read = |text: &str| {
            VerifierKey::parse(text).map_err(|why| ConfigFault::new(format!("--key: `{text}`: {why}")))
        };
        let key = key.map(read).transpose()?;
        Ok(Self { record, receipts, key, format })
    }
}

/// Verifies a record and receipts, and prints what was found.
///
/// # Errors
/// A file cannot be read, or standard output cannot be written.
pub(super) fn run(wanted: &Draw) -> Result<ExitCode, Failure> {
    let Draw { record, receipts, key, format } = wanted;
    let known = key.as_ref();
    // All files are read before anything is printed, so a name with a typing error does not cost a long computation.
    let bytes = read(record, RECORD_MAX)?;
    let receipts: Vec<(&Path, Vec<u8>)> = receipts
        .iter()
        .map(|path| Ok((path.as_path(), read(path, RECEIPT_MAX)?)))
        .collect::<Result<_, Failure>>()?;
    let (report, drawn) = match Record::parse(&bytes) {
        Ok(record) => verify(&record, known),
        Err(fault) => (Report { fault: Some(fault), ..Report::default() }, None),
    };
    let is_drawn = drawn.is_some();
    let mut found = vec![Found::new(record, report)];
    found.extend(receipts.into_iter().map(|(path, bytes)| receipt(path, &bytes, drawn.as_ref(), known)));
    let right = found.iter().all(|file| file.right);
    print(&match format {
        Format::Json => format!("{}\n", serde_json::to_string(&found).expect("texts are JSON")),
        Format::Text => text(&found, right, is_drawn),
    })?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(CHANGED) })
}

/// Verifies a receipt against the draw. Without a draw, because the record is wrong, it is verified alone.
fn receipt(path: &Path, bytes: &[u8], drawn: Option<&Drawn>, known: Option<&VerifierKey>) -> Found {
    Found::new(
        path,
        match Receipt::parse(bytes) {
            Ok(receipt) => verify_receipt(&receipt, drawn, known),
            Err(fault) => Report { fault: Some(fault), ..Report::default() },
        },
    )
}

fn text(found: &[Found], right: bool, is_drawn: bool) -> String {
    let mut text = String::new();
    for Found { file, checked, fault, notes, .. } in found {
        for step in checked {
            text += &format!("{file}: ok: {step}\n");
        }
        if let Some(fault) = fault {
            text += &format!("{file}: WRONG: {fault}\n");
        }
        for note in notes {
            text += &format!("{file}: note: {note}\n");
        }
    }
    text += match (right, is_drawn) {
        (true, _) => "everything that was checked is right\n",
        (false, true) => "a receipt is wrong\n",
        (false, false) => "the record is wrong\n",
    };
    text
}

impl Found {
    fn new(file: &Path, report: Report) -> Self {
        let Report { steps, limits, fault } = report;
        Self {
            file: shown(&file.display().to_string()),
            right: fault.is_none(),
            checked: steps,
            fault: fault.map(|fault| shown(&brief(&fault.to_string()))),
            notes: limits,
        }
    }
}

/// The bytes of a file, one more than `max` at most, so that a longer file is seen as too long.
fn read(path: &Path, max: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max as u64 + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(why) => Err(Failure::new(UNREADABLE, format_args!("{}: {why}", path.display()))),
    }
}
