//! Random requests. They follow from the seed and from the answers to the requests before.

mod mistakes;
mod watches;
mod writes;

pub use watches::WatchStep;

use portunus_testkit::random::Random;
use serde_json::{Value, json};

use crate::known::{Known, Object};
use crate::servers::Sent;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Stands for the uid of [`Step::object`] at the server that gets the request.
pub const UID: &str = "@UID@";
/// Stands for its name there: generated names differ.
pub const NAME: &str = "@NAME@";
/// Stands for the last continue token of the server.
pub const CONTINUE: &str = "@CONTINUE@";

const ROOT: &str = "/apis/wardle.example.com";
const NAMESPACES: [&str; 2] = ["one", "two"];
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e.f", "g-1", "h"];
const APPS: [&str; 3] = ["x", "y", "z"];

/// A resource in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    pub plural: &'static str,
    pub kind: &'static str,
    pub version: &'static str,
    pub namespaced: bool,
}

const fn flunders(version: &'static str) -> Resource {
    Resource {
        plural: "flunders",
        kind: "Flunder",
        version,
        namespaced: true,
    }
}

const RESOURCES: [Resource; 3] = [
    flunders("v1alpha1"),
    flunders("v1beta1"),
    Resource {
        plural: "fischers",
        kind: "Fischer",
        version: "v1alpha1",
        namespaced: false,
    },
];

impl Resource {
    pub fn api_version(self) -> String {
        format!("wardle.example.com/{}", self.version)
    }

    pub fn collection(self, namespace: &str) -> String {
        let Resource {
            plural, version, ..
        } = self;
        match self.namespaced && !namespace.is_empty() {
            true => format!("{ROOT}/{version}/namespaces/{namespace}/{plural}"),
            false => format!("{ROOT}/{version}/{plural}"),
        }
    }
}

/// A request, with the object that it is about.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub sent: Sent,
    pub object: Option<Object>,
    /// Whether objects are changed; used to follow their states.
    pub is_dry_run: bool,
}

/// Creates requests.
pub struct Requests {
    random: Random,
    generated: u64,
}

impl Requests {
    pub fn new(random: Random) -> Requests {
        Requests {
            random,
            generated: 0,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        let at = self.random.below(u64::try_from(values.len()).unwrap());
        values[usize::try_from(at).unwrap()]
    }

    fn resource(&mut self) -> Resource {
        self.pick(&[RESOURCES[0], RESOURCES[1], RESOURCES[1], RESOURCES[2]])
    }

    fn namespace(&mut self, resource: Resource) -> &'static str {
        match resource.namespaced {
            true => self.pick(&NAMESPACES),
            false => "",
        }
    }

    /// Returns the next request.
    pub fn next(&mut self, known: &Known) -> Step {
        match self.random.below(100) {
            0..20 => self.create(),
            20..23 => self.generate_name(),
            23..34 => self.get(known),
            34..49 => self.list(known),
            49..61 => self.update(known),
            61..69 => self.merge_patch(known),
            69..75 => self.json_patch(known),
            75..83 => self.delete(known),
            83..85 => self.delete_collection(),
            85..91 => self.bad_body(known),
            91..95 => self.document(),
            _ => self.bad_request(known),
        }
    }

    fn object(&mut self, resource: Resource, name: &str) -> Value {
        let mut object = json!({"metadata": self.metadata(name)});
        if self.chance(90) {
            object["apiVersion"] = resource.api_version().into();
            object["kind"] = resource.kind.into();
        }
        self.fill(resource, &mut object);
        object
    }

    /// Returns an object that exists, or maybe not.
    fn target(&mut self, known: &Known) -> Object {
        let count = u64::try_from(known.objects().len()).unwrap();
        if count > 0 && self.chance(85) {
            let at = usize::try_from(self.random.below(count)).unwrap();
            let mut object = known.objects()[at].clone();
            if object.resource.namespaced && self.chance(50) {
                object.resource = self.pick(&[RESOURCES[0], RESOURCES[1]]);
            }
            return object;
        }
        let resource = self.resource();
        let namespace = self.namespace(resource);
        Object::new(resource, namespace, self.pick(&NAMES))
    }

    fn get(&mut self, known: &Known) -> Step {
        let object = self.target(known);
        let mut target = object.path();
        if self.chance(20) {
            let version = self.version(known);
            target = format!("{target}?resourceVersion={version}");
        }
        let accept = match self.chance(25) {
            true => Some(self.pick(&[TABLE, PARTIAL, PARTIAL_LIST, "*/*", "application/*"])),
            false => None,
        };
        if accept == Some(TABLE) && self.chance(50) {
            let include = self.pick(&["None", "Object", "Metadata", "Other"]);
            target = with_query(&target, &[format!("includeObject={include}")]);
        }
        let method = self.pick(&["GET", "GET", "GET", "GET", "HEAD"]);
        Step {
            sent: Sent {
                method,
                target,
                accept,
                ..Sent::default()
            },
            object: Some(object),
            is_dry_run: false,
        }
    }

    /// Returns a resource version: of an object, the newest, or one that is not usable.
    fn version(&mut self, known: &Known) -> String {
        match self.random.below(12) {
            0 => "0".to_owned(),
            1 => "abc".to_owned(),
            2 => "-1".to_owned(),
            3 => "1000000".to_owned(),
            4 => String::new(),
            5..8 => known.revision().to_string(),
            _ => {
                let past = self.random.below(20);
                known.revision().saturating_sub(past).max(2).to_string()
            }
        }
    }

    fn list(&mut self, known: &Known) -> Step {
        let resource = self.resource();
        let namespace = match self.chance(30) {
            true => "",
            false => self.namespace(resource),
        };
        let mut parameters = self.selectors();
        // The sample repeats objects of such lists in parts.
        let is_repeating = parameters
            .iter()
            .any(|it| it.contains("metadata.namespace"));
        if !is_repeating && self.chance(35) {
            let limit = self.pick(&["1", "2", "3", "5", "500", "0", "-1"]);
            parameters.push(format!("limit={limit}"));
        }
        let mut target = resource.collection(namespace);
        if known.has_continue() && self.chance(40) {
            let (collection, selectors) = known.continued();
            target = collection.to_owned();
            parameters = selectors.to_vec();
            parameters.push(format!("continue={CONTINUE}"));
            if self.chance(70) {
                parameters.push("limit=2".to_owned());
            }
            if self.chance(5) {
                parameters.push("resourceVersion=5".to_owned());
            }
        } else if self.chance(30) {
            parameters.push(format!("resourceVersion={}", self.version(known)));
            if self.chance(50) {
                let matching = self.pick(&["Exact", "NotOlderThan", "Other"]);
                parameters.push(format!("resourceVersionMatch={matching}"));
            }
        } else if self.chance(4) {
            parameters.push("resourceVersionMatch=Exact".to_owned());
        } else if self.chance(3) {
            parameters.push("sendInitialEvents=true".to_owned());
        } else if self.chance(3) {
            parameters.push("continue=bm90IGEgdG9rZW4".to_owned());
        }
        let accept = match self.chance(25) {
            true => Some(self.pick(&[TABLE, PARTIAL_LIST, PARTIAL, "application/json"])),
            false => None,
        };
        if accept == Some(TABLE) && self.chance(50) {
            let include = self.pick(&["None", "Object", "Metadata"]);
            parameters.push(format!("includeObject={include}"));
        }
        Step {
            sent: Sent {
                method: "GET",
                target: with_query(&target, &parameters),
                accept,
                ..Sent::default()
            },
            ..Step::default()
        }
    }

    /// Returns parameters that select objects.
    fn selectors(&mut self) -> Vec<String> {
        let mut parameters = Vec::new();
        if self.chance(30) {
            let labels = self.pick(&[
                "app=x",
                "app!%3Dx",
                "app+in+(x,y)",
                "app+notin+(x)",
                "tier",
                "!tier",
                "app=x,tier=front",
                "tier+in+(front)",
            ]);
            parameters.push(format!("labelSelector={labels}"));
        }
        if self.chance(15) {
            let fields = self.pick(&[
                "metadata.name=a",
                "metadata.name!%3Da",
                "metadata.namespace=one",
                "metadata.name=b,metadata.namespace=two",
            ]);
            parameters.push(format!("fieldSelector={fields}"));
        }
        parameters
    }

    fn document(&mut self) -> Step {
        let (target, accept) = self.pick(&[
            ("/apis", None),
            ("/apis", Some(DISCOVERY)),
            ("/apis/wardle.example.com", None),
            ("/apis/wardle.example.com/v1alpha1", None),
            ("/apis/wardle.example.com/v1beta1", None),
            ("/apis/wardle.example.com/v2", None),
            ("/apis/other.example.com", None),
            ("/apis/other.example.com/v1/things", None),
            ("/apis/wardle.example.com/v1beta1/fischers", None),
            ("/healthz", None),
            ("/livez", None),
            ("/readyz", None),
            ("/none", None),
        ]);
        let method = match target.starts_with("/apis/wardle") && self.chance(20) {
            true => self.pick(&["HEAD", "POST", "DELETE"]),
            false => "GET",
        };
        Step {
            sent: Sent {
                method,
                target: target.to_owned(),
                accept,
                ..Sent::default()
            },
            ..Step::default()
        }
    }
}

pub fn post(target: String, object: &Value) -> Sent {
    Sent {
        method: "POST",
        target,
        content_type: Some(JSON),
        accept: None,
        body: object.to_string(),
    }
}

pub fn merge(target: String, patch: &Value) -> Sent {
    Sent {
        method: "PATCH",
        target,
        content_type: Some(MERGE_PATCH),
        accept: None,
        body: patch.to_string(),
    }
}

/// Appends parameters to a target.
pub fn with_query(target: &str, parameters: &[String]) -> String {
    if parameters.is_empty() {
        return target.to_owned();
    }
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}{}", parameters.join("&"))
}
