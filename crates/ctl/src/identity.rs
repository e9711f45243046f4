//! `--user`, `--password` and `--auth-jwt-token`: the identity of the user.
//!
//! The rules are etcdctl's: a token counts before a user; a user without a password is asked for
//! it. The question is asked when a command connects, and once, so that a command with wrong
//! arguments or without a server asks nothing.

use std::fmt;
use std::sync::OnceLock;

use portunus_client::Credentials;

use crate::outcome::Failure;
use crate::prompt;

/// The settings as given; an absent one is empty.
#[derive(Clone, Default)]
pub struct Identity {
    /// `--user`: a name, or a name and a password separated by a colon.
    pub user: String,
    /// `--password`
    pub password: String,
    /// `--auth-jwt-token`
    pub token: String,
    /// The question for the password.
    question: &'static str,
    /// The password from the terminal.
    asked: OnceLock<String>,
}

/// Without secrets.
impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.user_name())
    }
}

impl Identity {
    /// An identity from the settings.
    pub fn new(user: String, password: String, token: String) -> Identity {
        Identity {
            user,
            password,
            token,
            question: "Password: ",
            asked: OnceLock::new(),
        }
    }

    /// An identity without a token, with its own question for the password.
    pub fn asking(user: String, password: String, question: &'static str) -> Identity {
        Identity {
            question,
            ..Identity::new(user, password, String::new())
        }
    }

    /// Returns the name of the user, without a password.
    pub fn user_name(&self) -> &str {
        match self.user.split_once(':') {
            Some((name, _)) if self.password.is_empty() => name,
            _ => &self.user,
        }
    }

    /// Returns the credentials; asks for the password if it is needed.
    ///
    /// # Errors
    /// If the password cannot be read.
    pub fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        if !self.token.is_empty() {
            return Ok(Some(Credentials::Token(self.token.clone())));
        }
        if self.user.is_empty() {
            return Ok(None);
        }
        let (user, password) = if !self.password.is_empty() {
            (self.user.as_str(), self.password.clone())
        } else if let Some((user, password)) = self.user.split_once(':') {
            (user, password.to_owned())
        } else {
            (self.user.as_str(), self.asked_password()?)
        };
        Ok(Some(Credentials::Password {
            user: user.to_owned(),
            password,
        }))
    }

    fn asked_password(&self) -> Result<String, Failure> {
        if let Some(password) = self.asked.get() {
            return Ok(password.clone());
        }
        let password = prompt::ask_password(self.question)?;
        Ok(self.asked.get_or_init(|| password).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: &str, password: &str, token: &str) -> Identity {
        Identity::new(user.to_owned(), password.to_owned(), token.to_owned())
    }

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    #[test]
    fn credentials_follow_etcdctls_rules() {
        for (given, credentials) in [
            (identity("", "", ""), None),
            (identity("", "ignored", ""), None),
            (identity("u:p", "", ""), Some(password("u", "p"))),
            (identity("u:p:q", "", ""), Some(password("u", "p:q"))),
            (identity("u", "p", ""), Some(password("u", "p"))),
            (identity("u:p", "q", ""), Some(password("u:p", "q"))),
            (identity("u:", "", ""), Some(password("u", ""))),
            (
                identity("u", "p", "t"),
                Some(Credentials::Token("t".to_owned())),
            ),
        ] {
            assert_eq!(given.credentials().unwrap(), credentials, "{given:?}");
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        for given in [
            identity("u:s3cret", "", ""),
            identity("u", "s3cret", "s3cret"),
        ] {
            assert_eq!(format!("{given:?}"), "u");
        }
    }
}
