//! A policy as JSON, and the schema of that JSON. Both come from the table of the policy's fields.
//!
//! Invariant: the console has the same table. A test writes and compares it.

use std::borrow::Cow;

use admission::{FIELDS, Field, FieldKind, Policy};
use gate::definitions::PolicyJson;
use serde::{Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        KnownFormat, Object, Ref, RefOr, Schema, SchemaFormat, Type,
        schema::{AdditionalProperties, ObjectBuilder, SchemaType},
    },
};

/// How a zone admits: all fields of its policy.
pub(in crate::http) struct PolicyShape(Policy);

impl From<&Policy> for PolicyShape {
    fn from(policy: &Policy) -> Self {
        Self(*policy)
    }
}

impl Serialize for PolicyShape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PolicyJson(&self.0).serialize(serializer)
    }
}

impl PartialSchema for PolicyShape {
    fn schema() -> RefOr<Schema> {
        let described = |schema, help| match schema {
            RefOr::T(Schema::Object(object)) => described_object(object, help),
            RefOr::Ref(mut reference) => {
                reference.description = help;
                RefOr::Ref(reference)
            }
            other => other,
        };
        let schema = object("How a zone admits.");
        let with = |schema: ObjectBuilder, field: &Field| {
            schema
                .property(field.name, described(value_schema(field), field.help.to_owned()))
                .required(field.name)
        };
        FIELDS.iter().fold(schema, with).into()
    }
}

fn described_object(mut object: Object, help: String) -> RefOr<Schema> {
    object.description = Some(help);
    RefOr::T(Schema::Object(object))
}

impl ToSchema for PolicyShape {
    fn name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add_word_schemas(schemas);
    }
}

/// The schema of an object with some fields of a policy. [`super::super::body`] reads such objects.
pub(in crate::http) struct SomeOfPolicy;

impl PartialSchema for SomeOfPolicy {
    fn schema() -> RefOr<Schema> {
        let with = |schema: ObjectBuilder, field: &Field| schema.property(field.name, value_schema(field));
        let closed = AdditionalProperties::FreeForm(false);
        let schema = object("Some fields of a policy.").additional_properties(Some(closed));
        FIELDS.iter().fold(schema, with).into()
    }
}

impl ToSchema for SomeOfPolicy {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add_word_schemas(schemas);
    }
}

fn object(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Object).description(Some(description))
}

fn value_schema(field: &Field) -> RefOr<Schema> {
    match field.kind {
        FieldKind::Word { schema, .. } => Ref::from_schema_name(schema).into(),
        FieldKind::Number { low, high, .. } => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
            .minimum(Some(low))
            .maximum(Some(high))
            .into(),
        FieldKind::Instant => ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into(),
    }
}

fn add_word_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    for field in FIELDS {
        if let FieldKind::Word { schema, words } = field.kind {
            let words =
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied()));
            schemas.push((schema.to_owned(), words.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_name_and_value_of_the_file() {
        for field in FIELDS {
            let mut policy = Policy::default();
            field.set(&mut policy, 1);
            let shape = serde_json::to_string(&PolicyShape::from(&policy)).expect("plain values");
            assert_eq!(shape, gate::definitions::policy_json(&policy));
            assert!(shape.contains(&format!("\"{}\":", field.name)));
        }
    }

    /// The console's copy of the table, a module of JavaScript.
    const CONSOLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/src/policy-fields.js");

    #[derive(Serialize)]
    #[serde(untagged)]
    enum Row {
        Word {
            name: &'static str,
            words: &'static [&'static str],
            default: &'static str,
        },
        Instant {
            name: &'static str,
            is_instant: bool,
        },
        Number {
            name: &'static str,
            unit: &'static str,
            low: u32,
            high: u32,
            is_optional_limit: bool,
            default: u32,
        },
    }

    impl From<&Field> for Row {
        fn from(field: &Field) -> Self {
            let (name, default) = (field.name, field.default());
            match field.kind {
                FieldKind::Word { words, .. } => Self::Word { name, words, default: words[default as usize] },
                FieldKind::Instant => Self::Instant { name, is_instant: true },
                FieldKind::Number { unit, low, high, is_optional_limit, .. } => {
                    Self::Number { name, unit, low, high, is_optional_limit, default }
                }
            }
        }
    }

    #[test]
    fn reference_of_the_console_is_current() {
        let mut text = "// The fields of a zone's policy, from the table in crates/admission/src/policy/fields.rs. Do not edit:\n\
                        // WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference, then scripts/build-console\n\
                        export const FIELDS = [\n"
            .to_owned();
        for field in FIELDS {
            text += &format!("  {},\n", serde_json::to_string(&Row::from(field)).expect("plain values"));
        }
        text.push_str("];\n");
        if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
            std::fs::write(CONSOLE, &text).expect("the console's sources can be written");
        }
        let there = std::fs::read_to_string(CONSOLE).expect("the console's sources can be read");
        assert_eq!(there, text, "{CONSOLE} is not the table of fields: see its first lines");
    }
}
