//! A Redis for this test, on a socket file, and a simple client without a library: one call at a time.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use bytes::Bytes;
use store::redis::client::{Client, ClientError, Confirm, Script, Value};
use tempfile::TempDir;

/// A Redis that is killed when it is dropped.
pub(crate) struct Plain {
    process: Child,
    dir: TempDir,
}

impl Plain {
    /// Starts a Redis and waits until it answers.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let binary = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(&binary);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(dir.path().join("s")).arg("--dir").arg(dir.path());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| {
            panic!("{binary} does not start ({error}); install it: apt-get install redis-server")
        });
        let mut plain = Self { process, dir };
        loop {
            if UnixStream::connect(plain.dir.path().join("s")).is_ok() {
                return plain;
            }
            let ended = plain.process.try_wait().expect("a child");
            assert!(ended.is_none(), "redis-server ended: {ended:?}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = UnixStream::connect(self.dir.path().join("s")).expect("connects");
        Connection(Mutex::new(BufReader::new(stream)))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A connection.
pub(crate) struct Connection(Mutex<BufReader<UnixStream>>);

impl Connection {
    /// Sends any command.
    pub(crate) fn command(&self, parts: &[&[u8]]) -> Result<Value, String> {
        let mut stream = self.0.lock().expect("whole");
        let mut out = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        stream.get_mut().write_all(&out).expect("writes");
        read(&mut stream)
    }
}

fn read(stream: &mut BufReader<UnixStream>) -> Result<Value, String> {
    let mut line = String::new();
    stream.read_line(&mut line).expect("reads");
    let (kind, rest) = line.trim_end().split_at(1);
    let number = || rest.parse::<i64>().expect("a number");
    Ok(match kind {
        "+" => Value::Bytes(Bytes::copy_from_slice(rest.as_bytes())),
        "-" => return Err(rest.to_owned()),
        ":" => Value::Int(number()),
        "$" | "*" if number() < 0 => Value::Nil,
        "$" => {
            let mut bytes = vec![0; usize::try_from(number()).expect("a length") + 2];
            stream.read_exact(&mut bytes).expect("reads");
            bytes.truncate(bytes.len() - 2);
            Value::Bytes(bytes.into())
        }
        "*" => {
            let parts = (0..number()).map(|_| read(stream)).collect::<Result<_, _>>();
            Value::Array(parts?)
        }
        _ => panic!("Redis says {line:?}"),
    })
}

impl Client for Connection {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        _: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        let count = keys.len().to_string();
        let sent = |command: &'static str, what: &'static str| {
            let mut parts: Vec<&[u8]> = vec![command.as_bytes(), what.as_bytes(), count.as_bytes()];
            parts.extend(keys.iter().chain(&args).map(|part| &**part));
            self.command(&parts)
        };
        let answer = match sent("EVALSHA", &script.sha1) {
            Err(error) if error.starts_with("NOSCRIPT") => sent("EVAL", &script.text),
            other => other,
        };
        answer.map_err(ClientError::Script)
    }
}
