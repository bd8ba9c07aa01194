//! One read of a socket.

use std::io;

use tokio::io::Interest;

use crate::stream::Stream;

/// The most bytes of one read. Requests are a few hundred bytes.
pub(crate) const READ_LEN: usize = 2_048;

/// Reads once by `read`, which returns at most `room` bytes.
///
/// A short read has emptied the socket. Reporting "would block" to tokio then saves the system call of the next read. It must
/// be reported inside `try_io`, so that bytes that arrive meanwhile are not missed.
pub(crate) fn read_once(
    stream: &Stream,
    room: usize,
    mut read: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut short = None;
    let outcome = stream.try_io(Interest::READABLE, || {
        let n = read()?;
        if n == 0 || n == room {
            return Ok(n);
        }
        short = Some(n);
        Err(io::ErrorKind::WouldBlock.into())
    });
    short.map_or(outcome, Ok)
}
