//! "Did you mean": the known name nearest to a mistyped one.

/// Below this similarity (0 to 1) a suggestion would only puzzle.
const SIMILARITY_MIN: f64 = 0.8;

/// Names longer than this are garbage, and comparing them would cost time.
const NAME_BYTES_MAX: usize = 200;

/// The most similar of `known`, if any is similar at all; the first one on a tie.
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
