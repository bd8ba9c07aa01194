//! A plain connection to a Redis: RESP over TCP, without a client library.
//!
//! Invariant: a read or write ends within [`PATIENCE`].

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use super::{PATIENCE, local};

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    Error(String),
    Array(Vec<Reply>),
}

impl Reply {
    /// The number; panics on another reply.
    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("a number was expected, not {other:?}"),
        }
    }

    /// The text; panics on another reply.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// The elements; panics on another reply.
    #[track_caller]
    pub(crate) fn parts(&self) -> &[Reply] {
        match self {
            Self::Array(parts) => parts,
            other => panic!("an array was expected, not {other:?}"),
        }
    }
}

/// A connection.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    /// Connects to a server on this machine.
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and reads its reply.
    pub(crate) fn command<A: AsRef<[u8]>>(&mut self, parts: &[A]) -> io::Result<Reply> {
        self.send(parts)?;
        self.read()
    }

    /// Sends a command without reading its reply.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, parts: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            bytes.extend(format!("${}\r\n", part.as_ref().len()).bytes());
            bytes.extend(part.as_ref());
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"));
        let text = line.strip_suffix("\r\n").ok_or_else(odd)?;
        let kind = text.get(..1).ok_or_else(odd)?;
        let number = || text[1..].parse::<i64>().map_err(|_| odd());
        Ok(match kind {
            "+" => Reply::Bytes(text[1..].into()),
            "-" => Reply::Error(text[1..].to_owned()),
            ":" => Reply::Int(number()?),
            "$" | "*" if number()? < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?).expect("not negative") + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            "*" => Reply::Array((0..number()?).map(|_| self.read()).collect::<io::Result<_>>()?),
            _ => return Err(odd()),
        })
    }
}
