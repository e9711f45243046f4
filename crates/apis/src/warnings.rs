//! Warnings at start: configurations that work, but not as an operator may expect.

use portunus_gates::{MajorMinor, Version};
use thiserror::Error;

use crate::names::{GroupResource, GroupVersion, GroupVersionResource, VersionName};

/// A warning at start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartWarning {
    /// Runtime-config enables an alpha API while an older release is emulated.
    #[error(
        "alpha api enabled with emulated version {emulation} instead of the binary's version \
         {binary}, this is unsupported, proceed at your own risk: api={version}"
    )]
    AlphaUnderEmulation {
        /// The alpha version.
        version: GroupVersion,
        /// The emulation version.
        emulation: MajorMinor,
        /// The binary version.
        binary: Version,
    },
    /// Runtime-config enables an API that the emulated release removed.
    #[error(
        "runtime-config enables {}, which is not served: it was removed in {removed}, and this server emulates {current}",
        name.dotted()
    )]
    EnabledButRemoved {
        /// The resource.
        name: GroupVersionResource,
        /// The release of the removal.
        removed: MajorMinor,
        /// The emulated release.
        current: MajorMinor,
    },
    /// Runtime-config names a resource that its version does not have.
    #[error("runtime-config names {}, which this binary does not know; the key has no effect", .0.dotted())]
    UnknownResource(GroupVersionResource),
    /// Objects are stored in a version that a release in the window cannot read.
    #[error(
        "{resource} is stored as {version}, which {} cannot read: do not roll to such a release while objects are stored",
        list(releases)
    )]
    StorageUnreadable {
        /// The resource.
        resource: GroupResource,
        /// Its storage version.
        version: VersionName,
        /// The releases that cannot read it.
        releases: Vec<MajorMinor>,
    },
}

fn list(releases: &[MajorMinor]) -> String {
    let noun = if releases.len() == 1 {
        "release"
    } else {
        "releases"
    };
    let releases: Vec<String> = releases.iter().map(ToString::to_string).collect();
    format!("{noun} {}", releases.join(", "))
}
