//! The messages of OTLP 1.x that Weir sends and reads, with the fields that it uses.
//!
//! Numbers and types are those of `opentelemetry/proto` in its published `.proto` files, which promise not to change them. What a reader
//! does not know it leaves out. Invariant: a message that is encoded here is the one that the published definitions decode.

use prost::Message;

/// A name with a value.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// Which kind of value it is.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub value: Option<Value>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Yes or no.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// A fraction.
    #[prost(double, tag = "4")]
    Double(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

/// An attribute.
#[must_use]
pub fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
}

/// Who sends.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// What is known of the sender.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Which part of the sender speaks.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// Which part of a program speaks.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Defines the three requests, which differ in what they carry.
macro_rules! exports {
    ($($(#[$doc:meta])* $request:ident $of_resource:ident $of_scope:ident $item:ident $items:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $request {
            /// By sender.
            #[prost(message, repeated, tag = "1")]
            pub of_resources: Vec<$of_resource>,
        }

        /// What one sender says.
        #[derive(Clone, PartialEq, Message)]
        pub struct $of_resource {
            /// The sender.
            #[prost(message, optional, tag = "1")]
            pub resource: Option<Resource>,
            /// By part of the sender.
            #[prost(message, repeated, tag = "2")]
            pub of_scopes: Vec<$of_scope>,
        }

        /// What one part of a sender says.
        #[derive(Clone, PartialEq, Message)]
        pub struct $of_scope {
            /// The part.
            #[prost(message, optional, tag = "1")]
            pub scope: Option<Scope>,
            /// What it says.
            #[prost(message, repeated, tag = "2")]
            pub $items: Vec<$item>,
        }

        impl $request {
            /// The request of one sender with one part.
            #[must_use]
            pub fn of(resource: Resource, scope: Scope, $items: Vec<$item>) -> Self {
                let of_scopes = vec![$of_scope { scope: Some(scope), $items }];
                Self { of_resources: vec![$of_resource { resource: Some(resource), of_scopes }] }
            }
        }
    )*};
}

exports! {
    /// Posted to `/v1/traces`.
    TracesRequest ResourceSpans ScopeSpans Span spans;
    /// Posted to `/v1/metrics`.
    MetricsRequest ResourceMetrics ScopeMetrics Metric metrics;
    /// Posted to `/v1/logs`.
    LogsRequest ResourceLogs ScopeLogs LogRecord records;
}

/// The reply to each of the requests.
#[derive(Clone, PartialEq, Message)]
pub struct ExportReply {
    /// What was not taken, or what the collector warns of.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector did not take of a message.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// The spans, data points or records that the collector did not take.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// A piece of work.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes; empty for the first span of a trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What was done, in few different words.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Which side of a call this is.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// In nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// In nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is known of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// None if nothing failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// Those of the trace, and what is known of the parent.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Nobody says.
    Unspecified = 0,
    /// No call.
    Internal = 1,
    /// The side that is called.
    Server = 2,
    /// The side that calls.
    Client = 3,
}

/// How a piece of work ended.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// What failed, for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Whether it failed.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// Whether a piece of work failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Nobody says, which usually means that it did not.
    Unset = 0,
    /// It did not.
    Ok = 1,
    /// It did.
    Error = 2,
}

/// All series of one name.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// The name of all series.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What they count.
    #[prost(string, tag = "2")]
    pub description: String,
    /// The series.
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    pub data: Option<Data>,
}

/// The kinds of metrics.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Data {
    /// Goes up and down.
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    /// Is added up.
    #[prost(message, tag = "7")]
    Sum(Sum),
    /// Is counted by bucket.
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

/// Numbers that go up and down.
#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    /// One for each set of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
}

/// Numbers that are added up.
#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    /// One for each set of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
    /// Since when it counts.
    #[prost(enumeration = "Temporality", tag = "2")]
    pub aggregation_temporality: i32,
    /// Whether it only grows.
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// Observed numbers, counted by bucket.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    /// One for each set of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramPoint>,
    /// Since when it counts.
    #[prost(enumeration = "Temporality", tag = "2")]
    pub aggregation_temporality: i32,
}

/// Since when numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Temporality {
    /// Nobody says.
    Unspecified = 0,
    /// Since the last message.
    Delta = 1,
    /// Since the start.
    Cumulative = 2,
}

/// One series of a gauge or a sum.
#[derive(Clone, PartialEq, Message)]
pub struct NumberPoint {
    /// Since when it counts, in nanoseconds since 1970; 0 for a gauge.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was read.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// The number.
    #[prost(double, optional, tag = "4")]
    pub as_double: Option<f64>,
    /// The labels.
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
}

/// One series of a histogram.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramPoint {
    /// Since when it counts, in nanoseconds since 1970.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was read.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// The observations.
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    /// Their sum.
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    /// The observations in each bucket; one more than there are bounds.
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    /// The upper bounds, which belong to their buckets.
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
    /// The labels.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
}

/// A line of the log.
#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// When it was taken in.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    /// From 9 (info) to 17 (error).
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// The word for it.
    #[prost(string, tag = "3")]
    pub severity_text: String,
    /// The text.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// The fields.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages that the crate opentelemetry-proto 0.33.1 wrote, which is made from the published definitions. In hex.
    const TRACES: &str = "0ab5010a180a160a0c736572766963652e6e616d6512060a04776569721298010a090a0477656972120131128a010a1001020304050607\
        08090a0b0c0d0e0f101208010203040506070822080b0c0d0e0f1011122a0c474554202f6865616c74687a30023907ca9a3b0000000041\
        09ca9a3b000000004a080a016112030a01624a100a016e120b18fdffffffffffffffff014a070a0174120210014a0e0a01641209210000\
        00000000e03f7a0512016d1802850101030000";
    const METRICS: &str = "0aff010a180a160a0c736572766963652e6e616d6512060a047765697212e2010a090a0477656972120131122a0a01671202442e2a210a\
        1f1909000000000000002100000000000004403a0b0a047a6f6e6512030a015a123d0a07735f746f74616c1202442e3a2e0a2811050000\
        00000000001909000000000000002100000000000004403a0b0a047a6f6e6512030a015a10021801126a0a01681202442e4a610a5d1105\
        00000000000000190900000000000000210600000000000000290000000000001e40321801000000000000000200000000000000030000\
        00000000003a10000000000000e03f00000000000000404a0b0a047a6f6e6512030a015a1002";
    const LOGS: &str = "0a580a180a160a0c736572766963652e6e616d6512060a0477656972123c0a090a0477656972120131122f090500000000000000100d1a\
        045741524e2a060a0474657874320b0a047a6f6e6512030a015a590600000000000000";
    const REPLY: &str = "0a06080312026e6f";

    fn check<M: Message + Default + PartialEq + std::fmt::Debug>(published: &str, ours: &M) {
        let hex: String = ours.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, published);
        assert_eq!(M::decode(&ours.encode_to_vec()[..]).as_ref(), Ok(ours));
    }

    #[test]
    fn messages_are_those_of_the_published_definitions() {
        let resource = || Resource { attributes: vec![attribute("service.name", "weir")] };
        let scope = || Scope { name: "weir".to_owned(), version: "1".to_owned() };
        let span = Span {
            trace_id: (1..=16).collect(),
            span_id: (1..=8).collect(),
            parent_span_id: (11..=18).collect(),
            name: "GET /healthz".to_owned(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: 1_000_000_007,
            end_time_unix_nano: 1_000_000_009,
            attributes: vec![
                attribute("a", "b"),
                attribute("n", -3),
                attribute("t", true),
                attribute("d", 0.5),
            ],
            status: Some(Status { message: "m".to_owned(), code: StatusCode::Error.into() }),
            flags: 0x301,
        };
        check(TRACES, &TracesRequest::of(resource(), scope(), vec![span]));
        let labels = || vec![attribute("zone", "Z")];
        let point = |start_time_unix_nano| NumberPoint {
            start_time_unix_nano,
            time_unix_nano: 9,
            as_double: Some(2.5),
            attributes: labels(),
        };
        let cumulative = Temporality::Cumulative.into();
        let histogram = HistogramPoint {
            start_time_unix_nano: 5,
            time_unix_nano: 9,
            count: 6,
            sum: Some(7.5),
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![0.5, 2.0],
            attributes: labels(),
        };
        let metrics = [
            ("g", Data::Gauge(Gauge { data_points: vec![point(0)] })),
            (
                "s_total",
                Data::Sum(Sum {
                    data_points: vec![point(5)],
                    aggregation_temporality: cumulative,
                    is_monotonic: true,
                }),
            ),
            (
                "h",
                Data::Histogram(Histogram {
                    data_points: vec![histogram],
                    aggregation_temporality: cumulative,
                }),
            ),
        ];
        let metrics = metrics.map(|(name, data)| Metric {
            name: name.to_owned(),
            description: "D.".to_owned(),
            data: Some(data),
        });
        check(METRICS, &MetricsRequest::of(resource(), scope(), metrics.into()));
        let record = LogRecord {
            time_unix_nano: 5,
            observed_time_unix_nano: 6,
            severity_number: 13,
            severity_text: "WARN".to_owned(),
            body: Some(AnyValue { value: Some("text".into()) }),
            attributes: labels(),
        };
        check(LOGS, &LogsRequest::of(resource(), scope(), vec![record]));
        let rejected = PartialSuccess { rejected: 3, error_message: "no".to_owned() };
        check(REPLY, &ExportReply { partial_success: Some(rejected) });
    }
}
