//! What a handler knows about its request.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use portunus_apis::WarningHeaders;
use portunus_client::kubernetes::{GetOptions, Interface, KeyValue};
use portunus_objects::schema::FieldValidation;
use portunus_objects::status::Status;
use portunus_objects::{GroupKind, field::FieldError, field::Path};
use serde_json::Value;

use crate::api::Target;
use crate::body::Body;
use crate::failure::{Failure, Outcome};
use crate::negotiate::{self, Form};
use crate::request::{Query, RequestInfo};
use crate::respond::{Printing, json_response};
use crate::service::Shared;
use crate::store::{Keys, Stored, decode, store_failure};

/// A request to a resource, after authorisation.
pub(crate) struct Context<'request> {
    pub(crate) shared: &'request Arc<Shared>,
    pub(crate) target: Target<'request>,
    pub(crate) info: &'request RequestInfo,
    pub(crate) query: &'request Query,
    pub(crate) headers: &'request HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) keys: Keys,
    warnings: Mutex<WarningHeaders>,
}

impl<'request> Context<'request> {
    pub(crate) fn new(
        shared: &'request Arc<Shared>,
        target: Target<'request>,
        info: &'request RequestInfo,
        query: &'request Query,
        headers: &'request HeaderMap,
        body: Bytes,
    ) -> Context<'request> {
        Context {
            shared,
            target,
            info,
            query,
            headers,
            body,
            keys: Keys::new(&shared.storage_prefix, &target.resource.name),
            warnings: Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &dyn Interface {
        &*self.shared.store
    }

    /// Warns about the version of the request if it is deprecated.
    pub(crate) fn warn_of_deprecation(&self) {
        if let Some(deprecation) = &self.target.served.deprecation {
            self.warn(&deprecation.warning);
        }
    }

    /// Adds a warning to the response.
    pub(crate) fn warn(&self, text: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.add(text);
    }

    /// Returns the warnings of the response.
    pub(crate) fn warnings(&self) -> WarningHeaders {
        let warnings = self.warnings.lock();
        warnings.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how the client wants its objects.
    pub(crate) fn printing(&self) -> Outcome<Printing> {
        let form = negotiate::form(self.headers, self.info.verb == "watch")?;
        Ok(Printing::new(form, self.query.get("includeObject")))
    }

    /// Refuses the metadata of a list for one object, the reverse, and unknown parts of tables.
    /// Kubernetes does that when it prints, after everything else.
    pub(crate) fn check_form(&self, printing: Printing) -> Outcome<()> {
        printing.check_include(self.query.get("includeObject"))?;
        let kind = &self.target.resource.definition.kind;
        let is_list = matches!(self.info.verb, "list" | "deletecollection");
        match printing.form {
            Form::Metadata if is_list => {
                let why = format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({kind}List)"
                );
                Err(Status::failure(406, "NotAcceptable", &why, None).into())
            }
            Form::MetadataList if !is_list => {
                let why = format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({kind})"
                );
                Err(Status::failure(406, "NotAcceptable", &why, None).into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the namespace in which objects are; empty for cluster-scoped ones.
    pub(crate) fn namespace(&self) -> &str {
        if self.target.resource.definition.namespaced {
            &self.info.namespace
        } else {
            ""
        }
    }

    /// Returns the key of the object that the path names.
    pub(crate) fn key(&self) -> String {
        self.keys.object(self.namespace(), &self.info.name)
    }

    /// Returns the answer for an object that does not exist.
    pub(crate) fn not_found(&self) -> Failure {
        Status::not_found(&self.target.resource.name, &self.info.name).into()
    }

    /// Reads the object that the path names.
    pub(crate) async fn read(&self) -> Outcome<Stored> {
        let key = self.key();
        let read = self
            .store()
            .get(key.as_bytes(), GetOptions::default())
            .await;
        let read = read.map_err(|error| self.store_failure(&error))?;
        let kv = read.kv.ok_or_else(|| self.not_found())?;
        self.stored(kv)
    }

    /// Decodes a stored object into the hub version.
    pub(crate) fn stored(&self, kv: KeyValue) -> Outcome<Stored> {
        Stored::decode(self.target.resource, kv.value, kv.mod_revision)
    }

    /// Decodes a stored object into the version of the request.
    pub(crate) fn decode(&self, value: &[u8], revision: i64) -> Outcome<Value> {
        decode(
            self.target.resource,
            value,
            revision,
            &self.target.version.name,
        )
    }

    /// Converts an object to the version of the request.
    pub(crate) fn to_request_version(&self, mut object: Value) -> Outcome<Value> {
        self.convert(&mut object, &self.target.version.name)?;
        Ok(object)
    }

    /// Converts an object to a version.
    pub(crate) fn convert(&self, object: &mut Value, version: &str) -> Outcome<()> {
        let converted = self.target.resource.conversions.convert(object, version);
        converted.map_err(|error| Status::bad_request(&error.to_string()).into())
    }

    pub(crate) fn store_failure(&self, error: &portunus_client::kubernetes::Error) -> Failure {
        store_failure(self.target.resource, self.info.verb, error)
    }

    /// Returns the answer with an object in the hub version.
    pub(crate) fn answer_object(&self, code: StatusCode, object: Value) -> Outcome<Response<Body>> {
        let printing = self.printing()?;
        self.check_form(printing)?;
        let object = self.to_request_version(object)?;
        let document = printing.object(&self.target.version.columns, object);
        Ok(json_response(code, &document))
    }

    /// Reads the parameters `fieldValidation` and `dryRun` of a write.
    pub(crate) fn write_options(&self, options: &str) -> Outcome<(FieldValidation, bool)> {
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        let validation = FieldValidation::parse(self.query.get("fieldValidation"));
        match (dry_run_error(&dry_run), validation) {
            (None, Ok(validation)) => Ok((validation, !dry_run.is_empty())),
            (dry_run, validation) => {
                let errors: Vec<FieldError> = dry_run.into_iter().chain(validation.err()).collect();
                Err(invalid_options(options, &errors))
            }
        }
    }
}

/// Refuses values of `dryRun` other than `All`. The refusal shows all values, as in Kubernetes.
pub(crate) fn dry_run_error<T: AsRef<str>>(values: &[T]) -> Option<FieldError> {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    let is_good = values.iter().all(|value| *value == "All");
    (!is_good).then(|| FieldError::not_supported(&Path::new("dryRun"), values, ["All"]))
}

/// Returns the answer to a request with wrong parameters.
pub(crate) fn invalid_options(kind: &str, errors: &[FieldError]) -> Failure {
    Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors).into()
}
