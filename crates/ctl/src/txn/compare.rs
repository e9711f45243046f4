//! Conditions: `target("key") operator "value"`.

use bytes::Bytes;
use portunus_proto::etcdserverpb::Compare;
use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};

use crate::go::integer::parse_i64;
use crate::go::quote::{quote, unquote_prefix};
use crate::outcome::{ExitWith, Failure};

/// Reads one condition.
pub fn parse(line: &str) -> Result<Compare, Failure> {
    let Some((target, rest)) = line.split_once('(') else {
        return Err(invalid(format!("malformed comparison: {line}")));
    };
    let parts = Parts::read(rest);
    let (Some(key), Some(operator), Some(value)) = (&parts.key, parts.operator, &parts.value)
    else {
        return Err(invalid(parts.shown(line, target)));
    };
    let result = match operator {
        "=" => CompareResult::Equal,
        "!=" => CompareResult::NotEqual,
        ">" => CompareResult::Greater,
        "<" => CompareResult::Less,
        _ => {
            let message = format!("malformed comparison: {line} (unknown operator {operator})");
            return Err(invalid(message));
        }
    };
    let number = |radix| {
        let text = std::str::from_utf8(value).unwrap_or_default();
        parse_i64(text, radix).map_err(|_| invalid(format!("invalid txn compare request: {line}")))
    };
    let (target, union) = match target {
        "ver" | "version" => (CompareTarget::Version, TargetUnion::Version(number(10)?)),
        "c" | "create" => (
            CompareTarget::Create,
            TargetUnion::CreateRevision(number(10)?),
        ),
        "m" | "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number(10)?)),
        "val" | "value" => {
            let value = Bytes::copy_from_slice(value);
            (CompareTarget::Value, TargetUnion::Value(value))
        }
        // Lease ids are hexadecimal wherever this program reads or prints them.
        "lease" => (CompareTarget::Lease, TargetUnion::Lease(number(16)?)),
        _ => {
            let message = format!("malformed comparison: {line} (unknown target {target})");
            return Err(invalid(message));
        }
    };
    Ok(Compare {
        result: result.into(),
        target: target.into(),
        key: Bytes::copy_from_slice(key),
        range_end: Bytes::new(),
        target_union: Some(union),
    })
}

fn invalid(message: String) -> Failure {
    Failure::new(ExitWith::InvalidInput, message)
}

/// The parts of a condition up to the first syntax error.
#[derive(Default)]
struct Parts<'l> {
    key: Option<Vec<u8>>,
    operator: Option<&'l str>,
    value: Option<Vec<u8>>,
}

impl<'l> Parts<'l> {
    /// Reads `"key") operator "value"`; what follows the value does not matter.
    fn read(text: &'l str) -> Self {
        let mut parts = Self::default();
        let Some((key, rest)) = unquote_prefix(text.trim_start()) else {
            return parts;
        };
        parts.key = Some(key);
        let Some(rest) = rest.strip_prefix(')').and_then(after_blanks) else {
            return parts;
        };
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (operator, rest) = rest.split_at(end);
        if operator.is_empty() {
            return parts;
        }
        parts.operator = Some(operator);
        let value = after_blanks(rest).and_then(unquote_prefix);
        parts.value = value.map(|(value, _)| value);
        parts
    }

    fn shown(&self, line: &str, target: &str) -> String {
        let quoted = |part: &Option<Vec<u8>>| quote(part.as_deref().unwrap_or_default());
        format!(
            "malformed comparison: {line}; got {target}({}) {} {}",
            quoted(&self.key),
            self.operator.unwrap_or_default(),
            quoted(&self.value),
        )
    }
}

/// The rest after at least one blank.
fn after_blanks(text: &str) -> Option<&str> {
    let rest = text.trim_start();
    (rest.len() < text.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(line: &str) -> (CompareResult, CompareTarget, Bytes, TargetUnion) {
        let compare = parse(line).unwrap();
        (
            compare.result(),
            compare.target(),
            compare.key.clone(),
            compare.target_union.unwrap(),
        )
    }

    #[test]
    fn comparison_parses_with_every_target_and_operator() {
        use CompareResult as R;
        use CompareTarget as T;
        let key = Bytes::from("k");
        for (line, result, target, union) in [
            (
                r#"ver("k") = "3""#,
                R::Equal,
                T::Version,
                TargetUnion::Version(3),
            ),
            (
                r#"version("k") != "3""#,
                R::NotEqual,
                T::Version,
                TargetUnion::Version(3),
            ),
            (
                r#"c("k") > "3""#,
                R::Greater,
                T::Create,
                TargetUnion::CreateRevision(3),
            ),
            (
                r#"create("k") < "-3""#,
                R::Less,
                T::Create,
                TargetUnion::CreateRevision(-3),
            ),
            (
                r#"m("k") = "3""#,
                R::Equal,
                T::Mod,
                TargetUnion::ModRevision(3),
            ),
            (
                r#"mod("k") = "3""#,
                R::Equal,
                T::Mod,
                TargetUnion::ModRevision(3),
            ),
            (
                r#"val("k") = "a b""#,
                R::Equal,
                T::Value,
                TargetUnion::Value("a b".into()),
            ),
            (
                r#"value("k") = "\xff""#,
                R::Equal,
                T::Value,
                TargetUnion::Value(vec![0xff].into()),
            ),
            (
                r#"lease("k") = "1f""#,
                R::Equal,
                T::Lease,
                TargetUnion::Lease(0x1f),
            ),
        ] {
            assert_eq!(
                condition(line),
                (result, target, key.clone(), union),
                "{line}"
            );
        }
    }

    #[test]
    fn blanks_backquotes_and_trailing_words_parse_as_in_go() {
        let (.., union) = condition("val( \"k\")   =  `2` junk");
        assert_eq!(union, TargetUnion::Value("2".into()));
    }

    #[test]
    fn invalid_comparison_is_refused_with_etcdctl_text() {
        for (line, message) in [
            ("nonsense", "malformed comparison: nonsense"),
            (
                r#"val("a")= "2""#,
                r#"malformed comparison: val("a")= "2"; got val("a")  """#,
            ),
            (
                r#"val("a") ="2""#,
                r#"malformed comparison: val("a") ="2"; got val("a") ="2" """#,
            ),
            (
                r#"foo("a") = "2""#,
                r#"malformed comparison: foo("a") = "2" (unknown target foo)"#,
            ),
            (
                r#"ver("a") = "x""#,
                r#"invalid txn compare request: ver("a") = "x""#,
            ),
            (
                r#"val("a") ~ "2""#,
                r#"malformed comparison: val("a") ~ "2" (unknown operator ~)"#,
            ),
        ] {
            let failure = parse(line).unwrap_err();
            assert_eq!(failure.message.as_deref(), Some(message));
            assert_eq!(failure.exit, ExitWith::InvalidInput);
        }
    }
}
