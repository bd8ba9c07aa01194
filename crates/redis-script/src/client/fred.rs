//! A connection by fred.
//!
//! One fred client serves one connection to one server. Its reconnecting and its cluster routing are not used: while one
//! server of a cluster is down, fred's router serves none of them (docs/decisions/fred-cluster-client.md), and its
//! queue has no limit.
//!
//! Invariant: when the connection is lost, fred's task ends, and so does every call (see [`super::driver`]). Without a connection, fred
//! still accepts commands but answers none.

use ::fred::{
    clients::Client,
    error::Error,
    interfaces::ClientLike as _,
    types::{
        Builder, ClusterHash, CustomCommand, Resp3Frame, Value as Arg,
        config::{Config, Server, ServerConfig, TcpConfig, TlsConfig, TlsConnector},
    },
};

use super::{
    Value,
    driver::Driver,
    link::{Answer, Command, Link},
    stream::{addresses, first_of, tls},
};
use crate::address::{Address, Password, Settings};

/// A connection.
pub(super) struct Connection {
    client: Client,
    /// Runs fred's router.
    driver: Driver,
}

impl Link for Connection {
    async fn open(host: &str, port: u16, address: &Address, settings: &Settings) -> Result<Self, String> {
        let config = Config {
            username: address.user.clone(),
            password: address.password.as_ref().map(Password::reveal),
            server: ServerConfig::Centralized { server: reachable(host, port).await },
            tls: if address.tls { Some(TlsConfig::from(TlsConnector::from(tls(settings)?))) } else { None },
            ..Config::default()
        };
        let mut builder = Builder::from_config(config);
        builder.with_connection_config(|connection| {
            // The caller gives up long before, with a better message, also on a machine that is busy; fred may have sent a
            // command by then.
            connection.connection_timeout = settings.connect_timeout * 20;
            connection.internal_command_timeout = settings.connect_timeout * 20;
            connection.max_command_attempts = 1;
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
        });
        let client = builder.build().map_err(|error| said(&error))?;
        // The first command waits for the connection. fred's own `wait_for_connect` may wait for ever: it reads the state, and
        // subscribes to changes later.
        let driver = Driver::watch(client.connect(), |ended| ended.err().map(|error| said(&error)));
        Ok(Self { client, driver })
    }

    async fn send(&self, commands: Vec<Command>) -> Result<Vec<Answer>, String> {
        tokio::select! {
            biased;
            answers = exchange(&self.client, commands) => answers,
            reason = self.driver.ended() => Err(reason),
        }
    }
}

/// An error of fred in words. fred writes an error of the system as it is in the program: `Os { code: 111, kind: …, message: "…" }`.
fn said(error: &Error) -> String {
    let text = error.to_string();
    match in_words(&text) {
        Some(words) => words,
        None => text,
    }
}

fn in_words(text: &str) -> Option<String> {
    if let Some((_, of_system)) = text.split_once("Os { code: ") {
        let (code, rest) = of_system.split_once(',')?;
        let message = rest.split_once("message: \"")?.1.rsplit_once("\" }")?.0;
        return Some(format!("{message} (os error {code})"));
    }
    let (_, custom) = text.split_once("Custom { kind: ")?;
    let words = custom.split_once(", error: ")?.1.rsplit_once(" }")?.0;
    Some(words.trim_matches('"').to_owned())
}

/// The server, by one of its name's addresses that takes a connection. fred itself waits for each of them in turn, for ever where
/// packets are dropped.
async fn reachable(host: &str, port: u16) -> Server {
    let mut server = Server::new(host, port);
    let found = addresses(host, port).await.unwrap_or_default();
    // Without a choice, fred connects once, and says itself what is wrong.
    if found.len() > 1
        && let Ok((_, address)) = first_of(found).await
    {
        server.host = address.ip().to_string().into();
        // Its certificate has the name.
        server.tls_server_name = Some(host.into());
    }
    server
}

/// Sends commands, and waits for fred's answers.
async fn exchange(client: &Client, mut commands: Vec<Command>) -> Result<Vec<Answer>, String> {
    if commands.len() == 1
        && let Some(command) = commands.pop()
    {
        let (command, args) = parts(command);
        let frame = client.custom_raw(command, args).await.map_err(|error| said(&error))?;
        return Ok(vec![answer(frame)?]);
    }
    let pipeline = client.pipeline();
    let count = commands.len();
    for command in commands {
        let (command, args) = parts(command);
        // fred itself answers `QUEUED` here.
        pipeline.custom_raw(command, args).await.map_err(|error| said(&error))?;
    }
    let results = pipeline.try_all::<Arg>().await;
    if let (true, Some(Err(error))) = (results.len() != count, results.first()) {
        return Err(said(error));
    }
    let answers = results.into_iter().map(|result| match result {
        Ok(arg) => Ok(Ok(value(arg)?)),
        Err(error) => Ok(Err(error.details().to_owned())),
    });
    answers.collect()
}

fn parts(command: Command) -> (CustomCommand, Vec<Arg>) {
    let name = CustomCommand::new_static(command.name, ClusterHash::Random, false);
    (name, command.args.into_iter().map(Arg::Bytes).collect())
}

/// Converts a frame. The outer error is for replies that scripts cannot give.
fn answer(frame: Resp3Frame) -> Result<Answer, String> {
    Ok(Ok(match frame {
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::BlobString { data, .. } | Resp3Frame::SimpleString { data, .. } => Value::Bytes(data),
        Resp3Frame::Array { data, .. } => {
            let parts = data.into_iter().map(answer).collect::<Result<Result<_, _>, _>>()?;
            match parts {
                Ok(parts) => Value::Array(parts),
                Err(text) => return Ok(Err(text)),
            }
        }
        Resp3Frame::SimpleError { data, .. } => return Ok(Err(data.to_string())),
        other => return Err(format!("an unexpected kind of reply: {other:?}")),
    }))
}

/// Converts a value of a pipeline.
fn value(arg: Arg) -> Result<Value, String> {
    Ok(match arg {
        Arg::Null => Value::Nil,
        Arg::Integer(number) => Value::Int(number),
        Arg::Bytes(bytes) => Value::Bytes(bytes),
        Arg::String(text) => Value::Bytes(text.into_inner()),
        Arg::Array(parts) => Value::Array(parts.into_iter().map(value).collect::<Result<_, _>>()?),
        other => return Err(format!("an unexpected kind of reply: {:?}", other.kind())),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::driver::tests::assert_calls_end, *};

    #[test]
    fn errors_are_words_and_no_debug_text() {
        use std::io::{Error as IoError, ErrorKind};
        let refused = IoError::from_raw_os_error(111);
        assert_eq!(said(&Error::from(refused)), "Connection refused (os error 111)");
        let custom = IoError::new(ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer");
        assert_eq!(said(&Error::from(custom)), "invalid peer certificate: UnknownIssuer");
        let own = Error::new(::fred::error::ErrorKind::Auth, "WRONGPASS invalid password");
        assert!(said(&own).ends_with("WRONGPASS invalid password"));
    }

    /// A client without a task keeps commands for ever, as one does whose task is about to end.
    #[tokio::test]
    async fn a_call_that_fred_never_answers_ends_with_the_connection() {
        assert_calls_end(async |driver| {
            let client = Builder::default_centralized().build().expect("a client");
            Connection { client, driver }
        })
        .await;
    }
}
