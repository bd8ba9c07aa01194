//! The admin tokens of a configuration file. Each has a unique name, a role, and the digest of the token.

use check::digest::SecretDigest;
use toml::{Spanned, de::DeValue};

use super::{Lines, in_order, unknown, wrong_type};
use crate::{
    access::{AdminToken, MAX_TOKENS, Role},
    config::{ConfigFault, settings::Kind, values::one_of},
};

const TOKEN_FIELDS: [&str; 3] = ["name", "role", "sha256"];

/// Reads all tokens, and checks that they do not contradict each other.
pub(super) fn all(
    lines: &Lines<'_>,
    tables: &[Spanned<DeValue<'_>>],
) -> Result<Vec<AdminToken>, ConfigFault> {
    let mut tokens: Vec<AdminToken> = Vec::new();
    for table in tables {
        let (here, token) = (lines.at(&table.span(), "admin_token"), token(lines, table)?);
        if tokens.len() == MAX_TOKENS {
            return Err(here.fault(format!("there are more than {MAX_TOKENS} tokens")));
        }
        if tokens.iter().any(|other| other.name == token.name) {
            return Err(here.fault(format!("`{}` is the name of two tokens; change one", token.name)));
        }
        if let Some(other) = tokens.iter().find(|other| other.sha256 == token.sha256) {
            let what = format!("`{}` and `{}` have the same token; make another one", other.name, token.name);
            return Err(here.fault(what));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn token(lines: &Lines<'_>, table: &Spanned<DeValue<'_>>) -> Result<AdminToken, ConfigFault> {
    let here = lines.at(&table.span(), "admin_token");
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(here.fault("tokens are written as [[admin_token]] tables"));
    };
    let (mut name, mut role, mut sha256) = (None, None, None);
    for (key, value) in in_order(fields) {
        let field = key.get_ref().as_ref();
        let origin = lines.at(&key.span(), &format!("admin_token.{field}"));
        if !TOKEN_FIELDS.contains(&field) {
            return Err(origin.fault(unknown(field, TOKEN_FIELDS.into_iter())));
        }
        let DeValue::String(text) = value.get_ref() else {
            return Err(origin.fault(wrong_type(Kind::Text, value.get_ref())));
        };
        match field {
            "name" if !AdminToken::is_name(text) => {
                return Err(origin.fault("a token's name is 1 to 64 of A-Z a-z 0-9 _ . @ -, and not `local`"));
            }
            "name" => name = Some(text.to_string()),
            "role" => role = Some(one_of(Role::ALL, text, &origin)?),
            // The value is not shown, because it may be the token itself.
            _ => {
                let what =
                    "is not the SHA-256 of a token, 64 hex digits; `weir token new` prints it with the token";
                sha256 = Some(SecretDigest::parse(text).ok_or_else(|| origin.fault(what))?);
            }
        }
    }
    let missing =
        |field: &str| here.fault(format!("has no `{field}`; `weir token new` prints all that it needs"));
    Ok(AdminToken {
        name: name.ok_or_else(|| missing("name"))?,
        role: role.ok_or_else(|| missing("role"))?,
        sha256: sha256.ok_or_else(|| missing("sha256"))?,
    })
}
