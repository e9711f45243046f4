//! What is to do: a function of the gates, the CSVs and the namespaces.

use std::collections::BTreeSet;

use portunus_gates::Gates;
use portunus_objects::metadata;
use portunus_olm::{DisableCopiedCsvs, OlmFeatures};
use serde_json::Value;

use super::cache::Objects;
use super::copies::{COPIED_FROM, copy_of, is_source, replacement, with_status};

/// The state on which the controller decides.
#[derive(Debug)]
pub struct Observed<'state> {
    /// The gates of OLMConfig.
    pub gates: &'state Gates<OlmFeatures>,
    /// All CSVs.
    pub csvs: &'state Objects,
    /// The namespaces that exist.
    pub namespaces: &'state BTreeSet<String>,
    /// The namespaces that keep their copies while copies are disabled.
    pub protected: &'state BTreeSet<String>,
    /// The ids of CSVs that have their Warning event since copies were disabled.
    pub warned: &'state BTreeSet<String>,
}

/// One step towards the wanted state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create this copy, with its status.
    Create(Value),
    /// Replace everything of a copy but its status.
    Replace(Value),
    /// Replace the status of a copy.
    ReplaceStatus(Value),
    /// Remove this copy.
    Remove(Value),
    /// Create the Warning event for this CSV.
    Warn(Value),
}

/// The steps, and what the condition of OLMConfig reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether copies are disabled.
    pub is_disabled: bool,
    /// The steps.
    pub actions: Vec<Action>,
    /// The number of copies that do not exist yet.
    pub missing: usize,
    /// The number of copies that must not exist, those being deleted included.
    pub stray: usize,
}

/// Decides what is to do.
pub fn decide(observed: &Observed<'_>) -> Decision {
    let is_disabled = observed.gates.enabled(DisableCopiedCsvs);
    let wants_copies = |namespace: &String| !is_disabled || observed.protected.contains(namespace);
    let mut decision = Decision {
        is_disabled,
        actions: Vec::new(),
        missing: 0,
        stray: 0,
    };
    for source in observed.csvs.values().filter(|csv| is_source(csv)) {
        for namespace in observed.namespaces.iter().filter(|name| wants_copies(name)) {
            ensure_copy(observed, source, namespace, &mut decision);
        }
        if is_disabled && !observed.warned.contains(metadata::uid(source)) {
            decision.actions.push(Action::Warn(source.clone()));
        }
    }
    for ((namespace, name), copy) in observed.csvs {
        let Some(from) = metadata::label(copy, COPIED_FROM) else {
            continue;
        };
        let source = observed.csvs.get(&(from.to_owned(), name.clone()));
        let is_wanted = source.is_some_and(is_source)
            && from != namespace
            && observed.namespaces.contains(namespace)
            && wants_copies(namespace);
        if is_wanted {
            continue;
        }
        decision.stray += 1;
        if !metadata::is_deleting(copy) {
            decision.actions.push(Action::Remove(copy.clone()));
        }
    }
    decision
}

/// Adds the steps for one copy. A CSV of the same name that is no copy of this source stays.
fn ensure_copy(observed: &Observed<'_>, source: &Value, namespace: &str, decision: &mut Decision) {
    let from = metadata::namespace(source);
    if from == namespace {
        return;
    }
    let key = (namespace.to_owned(), metadata::name(source).to_owned());
    let wanted = copy_of(source, namespace);
    let Some(present) = observed.csvs.get(&key) else {
        decision.missing += 1;
        decision.actions.push(Action::Create(wanted));
        return;
    };
    if metadata::label(present, COPIED_FROM) != Some(from) || metadata::is_deleting(present) {
        return;
    }
    // One write at a time: the second would be refused because of the version of the first.
    let action = replacement(present, &wanted)
        .map(Action::Replace)
        .or_else(|| with_status(present, &wanted).map(Action::ReplaceStatus));
    decision.actions.extend(action);
}

#[cfg(test)]
mod tests {
    use portunus_gates::Features;
    use portunus_olm::{LiveGates, olm_versions};
    use serde_json::json;

    use super::super::cache::key;
    use super::super::copies::TARGET_NAMESPACES;
    use super::*;

    fn source(namespace: &str, name: &str) -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
                "annotations": {TARGET_NAMESPACES: ""}},
            "spec": {"version": "1.0.0"},
            "status": {"phase": "Succeeded"},
        })
    }

    fn copy(namespace: &str) -> Value {
        let mut copy = copy_of(&source("operators", "etcd"), namespace);
        copy["metadata"]["uid"] = format!("copy-{namespace}").into();
        copy
    }

    /// Decides for the namespaces operators, openshift and tenant, of which openshift is
    /// protected.
    fn decide_for(config: Option<Value>, csvs: &[Value], warned: &[&str]) -> Decision {
        let features = Features::<OlmFeatures>::declared().unwrap();
        let gates = LiveGates::new(features, olm_versions()).unwrap();
        let snapshot = gates.follow(config.as_ref());
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        decide(&Observed {
            gates: snapshot.gates(),
            csvs: &csvs.iter().map(|csv| (key(csv), csv.clone())).collect(),
            namespaces: &texts(&["openshift", "operators", "tenant"]),
            protected: &texts(&["openshift"]),
            warned: &texts(warned),
        })
    }

    fn disabled(value: bool) -> Option<Value> {
        let gate = json!({"name": "disableCopiedCSVs", "value": value});
        Some(json!({"spec": {"features": {"gates": [gate]}}}))
    }

    fn remove(copy: &Value) -> Action {
        Action::Remove(copy.clone())
    }

    #[test]
    fn copies_are_created_without_a_configuration_and_with_the_gate_off() {
        let etcd = source("operators", "etcd");
        let expected = ["openshift", "tenant"].map(|name| Action::Create(copy_of(&etcd, name)));
        for config in [None, Some(json!({})), disabled(false)] {
            let decision = decide_for(config, std::slice::from_ref(&etcd), &[]);
            assert_eq!(decision.actions, expected);
            assert!(!decision.is_disabled);
            assert_eq!((decision.missing, decision.stray), (2, 0));
        }
    }

    #[test]
    fn nothing_is_to_do_when_every_copy_is_as_its_source() {
        let csvs = [
            source("operators", "etcd"),
            copy("openshift"),
            copy("tenant"),
        ];
        let decision = decide_for(None, &csvs, &[]);
        assert_eq!(decision.actions, []);
        assert_eq!((decision.missing, decision.stray), (0, 0));
    }

    #[test]
    fn disabled_copies_are_removed_except_in_protected_namespaces() {
        let etcd = source("operators", "etcd");
        let csvs = [etcd.clone(), copy("openshift"), copy("tenant")];
        let decision = decide_for(disabled(true), &csvs, &[]);
        let expected = [Action::Warn(etcd.clone()), remove(&copy("tenant"))];
        assert_eq!(decision.actions, expected);
        assert_eq!((decision.missing, decision.stray), (0, 1));

        // The event is created once, and the copy of the protected namespace is kept up to date.
        let decision = decide_for(
            disabled(true),
            std::slice::from_ref(&etcd),
            &["operators-etcd"],
        );
        let expected = [Action::Create(copy_of(&etcd, "openshift"))];
        assert_eq!(decision.actions, expected);
    }

    #[test]
    fn copy_that_is_being_deleted_counts_until_it_is_gone() {
        let mut deleting = copy("tenant");
        deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let csvs = [source("operators", "etcd"), copy("openshift"), deleting];
        let decision = decide_for(disabled(true), &csvs, &["operators-etcd"]);
        assert_eq!(decision.actions, []);
        assert_eq!(decision.stray, 1);
    }

    #[test]
    fn changed_copies_are_replaced_one_write_at_a_time() {
        let mut changed = copy("tenant");
        changed["spec"]["version"] = "0.9.0".into();
        changed["status"] = json!({});
        let mut expected = copy("tenant");
        expected["status"] = json!({});
        let csvs = [source("operators", "etcd"), copy("openshift"), changed];
        let decision = decide_for(None, &csvs, &[]);
        assert_eq!(decision.actions, [Action::Replace(expected.clone())]);
        let csvs = [source("operators", "etcd"), copy("openshift"), expected];
        let decision = decide_for(None, &csvs, &[]);
        assert_eq!(decision.actions, [Action::ReplaceStatus(copy("tenant"))]);
    }

    #[test]
    fn copies_without_a_source_or_a_namespace_are_removed_everywhere() {
        let csvs = [copy("openshift"), copy("tenant")];
        let decision = decide_for(None, &csvs, &[]);
        assert_eq!(decision.actions, csvs.each_ref().map(remove));

        let csvs = [
            source("operators", "etcd"),
            copy("openshift"),
            copy("tenant"),
            copy("gone"),
        ];
        let decision = decide_for(None, &csvs, &[]);
        assert_eq!(decision.actions, [remove(&copy("gone"))]);
    }

    #[test]
    fn csvs_that_are_no_copies_are_never_touched() {
        let mut single = source("operators", "single");
        single["metadata"]["annotations"] = json!({TARGET_NAMESPACES: "tenant"});
        let mut installed = source("tenant", "etcd");
        installed["metadata"]["annotations"] = json!({});
        let csvs = [
            source("operators", "etcd"),
            copy("openshift"),
            installed,
            single,
        ];
        for config in [None, disabled(true)] {
            let decision = decide_for(config, &csvs, &["operators-etcd"]);
            assert_eq!(decision.actions, []);
        }
    }
}
