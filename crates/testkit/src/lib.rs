//! What tests of several crates need to run real servers.
//!
//! Only tests, the benchmark and the torture command depend on this crate; nothing that ships
//! does.
//!
//! | module | concept |
//! | --- | --- |
//! | [`go`] | the Go programs that Portunus is compared with |
//! | [`ports`] | free ports for servers |

pub mod go;
pub mod ports;
