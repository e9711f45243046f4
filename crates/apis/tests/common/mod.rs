//! Declarations and options of the tests.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod generated;
pub mod oracle;

use portunus_apis::*;
use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};

pub const GROUP: &str = "example.io";

pub fn v(text: &str) -> MajorMinor {
    text.parse().unwrap()
}

/// A process of this binary version, without floors.
pub fn binary(version: &str) -> Options {
    Options::new(EffectiveVersion::new(Release::parse(version).unwrap()))
}

pub fn emulating(version: &str, emulation: &str) -> Options {
    let mut options = binary(version);
    options.versions.set_emulation(v(emulation));
    options
}

pub fn with_config(mut options: Options, runtime_config: &str) -> Options {
    options.runtime_config = RuntimeConfig::parse(runtime_config);
    options
}

/// A resource `things` in one version.
pub fn things(version: &str, lifecycle: Lifecycle) -> Version {
    Version::new(version).with_resource(Resource::new("things", "Thing", lifecycle))
}

pub fn group(versions: impl IntoIterator<Item = Version>) -> Declarations {
    let mut group = Group::new(GROUP);
    group.versions.extend(versions);
    Declarations::new([group]).unwrap()
}

/// The names of what is served, such as `example.io/v1/things`.
pub fn served(apis: &ServedApis) -> Vec<String> {
    let name = |name: &GroupVersionResource| format!("{}/{}", name.group_version(), name.resource);
    let mut names = Vec::new();
    for resource in apis.resources() {
        names.push(name(&resource.name));
        for sub in &resource.resource.subresources {
            names.push(format!("{}/{}", name(&resource.name), sub.name));
        }
    }
    names
}

/// The versions of `example.io` in which `things` are served, the most preferred first.
pub fn versions_served(declarations: &Declarations, options: &Options) -> Vec<String> {
    let apis = resolve(declarations, options).unwrap_or_else(|error| panic!("{error}"));
    let group = apis.group(GROUP).into_iter();
    let versions = group.flat_map(|group| &group.versions);
    let versions = versions.map(|version| version.name.version.to_string());
    versions.collect()
}

/// The identifiers and the text of what stops the start.
pub fn refusal(declarations: &Declarations, options: &Options) -> (Vec<&'static str>, String) {
    use portunus_gates::Classified;
    let errors = resolve(declarations, options).unwrap_err();
    let ids = errors.0.iter().map(Classified::id).collect();
    (ids, errors.to_string())
}
