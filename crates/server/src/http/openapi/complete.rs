//! What each operation's description leaves out because it follows from something else: descriptions of replies, and headers.

use utoipa::openapi::{
    Components, OpenApi, RefOr, Response, Schema, ServerBuilder, header::HeaderBuilder, path::Operation,
    schema::ObjectBuilder, schema::Type,
};

use super::operations;

/// Headers of replies to polls of a zone with limits.
const LIMITED: [(&str, Type, &str); 2] = [
    ("RateLimit", Type::String, "What is left, where the zone limits its clients"),
    ("RateLimit-Policy", Type::String, "The limit, where the zone limits its clients"),
];

/// Headers of files.
const KEPT: [(&str, Type, &str); 2] = [
    ("ETag", Type::String, "For If-None-Match"),
    ("Cache-Control", Type::String, "How long the reply may be kept"),
];

/// Headers of errors, by status.
const OF_ERROR: [(&str, &str, Type, &str); 4] = [
    ("401", "WWW-Authenticate", Type::String, "The kind of token that is missing or not accepted"),
    ("405", "Allow", Type::String, "The methods of the path"),
    ("429", "Retry-After", Type::Integer, "Try again after these seconds"),
    ("503", "Retry-After", Type::Integer, "Try again after these seconds"),
];

/// Completes the replies of all operations. A reply without a description gets that of its body.
pub(super) fn complete(document: &mut OpenApi) {
    document.servers = Some(vec![ServerBuilder::new().url("/").build()]);
    let components = document.components.get_or_insert_default().clone();
    for (path, item) in &mut document.paths.paths {
        for (_, operation) in operations(item) {
            for (status, reply) in replies(operation) {
                if reply.description.is_empty() {
                    reply.description = of_body(reply, &components).unwrap_or_default();
                }
                let of_error = OF_ERROR.iter().filter(|(of, ..)| *of == status);
                for (_, name, kind, what) in of_error {
                    add(reply, &[(name, kind.clone(), what)]);
                }
                match (path.as_str(), status) {
                    ("/traffic/wait" | "/traffic/entry" | "/traffic/stream", "200" | "429") => {
                        add(reply, &LIMITED);
                    }
                    (
                        "/traffic/notice"
                        | "/traffic/stock"
                        | "/zones/{zone}/rules"
                        | "/wait/{zone}"
                        | "/weir.js",
                        "200" | "304",
                    ) => {
                        add(reply, &KEPT);
                    }
                    ("/.well-known/jwks.json", "200") => add(reply, &KEPT[1..]),
                    _ => {}
                }
            }
        }
    }
}

fn replies(operation: &mut Operation) -> impl Iterator<Item = (&str, &mut Response)> {
    operation.responses.responses.iter_mut().filter_map(|(status, reply)| match reply {
        RefOr::T(reply) => Some((status.as_str(), reply)),
        RefOr::Ref(_) => None,
    })
}

fn add(reply: &mut Response, headers: &[(&str, Type, &str)]) {
    for (name, kind, what) in headers {
        let schema = ObjectBuilder::new().schema_type(kind.clone());
        let header = HeaderBuilder::new().schema(Some(schema)).description(Some(*what)).build();
        reply.headers.insert((*name).to_owned(), header.into());
    }
}

/// The description of the schema that a reply's body has.
fn of_body(reply: &Response, components: &Components) -> Option<String> {
    let (_, RefOr::T(content)) = reply.content.first()? else { return None };
    let Some(RefOr::Ref(named)) = &content.schema else { return None };
    let name = named.ref_location.rsplit('/').next()?;
    match components.schemas.get(name)? {
        RefOr::T(Schema::Object(object)) => object.description.clone(),
        RefOr::T(Schema::OneOf(one_of)) => one_of.description.clone(),
        RefOr::T(Schema::AllOf(all_of)) => all_of.description.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::Document;

    /// The documents as clients read them, with their names.
    fn documents() -> impl Iterator<Item = (Value, &'static str)> {
        let read = |text: String| serde_json::from_str(&text).expect("JSON");
        Document::ALL.into_iter().map(move |(document, name)| (read(document.text()), name))
    }

    /// The operations of a document, with their paths.
    fn all(document: &Value) -> impl Iterator<Item = (String, &Value)> {
        let paths = document["paths"].as_object().expect("paths").iter();
        paths.flat_map(|(path, item)| {
            let operations = item.as_object().expect("operations").iter();
            operations.map(move |(method, operation)| (format!("{method} {path}"), operation))
        })
    }

    /// The names of the schemas that `part` refers to, however far.
    fn schemas(document: &Value, part: &Value, found: &mut BTreeSet<String>) {
        match part {
            Value::Object(fields) => {
                let name = fields.get("$ref").and_then(Value::as_str).and_then(|to| to.rsplit('/').next());
                if let Some(name) = name
                    && found.insert(name.to_owned())
                {
                    schemas(document, &document["components"]["schemas"][name], found);
                }
                fields.values().for_each(|part| schemas(document, part, found));
            }
            Value::Array(parts) => parts.iter().for_each(|part| schemas(document, part, found)),
            _ => {}
        }
    }

    /// `additionalProperties: false` somewhere in `part`.
    fn is_closed(part: &Value) -> bool {
        match part {
            Value::Object(fields) => {
                fields.get("additionalProperties") == Some(&Value::Bool(false))
                    || fields.values().any(is_closed)
            }
            Value::Array(parts) => parts.iter().any(is_closed),
            _ => false,
        }
    }

    /// Clients that are made from a document must accept fields that are added later.
    #[test]
    fn replies_are_open_for_new_fields() {
        for (document, name) in documents() {
            let mut found = BTreeSet::new();
            for (_, operation) in all(&document) {
                schemas(&document, &operation["responses"], &mut found);
            }
            assert!(found.len() > 3, "{name}: {found:?}");
            let closed: Vec<_> =
                found.iter().filter(|name| is_closed(&document["components"]["schemas"][name])).collect();
            assert!(closed.is_empty(), "{name}: {closed:?}");
        }
    }

    #[test]
    fn every_reply_is_described_and_every_operation_has_its_own_name() {
        for (document, name) in documents() {
            let mut ids = BTreeSet::new();
            for (at, operation) in all(&document) {
                assert!(ids.insert(operation["operationId"].as_str().expect("a name")), "{name}: {at}");
                for (status, reply) in operation["responses"].as_object().expect("replies") {
                    let text = reply["description"].as_str().unwrap_or_default();
                    assert!(!text.is_empty(), "{name}: {at} {status} has no description");
                    if let "429" | "503" = status.as_str() {
                        assert!(reply["headers"]["Retry-After"].is_object(), "{name}: {at} {status}");
                    }
                }
            }
        }
    }
}
