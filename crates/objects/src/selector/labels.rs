//! Label selectors: `tier=web,size in (1,2),!old`.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use thiserror::Error;

use super::lexer::{Token, next_token};
use crate::field::{FieldError, Path, join_errors};
use crate::metadata::{check_label_key, check_label_value, label};

/// A text that is no label selector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LabelSelectorError(String);

/// How a requirement compares a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operator {
    /// `in`: the label has one of the values.
    In,
    /// `notin`: the label is missing or has none of the values.
    NotIn,
    /// `=`: the label has the value.
    Equals,
    /// `==`: the label has the value.
    DoubleEquals,
    /// `!=`: the label is missing or has another value.
    NotEquals,
    /// The label is there.
    Exists,
    /// `!`: the label is missing.
    DoesNotExist,
    /// `>`: the label is an integer above the value.
    GreaterThan,
    /// `<`: the label is an integer below the value.
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// How the label is compared.
    pub operator: Operator,
    /// The values to compare with, sorted.
    pub values: Vec<String>,
}

impl Requirement {
    /// Creates a requirement, checking key and values.
    pub fn new(
        key: &str,
        operator: Operator,
        values: BTreeSet<String>,
    ) -> Result<Requirement, LabelSelectorError> {
        let mut errors = Vec::new();
        errors.extend(key_error(key, &Path::new("key")));
        let path = Path::new("values");
        let values: Vec<String> = values.into_iter().collect();
        if let Some(text) = count_error(operator, values.len()) {
            errors.push(FieldError::invalid(&path, values.clone(), text));
        }
        for (index, value) in values.iter().enumerate() {
            let item = path.index(index);
            let is_order = matches!(operator, Operator::GreaterThan | Operator::LessThan);
            if is_order && value.parse::<i64>().is_err() {
                let text = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(&item, value.as_str(), text));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let texts = check_label_value(value);
            if !texts.is_empty() {
                let field = path.index(index).key(key);
                errors.push(FieldError::invalid(
                    &field,
                    value.as_str(),
                    &texts.join("; "),
                ));
            }
        }
        if !errors.is_empty() {
            return Err(LabelSelectorError(join_errors(&errors)));
        }
        Ok(Requirement {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Returns whether a label with this value, or a missing label, meets the requirement.
    #[must_use]
    pub fn matches_value(&self, label: Option<&str>) -> bool {
        let has = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(has),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label, |label, value| label > value),
            Operator::LessThan => self.compare(label, |label, value| label < value),
        }
    }

    fn compare(&self, label: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let label: Option<i64> = label.and_then(|label| label.parse().ok());
        let value: Option<i64> = self.values.first().and_then(|value| value.parse().ok());
        matches!((label, value), (Some(label), Some(value)) if holds(label, value))
    }
}

fn key_error(key: &str, path: &Path) -> Option<FieldError> {
    let texts = check_label_key(key);
    (!texts.is_empty()).then(|| FieldError::invalid(path, key, &texts.join("; ")))
}

fn count_error(operator: Operator, count: usize) -> Option<&'static str> {
    match operator {
        Operator::In | Operator::NotIn => {
            (count == 0).then_some("for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
            (count != 1).then_some("exact-match compatibility requires one single value")
        }
        Operator::Exists | Operator::DoesNotExist => {
            (count != 0).then_some("values set must be empty for exists and does not exist")
        }
        Operator::GreaterThan | Operator::LessThan => {
            (count != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement {
            key,
            operator,
            values,
        } = self;
        let values = values.join(",");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A list of requirements that an object must all meet; an empty list matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses the text form.
    pub fn parse(text: &str) -> Result<LabelSelector, LabelSelectorError> {
        let mut requirements = Parser { rest: text }.parse()?;
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(LabelSelector { requirements })
    }

    /// Returns the requirements, sorted by key.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether every object matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the labels of an object meet all requirements.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches_value(label(object, &requirement.key)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

struct Parser<'text> {
    rest: &'text str,
}

impl<'text> Parser<'text> {
    fn next(&mut self) -> Token<'text> {
        let (token, rest) = next_token(self.rest);
        self.rest = rest;
        token
    }

    fn next_value(&mut self) -> Token<'text> {
        self.next().as_value()
    }

    fn peek_value(&self) -> Token<'text> {
        next_token(self.rest).0.as_value()
    }

    fn parse(mut self) -> Result<Vec<Requirement>, LabelSelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek_value() {
                Token::Identifier(_) | Token::Exclamation => {
                    let requirement = self.requirement().map_err(|error| {
                        LabelSelectorError(format!("unable to parse requirement: {error}"))
                    })?;
                    requirements.push(requirement);
                    if self.ends_after_requirement()? {
                        return Ok(requirements);
                    }
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(expected(
                        other,
                        ", expected: !, identifier, or 'end of string'",
                    ));
                }
            }
        }
    }

    fn ends_after_requirement(&mut self) -> Result<bool, LabelSelectorError> {
        match self.next_value() {
            Token::End => Ok(true),
            Token::Comma => match self.peek_value() {
                Token::Identifier(_) | Token::Exclamation => Ok(false),
                other => Err(expected(other, ", expected: identifier after ','")),
            },
            other => Err(expected(other, ", expected: ',' or 'end of string'")),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, LabelSelectorError> {
        let mut token = self.next_value();
        let is_negated = token == Token::Exclamation;
        if is_negated {
            token = self.next_value();
        }
        let Token::Identifier(key) = token else {
            return Err(expected(token, ", expected: identifier"));
        };
        if let Some(error) = key_error(key, &Path::root()) {
            return Err(LabelSelectorError(error.to_string()));
        }
        if is_negated {
            return Requirement::new(key, Operator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.peek_value(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, BTreeSet::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, LabelSelectorError> {
        Ok(match self.next() {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::GreaterThan => Operator::GreaterThan,
            Token::LessThan => Operator::LessThan,
            other => return Err(expected(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        if matches!(self.peek_value(), Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next_value() {
            Token::Identifier(value) => Ok(BTreeSet::from([value.to_owned()])),
            other => Err(expected(other, ", expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        let open = self.next_value();
        if open != Token::OpenParenthesis {
            return Err(expected(open, " expected: '('"));
        }
        match self.peek_value() {
            Token::Identifier(_) | Token::Comma => {
                let values = self.value_list()?;
                self.next_value();
                Ok(values)
            }
            Token::CloseParenthesis => {
                self.next_value();
                Ok(BTreeSet::from([String::new()]))
            }
            other => Err(expected(other, ", expected: ',', ')' or identifier")),
        }
    }

    /// Reads values up to the closing parenthesis, which remains. An empty place between commas
    /// is an empty value.
    fn value_list(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        let mut values = BTreeSet::new();
        loop {
            match self.next_value() {
                Token::Identifier(value) => {
                    values.insert(value.to_owned());
                    match self.peek_value() {
                        Token::Comma => {}
                        Token::CloseParenthesis => return Ok(values),
                        other => return Err(expected(other, ", expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek_value() {
                        Token::CloseParenthesis => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(expected(other, ", expected: ',', or identifier")),
            }
        }
    }
}

fn expected(found: Token<'_>, rest: &str) -> LabelSelectorError {
    LabelSelectorError(format!("found '{}'{rest}", found.literal()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_labels() {
        let object =
            json!({"metadata": {"labels": {"a": "1", "b": "", "n/in": "in", "size": "7"}}});
        let cases = [
            ("", true),
            ("a", true),
            ("!a", false),
            ("c", false),
            ("!c", true),
            ("a=1", true),
            ("a==1", true),
            ("a = 2", false),
            ("a!=2", true),
            ("c!=2", true),
            ("a in (1,2)", true),
            ("a in (2, 3)", false),
            ("c in (1)", false),
            ("a notin (2)", true),
            ("c notin (2)", true),
            ("a notin (1)", false),
            ("b=", true),
            ("b in ()", true),
            ("b in (,x)", true),
            ("n/in=in", true),
            ("n/in in (in, notin)", true),
            ("size>6,size<8", true),
            ("size>7", false),
            ("a>0,b", true),
            ("b>0", false),
            ("a=1,b,!c", true),
            ("a=1,c", false),
        ];
        for (text, matches) in cases {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&object), matches, "{text}");
        }
    }

    #[test]
    fn selector_is_printed_sorted_by_key() {
        let selector =
            LabelSelector::parse("z in (b,a,b), !y ,x!=1,w == 2,v notin (c),u>1").unwrap();
        assert_eq!(
            selector.to_string(),
            "u>1,v notin (c),w==2,x!=1,!y,z in (a,b)"
        );
    }

    #[test]
    fn malformed_selectors_have_the_texts_of_kubernetes() {
        let cases = [
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            (
                "a in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a in (b,=",
                "unable to parse requirement: found '=', expected: ',', or identifier",
            ),
            (
                "a==(",
                "unable to parse requirement: found '(', expected: identifier",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, error) in cases {
            assert_eq!(
                LabelSelector::parse(text).unwrap_err().to_string(),
                error,
                "{text}"
            );
        }
        let key = LabelSelector::parse("a/b/c=d").unwrap_err().to_string();
        assert!(key.starts_with("unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"), "{key}");
        let value = LabelSelector::parse("a=-").unwrap_err().to_string();
        assert!(value.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must"), "{value}");
    }
}
