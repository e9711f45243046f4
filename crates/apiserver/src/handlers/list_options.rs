//! Parameters of lists and watches, with the rules and texts of Kubernetes.

use portunus_objects::field::{FieldError, Path};
use portunus_objects::status::Status;

use super::context::invalid_options;
use crate::failure::Outcome;
use crate::request::Query;
use crate::store::ContinueToken;

const RETRY_AFTER_S: u32 = 1;

/// The parameter `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    NotOlderThan,
    Exact,
}

/// The state that a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consistency {
    /// The newest state, which must have reached a revision; 0 for any.
    Newest { at_least: i64 },
    /// The state at a revision.
    At(i64),
    /// Where a list before ended.
    Continue(ContinueToken),
}

/// The parameters of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListOptions {
    pub(super) consistency: Consistency,
    /// The most objects, or 0.
    pub(super) limit: i64,
    /// Whether only the limit makes the list one of the state at a revision.
    pub(super) is_exact_by_limit: bool,
}

/// The parameters of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchOptions {
    /// The revision after which events are sent; none for the present state first.
    pub(super) after: Option<i64>,
    pub(super) sends_initial_events: bool,
    /// Whether the bookmark at the end of the initial events has its annotation.
    pub(super) marks_end_of_initial_events: bool,
    pub(super) sends_bookmarks: bool,
    /// The revision that the initial events must have reached.
    pub(super) at_least: i64,
}

/// Parses a resource version; empty and `0` are 0.
pub(super) fn parse_version(text: &str) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let parsed: Result<u64, _> = text.parse();
    let number = parsed.ok().and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| {
        let is_number = text.bytes().all(|letter| letter.is_ascii_digit());
        let why = match is_number {
            true => "value out of range",
            false => "invalid syntax",
        };
        format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}"
        )
    })
}

/// Refuses a revision that the store has not reached.
pub(super) fn check_not_too_new(wanted: i64, current: i64) -> Outcome<()> {
    if wanted <= current {
        return Ok(());
    }
    let number = |revision: i64| u64::try_from(revision).unwrap_or_default();
    let status = Status::resource_version_too_large(number(wanted), number(current), RETRY_AFTER_S);
    Err(status.into())
}

fn parse_match(query: &Query) -> Result<Option<Match>, FieldError> {
    match query.get("resourceVersionMatch") {
        "" => Ok(None),
        "NotOlderThan" => Ok(Some(Match::NotOlderThan)),
        "Exact" => Ok(Some(Match::Exact)),
        other => Err(FieldError::not_supported(
            &Path::new("resourceVersionMatch"),
            other,
            ["Exact", "NotOlderThan", ""],
        )),
    }
}

fn forbidden(field: &str, detail: &str) -> FieldError {
    FieldError::forbidden(&Path::new(field), detail)
}

impl ListOptions {
    /// Reads the parameters of a list.
    pub(super) fn parse(query: &Query) -> Outcome<ListOptions> {
        let errors = match_errors(query, false);
        if !errors.is_empty() {
            return Err(invalid_options("ListOptions", &errors));
        }
        let limit = number(query, "limit")?.max(0);
        let consistency = consistency(query, limit)?;
        let is_exact_by_limit = query.get("resourceVersionMatch").is_empty();
        Ok(ListOptions {
            consistency,
            limit,
            is_exact_by_limit,
        })
    }
}

/// Checks `resourceVersionMatch` and `sendInitialEvents`.
fn match_errors(query: &Query, is_watch: bool) -> Vec<FieldError> {
    let version = query.get("resourceVersion");
    let matching = query.get("resourceVersionMatch");
    let sends_initial = query.find("sendInitialEvents").is_some();
    let mut errors = Vec::new();
    if !is_watch && sends_initial {
        errors.push(forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    if is_watch && sends_initial {
        if matching != "NotOlderThan" {
            errors.push(forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        return errors;
    }
    if matching.is_empty() {
        return errors;
    }
    if is_watch {
        errors.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    if version.is_empty() {
        errors.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    if !query.get("continue").is_empty() {
        errors.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ));
    }
    match parse_match(query) {
        Err(error) => errors.push(error),
        Ok(Some(Match::Exact)) if version == "0" => errors.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        Ok(_) => {}
    }
    errors
}

fn consistency(query: &Query, limit: i64) -> Outcome<Consistency> {
    let version = query.get("resourceVersion");
    let token = query.get("continue");
    if !token.is_empty() {
        if !matches!(version, "" | "0") {
            let text = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(text).into());
        }
        let token = ContinueToken::decode(token).map_err(|text| {
            let text = format!("invalid continue token: {text}");
            Status::bad_request(&text)
        })?;
        return Ok(Consistency::Continue(token));
    }
    let revision = parse_version(version).map_err(|text| Status::bad_request(&text))?;
    let matching = parse_match(query).ok().flatten();
    let is_exact = match matching {
        Some(matching) => matching == Match::Exact,
        // Without a match, a list in parts shows the state at the revision.
        None => limit > 0 && revision > 0,
    };
    if is_exact && revision > 0 {
        return Ok(Consistency::At(revision));
    }
    Ok(Consistency::Newest { at_least: revision })
}

fn number(query: &Query, name: &str) -> Outcome<i64> {
    let text = query.get(name);
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        let why = match is_number {
            true => "value out of range",
            false => "invalid syntax",
        };
        let why = format!("strconv.ParseInt: parsing {text:?}: {why}");
        Status::bad_request(&why).into()
    })
}

/// Reads the parameter `timeoutSeconds`; none if it is missing or not positive.
pub(super) fn timeout_seconds(query: &Query) -> Outcome<Option<u64>> {
    let seconds = number(query, "timeoutSeconds")?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0))
}

impl WatchOptions {
    /// Reads the parameters of a watch.
    pub(super) fn parse(query: &Query) -> Outcome<WatchOptions> {
        let errors = match_errors(query, true);
        if !errors.is_empty() {
            return Err(invalid_options("ListOptions", &errors));
        }
        let version = query.get("resourceVersion");
        let revision = parse_version(version).map_err(|text| Status::bad_request(&text))?;
        let initial = query.find("sendInitialEvents");
        let asks_for_initial = initial.is_some() && query.flag("sendInitialEvents");
        // Without a revision a watch begins with the present objects.
        let is_unset = matches!(version, "" | "0");
        let sends_initial_events = match initial {
            Some(_) => asks_for_initial,
            None => is_unset,
        };
        let after = (!sends_initial_events && !is_unset).then_some(revision);
        let sends_bookmarks = query.flag("allowWatchBookmarks");
        Ok(WatchOptions {
            after,
            sends_initial_events,
            marks_end_of_initial_events: asks_for_initial && sends_bookmarks,
            sends_bookmarks,
            at_least: revision,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Outcome<ListOptions> {
        ListOptions::parse(&Query::parse(query))
    }

    #[test]
    fn consistency_follows_version_match_and_limit() {
        let newest = |at_least| Consistency::Newest { at_least };
        let cases = [
            ("", newest(0)),
            ("resourceVersion=0", newest(0)),
            ("resourceVersion=5", newest(5)),
            ("resourceVersion=5&limit=2", Consistency::At(5)),
            ("resourceVersion=0&limit=2", newest(0)),
            (
                "resourceVersion=5&resourceVersionMatch=Exact",
                Consistency::At(5),
            ),
            (
                "resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=2",
                newest(5),
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(list(query).unwrap().consistency, expected, "{query}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_with_the_texts_of_kubernetes() {
        let cases = [
            ("resourceVersion=x", 400),
            ("resourceVersion=-1", 400),
            ("resourceVersion=99999999999999999999", 400),
            ("limit=x", 400),
            ("continue=x", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=Odd", 422),
            (
                "resourceVersion=1&resourceVersionMatch=Exact&continue=x",
                422,
            ),
            ("sendInitialEvents=true", 422),
        ];
        for (query, code) in cases {
            assert_eq!(list(query).unwrap_err().status().code, code, "{query}");
        }
        let failure = list("limit=x").unwrap_err().to_string();
        assert_eq!(failure, "strconv.ParseInt: parsing \"x\": invalid syntax");
        let failure = list("resourceVersion=x").unwrap_err();
        assert_eq!(
            failure.to_string(),
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: \
             parsing \"x\": invalid syntax"
        );
        let failure = list("resourceVersionMatch=Exact").unwrap_err();
        assert_eq!(
            failure.to_string(),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
    }

    #[test]
    fn watch_begins_with_the_present_state_or_after_a_revision() {
        let watch = |query: &str| WatchOptions::parse(&Query::parse(query));
        let plain = watch("").unwrap();
        assert!(plain.sends_initial_events && plain.after.is_none());
        let after = watch("resourceVersion=5&allowWatchBookmarks=true").unwrap();
        assert_eq!(after.after, Some(5));
        assert!(after.sends_bookmarks && !after.sends_initial_events);
        let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5&allowWatchBookmarks=1";
        let streaming = watch(streaming).unwrap();
        assert!(streaming.sends_initial_events && streaming.marks_end_of_initial_events);
        assert_eq!(streaming.at_least, 5);
        assert!(watch("sendInitialEvents=true").is_err());
        assert!(watch("resourceVersionMatch=Exact&resourceVersion=1").is_err());
        assert!(timeout_seconds(&Query::parse("timeoutSeconds=18446744073709551615")).is_err());
    }
}
