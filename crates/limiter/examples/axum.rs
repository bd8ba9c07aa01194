//! A limit in front of an axum service: 5 requests per client address, and one more every 2 s.
//!
//! `cargo run -p limiter --features tower --example axum`, then, several times: `curl -i http://127.0.0.1:3000/`
#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::ConnectInfo, routing::get};
use limiter::{
    Bandwidth, Limit, Limiter, MemorySettings, OnFailure,
    layer::{ByAddress, LimitLayer},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Arc::new(Limiter::in_memory(MemorySettings::default(), OnFailure::Open));
    let limit = Limit::new("greetings", [Bandwidth::greedy(5, 1, Duration::from_secs(2))])?;
    let peer = |head: &http::request::Parts| -> Option<IpAddr> {
        head.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
    };
    // Behind a load balancer: ByAddress { trusted_proxies: vec!["10.0.0.0/8".parse()?], ..ByAddress::new(peer) }
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(LimitLayer::new(
        limiter,
        limit,
        ByAddress::new(peer),
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
