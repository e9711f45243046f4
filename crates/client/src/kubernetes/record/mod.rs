//! Recording calls of the interface, and replaying them without a store.
//!
//! [`Recorder`] passes calls to another implementation and writes each call with its answer as a
//! line of JSON; events of watches are lines of their own. [`Replay`] answers the same calls from
//! such a recording and refuses all others with [`Error::Replay`](super::Error::Replay).
//!
//! ```
//! use portunus_client::kubernetes::{GetOptions, Interface, Memory, Recorder, Replay};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let recorder = Recorder::new(Memory::new(), Vec::new());
//! recorder.get(b"/registry/pods/a", GetOptions::default()).await.unwrap();
//! let recording = recorder.finish().unwrap();
//!
//! let replay = Replay::read(&recording[..]).unwrap();
//! let read = replay.get(b"/registry/pods/a", GetOptions::default()).await.unwrap();
//! assert_eq!(read.revision, 1);
//! # });
//! ```

mod json;
mod recorder;
mod replay;

#[cfg(test)]
mod tests;

pub use self::recorder::Recorder;
pub use self::replay::{RecordingError, Replay};
