//! "Did you mean": the known name nearest to a mistyped one.

/// The lowest similarity (0 to 1) at which a name is suggested.
const SIMILARITY_MIN: f64 = 0.8;

/// Longer names are not compared: no feature has one, and comparing costs time.
const NAME_BYTES_MAX: usize = 200;

/// Returns the most similar of the `known` names, if any is similar enough; the first one
/// on a tie.
pub(crate) fn nearest<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a String>,
) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in known {
        let similarity = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
        if similarity >= SIMILARITY_MIN && best.is_none_or(|(found, _)| similarity > found) {
            best = Some((similarity, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}
