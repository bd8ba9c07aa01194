//! The cells of a configuration file. Each has a name, a store and its tenants. No two cells share a name or a tenant.

use admission::ZoneId;
use gate::cells::REST;
use toml::{Spanned, de::DeValue};

use super::{Lines, in_order, unknown, wrong_type};
use crate::{
    config::{ConfigFault, settings::Kind, values::store_address},
    stores::CellSettings,
};

const MAX_CELLS: usize = 64;
const MAX_NAME_LEN: usize = 32;
const CELL_FIELDS: [&str; 3] = ["name", "store", "tenants"];

/// Reads all cells, and checks that they do not contradict each other.
pub(super) fn all(
    lines: &Lines<'_>,
    tables: &[Spanned<DeValue<'_>>],
) -> Result<Vec<CellSettings>, ConfigFault> {
    let mut cells: Vec<CellSettings> = Vec::new();
    for table in tables {
        let (here, cell) = (lines.at(&table.span(), "cell"), cell(lines, table)?);
        if cells.len() == MAX_CELLS {
            return Err(here.fault(format!("there are more than {MAX_CELLS} cells")));
        }
        if cells.iter().any(|other| other.name == cell.name) {
            return Err(here.fault(format!("`{}` is the name of two cells; change one", cell.name)));
        }
        let taken = |tenant: &&String| cells.iter().any(|other| other.tenants.contains(tenant));
        if let Some(tenant) = cell.tenants.iter().find(taken) {
            return Err(here.fault(format!("the tenant `{tenant}` has another cell already; name it once")));
        }
        cells.push(cell);
    }
    Ok(cells)
}

fn cell(lines: &Lines<'_>, table: &Spanned<DeValue<'_>>) -> Result<CellSettings, ConfigFault> {
    let here = lines.at(&table.span(), "cell");
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(here.fault("cells are written as [[cell]] tables"));
    };
    let (mut name, mut store, mut tenants) = (None, None, None);
    for (key, value) in in_order(fields) {
        let field = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("cell.{field}"));
        let wrong = |kind| origin.fault(wrong_type(kind, value.get_ref()));
        match (field, value.get_ref()) {
            ("name", DeValue::String(text)) => {
                let right = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
                if !(1..=MAX_NAME_LEN).contains(&text.len()) || !text.bytes().all(right) {
                    return Err(origin.fault("a cell's name is 1 to 32 of A-Z a-z 0-9 _ . -"));
                }
                name = Some(text.to_string());
            }
            ("store", DeValue::String(text)) => store = Some(store_address(text, &origin)?),
            ("tenants", DeValue::Array(items)) => {
                let text = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
                let texts: Vec<String> =
                    items.iter().map(text).collect::<Option<_>>().ok_or_else(|| wrong(Kind::List))?;
                let right = |tenant: &&String| {
                    tenant.is_empty()
                        || *tenant == REST
                        || !tenant.contains(':') && ZoneId::parse(tenant).is_ok()
                };
                if let Some(bad) = texts.iter().find(|tenant| !right(tenant)) {
                    let what = format!(
                        "`{bad}` is not a tenant: the part of a zone's id before the first `:`, `\"\"` for those \
                         without one, `\"*\"` for all others"
                    );
                    return Err(origin.fault(what));
                }
                tenants = Some(texts).filter(|texts| !texts.is_empty());
            }
            ("name" | "store", _) => return Err(wrong(Kind::Text)),
            ("tenants", _) => return Err(wrong(Kind::List)),
            (other, _) => return Err(origin.fault(unknown(other, CELL_FIELDS.into_iter()))),
        }
    }
    let missing = |field: &str| here.fault(format!("has no `{field}`; give it one"));
    Ok(CellSettings {
        name: name.ok_or_else(|| missing("name"))?,
        address: store.ok_or_else(|| missing("store"))?,
        tenants: tenants.ok_or_else(|| missing("tenants"))?,
    })
}
