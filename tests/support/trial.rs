//! Tests as values, for suites that run the same ones over several things.

use std::{future::Future, time::Duration};

use libtest_mimic::Trial;

/// How long a test may take: far longer than any does.
const PATIENCE: Duration = Duration::from_secs(120);

/// A test of its own runtime, which ends in time.
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
