//! Whether the target is a waiting room.

use crate::{
    connect,
    pool::{Listening, Pool},
    run::Setup,
    target::TargetError,
    wire::{self, Answer},
};

/// A token that no waiting room issued.
const NO_TOKEN: &str = "loadgen-asks-who-is-there";

/// Checks that the target is a waiting room that serves the zone, and has streams if users will listen to them.
///
/// The check asks for entry with an invalid token, which takes no place. Only if the reply does not decide, it takes a
/// place.
///
/// # Errors
/// If it is not a waiting room, does not serve the zone, or does not reply.
pub(crate) async fn check(url: &str, setup: &Setup) -> Result<(), TargetError> {
    let (target, zone) = (&setup.target, &setup.zone);
    let sources = setup.sources.iter().copied().take(1).collect();
    let pool = Pool::new(target, 1, sources).map_err(TargetError::Way)?;
    check_room(url, setup, &pool).await?;
    if setup.streams() == 0 {
        return Ok(());
    }
    let request = target.get(&wire::stream(wire::STREAM, zone, NO_TOKEN)).map_err(TargetError::Way)?;
    let why = match pool.listen(request, || {}).await {
        Ok(Listening::Refused(reply)) if ![404, 405, 501].contains(&reply.status) => return Ok(()),
        Ok(Listening::Refused(reply)) => format!("it answered {} to {}", reply.status, wire::STREAM),
        Ok(Listening::Open(_)) => "it gave a stream to a token that it did not issue".to_owned(),
        Err(why) => why,
    };
    Err(TargetError::NoStreams { url: url.to_owned(), why })
}

async fn check_room(url: &str, setup: &Setup, pool: &Pool) -> Result<(), TargetError> {
    let (url, target, zone) = (url.to_owned(), &setup.target, &setup.zone);
    let mut last = String::new();
    for (path, token) in [(wire::ENTRY, Some(NO_TOKEN)), (wire::WAIT, None)] {
        let request = target.post(path, wire::body(zone, token)).map_err(TargetError::Way)?;
        let reply = pool.call(request, || {}).await;
        let reply = reply.map_err(|why| {
            // Without encryption nothing but the first call shows whether the server speaks it.
            let is_plain_http2 = target.http2 && target.tls.is_none() && why != connect::REFUSED;
            let url = url.clone();
            if is_plain_http2 {
                TargetError::NoHttp2 { url, why }
            } else {
                TargetError::Unreachable { url, why: advised(why) }
            }
        })?;
        match wire::read(reply.status, reply.retry_after.as_deref(), &reply.body) {
            Answer::Enter { .. } | Answer::NotYet { .. } => return Ok(()),
            Answer::Refused { code, .. } if code == "unknown_zone" => {
                return Err(TargetError::Zone { url, zone: zone.to_owned() });
            }
            Answer::Refused { status: 401, code, .. } if code == "bad_token" => return Ok(()),
            answer if answer.no_place().is_some() => return Ok(()),
            Answer::Refused { status: 503, code, .. } if ["store_away", "busy"].contains(&code.as_str()) => {
                return Ok(());
            }
            Answer::Gone if token.is_some() => {}
            Answer::Gone => last = format!("it answered 410 to {path}"),
            Answer::Refused { status, code, .. } => {
                last = format!("it answered {status} {code} to {path}").replace("  ", " ");
            }
            Answer::Invalid(_) => {
                last = format!("it answered 200 to {path}, but the body is not that of a waiting room");
            }
        }
    }
    Err(TargetError::Other { url, why: last })
}

/// Why there is no reply, and what to do.
fn advised(why: String) -> String {
    if why == connect::REFUSED {
        format!("{why}: nothing listens there; start the server, or correct --target")
    } else {
        why
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A room without streams is named before the run, if users will listen.
    #[tokio::test]
    async fn a_room_without_streams_is_named() {
        for share in [0.0, 0.5] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            let url = format!("http://{}", listener.local_addr().expect("bound"));
            let server = tokio::spawn(async move {
                for (end, reply) in [
                    ("}", "401 x\r\ncontent-length: 20\r\n\r\n{\"code\":\"bad_token\"}"),
                    ("\r\n\r\n", "404 x\r\ncontent-length: 0\r\n\r\n"),
                ] {
                    let (mut socket, _) = listener.accept().await.expect("a connection");
                    let mut request = Vec::new();
                    while !request.ends_with(end.as_bytes()) {
                        socket.read_buf(&mut request).await.expect("a request");
                    }
                    socket.write_all(format!("HTTP/1.1 {reply}").as_bytes()).await.expect("taken");
                }
            });
            let mut setup = Setup::of_test(&url, "spike");
            setup.profile.stream_share = share;
            let checked = check(&url, &setup).await;
            server.abort();
            if share == 0.0 {
                assert_eq!(checked, Ok(()));
                continue;
            }
            let said = checked.expect_err("named").to_string();
            assert!(
                said.contains("no streams") && said.contains("--stream-share") && said.contains("404"),
                "{said}"
            );
        }
    }

    /// A room that refuses the first join is still a room.
    #[tokio::test]
    async fn a_closed_and_a_full_zone_are_waiting_rooms() {
        for (code, is_room) in [("zone_closed", true), ("zone_full", true), ("maintenance", false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let server = tokio::spawn(async move {
                // The first call asks for entry, and the second one for a place.
                let (mut socket, _) = listener.accept().await.expect("a connection");
                for (status, code) in [(410, "gone"), (503, code)] {
                    let mut request = Vec::new();
                    // The body is a JSON object, and the head has no brace.
                    while !request.ends_with(b"}") {
                        socket.read_buf(&mut request).await.expect("a request");
                    }
                    let body = format!(r#"{{"code":"{code}"}}"#);
                    let reply =
                        format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    socket.write_all(reply.as_bytes()).await.expect("taken");
                }
            });
            let url = format!("http://{address}");
            let checked = check(&url, &Setup::of_test(&url, "spike")).await;
            assert_eq!(checked.is_ok(), is_room, "{code}: {checked:?}");
            server.await.expect("no panic");
        }
    }
}
