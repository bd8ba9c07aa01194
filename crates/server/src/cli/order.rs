//! What the process was called for.

use std::{ffi::OsString, net::IpAddr, path::PathBuf};

use admission::parse_instant;
use check::question::Question;
use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use gate::definitions::ApplyOptions;
use shown::without_quoted_secrets;

use super::{
    arguments::{self, DEFAULT_SERVER, TOKEN_VARIABLE},
    draw::Draw,
    route::NewBypass,
};
use crate::{
    access::{AdminToken, Role},
    config::{self, ConfigFault, Origin, Sources, not_empty},
    event_report,
    http::openapi::Document,
    remote::{Call, Format, Server},
    secret::Secret,
};

/// Which server a command calls that reads a configuration, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerIs {
    /// The one that `--admin` names.
    Named,
    /// The one of this configuration's `admin_listen`.
    OfConfiguration,
}

/// What the process was called for.
#[derive(Debug)]
pub enum Order {
    /// Serve with these sources of configuration.
    Serve(Sources),
    /// Only check these sources.
    Check(Sources),
    /// Report what is dangerous in these sources and in the store that they name.
    Doctor(Sources),
    /// Put the zones of these sources into the store.
    ApplyZones(Sources, ApplyOptions),
    /// List the zones that the store keeps.
    ListZones(Sources),
    /// Verify the audit log in these paths against its chain and a head. Without paths, the configured log.
    VerifyAudit(Sources, Vec<PathBuf>, Option<audit::Head>),
    /// Verify a published draw.
    VerifyDraw(Draw),
    /// Say which route of these sources decides about a request.
    ExplainRoute(Sources, Question),
    /// Make a bypass token with the keys of these sources.
    NewBypass(Sources, NewBypass),
    /// Call a running server, and print its reply in this format.
    Call(Call, Server, Format),
    /// Write a report of an event, with the audit log of these sources.
    ReportEvent(event_report::Wanted, Sources, Server, ServerIs),
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

impl Order {
    /// Whether this changes nothing, and so means nothing where nobody sees what it prints.
    #[must_use]
    pub fn only_shows(&self) -> bool {
        match self {
            Self::Serve(_) => false,
            Self::ApplyZones(_, options) => options.dry_run,
            Self::Call(call, ..) => !call.changes(),
            Self::ReportEvent(wanted, ..) => wanted.is_printed(),
            _ => true,
        }
    }
}

/// Reads the command line. `variable` reads the environment; `open_files` is the process's limit of open files.
///
/// # Errors
/// A [`ConfigFault`] for arguments and variables that are not valid.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
    open_files: u64,
) -> Result<Order, ConfigFault> {
    let given: Vec<OsString> = args.into_iter().collect();
    let matches = match arguments::command().try_get_matches_from(&given) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => return Ok(Order::Print(e.render().to_string())),
        Err(e) => return Err(fault(&e, &given)),
    };
    let (mut word, mut args) = matches.subcommand().unwrap_or(("serve", &matches));
    let of = word;
    if matches!(word, "zones" | "audit" | "draw" | "token" | "route" | "stock" | "event")
        && let Some(inner) = args.subcommand()
    {
        (word, args) = inner;
    }
    let args = Arguments(args);
    if of == "draw" {
        let record = args.text("record").unwrap_or_default().into();
        let receipts = args.texts("receipt").into_iter().map(PathBuf::from).collect();
        let draw = Draw::new(record, receipts, args.text("key").as_deref(), format(&args))?;
        return Ok(Order::VerifyDraw(draw));
    }
    if of == "route" {
        return route(word, &args, variable, open_files);
    }
    if of == "event" {
        let file = |name| args.text(name).map(PathBuf::from);
        let begins = args.text("begins");
        if let Some(Err(fault)) = begins.as_deref().map(parse_instant) {
            return Err(ConfigFault::new(format!("--begins: {:?} {fault}", begins.unwrap_or_default())));
        }
        let wanted = event_report::Wanted {
            zone: args.text("zone").unwrap_or_default(),
            event: args.text("event").unwrap_or_default(),
            begins,
            html: file("out"),
            json: file("json"),
        };
        let server = server(&args, &variable);
        let named = if args.text("admin").is_some() { ServerIs::Named } else { ServerIs::OfConfiguration };
        return Ok(Order::ReportEvent(wanted, sources(word, &args, variable, open_files)?, server, named));
    }
    let zone = || args.text("zone").unwrap_or_default();
    let fields = || args.pairs("FIELD=VALUE", "admit_per_minute=600");
    let dry_run = args.is_set("dry-run");
    let call = match word {
        "show" if of == "stock" => Call::Stock(zone()),
        "set" if of == "stock" => {
            Call::SetStock { zone: zone(), numbers: args.pairs("TIER=NUMBER", "floor=12")?, dry_run }
        }
        "apply" if of == "stock" => {
            let file = args.text("file").unwrap_or_default().into();
            Call::ApplyStock { zone: zone(), file, dry_run }
        }
        // The arguments name a store, so the store is asked. A store in the environment is a server's.
        "list" if args.text("config").is_some() || args.text("store").is_some() => {
            if args.text("output").is_some() {
                return Err(ConfigFault::new(
                    "--output is for the reply of a server, and not for --config or --store".to_owned(),
                ));
            }
            return sources(word, &args, variable, open_files).map(Order::ListZones);
        }
        "list" => Call::List,
        "show" => Call::Show(zone()),
        "set" => Call::Set { zone: zone(), fields: fields()?, dry_run },
        "create" => Call::Create { zone: zone(), fields: fields()?, dry_run },
        "delete" => Call::Delete { zone: zone(), dry_run },
        "stats" => Call::Stats { zone: args.text("zone"), watch: args.is_set("watch") },
        "changes" => Call::Changes(args.text("zone")),
        "servers" => Call::Servers,
        "drain" => Call::Drain { draining: !args.is_set("undo") },
        "new" => return new_token(&args),
        "openapi" => {
            let wanted = args.text("document").unwrap_or_default();
            let document = Document::ALL.into_iter().find(|(_, word)| *word == wanted);
            return Ok(Order::Print(document.map(|(document, _)| document.text()).unwrap_or_default()));
        }
        "verify" => {
            let head = args.text("head").map(|text| {
                text.parse::<audit::Head>()
                    .map_err(|what| ConfigFault::new(format!("--head: `{text}` is not a head; {what}")))
            });
            let paths = args.0.get_many::<String>("path").into_iter().flatten().map(PathBuf::from).collect();
            let sources = sources(word, &args, variable, open_files)?;
            return Ok(Order::VerifyAudit(sources, paths, head.transpose()?));
        }
        _ => {
            let sources = sources(word, &args, variable, open_files)?;
            return Ok(match word {
                "check-config" => Order::Check(sources),
                "doctor" => Order::Doctor(sources),
                "apply" => {
                    Order::ApplyZones(sources, ApplyOptions { dry_run, replace: args.is_set("replace") })
                }
                _ => Order::Serve(sources),
            });
        }
    };
    Ok(Order::Call(call, server(&args, variable), format(&args)))
}

/// The running server that a command calls.
fn server(args: &Arguments<'_>, variable: impl Fn(&str) -> Option<String>) -> Server {
    Server {
        url: args.text("admin").unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        token: variable(TOKEN_VARIABLE).map(Secret::new),
        token_file: args.text("token-file").map(PathBuf::from),
    }
}

/// How a server's reply is printed.
fn format(args: &Arguments<'_>) -> Format {
    if args.text("output").is_some() { Format::Json } else { Format::Text }
}

/// Reads a command about routes.
fn route(
    word: &str,
    args: &Arguments<'_>,
    variable: impl Fn(&str) -> Option<String>,
    open_files: u64,
) -> Result<Order, ConfigFault> {
    let call = match word {
        "list" => Call::Routes,
        "set" => {
            let routes = config::routes_of(args.text("file").unwrap_or_default().as_ref())?;
            Call::SetRoutes { routes, dry_run: args.is_set("dry-run") }
        }
        "explain" => {
            let question = Question {
                url: args.text("url").unwrap_or_default(),
                method: args.text("method").unwrap_or_default(),
                headers: args.texts("header"),
                address: args.address("address").unwrap_or(Question::ANY_ADDRESS),
                tokens: args.texts("with-token"),
            };
            // The arguments name a server, so the server is asked.
            if args.text("admin").is_none() && args.text("token-file").is_none() {
                if args.text("output").is_some() {
                    return Err(ConfigFault::new(
                        "--output is for the reply of a server: name one with --admin".to_owned(),
                    ));
                }
                return Ok(Order::ExplainRoute(sources(word, args, variable, open_files)?, question));
            }
            Call::ExplainRoute(question)
        }
        _ => {
            let (name, valid) =
                (args.text("name").unwrap_or_default(), args.text("valid").unwrap_or_default());
            let wanted = NewBypass::new(name, &valid, args.address("only-from"))?;
            return Ok(Order::NewBypass(sources(word, args, variable, open_files)?, wanted));
        }
    };
    Ok(Order::Call(call, server(args, variable), format(args)))
}

/// The first line of the parser's message; it has no more that says what is wrong. Then what to do, and whose help to read.
fn fault(error: &clap::Error, given: &[OsString]) -> ConfigFault {
    let text = error.render().to_string();
    let mut lines = text.lines();
    let mut what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if what.ends_with(':') {
        what = format!("{what} {}", lines.next().unwrap_or_default().trim());
    }
    if let Some(values) = text.lines().find_map(|line| line.trim().strip_prefix("[possible values: ")) {
        what = format!("{what}: one of {}", values.trim_end_matches(']'));
    }
    let context = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    let wrong = context.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    });
    let (path, command) = named(given);
    let is_unknown = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    let before = match error.get(ContextKind::PriorArg) {
        Some(ContextValue::String(option)) => Some(option),
        Some(ContextValue::Strings(options)) => options.first(),
        _ => None,
    };
    let hint = match before {
        // Options without a command are those of `serve`.
        Some(option) if error.get(ContextKind::InvalidSubcommand).is_some() => hint(option, &path, &command),
        _ => wrong.filter(|_| is_unknown).and_then(|wrong| hint(wrong, &path, &command)),
    };
    let what = format!("{what}{}; see {path} --help", hint.unwrap_or_default());
    ConfigFault::new(without_quoted_secrets(what, error))
}

/// The words of the command that was meant, and the command.
fn named(given: &[OsString]) -> (String, Command) {
    let mut command = arguments::command();
    let mut path = command.get_name().to_owned();
    for word in given.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(inner) = command.find_subcommand(word).cloned() {
            path = format!("{path} {word}");
            command = inner;
        }
    }
    (path, command)
}

/// What to do about a word that the command does not take at its place.
fn hint(wrong: &str, path: &str, command: &Command) -> Option<String> {
    let option = wrong.split(['=', ' ']).next().unwrap_or_default();
    if option.starts_with('-') {
        let place = place_of(option, path, command)?;
        return Some(format!(": it goes behind the command, as in `{place} {option}`"));
    }
    let is_file = wrong.contains(['.', '/']) && !wrong.contains("://");
    let takes_file = command.get_arguments().any(|arg| arg.get_long() == Some("config"));
    (is_file && takes_file)
        .then(|| format!(": a configuration file is named with --config, as in `--config {wrong}`"))
}

/// The first command that has this option: this one, or one below it.
fn place_of(option: &str, path: &str, command: &Command) -> Option<String> {
    let is_it = |arg: &Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long))
            || short.as_deref() == Some(option)
    };
    if command.get_arguments().any(is_it) {
        return Some(path.to_owned());
    }
    command
        .get_subcommands()
        .find_map(|inner| place_of(option, &format!("{path} {}", inner.get_name()), inner))
}

/// Where the configuration comes from.
fn sources(
    word: &str,
    args: &Arguments<'_>,
    variable: impl Fn(&str) -> Option<String>,
    open_files: u64,
) -> Result<Sources, ConfigFault> {
    let by_flag = || Some((args.text("config")?, Origin::Flag("config".to_owned())));
    let by_variable = || Some((variable("WEIR_CONFIG")?, Origin::Variable("WEIR_CONFIG".to_owned())));
    let named = by_flag().or_else(by_variable);
    let named = named.map(|(text, origin)| not_empty(&text, &origin).map(PathBuf::from)).transpose()?;
    let argument = args.text("file").map(PathBuf::from);
    // `zones apply` takes the settings from the named file and the zones from its argument.
    let (file, zones_file) = match word {
        "apply" if named.is_some() => (named, argument),
        _ => (argument.or(named), None),
    };
    Sources::new(file, zones_file, args.0, variable, open_files)
}

fn new_token(args: &Arguments<'_>) -> Result<Order, ConfigFault> {
    let name = args.text("name").unwrap_or_default();
    if !AdminToken::is_name(&name) {
        return Err(ConfigFault::new(format!(
            "--name: `{name}` is not a valid name; use 1 to 64 of A-Z a-z 0-9 _ . @ -, and not `local`"
        )));
    }
    let wanted = args.text("role").unwrap_or_default();
    let role = Role::ALL.into_iter().find(|(_, word)| *word == wanted);
    Ok(Order::NewToken { name, role: role.map_or(Role::Viewer, |(role, _)| role) })
}

/// The arguments of a command. A command need not have an argument of the name that is asked for.
struct Arguments<'a>(&'a ArgMatches);

impl Arguments<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.try_get_one::<String>(name).ok().flatten().cloned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.0.get_many::<String>(name).into_iter().flatten().cloned().collect()
    }

    fn address(&self, name: &str) -> Option<IpAddr> {
        self.0.get_one::<IpAddr>(name).copied()
    }

    fn is_set(&self, name: &str) -> bool {
        matches!(self.0.try_get_one::<bool>(name), Ok(Some(true)))
    }

    /// The arguments of a form such as `FIELD=VALUE`.
    fn pairs(&self, form: &str, example: &str) -> Result<Vec<(String, String)>, ConfigFault> {
        let read = |text: &String| {
            let (name, value) = text.split_once('=').ok_or_else(|| {
                ConfigFault::new(format!("`{text}` is not {form}; write it as in {example}"))
            })?;
            Ok((name.to_owned(), value.to_owned()))
        };
        self.0.get_many::<String>("field").into_iter().flatten().map(read).collect()
    }
}
