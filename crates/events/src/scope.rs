//! Who may hear of what.

/// An audience. Each includes the ones before: who may hear `Private` may hear `Public`, too.
///
/// A kind of event has one scope, said where the kind is defined, and publishing takes none: so no call can publish an
/// event more widely than its kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Waiting users, that is, anybody.
    Public,
    /// Other servers of this waiting room.
    Federated,
    /// Operators.
    Private,
    /// The audit.
    Root,
}

impl Scope {
    /// All of them, from the widest audience to the narrowest, with their names.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Public, "public"),
        (Self::Federated, "federated"),
        (Self::Private, "private"),
        (Self::Root, "root"),
    ];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}
