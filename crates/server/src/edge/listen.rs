//! Listening sockets.

use std::{fs, io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// An address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{address}: can't be listened on: {why}")]
pub struct ListenFault {
    address: SocketAddr,
    why: io::Error,
}

/// Listens on `address` with room for `backlog` connections that nobody has accepted yet; warns where the kernel
/// gives less. Must be called on a tokio runtime.
///
/// # Errors
/// What the system said.
pub fn listen(address: SocketAddr, backlog: u32) -> Result<TcpListener, ListenFault> {
    if let Some(cap) =
        fs::read_to_string("/proc/sys/net/core/somaxconn").ok().and_then(|n| n.trim().parse::<u32>().ok())
        && cap < backlog
    {
        tracing::warn!(
            backlog,
            cap,
            "the kernel caps the accept queue lower than configured; run: sysctl -w net.core.somaxconn={backlog}"
        );
    }
    let open = || {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|why| ListenFault { address, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn accepted_sockets_send_at_once_and_an_address_is_had_once() {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen(here, 64).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let _client = TcpStream::connect(address).await.expect("connected");
        let (accepted, _) = listener.accept().await.expect("accepted");
        assert!(accepted.nodelay().expect("a socket"), "inherited from the listener");
        let told = listen(address, 64).expect_err("taken").to_string();
        assert!(told.starts_with(&format!("{address}: can't be listened on: ")), "{told}");
    }
}
