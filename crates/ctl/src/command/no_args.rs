//! Commands without arguments.

use std::ffi::OsString;

use clap::Args;

/// Arguments that a command refuses with etcdctl's text.
#[derive(Debug, Args)]
pub struct NoArgs {
    #[arg(hide = true)]
    pub arguments: Vec<OsString>,
}
