//! The engine of HTTP/1.1, as listeners set it.
//!
//! Invariant: it reads no longer head than the address of the peer may send.

use hyper::server::conn::http1;

use crate::{MAX_HEAD, MAX_HEAD_WITH_RESERVE};

/// The most fields of a head from an address that has a reserve. hyper takes 100 of others.
const MAX_FIELDS_WITH_RESERVE: usize = 256;

/// An engine for addresses without a reserve, and one for those that have one.
pub(crate) struct Engines {
    usual: http1::Builder,
    with_reserve: http1::Builder,
}

impl Engines {
    /// `half_close` says whether a client may close its sending side and still wait for the reply.
    pub(crate) fn new(half_close: bool) -> Self {
        let mut usual = http1::Builder::new();
        // `watch_deadlines` keeps the deadlines.
        usual.header_read_timeout(None).half_close(half_close);
        // Replies are small: one buffer and one write cost less than a list of buffers.
        usual.max_buf_size(MAX_HEAD).writev(false);
        let mut with_reserve = usual.clone();
        with_reserve.max_buf_size(MAX_HEAD_WITH_RESERVE).max_headers(MAX_FIELDS_WITH_RESERVE);
        Self { usual, with_reserve }
    }

    pub(crate) fn of(&self, has_reserve: bool) -> &http1::Builder {
        if has_reserve { &self.with_reserve } else { &self.usual }
    }
}
