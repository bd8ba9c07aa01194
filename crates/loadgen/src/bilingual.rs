//! A sentence in English and in Korean.

use std::borrow::Cow;

/// The same sentence in both languages, with the same figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bilingual {
    /// In English.
    pub(crate) en: Cow<'static, str>,
    /// In Korean.
    pub(crate) ko: Cow<'static, str>,
}

impl Bilingual {
    /// A sentence without figures.
    pub(crate) const fn fixed(en: &'static str, ko: &'static str) -> Self {
        Self { en: Cow::Borrowed(en), ko: Cow::Borrowed(ko) }
    }
}

/// Formats the same values into an English and a Korean sentence.
macro_rules! bilingual {
    ($en:literal, $ko:literal $(, $($arg:tt)*)?) => {
        $crate::bilingual::Bilingual {
            en: format!($en $(, $($arg)*)?).into(),
            ko: format!($ko $(, $($arg)*)?).into(),
        }
    };
}
pub(crate) use bilingual;
