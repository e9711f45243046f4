//! Names, label keys and label values: what Kubernetes allows, with its texts.
//!
//! Each check returns the list of what is wrong; an empty list means valid.

const DNS1123_LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const DNS1123_SUBDOMAIN_FORMAT: &str =
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1123_SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_FORMAT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The most letters of a DNS label.
pub const DNS1123_LABEL_LENGTH_MAX: usize = 63;
/// The most letters of a DNS subdomain.
pub const DNS1123_SUBDOMAIN_LENGTH_MAX: usize = 253;
/// The most bytes of a label value and of the name part of a label key.
pub const LABEL_LENGTH_MAX: usize = 63;

/// The number of random letters at the end of a generated name.
pub const GENERATED_SUFFIX_LENGTH: usize = 5;
const GENERATED_NAME_LENGTH_MAX: usize = 63;

/// The letters of a generated suffix: no vowels and no letters that look alike.
pub const GENERATED_SUFFIX_LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Returns the name for a `generateName` and random text, cut so that it fits a DNS label.
#[must_use]
pub fn generated_name(generate_name: &str, random: &str) -> String {
    let length_max = GENERATED_NAME_LENGTH_MAX.saturating_sub(random.len());
    let mut end = generate_name.len().min(length_max);
    while !generate_name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{random}", &generate_name[..end])
}

fn is_lower_alphanumeric(letter: u8) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

fn matches_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends_match = [bytes.first(), bytes.last()]
        .iter()
        .all(|end| end.is_some_and(|letter| is_lower_alphanumeric(*letter)));
    ends_match
        && bytes
            .iter()
            .all(|letter| is_lower_alphanumeric(*letter) || *letter == b'-')
}

fn matches_dns_subdomain(text: &str) -> bool {
    text.split('.').all(matches_dns_label)
}

fn matches_label_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends_match = [bytes.first(), bytes.last()]
        .iter()
        .all(|end| end.is_some_and(u8::is_ascii_alphanumeric));
    ends_match
        && bytes
            .iter()
            .all(|letter| letter.is_ascii_alphanumeric() || b"-_.".contains(letter))
}

fn format_text(text: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    let examples = examples.join(" or ");
    format!("{text} (e.g. {examples}regex used for validation is '{format}')")
}

/// Checks a DNS-1123 label, the form of a namespace.
#[must_use]
pub fn check_dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > DNS1123_LABEL_LENGTH_MAX {
        errors.push(format!(
            "must be no more than {DNS1123_LABEL_LENGTH_MAX} characters"
        ));
    }
    if matches_dns_label(text) {
        return errors;
    }
    errors.push(if matches_dns_subdomain(text) {
        "must not contain dots".to_owned()
    } else {
        format_text(
            DNS1123_LABEL_TEXT,
            DNS1123_LABEL_FORMAT,
            &["my-name", "123-abc"],
        )
    });
    errors
}

/// Checks a DNS-1123 subdomain, the form of most names.
#[must_use]
pub fn check_dns1123_subdomain(text: &str) -> Vec<String> {
    check_subdomain(text, "characters")
}

fn check_subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > DNS1123_SUBDOMAIN_LENGTH_MAX {
        errors.push(format!(
            "must be no more than {DNS1123_SUBDOMAIN_LENGTH_MAX} {unit}"
        ));
    }
    if !matches_dns_subdomain(text) {
        errors.push(format_text(
            DNS1123_SUBDOMAIN_TEXT,
            DNS1123_SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    errors
}

/// Checks a label key: a name with an optional DNS subdomain and `/` before it. Annotation keys
/// in lower case and finalizers have the same form.
#[must_use]
pub fn check_label_key(key: &str) -> Vec<String> {
    let format = || {
        format_text(
            LABEL_KEY_TEXT,
            LABEL_KEY_FORMAT,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut errors = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let prefix_errors = check_subdomain(prefix, "bytes");
                errors.extend(
                    prefix_errors
                        .iter()
                        .map(|error| format!("prefix part {error}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                format()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        errors.push(format!(
            "name part must be no more than {LABEL_LENGTH_MAX} bytes"
        ));
    }
    if !matches_label_name(name) {
        errors.push(format!("name part {}", format()));
    }
    errors
}

/// Checks a label value.
#[must_use]
pub fn check_label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(format!("must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !matches_label_name(value) {
        errors.push(format_text(
            LABEL_VALUE_TEXT,
            LABEL_VALUE_FORMAT,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_subdomains() {
        for valid in ["a", "a-b", "a.b", "1.2-3", &"a".repeat(253)] {
            assert!(check_dns1123_subdomain(valid).is_empty(), "{valid}");
        }
        for invalid in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a/b", "é"] {
            let errors = check_dns1123_subdomain(invalid);
            assert_eq!(errors.len(), 1, "{invalid}");
            assert_eq!(
                errors[0],
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            );
        }
        assert_eq!(
            check_dns1123_subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
    }

    #[test]
    fn namespaces_are_dns_labels() {
        assert!(check_dns1123_label("a-1").is_empty());
        assert_eq!(check_dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            check_dns1123_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            check_dns1123_label(&"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
    }

    #[test]
    fn label_keys_have_an_optional_prefix() {
        for valid in ["a", "a/b", "example.com/A_b.c-1"] {
            assert!(check_label_key(valid).is_empty(), "{valid}");
        }
        let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        assert_eq!(check_label_key("/a"), ["prefix part must be non-empty"]);
        assert_eq!(check_label_key("a/"), ["name part must be non-empty", name]);
        assert_eq!(check_label_key("a b"), [name]);
        assert_eq!(
            check_label_key(&"a".repeat(64)),
            ["name part must be no more than 63 bytes"]
        );
        assert!(check_label_key("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(
            check_label_key("A_/b")[0].starts_with("prefix part a lowercase RFC 1123 subdomain")
        );
    }

    #[test]
    fn label_values_may_be_empty() {
        assert!(check_label_value("").is_empty());
        assert!(check_label_value("A_b.c-1").is_empty());
        assert_eq!(
            check_label_value("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(
            check_label_value(&"a".repeat(64)),
            ["must be no more than 63 bytes"]
        );
    }

    #[test]
    fn generated_name_fits_a_dns_label() {
        assert_eq!(generated_name("web-", "x2k4b"), "web-x2k4b");
        let long = generated_name(&"a".repeat(100), "x2k4b");
        assert_eq!(long.len(), 63);
        assert!(long.ends_with("ax2k4b"));
        assert_eq!(generated_name(&"é".repeat(30), "x2k4b").len(), 63);
        assert_eq!(
            generated_name(&format!("a{}", "é".repeat(30)), "x2k4b").len(),
            62
        );
    }
}
