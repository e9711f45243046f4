//! Several authenticators in turn.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Authenticator, Unauthenticated};
use crate::identity::{Connection, Identity};

/// Asks authenticators in order. The first user counts; without one, the first refusal does. A
/// refused certificate does therefore not refuse a valid token, as in Kubernetes.
#[derive(Clone, Default)]
pub struct AnyOf {
    authenticators: Vec<Arc<dyn Authenticator>>,
}

impl AnyOf {
    /// Creates a union that knows no user.
    #[must_use]
    pub fn new() -> AnyOf {
        AnyOf::default()
    }

    /// Adds an authenticator after those that are there.
    #[must_use]
    pub fn or(mut self, authenticator: impl Authenticator) -> AnyOf {
        self.authenticators.push(Arc::new(authenticator));
        self
    }
}

impl Authenticator for AnyOf {
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        let mut found = None;
        let mut refusal = None;
        for authenticator in &self.authenticators {
            match authenticator.authenticate(headers, connection) {
                Ok(Some(identity)) => {
                    found = Some(identity);
                    break;
                }
                Ok(None) => {}
                Err(refused) => {
                    refusal.get_or_insert(refused);
                }
            }
        }
        match (found, refusal) {
            (Some(identity), _) => {
                // No handler needs the credentials any more.
                headers.remove(AUTHORIZATION);
                Ok(Some(identity))
            }
            (None, Some(refused)) => Err(refused),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Answer {
        User(&'static str),
        Nobody,
        Refused(&'static str),
    }

    impl Authenticator for Answer {
        fn authenticate(
            &self,
            _: &mut HeaderMap,
            _: &Connection,
        ) -> Result<Option<Identity>, Unauthenticated> {
            match self {
                Answer::User(name) => Ok(Some(Identity::new(*name, Vec::new()))),
                Answer::Nobody => Ok(None),
                Answer::Refused(reason) => Err(Unauthenticated {
                    reason: (*reason).to_owned(),
                }),
            }
        }
    }

    fn asked(answers: impl IntoIterator<Item = Answer>) -> Result<Option<String>, String> {
        let union = answers.into_iter().fold(AnyOf::new(), AnyOf::or);
        let found = union.authenticate(&mut HeaderMap::new(), &Connection::default());
        let found = found.map(|identity| identity.map(|identity| identity.user));
        found.map_err(|refused| refused.reason)
    }

    #[test]
    fn first_user_counts_and_a_refusal_counts_without_one() {
        use Answer::{Nobody, Refused, User};
        assert_eq!(asked([]), Ok(None));
        assert_eq!(asked([Nobody, Nobody]), Ok(None));
        assert_eq!(asked([Nobody, User("a"), User("b")]), Ok(Some("a".into())));
        assert_eq!(asked([Refused("x"), User("b")]), Ok(Some("b".into())));
        assert_eq!(asked([Nobody, Refused("x"), Refused("y")]), Err("x".into()));
    }
}
