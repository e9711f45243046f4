//! Who sends a request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of every request with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";

/// The user of a request, as authentication found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// The name.
    pub user: String,
    /// The unique id; empty where the credentials have none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// Creates a user with credentials, who is in [`AUTHENTICATED`] beside the given groups.
    #[must_use]
    pub fn new(user: impl Into<String>, groups: Vec<String>) -> Identity {
        let mut groups = groups;
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Identity {
            user: user.into(),
            groups,
            ..Identity::default()
        }
    }

    /// Returns the user of requests without credentials.
    #[must_use]
    pub fn anonymous() -> Identity {
        Identity {
            user: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Identity::default()
        }
    }

    /// Returns whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// What is known about the connection of a request.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// The address of the client; none inside a process.
    pub peer: Option<SocketAddr>,
    /// The certificates that the client presented, in DER, its own first. The handshake proved
    /// that the client holds the key; which CA signed them is not checked yet.
    pub certificates: Arc<[Bytes]>,
}

impl Connection {
    /// Returns the address of the client for the log.
    #[must_use]
    pub fn peer_text(&self) -> String {
        let peer = self.peer.map(|peer| peer.to_string());
        peer.unwrap_or_else(|| "this process".to_owned())
    }
}
