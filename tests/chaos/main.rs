//! The store in Redis with failing servers: real servers are killed, frozen, emptied and cut off while people wait. An
//! auditor checks from the reports of users and stores whether a promise was broken.

mod auditor;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/seed.rs"]
mod seed;
mod trouble;
mod world;

use libtest_mimic::Arguments;

/// How many scenarios run at once. Each has its own cluster and crowd, and mostly waits.
const AT_ONCE: usize = 4;

fn main() {
    // RUST_LOG=store=warn shows the servers' messages.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    let alone = Arguments { test_threads: Some(1), ..args.clone() };
    let conclusions =
        [libtest_mimic::run(&args, trouble::all()), libtest_mimic::run(&alone, trouble::broken_rules())];
    conclusions.iter().for_each(libtest_mimic::Conclusion::exit_if_failed);
}
