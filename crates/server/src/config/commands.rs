//! The commands that ask a running server, and those that need neither server nor configuration.
//!
//! Invariant: a token is never an argument: everybody on the machine can read a command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{ConfigFault, Order};
use crate::{
    access::{AdminToken, Role},
    http::openapi::Document,
    remote::{Call, Server},
    secret::Secret,
};

/// The variable with the token that commands show.
pub(super) const TOKEN_VARIABLE: &str = "WEIR_ADMIN_TOKEN";

const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// Which server is asked.
fn server() -> [Arg; 2] {
    [
        Arg::new("admin")
            .long("admin")
            .value_name("URL")
            .help(format!("Its admin listener [default: {DEFAULT_SERVER}]")),
        Arg::new("token-file")
            .long("token-file")
            .value_name("FILE")
            .help(format!("File with the token to show, mode 0600 [default: the one in {TOKEN_VARIABLE}]")),
    ]
}

fn zone() -> Arg {
    Arg::new("zone").value_name("ZONE").help("The zone's id")
}

fn fields() -> Arg {
    Arg::new("field")
        .value_name("FIELD=VALUE")
        .num_args(0..)
        .help("As in the configuration file: admit_per_minute=600, mode=hold; notice.en=TEXT, without a text to take it away")
}

fn dry_run() -> Arg {
    Arg::new("dry-run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Change nothing, and say what would be")
}

/// `weir zones` but for those of its commands that go to the store; `flags` name one.
pub(super) fn zones(command: Command, flags: &[Arg]) -> Command {
    let list = "List the zones of a running server; with --config or --store, those that the store keeps";
    command
        .subcommand(Command::new("list").about(list).args(server()).args(flags))
        .subcommand(
            Command::new("show")
                .about("Show a zone of a running server")
                .args(server())
                .arg(zone().required(true)),
        )
        .subcommand(
            Command::new("set")
                .about("Change a zone of a running server, and say what that does to the waits")
                .args(server())
                .arg(dry_run())
                .arg(zone().required(true))
                .arg(fields().required(true)),
        )
        .subcommand(
            Command::new("create")
                .about("Make a zone on a running server")
                .args(server())
                .arg(dry_run())
                .arg(zone().required(true))
                .arg(fields()),
        )
        .subcommand(
            Command::new("delete")
                .about("Take a zone away from a running server; its line stays in the store")
                .args(server())
                .arg(dry_run())
                .arg(zone().required(true)),
        )
}

/// All others of them.
pub(super) fn others() -> [Command; 3] {
    let words = |words: &[&'static str]| clap::builder::PossibleValuesParser::new(words.to_vec());
    let stats = Command::new("stats")
        .about("How the lines of a running server move; of one zone, by minute")
        .args(server())
        .arg(Arg::new("watch").long("watch").action(ArgAction::SetTrue).help("Again every two seconds"))
        .arg(zone());
    let new = Command::new("new")
        .about("Make a token: prints it, once, and what the configuration is to know of it")
        .arg(Arg::new("name").long("name").value_name("NAME").required(true).help("Whose it is"))
        .arg(
            Arg::new("role")
                .long("role")
                .required(true)
                .value_parser(words(&Role::ALL.map(|(_, word)| word)))
                .help(
                    "What its holder may do: see; change zones; also make and delete them, and drain servers",
                ),
        );
    let token =
        Command::new("token").about("Tokens for the admin API").subcommand_required(true).subcommand(new);
    let openapi = Command::new("openapi").about("Print the OpenAPI document of an API").arg(
        Arg::new("document")
            .value_name("API")
            .required(true)
            .value_parser(words(&Document::ALL.map(|(_, word)| word))),
    );
    [stats, token, openapi]
}

/// What a command of these stands for; none for others.
pub(super) fn order(
    word: &str,
    args: &ArgMatches,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Order>, ConfigFault> {
    let named = |name| args.try_get_one::<String>(name).ok().flatten().cloned();
    let is_set = |name| matches!(args.try_get_one::<bool>(name), Ok(Some(true)));
    let zone = || named("zone").unwrap_or_default();
    let call = match word {
        // A store that is named here is asked itself; one of the environment is that of a server.
        "list" if named("config").is_some() || named("store").is_some() => return Ok(None),
        "list" => Call::List,
        "show" => Call::Show(zone()),
        "set" => Call::Set { zone: zone(), fields: read_fields(args)?, dry_run: is_set("dry-run") },
        "create" => Call::Create { zone: zone(), fields: read_fields(args)?, dry_run: is_set("dry-run") },
        "delete" => Call::Delete { zone: zone(), dry_run: is_set("dry-run") },
        "stats" => Call::Stats { zone: named("zone"), watch: is_set("watch") },
        "new" => {
            let name = named("name").unwrap_or_default();
            if !AdminToken::is_name(&name) {
                let what = format!(
                    "--name: `{name}` is no name; say 1 to 64 of A-Z a-z 0-9 _ . @ -, and not `local`"
                );
                return Err(ConfigFault(what));
            }
            let role = named("role").unwrap_or_default();
            let role = Role::ALL
                .into_iter()
                .find(|(_, known)| *known == role)
                .map_or(Role::Viewer, |(role, _)| role);
            return Ok(Some(Order::NewToken { name, role }));
        }
        "openapi" => {
            let wanted = named("document").unwrap_or_default();
            let document = Document::ALL.into_iter().find(|(_, word)| *word == wanted);
            return Ok(document.map(|(document, _)| Order::Print(document.text())));
        }
        _ => return Ok(None),
    };
    let server = Server {
        url: named("admin").unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        token: variable(TOKEN_VARIABLE).map(Secret::new),
        token_file: named("token-file").map(PathBuf::from),
    };
    Ok(Some(Order::Ask { call, server }))
}

fn read_fields(args: &ArgMatches) -> Result<Vec<(String, String)>, ConfigFault> {
    let read = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            ConfigFault(format!("`{text}` is no field; write it as in admit_per_minute=600"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    args.get_many::<String>("field").into_iter().flatten().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn read(args: &[&str]) -> Result<Order, ConfigFault> {
        let token = |name: &str| (name == TOKEN_VARIABLE).then(|| "s3cret".to_owned());
        super::super::order(["weir"].iter().chain(args).map(OsString::from), token, 20_000)
    }

    fn call(args: &[&str]) -> Call {
        match read(args) {
            Ok(Order::Ask { call, .. }) => call,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn a_server_is_asked_unless_a_store_is_named() {
        assert_eq!(call(&["zones", "list"]), Call::List);
        assert!(matches!(read(&["zones", "list", "--store", "redis://h:1"]), Ok(Order::ListZones(_))));
        assert!(matches!(read(&["zones", "list", "--config", "weir.toml"]), Ok(Order::ListZones(_))));
        assert_eq!(call(&["zones", "show", "A"]), Call::Show("A".to_owned()));
        let fields = vec![("mode".to_owned(), "hold".to_owned()), ("notice.en".to_owned(), "a=b".to_owned())];
        let set = Call::Set { zone: "A".to_owned(), fields, dry_run: true };
        assert_eq!(call(&["zones", "set", "--dry-run", "A", "mode=hold", "notice.en=a=b"]), set);
        let create = Call::Create { zone: "A".to_owned(), fields: vec![], dry_run: false };
        assert_eq!(call(&["zones", "create", "A"]), create);
        assert_eq!(call(&["zones", "delete", "A"]), Call::Delete { zone: "A".to_owned(), dry_run: false });
        assert_eq!(call(&["stats", "--watch"]), Call::Stats { zone: None, watch: true });
        let asked = read(&["stats", "A", "--admin", "http://h:1", "--token-file", "f"]);
        let Ok(Order::Ask { server, .. }) = &asked else { panic!("{asked:?}") };
        assert_eq!((server.url.as_str(), server.token_file.as_deref()), ("http://h:1", Some("f".as_ref())));
        assert!(!format!("{asked:?}").contains("s3cret"));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (args, told) in [
            (&["zones", "set", "A"][..], "the following required arguments were not provided"),
            (&["zones", "set", "A", "mode"], "`mode` is no field; write it as in"),
            (&["zones", "show"], "the following required arguments were not provided"),
            (&["token", "new", "--name", "a b", "--role", "viewer"], "--name: `a b` is no name"),
            (&["token", "new", "--name", "local", "--role", "viewer"], "--name: `local` is no name"),
            (&["token", "new", "--name", "a", "--role", "root"], "invalid value 'root' for '--role"),
            (&["openapi", "private"], "invalid value 'private' for '<API>'"),
        ] {
            let line = read(args).expect_err("refused").to_string();
            assert!(line.starts_with(told), "{line}");
        }
        let made = read(&["token", "new", "--name", "ada", "--role", "operator"]);
        assert!(matches!(made, Ok(Order::NewToken { role: Role::Operator, .. })));
    }
}
