//! A connection by redis-rs.
//!
//! One multiplexed connection serves one server. redis-rs' cluster routing is not used: it never gives up a frozen
//! server, even after a replica has taken over.
//!
//! Invariant: the connection does not reconnect and has no response timeout; [`super::server`] does both. When it is lost, every call
//! over it ends (see [`super::driver`]).

use bytes::Bytes;
use redis::{
    AsyncConnectionConfig, Pipeline, RedisConnectionInfo, ServerError, Value as Reply,
    aio::MultiplexedConnection,
};

use super::{
    Value,
    driver::Driver,
    link::{Answer, Command, Link},
    stream,
};
use crate::address::{Address, Settings};

/// How many calls may wait for the task that writes them to the connection.
const QUEUE: usize = 1_024;

/// A connection.
pub(super) struct Connection {
    pub(super) connection: MultiplexedConnection,
    /// Reads and writes.
    pub(super) driver: Driver,
}

impl Link for Connection {
    async fn open(host: &str, port: u16, address: &Address, settings: &Settings) -> Result<Self, String> {
        let (login, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
        let connection = connect((host, port), address, settings, login, config).await?;
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
        let mut connection = self.connection.clone();
        let replies = tokio::select! {
            biased;
            replies = connection.send_packed_commands(&pipeline, 0, count) => {
                replies.map_err(|error| error.to_string())?
            }
            reason = self.driver.ended() => return Err(reason),
        };
        if replies.len() != count {
            return Err(format!("{} replies to {count} commands", replies.len()));
        }
        replies.into_iter().map(answer).collect()
    }
}

/// Opens a connection with this login and configuration, and the settings that all connections share. The caller sets the time limit.
///
/// # Errors
/// The message of the system or of the server.
pub(super) async fn connect(
    (host, port): (&str, u16),
    address: &Address,
    settings: &Settings,
    login: RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<Connection, String> {
    let stream = stream::open(host, port, address, settings).await?;
    let login = login.set_skip_set_lib_name();
    let config = config.set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
    let opened = MultiplexedConnection::new_with_config(&login, stream, config).await;
    let (connection, driver) = opened.map_err(|error| error.to_string())?;
    let driver = Driver::watch(tokio::spawn(driver), |()| None);
    Ok(Connection { connection, driver })
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

#[cfg(test)]
mod tests {
    use super::{super::driver::tests::assert_calls_end, *};

    /// The queue of a task that has ended keeps what was put into it in that moment.
    #[tokio::test]
    async fn a_call_that_redis_rs_never_answers_ends_with_the_connection() {
        assert_calls_end(async |driver| {
            let (stream, _) = tokio::io::duplex(1_024);
            let login = RedisConnectionInfo::default().set_skip_set_lib_name();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let opened = MultiplexedConnection::new_with_config(&login, stream, config).await;
            let (connection, never_polled) = opened.expect("nothing is sent");
            // Dropped, it would empty its queue.
            std::mem::forget(never_polled);
            Connection { connection, driver }
        })
        .await;
    }
}
