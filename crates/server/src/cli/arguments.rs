//! The arguments of all commands.
//!
//! Invariant: no argument takes a secret, because everybody on the machine can read a command line.

use clap::{Arg, ArgAction, ArgGroup, Command, builder::PossibleValuesParser};

use crate::{access::Role, config, http::openapi::Document};

/// The variable with the token that commands send.
pub(super) const TOKEN_VARIABLE: &str = "WEIR_ADMIN_TOKEN";

/// The admin listener that commands call where no other is given.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// The command line.
pub(super) fn command() -> Command {
    let settings = config::arguments();
    Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An admission server: a virtual waiting room that apps poll")
        .args_conflicts_with_subcommands(true)
        .args(&settings)
        .subcommand(Command::new("serve").about("Serve; the default without a command").args(&settings))
        .subcommand(
            Command::new("check-config")
                .about("Check a configuration, and print what is in force")
                .args(&settings)
                .arg(file("The file to check")),
        )
        .subcommand(
            Command::new("doctor")
                .about(
                    "Report what is dangerous in a configuration, on this machine and in the store; changes nothing; exit \
                     code 1 if there is a problem",
                )
                .args(&settings)
                .arg(file("The configuration file")),
        )
        .subcommand(zones(&settings))
        .subcommand(stock())
        .subcommand(route(&settings))
        .subcommand(audit(&settings))
        .subcommand(draw())
        .subcommand(event(&settings))
        .subcommand(stats())
        .subcommand(changes())
        .subcommand(servers())
        .subcommand(drain())
        .subcommand(token())
        .subcommand(openapi())
}

fn file(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").help(help)
}

/// The running server that is called, the token for it, and how its reply is printed.
fn server() -> [Arg; 3] {
    [
        output("Print the server's reply as one line of JSON, and not as a table"),
        Arg::new("admin")
            .long("admin")
            .value_name("URL")
            .help(format!("Address of its admin listener [default: {DEFAULT_SERVER}]")),
        Arg::new("token-file")
            .long("token-file")
            .value_name("FILE")
            .help(format!("File with the token, mode 0600 [default: the token in {TOKEN_VARIABLE}]")),
    ]
}

fn output(help: &'static str) -> Arg {
    let output = Arg::new("output").long("output").short('o').value_name("FORMAT");
    output.value_parser(words(&["json"])).help(help)
}

fn zone() -> Arg {
    Arg::new("zone").value_name("ZONE").help("The zone's id")
}

fn fields() -> Arg {
    Arg::new("field").value_name("FIELD=VALUE").num_args(0..).help(
        "As in the configuration file: admit_per_minute=600, mode=hold, notice.en=TEXT, event.ID.begins=INSTANT; an empty text removes a notice, and event.ID= the event",
    )
}

fn dry_run() -> Arg {
    Arg::new("dry-run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Change nothing, only show what would change")
}

/// Commands about zones. `apply` works on a store, `list` on a store that `settings` name, all others on a running server.
fn zones(settings: &[Arg]) -> Command {
    let on_server = |name: &'static str, about: &'static str| Command::new(name).about(about).args(server());
    let list = "List the zones of a running server; with --config or --store, those that the store keeps";
    let file = file("The file with the zones; also with the settings, unless --config names another");
    let replace = Arg::new("replace").long("replace").action(ArgAction::SetTrue).help(
        "Also end a hold, an opening that is to come, and events that are not over, where the file lacks them; without it such a zone \
         stays as it is",
    );
    Command::new("zones")
        .about("Show and change zones: those of a running server, or those that a store keeps")
        .subcommand_required(true)
        .subcommand(
            Command::new("apply")
                .about(
                    "Put a file's zones into the store, keep the store's other zones, and print what changed",
                )
                .args(settings)
                .arg(dry_run())
                .arg(replace)
                .arg(file.required(true)),
        )
        .subcommand(on_server("list", list).args(settings))
        .subcommand(on_server("show", "Show a zone of a running server").arg(zone().required(true)))
        .subcommand(
            on_server("set", "Change a zone of a running server, and print what that does to the waits")
                .arg(dry_run())
                .arg(zone().required(true))
                .arg(fields().required(true)),
        )
        .subcommand(
            on_server("create", "Create a zone on a running server")
                .arg(dry_run())
                .arg(zone().required(true))
                .arg(fields()),
        )
        .subcommand(
            on_server("delete", "Delete a zone of a running server; its line stays in the store")
                .arg(dry_run())
                .arg(zone().required(true)),
        )
}

/// Commands about what is left in a zone of a running server.
fn stock() -> Command {
    let on_zone = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).args(server()).arg(zone().required(true))
    };
    let number = Arg::new("field").value_name("TIER=NUMBER").num_args(1..).required(true).help(
        "How many pieces are left of a tier, as in floor=12; 0 if it is sold out, `unknown` if nobody knows",
    );
    let set = on_zone("set", "Set how many pieces are left of some tiers; the others stay as they are");
    let apply =
        on_zone("apply", "Replace the tiers of a zone; a file without tiers ends what people are told");
    let file = file(
        "A JSON file: {\"tiers\": [{\"id\": \"floor\", \"label\": {\"en\": \"Floor\"}, \"remaining\": 12}]}",
    );
    Command::new("stock")
        .about("Show and change what people who wait are told is left")
        .subcommand_required(true)
        .subcommand(on_zone("show", "Show what is left in a zone"))
        .subcommand(set.arg(dry_run()).arg(number))
        .subcommand(apply.arg(dry_run()).arg(file.required(true)))
}

/// Commands about routes. `token` uses the configured keys; `explain` the configuration, unless it names a running server.
fn route(settings: &[Arg]) -> Command {
    let url = Arg::new("url").value_name("URL").required(true).help("The address of the request");
    let method =
        Arg::new("method").long("method").value_name("METHOD").default_value("GET").help("Its method");
    let header = Arg::new("header")
        .long("header")
        .short('H')
        .value_name("NAME: VALUE")
        .action(ArgAction::Append)
        .help("A header field of it; may be given more than once");
    let address = ip("address").help("The client's address");
    let with_token = Arg::new("with-token")
        .long("with-token")
        .value_name("NAME")
        .action(ArgAction::Append)
        .help("As if it carried a valid bypass token of this name");
    let explain = Command::new("explain")
        .about(
            "Say which route of the configuration decides about a request, and why; with --admin, which route of a running \
             server",
        )
        .args(settings)
        .args(server())
        .args([method, header, address, with_token, url]);
    let list = Command::new("list")
        .about("List the routes of a running server in the order in which they decide, with their counts")
        .args(server());
    let set = Command::new("set")
        .about(
            "Replace the routes that come before those of the configuration file, for all servers of the store; a file \
             without [[route]] removes them",
        )
        .args(server())
        .arg(dry_run())
        .arg(file("A file with [[route]] tables only").required(true));
    Command::new("route")
        .about("Show and change the routes of proxies' requests, and make bypass tokens")
        .subcommand_required(true)
        .subcommand(list)
        .subcommand(set)
        .subcommand(explain)
        .subcommand(bypass_token(settings))
}

fn ip(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("IP").value_parser(clap::value_parser!(std::net::IpAddr))
}

fn bypass_token(settings: &[Arg]) -> Command {
    let name = Arg::new("name").long("name").value_name("NAME").required(true).help("Its name in routes");
    let valid = Arg::new("valid")
        .long("valid")
        .value_name("TIME")
        .required(true)
        .help("How long it counts: 30m, 12h or 7d; at most 400d");
    let only_from = ip("only-from")
        .help("The only client address that may use it; of IPv6 the first 64 bits [default: any]");
    Command::new("token")
        .about(
            "Make a bypass token with the configured sealing key: print it once, with a route that takes it",
        )
        .args(settings)
        .args([name, valid, only_from])
}

fn audit(settings: &[Arg]) -> Command {
    let head = Arg::new("head")
        .long("head")
        .value_name("N:HASH")
        .help("A head that the server logged: line N must exist and have this hash");
    let path = Arg::new("path")
        .value_name("PATH")
        .num_args(0..)
        .help("Its directory, or its files in their order [default: the configured audit.dir]");
    let verify = Command::new("verify")
        .about("Check that an audit log is unchanged; exit code 0 if so, 1 if not, 2 if it cannot be read")
        .args(settings)
        .arg(head)
        .arg(path);
    Command::new("audit").about("Check the audit log").subcommand_required(true).subcommand(verify)
}

fn draw() -> Command {
    let record = Arg::new("record").value_name("RECORD").required(true).help("The record of the draw");
    let receipt = Arg::new("receipt").value_name("RECEIPT").num_args(0..).help("Receipts of it");
    let key = Arg::new("key").long("key").value_name("NAME+ID+KEY").help(
        "The operator's public key, as the operator published it [default: the key in the file, which anybody may have made]",
    );
    let verify = Command::new("verify")
        .about(
            "Compute a published draw again, and hold receipts against it; calls nobody; exit code 0 if all is right, 1 if \
             not, 2 if a file cannot be read",
        )
        .arg(output("Print what was found as one line of JSON"))
        .args([key, record, receipt]);
    Command::new("draw").about("Check a published draw").subcommand_required(true).subcommand(verify)
}

fn event(settings: &[Arg]) -> Command {
    let event = Arg::new("event").value_name("EVENT").required(true).help("The event's id");
    let begins = Arg::new("begins").long("begins").value_name("INSTANT").help(
        "When the event began, if its name was used again [default: the event that the zone has, or the last one of this name]",
    );
    let file =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("FILE").help(help);
    let [_, admin, token_file] = server();
    let report = Command::new("report")
        .about(
            "Write what happened in an event of a running server's zone: people, waits and stock by minute, the draw, and the changes; \
             with the audit log that --audit-dir or --config names, if there is one",
        )
        .args(settings)
        .args([admin, token_file, zone().required(true), event, begins])
        .arg(file("out", "The HTML file to write, or `-` for standard output"))
        .arg(file("json", "The JSON file to write, or `-` for standard output"))
        .group(ArgGroup::new("files").args(["out", "json"]).required(true).multiple(true));
    Command::new("event")
        .about("Report what happened in an event")
        .subcommand_required(true)
        .subcommand(report)
}

fn stats() -> Command {
    let watch = Arg::new("watch").long("watch").action(ArgAction::SetTrue).help("Repeat every two seconds");
    Command::new("stats")
        .about("Show how the lines of a running server move; with a zone, by minute")
        .args(server())
        .arg(watch)
        .arg(zone())
}

fn changes() -> Command {
    Command::new("changes")
        .about("List the last changes of zones that a running server made or saw, the newest first")
        .args(server())
        .arg(zone())
}

fn servers() -> Command {
    Command::new("servers")
        .about("List the servers that share the store of a running server, and the state of the store")
        .args(server())
}

fn drain() -> Command {
    let undo = Arg::new("undo").long("undo").action(ArgAction::SetTrue).help("Put it back into service");
    Command::new("drain")
        .about(
            "Take a running server out of service: it is not ready, so that the load balancer sends no new connections; it goes \
             on answering those that it has",
        )
        .args(server())
        .arg(undo)
}

fn token() -> Command {
    let name = Arg::new("name").long("name").value_name("NAME").required(true).help("Its name in logs");
    let role = Arg::new("role")
        .long("role")
        .required(true)
        .value_parser(words(&Role::ALL.map(|(_, word)| word)))
        .help("viewer sees; operator changes zones and routes, too; admin also creates, replaces and deletes zones, and drains servers; shop \
             says what is left, and nothing else");
    let new = Command::new("new")
        .about("Make a token: print it once, with the lines for the configuration")
        .arg(name)
        .arg(role);
    Command::new("token").about("Tokens for the admin API").subcommand_required(true).subcommand(new)
}

fn openapi() -> Command {
    let document = Arg::new("document")
        .value_name("API")
        .required(true)
        .value_parser(words(&Document::ALL.map(|(_, word)| word)));
    Command::new("openapi").about("Print the OpenAPI document of an API").arg(document)
}

fn words(words: &[&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(words.to_vec())
}
