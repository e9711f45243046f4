//! Bad input of any shape gets an error that names the place, never a panic.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_gates::*;
use proptest::prelude::*;

/// Passes a text to every parser of untrusted input.
fn parse_with_every_parser(text: &str) {
    let _ = Version::parse(text).map_err(|error| error.to_string());
    let _ = Version::parse_semantic(text);
    let _ = text.parse::<MajorMinor>();
    if let Ok(given) = Assignments::parse(Origin::Flag, text) {
        let registry = server([NewFeature::new("Known", [Spec::beta("3.6")])]);
        let built = GateSet::builder(registry, Versions::emulating(v("3.7")))
            .stage(&given)
            .build();
        let _ = built
            .map(|gates| gates.to_string())
            .map_err(|errors| errors.to_string());
    }
    let list = [text];
    let _ = ComponentFlags::parse(&list, &[], &[]).map_err(|error| error.to_string());
    let _ = ComponentFlags::parse(&[], &list, &[]);
    let _ = ComponentFlags::parse(&[], &[], &list);
    let _ = from_json(text).map_err(|error| error.to_string());
    let _ = serde_json::from_str::<cluster::ClusterParams>(text);
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        let _ = Assignments::from_value(Origin::Config, &value);
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        parse_with_every_parser(&text);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        parse_with_every_parser(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn malformed_versions_never_panic(text in "[ v]{0,2}[0-9]{0,22}(\\.[0-9]{0,21}){0,5}[-+.a-z0-9]{0,12}") {
        parse_with_every_parser(&text);
    }

    #[test]
    fn malformed_flags_never_panic(text in "([A-Za-z:]{0,6}=?(true|false|t|f|0|1|x)?[ ,]?){0,12}") {
        parse_with_every_parser(&text);
    }

    #[test]
    fn malformed_documents_never_panic(
        text in r#"\{"features":\[\{"name":"[A-Z]?","level":"(server|x)","specs":\[(\{"version":"[0-9.]{0,4}","stage":"(Alpha|Removed)","default":(true|false)\},?){0,3}\]\}?\]?\}?"#
    ) {
        parse_with_every_parser(&text);
    }
}

#[test]
fn megabyte_of_malformed_text_is_refused_with_a_short_error() {
    for unit in ["x", "=", ",", "9", "1.", "A=true,", "{", "[", "\u{10ffff}"] {
        let text = unit.repeat((1 << 20) / unit.len());
        parse_with_every_parser(&text);
        if let Err(error) = Version::parse(&text) {
            assert!(error.to_string().len() < 1000, "{unit}");
            assert!(error.to_string().contains("byte"), "{unit}");
        }
        if let Err(error) = Assignments::parse(Origin::Flag, &text) {
            assert!(error.to_string().len() < 1000, "{unit}");
            assert!(error.to_string().contains("byte"), "{unit}");
        }
        if let Err(error) = from_json(&text) {
            assert!(error.to_string().contains("line"), "{unit}");
            assert!(error.to_string().len() < 1000, "{unit}");
        }
    }
}
