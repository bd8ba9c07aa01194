//! Listening sockets.

use std::{fs, io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Listens on `address`. The accept queue holds `backlog` connections; logs a warning where the kernel allows fewer.
///
/// # Errors
/// What the system reported.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn listen(address: SocketAddr, backlog: u32) -> Result<TcpListener, ListenError> {
    let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn");
    if let Some(cap) = somaxconn.ok().and_then(|n| n.trim().parse::<u32>().ok())
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
    open().map_err(|source| ListenError { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn accepted_sockets_inherit_nodelay() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 64).expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (accepted, _) = listener.accept().await.expect("accepted");
        assert!(accepted.nodelay().expect("a socket"));
    }

    #[tokio::test]
    async fn an_address_is_listened_on_once() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 64).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let error = listen(address, 64).expect_err("the address is taken").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
    }
}
