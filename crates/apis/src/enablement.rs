//! Which APIs are switched on: built-in defaults, then runtime-config, then forward
//! compatibility. Whether a release has the API at all is decided afterwards, in
//! `availability`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::declare::Declarations;
use crate::names::{GroupVersion, GroupVersionResource, Stability};
use crate::options::Options;
use crate::runtime_config::{Choices, Class, RuntimeConfigError};

/// What set a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetBy {
    /// The built-in default: only GA versions are on.
    Stability,
    /// The default that the declaration states.
    Declaration,
    /// A class key of runtime-config.
    Class(Class),
    /// The key `group/version`.
    VersionKey,
    /// The key `group/version/resource`.
    ResourceKey,
    /// `--emulation-forward-compatible`, because a lower version is on.
    ForwardCompatible,
}

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetBy::Stability => f.write_str("the default of its stability"),
            SetBy::Declaration => f.write_str("the default of its declaration"),
            SetBy::Class(class) => write!(f, "{} in runtime-config", class.key()),
            SetBy::VersionKey => f.write_str("its version in runtime-config"),
            SetBy::ResourceKey => f.write_str("its own key in runtime-config"),
            SetBy::ForwardCompatible => f.write_str("--emulation-forward-compatible"),
        }
    }
}

/// A switch and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// Whether it is on.
    pub on: bool,
    /// What set it.
    pub by: SetBy,
}

/// The switches of versions and resources. A resource without its own switch has the one of
/// its version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enablement {
    versions: BTreeMap<GroupVersion, Switch>,
    resources: BTreeMap<GroupVersionResource, Switch>,
    explicit_versions: BTreeMap<GroupVersion, bool>,
    explicit_resources: BTreeMap<GroupVersionResource, bool>,
}

impl Enablement {
    /// Returns the built-in defaults at the emulation version.
    pub fn defaults(declarations: &Declarations, options: &Options) -> Enablement {
        let current = options.current();
        let mut enablement = Enablement::default();
        for group in declarations.groups() {
            for version in &group.versions {
                let name = GroupVersion::new(group.name.clone(), version.name.clone());
                let switch = match version.served_by_default.at(current) {
                    Some(on) => Switch {
                        on,
                        by: SetBy::Declaration,
                    },
                    None => Switch {
                        on: version.name.stability() == Stability::Ga,
                        by: SetBy::Stability,
                    },
                };
                for resource in &version.resources {
                    if let Some(on) = resource.served_by_default.at(current) {
                        let by = SetBy::Declaration;
                        let resource = name.resource(resource.plural.clone());
                        enablement.resources.insert(resource, Switch { on, by });
                    }
                }
                enablement.versions.insert(name, switch);
            }
        }
        enablement
    }

    /// Returns the switches of a process: the defaults with runtime-config on top and, with
    /// `--emulation-forward-compatible`, the higher versions of what is on.
    pub fn merge(
        declarations: &Declarations,
        options: &Options,
    ) -> Result<Enablement, Vec<RuntimeConfigError>> {
        let choices = options.runtime_config.check(declarations)?;
        let mut enablement = Enablement::defaults(declarations, options);
        for class in Class::ORDER {
            if let Some(on) = choices.classes.get(&class) {
                enablement.set_class(class, *on);
            }
        }
        enablement.apply(&choices);
        if options.forward.emulation {
            enablement.enable_higher_versions(declarations);
            enablement.apply(&choices);
        }
        Ok(enablement)
    }

    /// Sets every version of a class, and forgets the switches of its resources.
    fn set_class(&mut self, class: Class, on: bool) {
        let by = SetBy::Class(class);
        for (version, switch) in &mut self.versions {
            if class.has(&version.version) {
                *switch = Switch { on, by };
            }
        }
        let is_other = |name: &GroupVersionResource| !class.has(&name.version);
        self.resources.retain(|name, _| is_other(name));
        self.explicit_resources.retain(|name, _| is_other(name));
    }

    /// Applies the explicit keys: versions first, which forgets the switches of their
    /// resources, then resources.
    fn apply(&mut self, choices: &Choices) {
        for (version, on) in &choices.versions {
            let by = SetBy::VersionKey;
            self.explicit_versions.insert(version.clone(), *on);
            self.versions
                .insert(version.clone(), Switch { on: *on, by });
            let is_other = |name: &GroupVersionResource| {
                name.group != version.group || name.version != version.version
            };
            self.resources.retain(|name, _| is_other(name));
            self.explicit_resources.retain(|name, _| is_other(name));
        }
        for (resource, on) in &choices.resources {
            let by = SetBy::ResourceKey;
            self.explicit_resources.insert(resource.clone(), *on);
            self.resources
                .insert(resource.clone(), Switch { on: *on, by });
        }
    }

    /// Switches on the higher versions of every version and resource that is on and not
    /// alpha. Only what was on before counts, so the order does not matter.
    fn enable_higher_versions(&mut self, declarations: &Declarations) {
        let switch = Switch {
            on: true,
            by: SetBy::ForwardCompatible,
        };
        let before = self.clone();
        let higher = |than: &GroupVersion| {
            let group = declarations.group(&than.group);
            let versions = group.into_iter().flat_map(|group| &group.versions);
            let than = than.clone();
            versions
                .filter(move |version| version.name > than.version)
                .map(|version| version.name.clone())
                .collect::<Vec<_>>()
        };
        let counts = |switch: &Switch, stability| switch.on && stability != Stability::Alpha;
        for (version, old) in &before.versions {
            if counts(old, version.version.stability()) {
                for name in higher(version) {
                    let name = GroupVersion::new(version.group.clone(), name);
                    if !before.versions.get(&name).is_some_and(|old| old.on) {
                        self.versions.insert(name, switch);
                    }
                }
            }
        }
        for (resource, old) in &before.resources {
            if counts(old, resource.version.stability()) {
                for name in higher(&resource.group_version()) {
                    let name = GroupVersion::new(resource.group.clone(), name)
                        .resource(resource.resource.clone());
                    if !before.resources.get(&name).is_some_and(|old| old.on) {
                        self.resources.insert(name, switch);
                    }
                }
            }
        }
    }

    /// Returns the switch of a resource: its own one, or the one of its version.
    pub fn resource(&self, name: &GroupVersionResource) -> Switch {
        let own = self.resources.get(name).copied();
        let off = Switch {
            on: false,
            by: SetBy::Stability,
        };
        own.or_else(|| self.versions.get(&name.group_version()).copied())
            .unwrap_or(off)
    }

    /// Iterates over the switches of versions.
    pub fn versions(&self) -> impl Iterator<Item = (&GroupVersion, Switch)> {
        self.versions.iter().map(|(name, switch)| (name, *switch))
    }

    /// Iterates over the resources that have their own switch.
    pub fn resources(&self) -> impl Iterator<Item = (&GroupVersionResource, Switch)> {
        self.resources.iter().map(|(name, switch)| (name, *switch))
    }

    /// Iterates over the versions that runtime-config names.
    pub fn explicit_versions(&self) -> impl Iterator<Item = (&GroupVersion, bool)> {
        self.explicit_versions.iter().map(|(name, on)| (name, *on))
    }

    /// Iterates over the resources that runtime-config names.
    pub fn explicit_resources(&self) -> impl Iterator<Item = (&GroupVersionResource, bool)> {
        self.explicit_resources.iter().map(|(name, on)| (name, *on))
    }

    /// Returns whether runtime-config switches this version on by name.
    pub fn is_version_explicit(&self, name: &GroupVersion) -> bool {
        self.explicit_versions.get(name) == Some(&true)
    }

    /// Returns whether runtime-config switches this resource on by name.
    pub fn is_resource_explicit(&self, name: &GroupVersionResource) -> bool {
        self.explicit_resources.get(name) == Some(&true)
    }
}
