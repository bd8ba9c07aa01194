//! Prints how long a draw of many people takes. `cargo run --release -p draw --example figures [PLACES...]`
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it prints figures, and reads the clock for them"
)]

use std::{env, time::Instant};

use draw::{
    Announced, Checkpoint, Fallback, Places, Randomness, Receipt, Record, Signer, Terms, Tree, positions,
    verify, verify_receipt,
};

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    println!("  {what}: {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    done
}

fn main() -> Result<(), draw::Fault> {
    let given: Vec<u32> = env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let counts = if given.is_empty() { vec![600_000, 6_000_000, draw::PLACES_MAX] } else { given };
    let signature =
        "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39";
    let randomness = Randomness::Drand { round: 1_000, signature: signature.to_owned() };
    for count in counts {
        println!("{count} places, of which 3 % have left");
        let places: Places = (0..count).map(|place| place % 33 != 7).collect();
        let tree = timed("tree", || Tree::new(&places));
        let terms = Terms {
            key_name: "shop.example/weir".to_owned(),
            event: "opening-night".to_owned(),
            zone: "SALE".to_owned(),
            frozen_unix_s: 1_692_806_300,
            start_unix_s: 1_692_806_300,
            announced: Announced::Drand { round: 1_000 },
            fallback: Fallback::Wait,
        };
        let checkpoint = timed("checkpoint", || Checkpoint::new(terms, &tree))?;
        let signer = Signer::new("shop.example/weir", &[1; 32])?;
        let note = timed("signature", || signer.sign(checkpoint.text()));
        timed("one round of drand verified", || randomness.decide(&checkpoint, signer.key()))?;
        timed("shuffle", || positions(&draw::Seed([1; 32]), places.in_line()));
        let record = Record::new(signer.key(), &note, &places, randomness.clone());
        let json = timed("record as JSON", || record.to_json());
        println!("  record: {} bytes", json.len());
        let record = Record::parse(json.as_bytes())?;
        let (report, drawn) = timed("record verified", || verify(&record, Some(signer.key())));
        let Some(drawn) = drawn else {
            return Err(report.fault.unwrap_or(draw::Fault::OtherList(String::new())));
        };
        let receipt =
            timed("one receipt made", || Receipt::new(&drawn, &tree, signer.key(), &note, count / 2));
        if let Some(receipt) = receipt {
            println!("  receipt: {} bytes", receipt.to_json().len());
            timed("one receipt verified alone", || verify_receipt(&receipt, None, None));
        }
    }
    Ok(())
}
