//! Runs the example: see README.md.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, ensure};
use clap::Parser;
use protected_service::{door::Door, http::Service, keys::Keys};
use tokio::net::TcpListener;

/// An example of a service that accepts passes of Weir.
#[derive(Parser)]
struct Args {
    /// Address of the service
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// Address of Weir, for its keys and the waiting room
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    weir: String,
    /// Zone of the passes
    #[arg(long, default_value = "TEST_ZONE")]
    zone: String,
    /// Weir's `pass.audience`
    #[arg(long, default_value = "weir")]
    audience: String,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let Args { listen, weir, zone, audience } = Args::parse();
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>&".contains(&b));
    ensure!(
        plain(&weir) && plain(&zone),
        "--weir and --zone may only contain visible ASCII characters other than \" < > &"
    );
    let waiting_room = format!("{}/wait/{zone}", weir.trim_end_matches('/'));
    let door = Door::new(Keys::of(&weir)?, &audience, &zone);
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    Arc::new(Service { door, waiting_room }).serve(listener).await;
    Ok(())
}
