//! The scopes of events: which audience may receive them.
//!
//! Invariant: a kind of event has one scope, given where the kind is defined. Publishing takes no scope, so that no call
//! can publish an event more widely than its kind allows.

/// An audience. Each one may also receive the events of those before it: `Private` includes `Public`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everybody, including waiting users.
    Public,
    /// Other servers of this installation.
    Federated,
    /// Operators.
    Private,
    /// The audit log.
    Root,
}

impl Scope {
    /// All scopes with their names, from the widest audience to the narrowest.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Public, "public"),
        (Self::Federated, "federated"),
        (Self::Private, "private"),
        (Self::Root, "root"),
    ];

    /// The scope's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}
