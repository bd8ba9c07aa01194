//! A tier as both APIs have it, for the OpenAPI documents.
//!
//! Invariant: `stock::json` reads and writes what these shapes describe; `tests/openapi` compares the replies of a running server.
#![expect(dead_code, reason = "only the documents use these shapes")]

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// Pieces of one kind.
#[derive(ToSchema)]
pub(super) struct StockTier {
    /// 1 to 32 of A-Z a-z 0-9 _ -
    #[schema(example = "floor", min_length = 1, max_length = 32)]
    id: String,
    /// Its name by language: one line of at most 80 characters in each.
    #[schema(example = json!({"en": "Floor", "ko": "스탠딩"}))]
    label: BTreeMap<String, String>,
    #[schema(nullable = false)]
    price: Option<StockPrice>,
    /// How many pieces are left; 0 if it is sold out, null if nobody knows.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    remaining: Option<u32>,
}

/// The cheapest and the dearest piece, as texts, so that no digit changes.
#[derive(ToSchema)]
pub(super) struct StockPrice {
    /// ISO 4217
    #[schema(example = "GBP", min_length = 3, max_length = 3)]
    currency: String,
    #[schema(example = "40.00", min_length = 1, max_length = 13)]
    from: String,
    #[schema(example = "95.50", min_length = 1, max_length = 13)]
    to: String,
}
