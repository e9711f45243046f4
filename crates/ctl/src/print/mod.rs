//! Prints responses in the format that the user chose.
//!
//! Commands hand an [`Answer`] to a [`Printer`]. Rendering is pure, so that tests compare whole
//! texts with what etcdctl prints; only [`Printer::print`] writes.

mod answer;
mod auth;
mod fields;
mod gate;
mod json;
mod protobuf;
mod simple;
mod table;

#[cfg(test)]
mod golden_auth_tests;
#[cfg(test)]
mod golden_cluster_tests;
#[cfg(test)]
mod golden_gate_tests;
#[cfg(test)]
mod golden_tests;

pub use answer::{Answer, EndpointHashKv, EndpointHealth, EndpointStatus};
pub use auth::AuthAnswer;
pub use gate::{EndpointGates, GateAnswer, GateReport, MemberNames};

use crate::outcome::{ExitWith, Failure, write_err, write_out};

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people; the default.
    Simple,
    /// One JSON value per line.
    Json,
    /// `"Name" : value` lines.
    Fields,
    /// A drawn table, for lists only.
    Table,
    /// The response as it was on the wire.
    Protobuf,
}

impl Format {
    /// The format with this name.
    pub fn named(name: &str) -> Result<Self, Failure> {
        match name {
            "simple" => Ok(Self::Simple),
            "json" => Ok(Self::Json),
            "fields" => Ok(Self::Fields),
            "table" => Ok(Self::Table),
            "protobuf" => Ok(Self::Protobuf),
            _ => Err(Failure::new(
                ExitWith::BadFeature,
                "unsupported output format",
            )),
        }
    }
}

/// Renders answers.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// The output format.
    pub format: Format,
    /// Keys, values and ids in hexadecimal where the format allows.
    pub hex: bool,
    /// Values without keys; `simple` only.
    pub value_only: bool,
}

/// Rendered text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// For standard output.
    pub out: Vec<u8>,
    /// For standard error.
    pub err: Vec<u8>,
}

impl From<String> for Printed {
    fn from(out: String) -> Self {
        Self {
            out: out.into_bytes(),
            err: Vec::new(),
        }
    }
}

impl Printer {
    /// Renders an answer and writes it.
    pub fn print(&self, answer: &Answer<'_>) -> Result<(), Failure> {
        let printed = self.render(answer)?;
        write_err(&printed.err);
        write_out(&printed.out)
    }

    /// Renders an answer.
    pub fn render(&self, answer: &Answer<'_>) -> Result<Printed, Failure> {
        match self.format {
            Format::Simple => Ok(simple::render(answer, self)),
            Format::Json => Ok(format!("{}\n", json::render(answer, self.hex)).into()),
            Format::Fields => fields::render(answer, self.hex)
                .map(Printed::from)
                .ok_or_else(|| unsupported("fields")),
            Format::Table => table::render(answer)
                .map(Printed::from)
                .ok_or_else(|| unsupported("table")),
            Format::Protobuf => protobuf::render(answer)
                .map(|out| Printed {
                    out,
                    err: Vec::new(),
                })
                .ok_or_else(|| unsupported("protobuf")),
        }
    }
}

fn unsupported(format: &str) -> Failure {
    let message = format!("{format} not supported as output format");
    Failure::new(ExitWith::BadFeature, message)
}
