//! The conditions of OLMConfig: whether the gates are valid, and how far copies are disabled.

use portunus_objects::{metadata, timestamp};
use portunus_olm::{OlmFeatures, Snapshot, condition, gates_condition, set_condition};
use serde_json::{Value, json};

use super::decide::Decision;

/// The type of the condition about copies.
pub const DISABLED_COPIED_CSVS: &str = "DisabledCopiedCSVs";

/// Returns the configuration with its conditions; none if it has them already.
pub fn with_conditions(
    config: &Value,
    snapshot: &Snapshot<OlmFeatures>,
    decision: &Decision,
    now_unix_s: i64,
) -> Option<Value> {
    let mut after = config.clone();
    set_condition(&mut after, gates_condition(snapshot, config, now_unix_s));
    let copies = copies_condition(config, decision, now_unix_s);
    set_condition(&mut after, copies);
    (after != *config).then_some(after)
}

/// Returns the condition about copies. It is true only when copies are disabled and none is left.
/// Its time changes only with its status.
fn copies_condition(config: &Value, decision: &Decision, now_unix_s: i64) -> Value {
    let (missing, stray) = (decision.missing, decision.stray);
    let (status, reason, message) = match (decision.is_disabled, missing, stray) {
        (true, _, 0) => (
            "True",
            "CopiedCSVsDisabled",
            "copies are disabled, and none is left outside of the protected namespaces".to_owned(),
        ),
        (true, _, stray) => (
            "False",
            "CopiedCSVsDisabled",
            format!("copies are disabled, and copies that are left to remove: {stray}"),
        ),
        (false, 0, _) => (
            "False",
            "CopiedCSVsEnabled",
            "copies are enabled, and every namespace has them".to_owned(),
        ),
        (false, missing, _) => (
            "False",
            "CopiedCSVsEnabled",
            format!("copies are enabled, and copies that are missing: {missing}"),
        ),
    };
    let since = condition(config, DISABLED_COPIED_CSVS)
        .filter(|condition| condition["status"] == status)
        .and_then(|condition| condition["lastTransitionTime"].as_str().map(str::to_owned))
        .or_else(|| timestamp::format(now_unix_s));
    json!({
        "type": DISABLED_COPIED_CSVS,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": metadata::generation(config),
        "lastTransitionTime": since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_true_only_without_stray_copies() {
        let decision = |is_disabled, missing, stray| Decision {
            is_disabled,
            actions: Vec::new(),
            missing,
            stray,
        };
        for (decision, status, reason) in [
            (decision(false, 0, 0), "False", "CopiedCSVsEnabled"),
            (decision(false, 2, 0), "False", "CopiedCSVsEnabled"),
            (decision(true, 0, 3), "False", "CopiedCSVsDisabled"),
            (decision(true, 0, 0), "True", "CopiedCSVsDisabled"),
        ] {
            let condition = copies_condition(&json!({}), &decision, 0);
            assert_eq!(condition["status"], status, "{decision:?}");
            assert_eq!(condition["reason"], reason, "{decision:?}");
        }
    }

    #[test]
    fn time_of_the_condition_changes_only_with_its_status() {
        let decision = |is_disabled| Decision {
            is_disabled,
            actions: Vec::new(),
            missing: 0,
            stray: 0,
        };
        let mut config = json!({"metadata": {"name": "cluster"}});
        let first = copies_condition(&config, &decision(true), 0);
        set_condition(&mut config, first.clone());
        assert_eq!(copies_condition(&config, &decision(true), 60), first);
        let changed = copies_condition(&config, &decision(false), 60);
        assert_eq!(changed["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }
}
