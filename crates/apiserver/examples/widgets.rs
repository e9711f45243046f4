//! A resource in two versions, served from memory: run it with
//! `cargo run -p portunus-apiserver --example widgets`, then
//! `kubectl --server http://127.0.0.1:PORT get widgets`.
//!
//! [docs/apiserver.md](../../../docs/apiserver.md) explains it step by step.

use portunus_apis::Lifecycle;
use portunus_apiserver::{Definition, DefinitionError, Review, Rules, VersionDefinition, testing};
use portunus_objects::convert::{Conversions, ConvertError};
use portunus_objects::field::{FieldError, Path};
use portunus_objects::table::Columns;
use serde_json::{Value, json};

/// The schema of both versions; only the name of the size differs.
fn schema(size: &str) -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            size: {"type": "integer", "minimum": 0, "description": "The size in metres."},
            "color": {"type": "string", "default": "red"},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }})
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
}

#[allow(clippy::unnecessary_wraps)] // other conversions can fail
fn to_v1(object: &mut Value) -> Result<(), ConvertError> {
    rename(object, "length", "size");
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // other conversions can fail
fn from_v1(object: &mut Value) -> Result<(), ConvertError> {
    rename(object, "size", "length");
    Ok(())
}

/// Widgets cannot shrink, and large ones are warned about.
struct WidgetRules;

impl Rules for WidgetRules {
    fn review(&self, after: &Value, before: Option<&Value>) -> Review {
        let size = |object: &Value| object.pointer("/spec/size").and_then(Value::as_i64);
        let mut review = Review::default();
        let (now, earlier) = (size(after), before.and_then(size));
        if let (Some(now), Some(earlier)) = (now, earlier)
            && now < earlier
        {
            let path = Path::new("spec").child("size");
            let detail = format!("widgets cannot shrink: it is {earlier}");
            review.errors.push(FieldError::invalid(&path, now, &detail));
        }
        if now > Some(1000) {
            let warning = "spec.size: widgets of more than 1000 m are slow".to_owned();
            review.warnings.push(warning);
        }
        review
    }
}

fn widgets() -> Result<Definition, Box<dyn std::error::Error>> {
    let columns = Columns::named()
        .column("Size", "integer", ".spec.size")?
        .age()?;
    // Introduced in 1.34 and on by default; deprecated when v1 came, gone in 1.39.
    let beta = Lifecycle::since("1.34").deprecated("1.36").removed("1.39");
    let beta: Result<VersionDefinition, DefinitionError> =
        VersionDefinition::new("v1beta1", beta, schema("length"));
    let ga = VersionDefinition::new("v1", Lifecycle::since("1.36"), schema("size"))?;
    Ok(Definition::new("example.io", "Widget", "widgets")
        .with_short_names(["wd"])
        .with_version(beta?.served_by_default(true).with_status())
        .with_version(ga.with_status().with_columns(columns))
        .with_conversions(Conversions::hub("example.io", "v1").version("v1beta1", to_v1, from_v1))
        .with_rules(WidgetRules))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = testing::start([widgets()?]).await?;
    println!("kubectl --server {} get widgets", server.url());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
