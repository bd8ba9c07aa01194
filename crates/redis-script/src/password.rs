//! A password that can be replaced while connections use it.
//!
//! Invariant: `Debug` shows nothing of it.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// A password. All clones are one password: if one is replaced, all are, and later connections use the new text.
#[derive(Clone)]
pub struct Password(Arc<RwLock<String>>);

impl Password {
    /// A password with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Arc::new(RwLock::new(text.into())))
    }

    /// The text, for the server that asks for it.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the text by that of another password. Connections that are open stay open.
    pub fn replace(&self, by: &Self) {
        let text = by.reveal();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        self.reveal() == other.reveal()
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_one_password_and_show_nothing() {
        let (one, other) = (Password::new("first"), Password::new("second"));
        let clone = one.clone();
        one.replace(&other);
        assert_eq!((clone.reveal().as_str(), clone == other), ("second", true));
        other.replace(&Password::new("third"));
        assert_eq!(one.reveal(), "second");
        assert_eq!(format!("{one:?}"), "(hidden)");
    }
}
