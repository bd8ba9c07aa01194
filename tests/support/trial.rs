//! Tests as values, for suites that run the same tests over several subjects.

use std::{future::Future, time::Duration};

use libtest_mimic::Trial;

/// The time limit of a test. It ends what hangs, so that the others are still heard of. The longest tests take 70 s by themselves,
/// and several times that where other programs have the processor.
const PATIENCE: Duration = Duration::from_secs(600);

/// A test with its own runtime, which fails at the time limit.
pub(crate) fn trial<F: Future<Output = ()>>(
    name: String,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, test()).await });
        done.map_err(|_| format!("not done within {PATIENCE:?}").into())
    })
}
