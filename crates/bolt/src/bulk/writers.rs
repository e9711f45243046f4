//! The three ways in: plan, stream a plan, or write to something that can seek.

use std::io::{Seek, SeekFrom, Write};

use super::directory;
use super::sinks::{Emit, Measure};
use super::tree::{DatabaseBuilder, Shape, WriteError};
use crate::format::page_bytes_valid;
use crate::meta::Meta;

/// The transaction id of a new file's newer meta. Even, so that it belongs on page 0.
const FIRST_TXID: u64 = 2;

/// How to write a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOptions {
    page_bytes: u32,
    has_directory: bool,
}

/// Options that no database can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not a power of two between 1 KiB and 16 MiB.
    #[error("a page of {page_bytes} bytes; choose a power of two from 1024 to 16777216")]
    PageBytes {
        /// The length asked for.
        page_bytes: u32,
    },
}

impl Default for BulkOptions {
    /// Pages of 4096 bytes. Readers take the size from the meta, so this fits every host.
    fn default() -> Self {
        Self {
            page_bytes: Self::PAGE_BYTES,
            has_directory: false,
        }
    }
}

impl BulkOptions {
    pub(crate) const PAGE_BYTES: u32 = 4096;

    /// A stream with a directory in the padding of its first page, so that a
    /// [`StreamReader`](crate::StreamReader) can read it while it arrives.
    pub fn for_stream_reader() -> Self {
        Self {
            has_directory: true,
            ..Self::default()
        }
    }

    /// Pages of another length.
    pub fn with_page_bytes(page_bytes: u32) -> Result<Self, OptionsError> {
        if page_bytes_valid(page_bytes) {
            Ok(Self {
                page_bytes,
                has_directory: false,
            })
        } else {
            Err(OptionsError::PageBytes { page_bytes })
        }
    }
}

/// The shape of a database: enough to write its metas and to announce its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    options: BulkOptions,
    shape: Shape,
}

impl Layout {
    /// Exact length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.shape.high_water * u64::from(self.options.page_bytes)
    }

    /// How many entries it holds, all buckets together.
    pub fn entries(&self) -> u64 {
        self.shape.entries
    }

    fn meta(&self) -> Meta {
        Meta {
            page_bytes: self.options.page_bytes,
            root: self.shape.root,
            root_sequence: 0,
            freelist: None,
            high_water: self.shape.high_water,
            txid: FIRST_TXID,
        }
    }

    /// Empty if none is wanted, or if there are too many buckets for one.
    fn directory(&self) -> Vec<u8> {
        let BulkOptions {
            page_bytes,
            has_directory,
        } = self.options;
        has_directory
            .then(|| directory::encode(self.shape.entries, &self.shape.buckets, page_bytes))
            .flatten()
            .unwrap_or_default()
    }
}

/// The first pass over a source: keys and value lengths only.
pub struct Planner {
    options: BulkOptions,
    builder: DatabaseBuilder<Measure>,
}

impl Planner {
    /// A plan with nothing in it yet.
    pub fn new(options: BulkOptions) -> Self {
        Self {
            options,
            builder: DatabaseBuilder::new(Measure, options.page_bytes, u64::MAX),
        }
    }

    /// Begins the next bucket; names come in ascending order.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// The next entry of the bucket; keys come in ascending order.
    pub fn entry(&mut self, key: &[u8], value_bytes: u64) -> Result<(), WriteError> {
        self.builder.entry(key, value_bytes)
    }

    /// The shape of what was given.
    pub fn finish(self) -> Result<Layout, WriteError> {
        let (Measure, shape) = self.builder.finish()?;
        Ok(Layout {
            options: self.options,
            shape,
        })
    }
}

/// The second pass over a source: writes a planned database to anything, front to back.
pub struct StreamWriter<W: Write> {
    layout: Layout,
    builder: DatabaseBuilder<Emit<W>>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the metas; the same buckets and entries must follow that were planned.
    pub fn new(layout: Layout, out: W) -> Result<Self, WriteError> {
        let page_bytes = layout.options.page_bytes;
        let mut sink = Emit::new(out, page_bytes);
        sink.metas(&layout.meta(), &layout.directory())?;
        let high_water = layout.shape.high_water;
        Ok(Self {
            layout,
            builder: DatabaseBuilder::new(sink, page_bytes, high_water),
        })
    }

    /// Begins the next bucket; names come in ascending order.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// The next entry of the bucket; keys come in ascending order.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.builder.entry(key, value)
    }

    /// Writes the rest and gives the target back, unless the source was not the planned one.
    ///
    /// Noticed is what moves a page or changes the number of entries. Another value of the same
    /// length passes: the file is then sound and holds what this pass was given.
    pub fn finish(self) -> Result<W, WriteError> {
        let (sink, shape) = self.builder.finish()?;
        if shape != self.layout.shape {
            return Err(WriteError::SourceChanged);
        }
        Ok(sink.into_inner()?)
    }
}

/// Writes a database in one pass to a target that can seek.
///
/// The metas stay zero until [`FileWriter::finish`], so a file left behind by a crash is never
/// taken for a database. Making it durable and giving it its final name is the caller's part.
pub struct FileWriter<W: Write + Seek> {
    options: BulkOptions,
    builder: DatabaseBuilder<Emit<W>>,
}

impl<W: Write + Seek> FileWriter<W> {
    /// `out` is empty: a database starts at its first byte and ends at its last.
    pub fn new(options: BulkOptions, out: W) -> Result<Self, WriteError> {
        let mut sink = Emit::new(out, options.page_bytes);
        sink.reserve_metas()?;
        Ok(Self {
            options,
            builder: DatabaseBuilder::new(sink, options.page_bytes, u64::MAX),
        })
    }

    /// Begins the next bucket; names come in ascending order.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// The next entry of the bucket; keys come in ascending order.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.builder.entry(key, value)
    }

    /// Writes the rest and the metas, and gives the target back, positioned at its end.
    pub fn finish(self) -> Result<(W, Layout), WriteError> {
        let (sink, shape) = self.builder.finish()?;
        let layout = Layout {
            options: self.options,
            shape,
        };
        let mut out = sink.into_inner()?;
        out.seek(SeekFrom::Start(0))?;
        let mut sink = Emit::new(out, self.options.page_bytes);
        sink.metas(&layout.meta(), &[])?;
        let mut out = sink.into_inner()?;
        out.seek(SeekFrom::Start(layout.file_bytes()))?;
        Ok((out, layout))
    }
}
