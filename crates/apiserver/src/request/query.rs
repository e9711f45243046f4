//! Query parameters.

use std::borrow::Cow;

use portunus_objects::selector::FieldSelector;

/// The most parameters of a request; more are ignored.
const PARAMETERS_MAX: usize = 64;

/// The decoded parameters of a request. Of a repeated parameter, the first counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Parses the text after the question mark.
    #[must_use]
    pub fn parse(text: &str) -> Query {
        let pairs = form_urlencoded::parse(text.as_bytes()).take(PARAMETERS_MAX);
        let owned =
            |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into_owned(), value.into_owned());
        Query {
            parameters: pairs.map(owned).collect(),
        }
    }

    /// Returns a parameter; empty if it is missing.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// Returns a parameter.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        let found = parameters.find(|(own, _)| own == name)?;
        Some(&found.1)
    }

    /// Returns every value of a repeated parameter.
    pub fn all<'query>(&'query self, name: &'query str) -> impl Iterator<Item = &'query str> {
        let parameters = self.parameters.iter();
        parameters
            .filter(move |(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns a boolean as Kubernetes reads one: missing, empty, `0` and `false` are false, but
    /// a parameter without a value is true.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.find(name) {
            None => false,
            Some(value) => !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F"),
        }
    }

    /// Returns the name that the field selector asks for, if it asks for one.
    #[must_use]
    pub fn selected_name(&self) -> Option<String> {
        let selector = self.find("fieldSelector")?;
        let fields = portunus_objects::selector::SelectableFields::default();
        let selector = FieldSelector::parse(selector, &fields).ok()?;
        let name = selector.exact_value("metadata.name")?;
        let is_plain = !name.is_empty() && !name.contains(['/', '\0', '%']);
        is_plain.then(|| name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_the_first_counts() {
        let query = Query::parse("a=1%202&b=x+y&a=3&flag&off=false&no=0");
        assert_eq!(query.get("a"), "1 2");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1 2", "3"]);
        assert_eq!(query.get("b"), "x y");
        assert_eq!(query.get("missing"), "");
        assert!(query.flag("flag") && query.flag("a"));
        assert!(!query.flag("off") && !query.flag("no") && !query.flag("missing"));
    }

    #[test]
    fn number_of_parameters_is_limited() {
        let text = "a=1&".repeat(10_000);
        assert_eq!(Query::parse(&text).all("a").count(), PARAMETERS_MAX);
    }
}
