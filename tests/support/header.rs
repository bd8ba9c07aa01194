//! The numbers of a zone's header in Redis, by the names that `lua/zone.lua` gives them.

use std::{collections::BTreeMap, sync::LazyLock};

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let text = include_str!("../../lua/zone.lua");
    let fields = text.split_once("FIELDS = {").expect("there").1.split_once('}').expect("ends").0;
    fields.split(',').map(|name| name.trim().trim_matches('\'')).filter(|name| !name.is_empty()).collect()
});

/// The numbers that a header has.
pub(crate) fn numbers(header: &[u8]) -> BTreeMap<&'static str, i64> {
    let numbers =
        header.chunks_exact(8).map(|number| i64::from_be_bytes(number.try_into().expect("8 bytes")));
    NAMES.iter().copied().zip(numbers).collect()
}
