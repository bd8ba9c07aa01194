//! The limiter over every back end: one set of behaviours over memory, Redis and a cluster, with both libraries; the script
//! compared with the rules; and Redis killed, frozen, flushed and failed over.
//!
//! The limits of these tests refill almost nothing while they run, so the results do not depend on the speed of the machine.
//! Tests share servers and use different keys. Tests that harm a Redis start their own.

mod behaviour;
#[path = "../support/clock.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod clock;
mod differential;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod seed;
mod shared;
#[path = "../support/trial.rs"]
mod trial;
mod trouble;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use libtest_mimic::Arguments;
use limiter::{Limiter, MemorySettings, OnFailure, RedisSettings};
use redis::{Cluster, Standalone};
use redis_script::{Address, Library, Settings};
use trial::trial;

/// How many tests run at once. They mostly wait for servers, so it is more than the number of cores.
const AT_ONCE: usize = 8;

/// A back end.
#[derive(Clone)]
enum Backend {
    Memory,
    One(Arc<LazyLock<Standalone>>, Library),
    Three(Arc<LazyLock<Cluster>>, Library),
}

impl Backend {
    /// The address of its Redis, and the library.
    fn redis(&self) -> Option<(String, Library)> {
        match self {
            Self::Memory => None,
            Self::One(server, library) => Some((server.url(), *library)),
            Self::Three(cluster, library) => Some((cluster.url(), *library)),
        }
    }

    /// A new limiter over it. If the buckets are shared, it acts as another server.
    async fn limiter(&self) -> Limiter {
        self.limiter_with(RedisSettings::default()).await
    }

    /// The same without hints and leases.
    async fn plain_limiter(&self) -> Limiter {
        self.limiter_with(RedisSettings { local_keys: 0, ..RedisSettings::default() }).await
    }

    async fn limiter_with(&self, settings: RedisSettings) -> Limiter {
        match self.redis() {
            None => Limiter::in_memory(MemorySettings::default(), OnFailure::Closed),
            Some((url, library)) => connect(&url, patient(library, settings), OnFailure::Closed).await,
        }
    }
}

/// A long timeout: a busy machine must not look like a missing Redis.
fn patient(library: Library, settings: RedisSettings) -> RedisSettings {
    let client = Settings { library, command_timeout: Duration::from_secs(30), ..Settings::default() };
    RedisSettings { client, ..settings }
}

async fn connect(url: &str, settings: RedisSettings, on_failure: OnFailure) -> Limiter {
    let address = Address::parse(url).expect("an address");
    Limiter::in_redis(&address, &settings, on_failure).await.expect("Redis answers")
}

/// Makes a trial of each test of a module, with its arguments.
macro_rules! trials {
    ($of:expr, $arg:expr, $module:ident: $($test:ident),* $(,)?) => {
        vec![$({
            let arg = $arg.clone();
            trial(format!("{}::{}", $of, stringify!($test)), move || async move { $module::$test(&arg).await })
        }),*]
    };
}

fn main() {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    // Held here so that they are dropped with the run; statics are never dropped.
    let one = Arc::new(LazyLock::new(Standalone::start as fn() -> Standalone));
    let three = Arc::new(LazyLock::new((|| Cluster::start(3, 0)) as fn() -> Cluster));
    let mut trials = Vec::new();
    for library in [Library::Fred, Library::RedisRs] {
        trials.extend(trials![format!("trouble::{library:?}"), library, trouble:
            failed_over_primary_is_replaced,
            killed_redis_is_answered_for_and_used_again,
            frozen_redis_costs_one_ask_its_patience,
            wiped_redis_begins_anew,
        ]);
    }
    let mut backends = vec![("memory".to_owned(), Backend::Memory)];
    for library in [Library::Fred, Library::RedisRs] {
        backends.push((format!("redis::{library:?}"), Backend::One(Arc::clone(&one), library)));
        backends.push((format!("cluster::{library:?}"), Backend::Three(Arc::clone(&three), library)));
    }
    for (name, backend) in backends {
        trials.extend(trials![name, backend, behaviour:
            sixteen_callers_get_what_the_bucket_holds,
            who_waits_as_told_is_allowed,
            all_bandwidths_allow_or_none_is_charged,
            what_can_never_be_is_told_apart,
            looks_take_nothing_and_a_reset_key_is_new,
            limits_change_while_they_run,
            names_and_keys_of_all_kinds_are_kept_apart,
            new_keys_have_their_initial_tokens,
        ]);
        if backend.redis().is_some() {
            trials.extend(trials![name, backend, shared:
                two_servers_share_what_the_bucket_holds,
                asks_of_a_moment_are_one_call,
                refusals_that_are_known_cost_no_call,
                leases_save_calls_and_give_nothing_twice,
                leases_move_no_more_than_their_tokens,
                keys_expire_when_they_are_full,
            ]);
        }
    }
    let server = Arc::clone(&one);
    trials.push(trial("differential".to_owned(), move || async move { differential::run(&server).await }));
    let conclusion = libtest_mimic::run(&args, trials);
    drop((one, three));
    conclusion.exit();
}
