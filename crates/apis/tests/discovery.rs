//! Discovery documents, deprecation warnings and requirements of features.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{GROUP, emulating, things};
use portunus_apis::discovery::*;
use portunus_apis::*;
use serde_json::json;

fn declarations() -> Declarations {
    let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let resource = |lifecycle| {
        Resource::new("things", "Thing", lifecycle)
            .with_short_names(["th"])
            .with_categories(["all"])
            .with_subresource(Subresource::new("status"))
            .with_subresource(Subresource::new("scale").with_kind(scale.clone()))
    };
    let group = Group::new(GROUP)
        .with_version(Version::new("v1").with_resource(resource(Lifecycle::since("1.33"))))
        .with_version(
            Version::new("v1beta1")
                .served_by_default(true)
                .with_resource(resource(Lifecycle::since("1.30").removed("1.36"))),
        );
    let pods = Resource::new("nodes", "Node", Lifecycle::always())
        .cluster_scoped()
        .with_verbs(Verb::READ_ONLY);
    let core = Group::new("").with_version(Version::new("v1").with_resource(pods));
    let future = Group::new("future.io").with_version(
        Version::new("v1").with_resource(Resource::new("news", "New", Lifecycle::since("1.37"))),
    );
    Declarations::new([core, group, future])
        .unwrap()
        .with_kind(scale, Lifecycle::always())
}

fn apis(emulation: &str) -> ServedApis {
    resolve(&declarations(), &emulating("1.37.0", emulation)).unwrap()
}

fn entry(version: &str) -> serde_json::Value {
    json!({"groupVersion": format!("example.io/{version}"), "version": version})
}

/// Proves: G113, G114, S2-23
#[test]
fn legacy_documents_list_only_what_is_served_and_prefer_a_served_version() {
    // At 1.32 the most preferred version, v1, does not exist yet.
    for (emulation, versions) in [
        ("1.29", &[][..]),
        ("1.32", &["v1beta1"][..]),
        ("1.35", &["v1", "v1beta1"]),
        ("1.36", &["v1"]),
    ] {
        let apis = apis(emulation);
        let groups: Vec<serde_json::Value> = match versions.first() {
            None => Vec::new(),
            Some(first) => vec![json!({
                "name": GROUP,
                "versions": versions.iter().map(|name| entry(name)).collect::<Vec<_>>(),
                "preferredVersion": entry(first),
            })],
        };
        assert_eq!(
            serde_json::to_value(group_list(&apis)).unwrap(),
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            "{emulation}"
        );
        assert_eq!(group(&apis, GROUP).is_some(), !versions.is_empty());
        assert!(group(&apis, "future.io").is_none());
    }
    let document = serde_json::to_value(group(&apis("1.36"), GROUP)).unwrap();
    assert_eq!(
        document,
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
            "versions": [entry("v1")], "preferredVersion": entry("v1"),
        })
    );
}

#[test]
fn documents_of_the_core_group_have_their_own_form() {
    let apis = apis("1.36");
    let address = ServerAddress {
        client_cidr: "0.0.0.0/0".to_owned(),
        server_address: "127.0.0.1:6443".to_owned(),
    };
    assert_eq!(
        serde_json::to_value(core_versions(&apis, vec![address])).unwrap(),
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs":
                [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        })
    );
    let nodes = resource_list(&apis, "", "v1").unwrap();
    let nodes = serde_json::to_value(nodes).unwrap();
    assert_eq!(nodes.get("apiVersion"), None);
    assert_eq!(nodes["groupVersion"], "v1");
    assert_eq!(
        nodes["resources"][0]["verbs"],
        json!(["get", "list", "watch"])
    );
    assert!(group(&apis, "").is_none());
}

/// Proves: G113, G124, S2-23
#[test]
fn resource_list_has_subresources_and_the_hash_of_the_storage_version() {
    let all = json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ]);
    let sub = json!(["get", "patch", "update"]);
    let document = resource_list(&apis("1.35"), GROUP, "v1beta1").unwrap();
    assert_eq!(
        serde_json::to_value(document).unwrap(),
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.io/v1beta1",
            "resources": [
                {
                    "name": "things", "singularName": "thing", "namespaced": true,
                    "kind": "Thing", "verbs": all, "shortNames": ["th"], "categories": ["all"],
                    "storageVersionHash":
                        storage_version_hash(&GroupVersionKind::new(GROUP, "v1", "Thing")),
                },
                {
                    "name": "things/scale", "singularName": "", "namespaced": true,
                    "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": sub,
                },
                {
                    "name": "things/status", "singularName": "", "namespaced": true,
                    "kind": "Thing", "verbs": sub,
                },
            ],
        })
    );
    assert!(resource_list(&apis("1.36"), GROUP, "v1beta1").is_none());
}

/// Proves: G124
#[test]
fn storage_version_hash_is_the_one_that_kubernetes_shows() {
    for (group, version, kind, expected) in [
        ("apps", "v1", "Deployment", "8aSe+NMegvE="),
        ("", "v1", "Pod", "xPOwRZ+Yhw8="),
    ] {
        let kind = GroupVersionKind::new(group, version, kind);
        assert_eq!(storage_version_hash(&kind), expected, "{kind:?}");
    }
}

/// Proves: G113, G114, S2-23
#[test]
fn aggregated_documents_list_only_what_is_served_in_order_of_preference() {
    for (format, api_version) in [
        (Format::V2, "apidiscovery.k8s.io/v2"),
        (Format::V2Beta1, "apidiscovery.k8s.io/v2beta1"),
    ] {
        let groups = aggregated(&apis("1.35"), Part::Groups, format);
        let groups = serde_json::to_value(groups).unwrap();
        assert_eq!(groups["kind"], "APIGroupDiscoveryList");
        assert_eq!(groups["apiVersion"], api_version);
        assert_eq!(groups["items"].as_array().unwrap().len(), 1);
        assert_eq!(groups["items"][0]["metadata"], json!({"name": GROUP}));
        let versions = groups["items"][0]["versions"].as_array().unwrap();
        let names: Vec<_> = versions.iter().map(|version| &version["version"]).collect();
        assert_eq!(names, ["v1", "v1beta1"]);
        assert_eq!(
            versions[1],
            json!({
                "version": "v1beta1",
                "resources": [{
                    "resource": "things",
                    "responseKind": {"group": GROUP, "version": "v1beta1", "kind": "Thing"},
                    "scope": "Namespaced",
                    "singularResource": "thing",
                    "verbs": [
                        "create", "delete", "deletecollection", "get", "list", "patch",
                        "update", "watch"
                    ],
                    "shortNames": ["th"],
                    "categories": ["all"],
                    "subresources": [
                        {
                            "subresource": "scale",
                            "responseKind":
                                {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                            "verbs": ["get", "patch", "update"],
                        },
                        {
                            "subresource": "status",
                            "responseKind":
                                {"group": GROUP, "version": "v1beta1", "kind": "Thing"},
                            "verbs": ["get", "patch", "update"],
                        },
                    ],
                }],
                "freshness": "Current",
            })
        );
    }
    let core = aggregated(&apis("1.35"), Part::Core, Format::V2);
    let core = serde_json::to_value(core).unwrap();
    assert_eq!(core["metadata"], json!({}));
    assert_eq!(core["items"][0]["metadata"], json!({}));
    assert_eq!(
        core["items"][0]["versions"][0]["resources"][0]["scope"],
        "Cluster"
    );
    let before = aggregated(&apis("1.29"), Part::Groups, Format::V2);
    assert!(before.items.is_empty());
}

fn warning(lifecycle: Lifecycle, emulation: &str) -> Option<String> {
    let declarations = group_of(lifecycle);
    let apis = resolve(&declarations, &emulating("1.40.0", emulation)).unwrap();
    let Lookup::Served(served) = apis.lookup(GROUP, "v1beta1", "things") else {
        panic!("not served at {emulation}");
    };
    served.deprecation.as_ref().map(|it| it.warning.clone())
}

fn group_of(lifecycle: Lifecycle) -> Declarations {
    common::group([things("v1beta1", lifecycle).served_by_default(true)])
}

/// Proves: G116
#[test]
fn deprecation_is_judged_at_the_emulated_release() {
    let beta = || Lifecycle::since("1.30").deprecated("1.33").removed("1.38");
    for (emulation, expected) in [
        ("1.30", false),
        ("1.32", false),
        ("1.33", true),
        ("1.37", true),
    ] {
        assert_eq!(
            warning(beta(), emulation).is_some(),
            expected,
            "{emulation}"
        );
    }
    // Without version information everything that is ever deprecated is deprecated.
    let always = || Lifecycle::always().deprecated("1.33");
    assert!(warning(always(), "0.0").is_some());
    assert_eq!(warning(Lifecycle::always(), "0.0"), None);
}

/// Proves: G117
#[test]
fn deprecation_warning_names_release_removal_and_replacement() {
    let text = |lifecycle| warning(lifecycle, "1.35").unwrap();
    let base = || Lifecycle::since("1.30").deprecated("1.33");
    assert_eq!(
        text(base().removed_in(None)),
        "example.io/v1beta1 Thing is deprecated in v1.33+"
    );
    assert_eq!(
        text(base()),
        "example.io/v1beta1 Thing is deprecated in v1.33+, unavailable in v1.36+"
    );
    let replacement = GroupVersionKind::new("", "v1", "Thing");
    assert_eq!(
        text(base().removed("1.39").replaced_by(replacement)),
        "example.io/v1beta1 Thing is deprecated in v1.33+, unavailable in v1.39+; use v1 Thing"
    );
}

/// Proves: C9
#[test]
fn enabled_feature_whose_api_is_not_served_is_reported_with_the_reasons() {
    let needs = |feature: &str, group: &str, resource: &str| ApiRequirement {
        feature: feature.to_owned(),
        resource: GroupResource::new(group, resource),
    };
    let requirements = [
        needs("ThingController", GROUP, "things"),
        needs("NewController", "future.io", "news"),
        needs("OffController", "future.io", "news"),
        needs("StrangeController", "strange.io", "things"),
    ];
    let is_enabled = |name: &str| name != "OffController";
    let unmet = apis("1.36").unmet_requirements(&requirements, is_enabled);
    let unmet: Vec<String> = unmet.iter().map(ToString::to_string).collect();
    assert_eq!(
        unmet,
        [
            "feature NewController is on, but news.future.io, which it needs, is not served: \
             in v1, it is introduced in 1.37, and this server emulates 1.36",
            "feature StrangeController is on, but things.strange.io, which it needs, is not \
             served: this binary does not know it",
        ]
    );
    assert_eq!(
        apis("1.37")
            .unmet_requirements(&requirements, is_enabled)
            .len(),
        1
    );
}
