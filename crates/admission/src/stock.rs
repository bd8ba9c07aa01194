//! What is left for the people who wait: a few tiers, each with a label, a price range and a number of pieces.
//!
//! No rule reads it: it says what people are told, and never who enters when. Invariants: every [`Stock`] is within the limits below,
//! and no two of its tiers have the same id.

use std::{collections::BTreeSet, fmt};

use crate::{Notice, NoticeFault};

/// What a zone has left, in the order in which people are told. Without tiers, people are told nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stock(Vec<Tier>);

/// Pieces of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name among the tiers of the zone, for programs.
    pub id: TierId,
    /// Its name for people, by language.
    pub label: Label,
    /// What a piece costs, if that is told.
    pub price: Option<Price>,
    /// How many pieces are left, up to [`Tier::REMAINING_MAX`]; 0 if it is sold out, none if nobody knows.
    pub remaining: Option<u32>,
}

/// The name of a tier: 1 to [`TierId::MAX_LEN`] characters of `A-Z a-z 0-9 _ -`, so no text needs an escape for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierId(Box<str>);

/// A short text per language: at least one. It is one line, of at most [`Label::TEXT_MAX`] characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(Notice);

/// The cheapest and the dearest piece of a tier, in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    currency: [u8; 3],
    from: Amount,
    to: Amount,
}

/// An amount of money as it was written, so that no digit changes: up to 9 digits, and up to 3 behind a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount(Box<str>);

/// Why something is not a valid stock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StockFault {
    /// Too many tiers.
    #[error("there are {count} tiers, and {max} are the most", max = Stock::TIERS_MAX)]
    Tiers {
        /// The number of tiers.
        count: usize,
    },
    /// Two tiers have one id.
    #[error("the tier `{0}` is there twice")]
    Twice(TierId),
    /// Not the id of a tier.
    #[error("the id of a tier is 1 to {max} of A-Z a-z 0-9 _ -", max = TierId::MAX_LEN)]
    Id,
    /// The label has no language.
    #[error("a label has a text in at least one language, as in {{\"en\": \"Floor\"}}")]
    NoLabel,
    /// A text of the label is too long, or has more than one line.
    #[error("the text in `{language}` must be one line of at most {max} characters", max = Label::TEXT_MAX)]
    Label {
        /// The text's language.
        language: String,
    },
    /// The label is not a text by language.
    #[error(transparent)]
    Text(#[from] NoticeFault),
    /// Not a currency.
    #[error("a currency is three capital letters, as in KRW or GBP")]
    Currency,
    /// Not an amount.
    #[error("an amount is up to 9 digits, with up to 3 behind a point, as in \"45000\" or \"59.50\"")]
    Amount,
    /// The range of the price has its ends in the wrong order.
    #[error("the price begins at {from} and ends at {to}; write the lower end first")]
    Range {
        /// The lower end, as it was given.
        from: Amount,
        /// The upper end.
        to: Amount,
    },
}

impl TierId {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 32;

    /// Reads a name.
    ///
    /// # Errors
    /// [`StockFault::Id`].
    pub fn parse(text: &str) -> Result<Self, StockFault> {
        let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        match (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(right) {
            true => Ok(Self(text.into())),
            false => Err(StockFault::Id),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Label {
    /// The longest text, in characters.
    pub const TEXT_MAX: usize = 80;

    /// Makes a label of languages and texts; see [`Notice::new`].
    ///
    /// # Errors
    /// The first [`StockFault`].
    pub fn new<L: AsRef<str>, T: AsRef<str>>(
        texts: impl IntoIterator<Item = (L, T)>,
    ) -> Result<Self, StockFault> {
        // The lengths that a notice may have are others.
        let texts = Notice::new(texts).map_err(|fault| match fault {
            NoticeFault::Length { language, .. } => StockFault::Label { language },
            other => other.into(),
        })?;
        let long = |(_, text): &(&str, &str)| text.contains('\n') || text.chars().count() > Self::TEXT_MAX;
        let too_long = texts.iter().find(long).map(|(language, _)| language.to_owned());
        match too_long {
            Some(language) => Err(StockFault::Label { language }),
            None if texts.is_empty() => Err(StockFault::NoLabel),
            None => Ok(Self(texts)),
        }
    }

    /// Languages and texts, sorted by language.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter()
    }
}

impl Amount {
    /// Reads an amount.
    ///
    /// # Errors
    /// [`StockFault::Amount`].
    pub fn parse(text: &str) -> Result<Self, StockFault> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        match digits(whole, 9) && digits(part, 3) {
            true => Ok(Self(text.into())),
            false => Err(StockFault::Amount),
        }
    }

    /// The amount as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The amount in thousandths.
    fn thousandths(&self) -> u64 {
        let (whole, part) = self.0.split_once('.').unwrap_or((&self.0, ""));
        format!("{whole}{part:0<3}").parse().expect("it has up to 12 digits")
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Price {
    /// A price range. Both ends may be the same.
    ///
    /// # Errors
    /// [`StockFault::Currency`], [`StockFault::Range`].
    pub fn new(currency: &str, from: Amount, to: Amount) -> Result<Self, StockFault> {
        let letters = <[u8; 3]>::try_from(currency.as_bytes()).map_err(|_| StockFault::Currency)?;
        if !letters.iter().all(u8::is_ascii_uppercase) {
            return Err(StockFault::Currency);
        }
        match from.thousandths() <= to.thousandths() {
            true => Ok(Self { currency: letters, from, to }),
            false => Err(StockFault::Range { from, to }),
        }
    }

    /// The currency, as in ISO 4217.
    #[must_use]
    pub fn currency(&self) -> &str {
        std::str::from_utf8(&self.currency).expect("it is three letters")
    }

    /// The cheapest piece.
    #[must_use]
    pub fn from(&self) -> &Amount {
        &self.from
    }

    /// The dearest piece.
    #[must_use]
    pub fn to(&self) -> &Amount {
        &self.to
    }
}

impl Tier {
    /// The largest number of pieces.
    pub const REMAINING_MAX: u32 = 1_000_000_000;
}

impl Stock {
    /// The largest number of tiers.
    pub const TIERS_MAX: usize = 16;

    /// A stock of these tiers.
    ///
    /// # Errors
    /// [`StockFault::Tiers`], [`StockFault::Twice`].
    pub fn new(tiers: Vec<Tier>) -> Result<Self, StockFault> {
        if tiers.len() > Self::TIERS_MAX {
            return Err(StockFault::Tiers { count: tiers.len() });
        }
        let mut known = BTreeSet::new();
        match tiers.iter().find(|tier| !known.insert(&tier.id)) {
            Some(twice) => Err(StockFault::Twice(twice.id.clone())),
            None => Ok(Self(tiers)),
        }
    }

    /// The tiers, in their order.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.0
    }

    /// Whether people are told nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many pieces are left of everything; none if that is not known of some tier, or there is no tier.
    ///
    /// # Examples
    /// ```
    /// use admission::{Label, Stock, Tier, TierId};
    /// let tier = |id, remaining| {
    ///     let label = Label::new([("en", id)]).expect("a label");
    ///     Tier { id: TierId::parse(id).expect("an id"), label, price: None, remaining }
    /// };
    /// let stock = |tiers| Stock::new(tiers).expect("a stock");
    /// assert_eq!(stock(vec![tier("floor", Some(3)), tier("balcony", Some(0))]).total(), Some(3));
    /// assert_eq!(stock(vec![tier("floor", Some(3)), tier("balcony", None)]).total(), None);
    /// assert_eq!(Stock::default().total(), None);
    /// ```
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        let mut tiers = self.0.iter().map(|tier| tier.remaining.map(u64::from));
        if self.is_empty() { None } else { tiers.try_fold(0, |sum, of_tier| Some(sum + of_tier?)) }
    }

    /// The same tiers with other numbers: those that `remaining` names. No number is above [`Tier::REMAINING_MAX`].
    ///
    /// # Errors
    /// The first id that no tier has.
    pub fn with_remaining<'a>(
        &self,
        remaining: impl IntoIterator<Item = (&'a str, Option<u32>)>,
    ) -> Result<Self, &'a str> {
        let mut tiers = self.0.clone();
        for (id, number) in remaining {
            debug_assert!(number.is_none_or(|number| number <= Tier::REMAINING_MAX), "{number:?}");
            let tier = tiers.iter_mut().find(|tier| tier.id.as_str() == id).ok_or(id)?;
            tier.remaining = number;
        }
        Ok(Self(tiers))
    }

    /// Whether something besides numbers differs, or a tier is sold out now that was not, or the other way round: what is worth a
    /// record. A number that only becomes smaller is not.
    #[must_use]
    pub fn differs_notably(&self, other: &Self) -> bool {
        let told = |tier: &Tier| {
            let Tier { id, label, price, remaining } = tier.clone();
            (id, label, price, remaining.map(|number| number == 0))
        };
        !self.0.iter().map(told).eq(other.0.iter().map(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> Result<Label, StockFault> {
        Label::new([("en", text)])
    }

    fn tier(id: &str, remaining: Option<u32>) -> Tier {
        let id = TierId::parse(id).expect("an id");
        Tier { id, label: label("Floor").expect("a label"), price: None, remaining }
    }

    fn amount(text: &str) -> Amount {
        Amount::parse(text).expect("an amount")
    }

    #[test]
    fn ids_labels_and_prices_have_limits() {
        let longest = "a".repeat(TierId::MAX_LEN);
        for good in ["a", "Floor_1", "x-y", &longest] {
            assert!(TierId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a.b", "\"", "\\", "\u{202e}", "층", &format!("{longest}a")] {
            assert_eq!(TierId::parse(bad), Err(StockFault::Id), "{bad}");
        }
        assert!(label(&"가".repeat(Label::TEXT_MAX)).is_ok(), "characters count, not bytes");
        let is_long = |text: &str| matches!(label(text), Err(StockFault::Label { .. }));
        assert!(is_long(&"a".repeat(Label::TEXT_MAX + 1)) && is_long("a\nb"));
        assert!(matches!(label("a\tb"), Err(StockFault::Text(NoticeFault::Control { .. }))));
        assert_eq!(Label::new::<&str, &str>([]), Err(StockFault::NoLabel));
        for good in ["0", "45000", "59.5", "59.50", "0.125", "999999999.999"] {
            assert!(Amount::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "5.", ".5", "-1", "+1", "1e3", "1,5", "1.2345", "1234567890", "١", " 1", "NaN"]
        {
            assert_eq!(Amount::parse(bad), Err(StockFault::Amount), "{bad}");
        }
        let price = |currency, from, to| Price::new(currency, amount(from), amount(to));
        assert!(price("GBP", "40", "95.50").is_ok() && price("KRW", "45000", "45000.000").is_ok());
        assert!(
            matches!(price("GBP", "9.51", "9.5"), Err(StockFault::Range { .. })),
            "by value, not as text"
        );
        assert!(price("GBP", "9.5", "10").is_ok(), "by value, not as text");
        for bad in ["", "gbp", "GBPS", "£", "G1P"] {
            assert_eq!(price(bad, "1", "2"), Err(StockFault::Currency), "{bad}");
        }
    }

    #[test]
    fn tiers_are_few_and_have_different_ids() {
        let many = |count: usize| (0..count).map(|at| tier(&format!("t{at}"), Some(1))).collect();
        assert!(Stock::new(many(Stock::TIERS_MAX)).is_ok());
        assert_eq!(Stock::new(many(17)), Err(StockFault::Tiers { count: 17 }));
        let twice = vec![tier("a", None), tier("b", None), tier("a", Some(1))];
        assert!(matches!(Stock::new(twice), Err(StockFault::Twice(id)) if id.as_str() == "a"));
    }

    #[test]
    fn the_total_cannot_overflow() {
        let full = (0..Stock::TIERS_MAX).map(|at| tier(&format!("t{at}"), Some(Tier::REMAINING_MAX)));
        assert_eq!(Stock::new(full.collect()).expect("a stock").total(), Some(16_000_000_000));
    }

    #[test]
    fn only_notable_differences_are_worth_a_record() {
        let stock = |floor, balcony| {
            Stock::new(vec![tier("floor", floor), tier("balcony", balcony)]).expect("a stock")
        };
        let before = stock(Some(9), Some(1));
        assert!(!before.differs_notably(&stock(Some(1), Some(200))));
        for (floor, balcony) in [(Some(9), Some(0)), (None, Some(1))] {
            assert!(before.differs_notably(&stock(floor, balcony)), "{floor:?} {balcony:?}");
        }
        assert!(before.differs_notably(&Stock::default()));
        let sold_out = before.with_remaining([("balcony", Some(0))]).expect("known");
        assert!(before.differs_notably(&sold_out) && sold_out.differs_notably(&before));
        assert_eq!(sold_out.with_remaining([("balcony", Some(1))]), Ok(before.clone()));
        assert_eq!(before.with_remaining([("stalls", Some(0))]), Err("stalls"));
    }
}
