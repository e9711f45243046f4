//! How Go reads and writes values. etcdctl's formats are what Go's library prints, so this is
//! the one place that knows it. Pure functions; called by parsers and printers.

pub mod boolean;
pub mod duration;
pub mod integer;
pub mod json;
pub mod quote;
pub mod size;
pub mod time;
