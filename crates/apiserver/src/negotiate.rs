//! Media types: the form in which a client wants its answer, and that of a body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use portunus_objects::status::Status;

use crate::failure::Outcome;
use crate::protobuf;

/// The media type of every document.
pub(crate) const JSON: &str = "application/json";
const STREAM: &str = "application/json;stream=watch";
const META_GROUP: &str = "meta.k8s.io";
/// The most media types of an Accept header that are looked at.
const MEDIA_TYPES_MAX: usize = 32;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object or list itself.
    Object,
    /// A table of rows.
    Table,
    /// The metadata of an object alone.
    Metadata,
    /// The metadata of the objects of a list.
    MetadataList,
}

/// One media type with its parameters.
pub(crate) struct MediaType<'header> {
    name: &'header str,
    parameters: Vec<(&'header str, &'header str)>,
    is_refused: bool,
}

impl<'header> MediaType<'header> {
    fn parse(text: &'header str) -> MediaType<'header> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let is_refused = parameters
            .iter()
            .any(|(key, value)| *key == "q" && value.parse::<f32>().is_ok_and(|q| q <= 0.0));
        MediaType {
            name,
            parameters,
            is_refused,
        }
    }

    pub(crate) fn parameter(&self, key: &str) -> &str {
        let mut parameters = self.parameters.iter();
        let found = parameters.find(|(own, _)| *own == key);
        found.map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.name, "application/json" | "application/*" | "*/*") && !self.is_refused
    }
}

/// Returns the media types that a client accepts, in its order; everything if it names none.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<MediaType<'_>> {
    let lines = headers.get_all(ACCEPT).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut types: Vec<MediaType<'_>> = lines
        .flat_map(|line| line.split(','))
        .filter(|text| !text.trim().is_empty())
        .take(MEDIA_TYPES_MAX)
        .map(MediaType::parse)
        .collect();
    if types.is_empty() {
        types.push(MediaType::parse("*/*"));
    }
    types
}

/// Returns the first accepted JSON media type for which `form` has an answer.
pub(crate) fn first_json<T>(
    headers: &HeaderMap,
    form: impl FnMut(&MediaType<'_>) -> Option<T>,
) -> Outcome<T> {
    let types = accepted(headers);
    let mut json = types.iter().filter(|media_type| media_type.is_json());
    let found = json.find_map(form);
    found.ok_or_else(|| Status::not_acceptable(&[JSON]).into())
}

/// Returns the form in which a client wants an object or list.
pub(crate) fn form(headers: &HeaderMap, is_watch: bool) -> Outcome<Form> {
    let found = first_json(headers, |media_type| {
        let is_meta = media_type.parameter("g") == META_GROUP;
        match media_type.parameter("as") {
            "" => Some(Form::Object),
            "Table" if is_meta && media_type.parameter("v") == "v1" => Some(Form::Table),
            "PartialObjectMetadata" if is_meta && media_type.parameter("v") == "v1" => {
                Some(Form::Metadata)
            }
            "PartialObjectMetadataList" if is_meta && media_type.parameter("v") == "v1" => {
                Some(Form::MetadataList)
            }
            _ => None,
        }
    });
    let produced: &[&str] = if is_watch { &[JSON, STREAM] } else { &[JSON] };
    found.map_err(|_| Status::not_acceptable(produced).into())
}

/// Returns whether a media type asks for the aggregated form of discovery, and in which version.
pub(crate) fn is_aggregated(media_type: &MediaType<'_>, version: &str) -> bool {
    media_type.parameter("as") == "APIGroupDiscoveryList"
        && media_type.parameter("g") == "apidiscovery.k8s.io"
        && media_type.parameter("v") == version
}

/// Returns the media type of a body without parameters; JSON if there is none.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let name = value.and_then(|value| value.split(';').next());
    name.map(str::trim)
        .filter(|it| !it.is_empty())
        .unwrap_or(JSON)
}

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Protobuf,
}

/// Returns the format of a body, or refuses another one. Protobuf is only for versions that
/// declare it.
pub(crate) fn body_format(headers: &HeaderMap, has_protobuf: bool) -> Outcome<BodyFormat> {
    match content_type(headers) {
        JSON => Ok(BodyFormat::Json),
        protobuf::MEDIA_TYPE if has_protobuf => Ok(BodyFormat::Protobuf),
        _ if has_protobuf => {
            Err(Status::unsupported_media_type(&[JSON, protobuf::MEDIA_TYPE]).into())
        }
        _ => Err(Status::unsupported_media_type(&[JSON]).into()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
        headers
    }

    #[test]
    fn form_follows_the_first_type_that_can_be_produced() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let old_table = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let cases = [
            (String::new(), Form::Object),
            ("*/*".to_owned(), Form::Object),
            (format!("{table},{old_table},application/json"), Form::Table),
            (format!("{old_table},application/json"), Form::Object),
            (metadata.to_owned(), Form::Metadata),
            (
                "application/vnd.kubernetes.protobuf, application/json".to_owned(),
                Form::Object,
            ),
            ("application/json;stream=watch".to_owned(), Form::Object),
        ];
        for (accept, expected) in cases {
            assert_eq!(form(&headers(&accept), false), Ok(expected), "{accept}");
        }
    }

    #[test]
    fn types_that_cannot_be_produced_are_refused() {
        for accept in ["application/cbor", "text/html", "application/json;q=0"] {
            let failure = form(&headers(accept), false).unwrap_err();
            assert_eq!(failure.status().code, 406, "{accept}");
            assert_eq!(
                failure.to_string(),
                "only the following media types are accepted: application/json"
            );
        }
    }

    #[test]
    fn bodies_are_json_or_declared_protobuf() {
        let with = |content_type: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
            headers
        };
        assert_eq!(body_format(&HeaderMap::new(), false), Ok(BodyFormat::Json));
        let json = with("application/json; charset=utf-8");
        assert_eq!(body_format(&json, true), Ok(BodyFormat::Json));
        let protobuf = with(protobuf::MEDIA_TYPE);
        assert_eq!(body_format(&protobuf, true), Ok(BodyFormat::Protobuf));
        for (headers, has_protobuf) in [(protobuf, false), (with("application/yaml"), true)] {
            let refused = body_format(&headers, has_protobuf).unwrap_err();
            assert_eq!(refused.status().code, 415);
        }
    }
}
