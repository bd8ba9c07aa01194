//! A limit of 3 visits at once and 2 a second for each address, in this process or shared through Redis.
//!
//! `cargo run -p limiter --example door [redis://127.0.0.1:6379]`
#![expect(clippy::print_stdout, reason = "it shows what is decided")]

use std::{error::Error, time::Duration};

use limiter::{Bandwidth, Decision, Limit, Limiter, MemorySettings, OnFailure};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = match std::env::args().nth(1) {
        None => Limiter::in_memory(MemorySettings::default(), OnFailure::Closed),
        Some(url) => in_redis(&url).await?,
    };
    let limit = Limit::new("door", [Bandwidth::greedy(3, 2, Duration::from_secs(1))])?;
    for visit in 1..=8 {
        for address in ["192.0.2.1", "2001:db8::1"] {
            match limiter.ask(&limit, address, 1).await {
                Decision::Allowed(budget) => {
                    println!("visit {visit} of {address}: come in, {} more", budget.remaining);
                }
                Decision::Denied { retry_after_us, .. } => {
                    println!("visit {visit} of {address}: in {} ms", retry_after_us.div_ceil(1_000));
                }
                Decision::Never(_) => println!("visit {visit} of {address}: never"),
                Decision::Unknown { .. } => println!("visit {visit} of {address}: Redis does not answer"),
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{:?}", limiter.stats());
    Ok(())
}

#[cfg(feature = "redis")]
async fn in_redis(url: &str) -> Result<Limiter, Box<dyn Error>> {
    let address = redis_script::Address::parse(url)?;
    Ok(Limiter::in_redis(&address, &limiter::RedisSettings::default(), OnFailure::Closed).await?)
}

#[cfg(not(feature = "redis"))]
async fn in_redis(url: &str) -> Result<Limiter, Box<dyn Error>> {
    Err(format!("{url} needs the feature redis").into())
}
