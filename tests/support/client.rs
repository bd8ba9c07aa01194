//! A small blocking HTTP/1.1 client that can misbehave and returns exactly what came over the wire.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::clock::{DEADLINE, now};

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A whole reply.
pub(crate) struct Reply {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Connects. A read or write fails if it takes longer than the deadline of all tests.
    pub(crate) fn connect(to: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&to, DEADLINE)?)
    }

    /// Connects from the given source address, so that many clients do not run out of ports.
    pub(crate) fn connect_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket.connect_timeout(&to.into(), DEADLINE)?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let client = Self { stream, unread: Vec::new() };
        client.patience(DEADLINE)?;
        Ok(client)
    }

    /// Sets how long a read or write may block.
    pub(crate) fn patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.set_write_timeout(Some(limit))
    }

    /// Sends bytes unchanged.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a POST of JSON, without waiting for the reply.
    pub(crate) fn send_post(&mut self, path: &str, body: &str) -> io::Result<()> {
        self.send(post(path, body))
    }

    /// Sends a POST of JSON and reads the reply.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> io::Result<Reply> {
        self.send_post(path, body)?;
        self.reply()
    }

    /// Sends a GET and reads the reply.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<Reply> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))?;
        self.reply()
    }

    /// Sends a request of an operator and reads the reply. A body is JSON.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> io::Result<Reply> {
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        if headers.iter().all(|(name, _)| *name != "Host") {
            request.push_str("Host: localhost\r\n");
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            if headers.iter().all(|(name, _)| *name != "Content-Type") {
                request.push_str("Content-Type: application/json\r\n");
            }
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.send(request + "\r\n" + body.unwrap_or_default())?;
        self.reply()
    }

    /// Reads the next reply, with a body of the announced length.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let mut reply = self.head()?;
        let length = reply.header("content-length").map_or(Ok(0), str::parse).map_err(invalid)?;
        while self.unread.len() < length {
            self.read_more()?;
        }
        reply.body = self.unread.drain(..length).collect();
        Ok(reply)
    }

    /// Reads the next head alone: that of a reply to HEAD, or of an interim reply.
    pub(crate) fn head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            // Another protocol's bytes may have no end of a head.
            let first = &self.unread[..self.unread.len().min(5)];
            if !b"HTTP/".starts_with(first) {
                return Err(invalid(format_args!("a reply begins with {}", first.escape_ascii())));
            }
            self.read_more()?;
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(invalid)?;
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let (version, rest) = status_line.split_once(' ').ok_or_else(|| invalid(status_line))?;
        let status = rest.get(..3).unwrap_or_default().parse().map_err(invalid)?;
        let header = |line: &str| {
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(line))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = lines.map(header).collect::<io::Result<_>>()?;
        Ok(Reply { version: version.to_owned(), status, headers, body: Vec::new() })
    }

    /// Reads the text up to the next empty line.
    pub(crate) fn block(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                break end;
            }
            self.read_more()?;
        };
        let block = self.unread.drain(..end + 2).take(end).collect();
        String::from_utf8(block).map_err(invalid)
    }

    /// Shrinks the receive buffer, so that the system buffers little.
    pub(crate) fn read_little(&self) {
        socket2::SockRef::from(&self.stream).set_recv_buffer_size(1).expect("a live socket");
    }

    /// Whether the server closes the connection within the deadline. Bytes before the end are ignored.
    pub(crate) fn ends(&mut self) -> bool {
        let started = now();
        while !self.is_ended() {
            if now() - started >= DEADLINE {
                return false;
            }
        }
        true
    }

    /// Reads once; true if the server closed the connection.
    pub(crate) fn is_ended(&mut self) -> bool {
        match self.read_more() {
            Ok(()) => false,
            // A reset is also an end: the server may close while bytes of ours are unread.
            Err(e) => matches!(
                e.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut chunk = [0; 8192];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.unread.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {} {:?} {body}", self.version, self.status, self.headers)
    }
}

impl Reply {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether the server announces that it closes the connection.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("replies are UTF-8")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of a problem document. It also checks everything that each problem document must have.
    pub(crate) fn problem(&self) -> String {
        assert!(self.status >= 400, "not a problem: {self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        for field in ["type", "title"] {
            assert!(problem[field].is_string(), "no {field}: {self:?}");
        }
        if matches!(self.status, 429 | 503) {
            let seconds = self.header("retry-after").and_then(|v| v.parse::<u32>().ok());
            assert!(seconds.is_some_and(|s| s >= 1), "no Retry-After: {self:?}");
        }
        problem["code"].as_str().unwrap_or_else(|| panic!("no code: {self:?}")).to_owned()
    }
}

/// The bytes of a POST of JSON.
pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {what}"))
}
