//! A connection by redis-rs.
//!
//! One multiplexed connection serves one server. redis-rs' cluster routing is not used: it never gives up a frozen
//! server, even after a replica has taken over.
//!
//! Invariant: the connection does not reconnect and has no response timeout; [`super::server`] does both.

use bytes::Bytes;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, RedisError, ServerError, TlsCertificates, Value as Reply,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use rustls::crypto::aws_lc_rs;

use super::{
    Value,
    link::{Answer, Command, Link},
};
use crate::address::{Address, Settings};

/// How many calls may wait for the task that writes them to the connection.
const QUEUE: usize = 1_024;

/// A connection.
pub(super) struct Connection(MultiplexedConnection);

impl Link for Connection {
    async fn open(host: &str, port: u16, address: &Address, settings: &Settings) -> Result<Self, String> {
        let (login, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
        let connected = connect((host, port), address, settings, login, config).await;
        let connection = connected.map(Self).map_err(|error| error.to_string())?;
        // Sent here and not by redis-rs, which hides the server's answer.
        if let Some(password) = &address.password {
            let words =
                address.user.clone().into_iter().chain([password.reveal()]).map(Bytes::from).collect();
            if let Some(Err(text)) = connection.send(vec![Command { name: "AUTH", args: words }]).await?.pop()
            {
                return Err(text);
            }
        }
        Ok(connection)
    }

    async fn send(&self, commands: Vec<Command>) -> Result<Vec<Answer>, String> {
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in &commands {
            pipeline.cmd(command.name);
            for arg in &command.args {
                pipeline.arg(&arg[..]);
            }
        }
        let replies = self.0.clone().send_packed_commands(&pipeline, 0, count).await;
        let replies = replies.map_err(|error| error.to_string())?;
        if replies.len() != count {
            return Err(format!("{} replies to {count} commands", replies.len()));
        }
        replies.into_iter().map(answer).collect()
    }
}

/// Opens a connection with this login and configuration, and the settings that all connections share.
pub(super) async fn connect(
    (host, port): (&str, u16),
    address: &Address,
    settings: &Settings,
    login: RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let host = host.to_owned();
    let server = if address.tls {
        // redis-rs uses the process-wide provider. If one is installed already, it stays.
        drop(aws_lc_rs::default_provider().install_default());
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let login = login.set_skip_set_lib_name();
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = server.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(login);
    let client = if address.tls {
        let client_tls = settings.identity.clone().map(|identity| ClientTlsConfig {
            client_cert: identity.certificate_pem,
            client_key: identity.key_pem,
        });
        let certificates = TlsCertificates { client_tls, root_cert: settings.ca_pem.clone() };
        Client::build_with_tls(info, certificates)?
    } else {
        Client::open(info)?
    };
    let config = config
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Converts a reply. The outer error is for replies that scripts cannot give.
fn answer(reply: Reply) -> Result<Answer, String> {
    Ok(Ok(match reply {
        Reply::Nil => Value::Nil,
        Reply::Int(number) => Value::Int(number),
        Reply::BulkString(bytes) => Value::Bytes(bytes.into()),
        Reply::SimpleString(text) => Value::Bytes(text.into()),
        Reply::Okay => Value::Bytes(Bytes::from_static(b"OK")),
        Reply::Array(parts) => {
            let parts = parts.into_iter().map(answer).collect::<Result<Result<_, _>, _>>()?;
            match parts {
                Ok(parts) => Value::Array(parts),
                Err(text) => return Ok(Err(text)),
            }
        }
        Reply::ServerError(error) => return Ok(Err(text(&error))),
        other => return Err(format!("an unexpected kind of reply: {other:?}")),
    }))
}

/// The text of an error reply, as the server wrote it.
pub(super) fn text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
