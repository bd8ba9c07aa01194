//! A stand-in for a collector of OpenTelemetry: keeps what it is sent, and can be made to fail.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use prost::Message as _;
use server::otlp::message::{
    AnyValue, KeyValue, LogRecord, LogsRequest, Metric, MetricsRequest, Resource, Span, TracesRequest, Value,
};

/// How the collector answers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    /// It takes everything.
    Taken,
    /// With this status.
    Status(u16),
    /// Not at all.
    Never,
    /// It takes everything, and says that it refused a part.
    Partly,
}

/// What it was sent.
#[derive(Clone, Default)]
pub(crate) struct Received {
    pub(crate) heads: Vec<String>,
    pub(crate) bodies: Vec<Vec<u8>>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) spans: Vec<Span>,
    /// Those of the last report.
    pub(crate) metrics: Vec<Metric>,
    pub(crate) records: Vec<LogRecord>,
}

struct State {
    answers: Answers,
    received: Received,
}

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Collector {
    pub(crate) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State { answers, received: Received::default() }));
        let shared = Arc::clone(&state);
        // Ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A server that is killed breaks the connection.
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Self { address, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// From now on it answers so.
    pub(crate) fn answer(&self, answers: Answers) {
        self.lock().answers = answers;
    }

    /// What it took so far.
    pub(crate) fn received(&self) -> Received {
        self.lock().received.clone()
    }

    /// The settings of a server that sends here.
    pub(crate) fn settings(&self, more: &str) -> String {
        format!("[otlp]\nendpoint = \"http://{}\"\n{more}\n", self.address)
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).expect("it has a length")];
        reader.read_exact(&mut body)?;
        let answers = state.lock().expect("no panic").answers;
        let (status, reply) = match answers {
            Answers::Taken => (200, Vec::new()),
            // Three were rejected, says field 1 of field 1; field 2 is the text.
            Answers::Partly => (200, vec![0x0a, 0x07, 0x08, 0x03, 0x12, 0x03, b'b', b'a', b'd']),
            Answers::Status(status) => (status, Vec::new()),
            Answers::Never => {
                // Until the other side gives up.
                return reader.read(&mut [0]).map(drop);
            }
        };
        if status == 200 {
            take(&mut state.lock().expect("no panic").received, head, body);
        }
        write!(writer, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", reply.len())?;
        writer.write_all(&reply)?;
    }
}

fn take(received: &mut Received, head: String, body: Vec<u8>) {
    assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    match path.as_str() {
        "/v1/traces" => {
            let request = TracesRequest::decode(&body[..]).expect("a message");
            for of in request.of_resources {
                received.resources.extend(of.resource);
                received.spans.extend(of.of_scopes.into_iter().flat_map(|scope| scope.spans));
            }
        }
        "/v1/metrics" => {
            let request = MetricsRequest::decode(&body[..]).expect("a message");
            for of in request.of_resources {
                received.resources.extend(of.resource);
                received.metrics = of.of_scopes.into_iter().flat_map(|scope| scope.metrics).collect();
            }
        }
        "/v1/logs" => {
            let request = LogsRequest::decode(&body[..]).expect("a message");
            for of in request.of_resources {
                received.resources.extend(of.resource);
                received.records.extend(of.of_scopes.into_iter().flat_map(|scope| scope.records));
            }
        }
        other => panic!("{other} is no path of OTLP"),
    }
    received.heads.push(head);
    received.bodies.push(body);
}

/// The text of an attribute, or its number as text.
pub(crate) fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::Text(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
    }
}

/// The text of a record.
pub(crate) fn body_of(record: &LogRecord) -> String {
    match &record.body {
        Some(AnyValue { value: Some(Value::Text(text)) }) => text.clone(),
        _ => String::new(),
    }
}
