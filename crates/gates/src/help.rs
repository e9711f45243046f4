//! The gate list in `--help`.

use crate::registry::{ALL_ALPHA, ALL_BETA, Registry};
use crate::spec::{Spec, Versions};
use crate::stage::Stage;

/// Returns one line per feature a user may switch: alpha and beta features and the two
/// toggles, sorted. A feature whose default depends on the minimum compatibility version
/// shows both defaults.
pub fn known_features(registry: &Registry, versions: Versions) -> Vec<String> {
    let mut lines: Vec<String> = [(ALL_ALPHA, Stage::Alpha), (ALL_BETA, Stage::Beta)]
        .map(|(name, stage)| line(name, &Spec::unversioned(stage, false)))
        .into();
    for feature in registry.features() {
        let here = feature.at(versions);
        let newest = feature.at(Versions::exactly(versions.emulation));
        let second = newest.entry != here.entry;
        match (is_listed(&here.spec), second && is_listed(&newest.spec)) {
            (true, false) => lines.push(line(&feature.name, &here.spec)),
            (false, false) => {}
            (first, true) => {
                let min_compat = newest.spec.min_compat.unwrap_or(versions.emulation);
                let other = format!(
                    "{} when the minimum compatibility version is {min_compat} or higher",
                    line(&feature.name, &newest.spec)
                );
                lines.push(if first {
                    format!("{}, or {other}", line(&feature.name, &here.spec))
                } else {
                    other
                });
            }
        }
    }
    lines.sort();
    lines
}

/// Returns whether `--help` lists a feature with this spec: only unlocked alpha and beta.
fn is_listed(spec: &Spec) -> bool {
    matches!(spec.stage, Stage::Alpha | Stage::Beta) && !spec.locked
}

fn line(name: &str, spec: &Spec) -> String {
    format!(
        "{name}=true|false ({} - default={})",
        spec.stage, spec.default
    )
}
