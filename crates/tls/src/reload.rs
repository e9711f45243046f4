//! A value that is built from files, and built again when one of them changes.
//!
//! The files are compared when the value is used, at most once per [`CHECK_INTERVAL`]: no thread
//! watches them. A value that cannot be built again keeps its predecessor, so that a certificate
//! and its key may be replaced one after the other.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::files::{FileStamp, LoadError};

/// The shortest time between two comparisons of the files.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

type Build<T> = Box<dyn Fn() -> Result<T, LoadError> + Send + Sync>;

/// The newest value that could be built from the files.
pub(crate) struct Reloading<T> {
    files: Vec<PathBuf>,
    build: Build<T>,
    current: ArcSwap<T>,
    compared: Mutex<Compared>,
}

struct Compared {
    at: Instant,
    stamps: Vec<Option<FileStamp>>,
}

impl<T> Reloading<T> {
    /// Builds the first value.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        build: impl Fn() -> Result<T, LoadError> + Send + Sync + 'static,
    ) -> Result<Reloading<T>, LoadError> {
        // Before the files are read: a later change is found by the next comparison.
        let stamps = stamps(&files);
        let first = build()?;
        Ok(Reloading {
            files,
            build: Box::new(build),
            current: ArcSwap::from_pointee(first),
            compared: Mutex::new(Compared {
                at: Instant::now(),
                stamps,
            }),
        })
    }

    /// Returns the current value.
    pub(crate) fn current(&self) -> Arc<T> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Arc<T> {
        // Another thread that holds the lock compares for all.
        if let Ok(mut compared) = self.compared.try_lock()
            && now.saturating_duration_since(compared.at) >= CHECK_INTERVAL
        {
            compared.at = now;
            let stamps = stamps(&self.files);
            if stamps != compared.stamps {
                compared.stamps = stamps;
                self.reload();
            }
        }
        self.current.load_full()
    }

    fn reload(&self) {
        let files: Vec<_> = self.files.iter().map(|file| file.display()).collect();
        let files = files.iter().map(ToString::to_string);
        let files = files.collect::<Vec<_>>().join(",");
        match (self.build)() {
            Ok(value) => {
                self.current.store(Arc::new(value));
                tracing::info!(files, "reloaded TLS certificates");
            }
            Err(error) => {
                let reason = chain(&error);
                tracing::warn!(
                    files,
                    reason,
                    "failed to reload TLS certificates; the previous ones stay in use"
                );
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    files.iter().map(|file| FileStamp::of(file)).collect()
}

/// Returns an error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn number_in(file: PathBuf) -> Result<Reloading<u32>, LoadError> {
        Reloading::new(vec![file.clone()], move || {
            let missing = || LoadError::Missing {
                path: file.clone(),
                wanted: "number",
            };
            let text = fs::read_to_string(&file).map_err(|_| missing())?;
            text.parse().map_err(|_| missing())
        })
    }

    #[test]
    fn changed_file_is_loaded_and_broken_file_keeps_the_previous_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("number");
        assert!(number_in(file.clone()).is_err());
        fs::write(&file, "1").unwrap();
        let number = number_in(file.clone()).unwrap();
        let later = |checks: u32| Instant::now() + CHECK_INTERVAL * checks;

        fs::write(&file, "20").unwrap();
        assert_eq!(*number.at(Instant::now()), 1, "compared too early");
        assert_eq!(*number.at(later(1)), 20);
        fs::write(&file, "broken").unwrap();
        assert_eq!(*number.at(later(2)), 20);
        fs::remove_file(&file).unwrap();
        assert_eq!(*number.at(later(3)), 20);
        fs::write(&file, "300").unwrap();
        assert_eq!(*number.at(later(4)), 300);
    }
}
