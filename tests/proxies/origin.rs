//! The site behind the proxies: it says what it got, streams, and echoes a WebSocket's bytes.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A running site. Its threads end with the test's process.
pub(crate) struct Origin {
    pub(crate) at: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (at, requests) = (listener.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                // A connection that a proxy drops is its business.
                thread::spawn(move || drop(serve(stream, &count)));
            }
        });
        Self { at, requests }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, count: &AtomicUsize) -> io::Result<()> {
    let (mut writer, mut reader) = (stream.try_clone()?, BufReader::new(stream));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (mut length, mut is_chunked, mut headers) = (0_usize, false, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            is_chunked |= header == "transfer-encoding: chunked";
            headers.push_str(&header);
            headers.push('\n');
        }
        count.fetch_add(1, Ordering::SeqCst);
        let body = if is_chunked { chunked(&mut reader)? } else { read(&mut reader, length)? };
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match path {
            "/ws" => {
                // The answer to the tests' key (RFC 6455, 4.2.2). HAProxy looks for it.
                let accept = "ICX+Yqv66kxgM0FcWaLWlFLwTAI=";
                let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade";
                writer.write_all(format!("{head}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n").as_bytes())?;
                let mut bytes = [0; 64];
                loop {
                    let n = reader.read(&mut bytes)?;
                    if n == 0 {
                        return Ok(());
                    }
                    writer.write_all(&bytes[..n])?;
                }
            }
            "/stream" => {
                writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                for event in ["data: 1\n\n", "data: 2\n\n"] {
                    writer.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
                }
                writer.write_all(b"0\r\n\r\n")?;
            }
            _ => {
                let sum = body.iter().map(|&byte| u64::from(byte)).sum::<u64>();
                let said = format!("{method} {path} {} {sum}\n{headers}", body.len());
                let head =
                    format!("HTTP/1.1 200 OK\r\nSet-Cookie: app=1\r\nContent-Length: {}\r\n\r\n", said.len());
                writer.write_all(head.as_bytes())?;
                if method != "HEAD" {
                    writer.write_all(said.as_bytes())?;
                }
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn chunked(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        body.extend(read(reader, length)?);
        reader.read_line(&mut line)?;
        if length == 0 {
            return Ok(body);
        }
    }
}
