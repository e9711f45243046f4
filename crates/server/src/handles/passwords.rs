//! Hashing and comparing passwords with bcrypt.
//!
//! One hash takes a tenth of a second of CPU on purpose. So few run at once, on threads that serve
//! no requests, and few may wait.

use bytes::Bytes;
use portunus_proto::EtcdError;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Semaphore, TryAcquireError};

/// Passwords that may wait for their turn.
pub(crate) const WAITING_MAX: usize = 64;
/// The longest password; bcrypt ignores what follows.
const PASSWORD_BYTES_MAX: usize = 72;

/// Why a password could not be hashed.
#[derive(Debug)]
pub enum HashError {
    /// etcd's text for a password that is too long.
    TooLong,
    /// Too many passwords are being hashed.
    Busy,
    /// The system gave no random numbers, or the process ends.
    Failed(String),
}

/// Hashes passwords, a few at a time.
pub struct Passwords {
    cost: u32,
    /// Who may hash, or wait for it.
    places: Semaphore,
    /// Who may hash.
    slots: Semaphore,
    random: SystemRandom,
    /// A hash for users that do not exist, so that checking their password takes as long.
    pretended: std::sync::OnceLock<String>,
}

impl Passwords {
    /// Hashes with this cost, on as many threads at a time as `threads`.
    pub fn new(cost: u32, threads: usize) -> Passwords {
        let threads = threads.max(1);
        Passwords {
            cost,
            places: Semaphore::new(threads + WAITING_MAX),
            slots: Semaphore::new(threads),
            random: SystemRandom::new(),
            pretended: std::sync::OnceLock::new(),
        }
    }

    /// Refuses a password that bcrypt would not hash completely.
    pub fn check_length(&self, password: &str) -> Result<(), HashError> {
        match password.len() > PASSWORD_BYTES_MAX {
            true => Err(HashError::TooLong),
            false => Ok(()),
        }
    }

    /// Returns the bcrypt hash of a password.
    pub async fn hash(&self, password: String) -> Result<String, HashError> {
        self.check_length(&password)?;
        let salt = self.salt()?;
        let cost = self.cost;
        self.run(move || hashed(&password, cost, salt)).await?
    }

    /// Whether a password has this hash. Without a hash it takes as long, and is false.
    pub async fn matches(&self, password: String, hash: Option<Bytes>) -> Result<bool, HashError> {
        let is_pretended = hash.is_none();
        let hash = match hash {
            Some(hash) => String::from_utf8_lossy(&hash).into_owned(),
            None => self.pretended().await?,
        };
        // Bytes behind the 72nd do not count, as in etcd.
        let matches = self.run(move || bcrypt::verify(password, &hash).unwrap_or(false));
        Ok(matches.await? && !is_pretended)
    }

    /// Returns `count` random letters.
    pub fn random_letters(&self, letters: &[u8], count: usize) -> Result<String, HashError> {
        let mut text = String::with_capacity(count);
        // Larger values would make some letters more likely than others.
        let usable = 256 - 256 % letters.len().max(1);
        while text.len() < count {
            let mut bytes = [0_u8; 32];
            self.fill(&mut bytes)?;
            let usable = bytes.iter().filter(|byte| usize::from(**byte) < usable);
            let chosen = usable.filter_map(|byte| letters.get(usize::from(*byte) % letters.len()));
            text.extend(
                chosen
                    .take(count - text.len())
                    .map(|letter| char::from(*letter)),
            );
        }
        Ok(text)
    }

    async fn pretended(&self) -> Result<String, HashError> {
        if let Some(hash) = self.pretended.get() {
            return Ok(hash.clone());
        }
        let password = self.salt()?;
        let password: String = password
            .iter()
            .map(|byte| char::from(byte % 64 + 48))
            .collect();
        let hash = self.hash(password).await?;
        Ok(self.pretended.get_or_init(|| hash).clone())
    }

    fn salt(&self) -> Result<[u8; 16], HashError> {
        let mut salt = [0; 16];
        self.fill(&mut salt)?;
        Ok(salt)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), HashError> {
        let failed = |_| HashError::Failed("the system gives no random numbers".to_owned());
        self.random.fill(bytes).map_err(failed)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HashError> {
        let _place = self.places.try_acquire().map_err(|error| match error {
            TryAcquireError::NoPermits => HashError::Busy,
            TryAcquireError::Closed => HashError::Failed(error.to_string()),
        })?;
        let failed = |error: String| HashError::Failed(error);
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| failed(error.to_string()))?;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| failed(error.to_string()))
    }
}

fn hashed(password: &str, cost: u32, salt: [u8; 16]) -> Result<String, HashError> {
    let parts = bcrypt::hash_with_salt(password, cost, salt);
    let parts = parts.map_err(|error| HashError::Failed(error.to_string()))?;
    // The version that etcd writes.
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

impl HashError {
    /// The status of a request that needed the hash.
    pub fn status(&self) -> tonic::Status {
        match self {
            // Go's text; etcd has no error of its own for it.
            HashError::TooLong => {
                tonic::Status::unknown("bcrypt: password length exceeds 72 bytes")
            }
            HashError::Busy => tonic::Status::resource_exhausted(EtcdError::TooManyRequests.text()),
            HashError::Failed(reason) => tonic::Status::internal(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hash_matches_its_password_only() {
        let passwords = Passwords::new(4, 1);
        let hash = passwords.hash("secret".to_owned()).await.unwrap();
        assert!(hash.starts_with("$2a$04$"), "{hash}");
        let hash = Bytes::from(hash);
        let matches = |password: &str, hash: Option<&Bytes>| {
            passwords.matches(password.to_owned(), hash.cloned())
        };
        assert!(matches("secret", Some(&hash)).await.unwrap());
        assert!(!matches("Secret", Some(&hash)).await.unwrap());
        assert!(!matches("secret", None).await.unwrap());
        assert!(
            !matches("secret", Some(&Bytes::from_static(b"no hash")))
                .await
                .unwrap()
        );
        let long = passwords.hash("x".repeat(73)).await;
        assert!(matches!(long, Err(HashError::TooLong)));
    }

    #[tokio::test]
    async fn letters_are_random_and_of_the_alphabet() {
        let passwords = Passwords::new(4, 1);
        let alphabet = portunus_auth::TOKEN_LETTERS;
        let first = passwords.random_letters(alphabet, 16).unwrap();
        let second = passwords.random_letters(alphabet, 16).unwrap();
        assert_eq!((first.len(), second.len()), (16, 16));
        assert_ne!(first, second);
        assert!(first.bytes().all(|byte| alphabet.contains(&byte)));
    }
}
