//! Short constructors of registries, members and flags.
#![allow(dead_code)] // each test file uses its own part

pub mod generated;

use std::sync::Arc;

use portunus_gates::cluster::*;
use portunus_gates::*;

pub fn v(text: &str) -> MajorMinor {
    text.parse().unwrap()
}

pub fn at(emulation: &str, min_compat: &str) -> Versions {
    Versions::new(v(emulation), v(min_compat))
}

pub fn flags(text: &str) -> Assignments {
    Assignments::parse(Origin::Flag, text).unwrap()
}

pub fn registry(
    level: Level,
    features: impl IntoIterator<Item = NewFeature>,
) -> Result<Arc<Registry>, RegisterError> {
    let mut builder = RegistryBuilder::new(level);
    builder.add_all(features)?;
    Ok(Arc::new(builder.build()))
}

pub fn server(features: impl IntoIterator<Item = NewFeature>) -> Arc<Registry> {
    registry(Level::Server, features).unwrap()
}

pub fn cluster(features: impl IntoIterator<Item = NewFeature>) -> ClusterSpecs {
    let registry = registry(Level::Cluster, features).unwrap();
    ClusterSpecs::new(registry, v("3.7"), v("3.0"))
}

pub fn gates(registry: &Arc<Registry>, emulation: &str, text: &str) -> Result<GateSet, SetErrors> {
    GateSet::builder(registry.clone(), Versions::emulating(v(emulation)))
        .stage(&flags(text))
        .build()
}

pub fn ids(errors: &SetErrors) -> Vec<&'static str> {
    errors.0.iter().map(Classified::id).collect()
}

pub fn voter(id: u64, version: &str, text: &str) -> Member {
    Member {
        id: MemberId(id),
        name: format!("m{id}"),
        voter: true,
        started: true,
        publication: Publication::Proposal(Proposal {
            version: v(version),
            flags: flags(text).to_map(),
        }),
    }
}

pub fn learner(id: u64, version: &str, text: &str) -> Member {
    Member {
        voter: false,
        ..voter(id, version, text)
    }
}

pub fn with_publication(id: u64, publication: Publication) -> Member {
    Member {
        publication,
        ..voter(id, "3.7", "")
    }
}

pub fn params(version: &str, text: &str) -> ClusterParams {
    ClusterParams {
        version: v(version),
        features: flags(text).to_map(),
    }
}
