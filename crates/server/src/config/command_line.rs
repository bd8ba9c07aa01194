//! What the process was called for.

use std::{ffi::OsString, path::PathBuf};

use super::{ConfigFault, Sources, commands, settings};
use crate::{
    access::Role,
    audit,
    remote::{Call, Server},
};

/// What the process was called for.
#[derive(Debug)]
pub enum Order {
    /// Serve with these sources of configuration.
    Serve(Sources),
    /// Only check these sources.
    Check(Sources),
    /// Put the zones of these sources into the store.
    ApplyZones(Sources),
    /// List the zones that the store keeps.
    ListZones(Sources),
    /// Verify the audit log in these paths, or the configured one where there are none, against its chain and a head.
    VerifyAudit(Sources, Vec<PathBuf>, Option<audit::Head>),
    /// Ask a running server.
    Ask {
        /// The call.
        call: Call,
        /// The server.
        server: Server,
    },
    /// Make a token for the admin API.
    NewToken {
        /// The token's name.
        name: String,
        /// The role that the token gives.
        role: Role,
    },
    /// Print this and end: help, the version, or a document.
    Print(String),
}

/// Reads the command line. `variable` reads the environment; `open_files` is the process's limit of open files.
///
/// # Errors
/// A [`ConfigFault`] for arguments and variables that are not valid.
pub fn order(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
    open_files: u64,
) -> Result<Order, ConfigFault> {
    let matches = match settings::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => return Ok(Order::Print(e.render().to_string())),
        Err(e) => {
            let text = e.render().to_string();
            let mut lines = text.lines();
            let mut what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            if what.ends_with(':') {
                what = format!("{what} {}", lines.next().unwrap_or_default().trim());
            }
            return Err(ConfigFault(format!("{what}; see weir --help")));
        }
    };
    let (mut word, mut args) = matches.subcommand().unwrap_or(("serve", &matches));
    if matches!(word, "zones" | "audit" | "token")
        && let Some(inner) = args.subcommand()
    {
        (word, args) = inner;
    }
    if let Some(order) = commands::order(word, args, &variable)? {
        return Ok(order);
    }
    let named = |name| args.try_get_one::<String>(name).ok().flatten().cloned();
    let mut file = named("config").or_else(|| variable("WEIR_CONFIG")).map(PathBuf::from);
    let mut zones_file = None;
    let argument = named("file").map(PathBuf::from);
    match word {
        "apply" if file.is_some() => zones_file = argument,
        _ => file = argument.or(file),
    }
    let head = named("head").map(|text| {
        text.parse::<audit::Head>()
            .map_err(|what| ConfigFault(format!("--head: `{text}` is no head; {what}")))
    });
    let outside = settings::outside_the_file(args, variable)?;
    let sources = Sources { file, zones_file, outside, open_files };
    Ok(match word {
        "check-config" => Order::Check(sources),
        "apply" => Order::ApplyZones(sources),
        "list" => Order::ListZones(sources),
        "verify" => {
            let paths = args.get_many::<String>("path").into_iter().flatten().map(PathBuf::from);
            Order::VerifyAudit(sources, paths.collect(), head.transpose()?)
        }
        _ => Order::Serve(sources),
    })
}

/// The names among these that look like variables of settings and are none.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    // Kubernetes describes a service called `weir` to every container in variables of these forms.
    let of_kubernetes = |name: &str| name.starts_with("WEIR_SERVICE_") || name.starts_with("WEIR_PORT");
    let is_other = |name: &str| matches!(name, "WEIR_CONFIG" | commands::TOKEN_VARIABLE);
    let known = |name: &str| is_other(name) || settings::SETTINGS.iter().any(|s| s.variable() == name);
    names.filter(|name| name.starts_with("WEIR_") && !known(name) && !of_kubernetes(name)).collect()
}
