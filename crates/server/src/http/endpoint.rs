//! Tables of paths: one table is both the routes of a router and the rows of `docs/api.md`.

/// One path of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The HTTP method in lower case.
    pub method: &'static str,
    /// The path; `{name}` stands for one segment.
    pub path: &'static str,
    /// What it does, for the document.
    pub purpose: &'static str,
}

/// Defines a table of endpoints and the function that returns a router of exactly these.
macro_rules! endpoints {
    (
        $(#[$doc:meta])*
        pub const $table:ident, $visible:vis fn $router:ident;
        $($method:ident $path:expr => $handler:path, $purpose:literal;)*
    ) => {
        $(#[$doc])*
        pub const $table: &[$crate::http::Endpoint] = &[$($crate::http::Endpoint {
            method: stringify!($method),
            path: $path,
            purpose: $purpose,
        }),*];

        $visible fn $router() -> axum::Router<std::sync::Arc<$crate::member::Member>> {
            axum::Router::new()$(.route($path, axum::routing::$method($handler)))*
        }
    };
}

pub(crate) use endpoints;
