//! The rules of the store: what a revision contains, who is told about it, and
//! how long a lease lives.
//!
//! The server's apply thread calls it. It never opens a socket, reads a clock
//! or starts a thread.

pub mod lease;
pub mod watch;
