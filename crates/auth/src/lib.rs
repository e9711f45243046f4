//! Users, roles, permissions and tokens: rules over the store.
//!
//! Everything here is pure. Time, randomness and the bytes of key files are arguments. The users
//! and roles change only through the log, in etcd's buckets with etcd's bytes.

pub mod jwt;
