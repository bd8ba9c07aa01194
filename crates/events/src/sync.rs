//! The atomics of the rings and the bell. Their tests put others in this place, which try all that memory may do.

pub(crate) use std::sync::atomic;
