//! Tests as values, for suites that run the same tests over several subjects.

use std::{future::Future, time::Duration};

use libtest_mimic::Trial;

/// The time limit of a test, far longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(120);

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
