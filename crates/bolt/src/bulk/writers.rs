//! The planner, the stream writer and the file writer.

use std::io::{Seek, SeekFrom, Write};

use super::directory;
use super::sinks::{SizeSink, WriteSink};
use super::tree::{DatabaseBuilder, Shape, WriteError};
use crate::format::page_bytes_valid;
use crate::meta::Meta;

/// The transaction id of a new file's newer meta. Even, because that meta is on page 0.
const FIRST_TXID: u64 = 2;

/// Options of a written database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOptions {
    page_bytes: u32,
    has_directory: bool,
}

/// An error of invalid options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The page size is not a power of two between 1 KiB and 16 MiB.
    #[error("a page of {page_bytes} bytes; choose a power of two from 1024 to 16777216")]
    PageBytes {
        /// The requested length.
        page_bytes: u32,
    },
}

impl Default for BulkOptions {
    /// Returns options for pages of 4096 bytes. Readers take the size from the meta, so this works
    /// on every host.
    fn default() -> Self {
        Self {
            page_bytes: Self::PAGE_BYTES,
            has_directory: false,
        }
    }
}

impl BulkOptions {
    pub(crate) const PAGE_BYTES: u32 = 4096;

    /// Returns options for a stream with a directory in the padding of its
    /// first page, so that a [`StreamReader`](crate::StreamReader) can read it
    /// while it arrives.
    pub fn for_stream_reader() -> Self {
        Self {
            has_directory: true,
            ..Self::default()
        }
    }

    /// Returns options for pages of another length.
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

    /// Number of entries in all buckets.
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

    /// Encodes the directory; empty if none is requested, or if it does not fit into a page.
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
    builder: DatabaseBuilder<SizeSink>,
}

impl Planner {
    /// Creates an empty plan.
    pub fn new(options: BulkOptions) -> Self {
        Self {
            options,
            builder: DatabaseBuilder::new(SizeSink, options.page_bytes, u64::MAX),
        }
    }

    /// Starts the next bucket; names must ascend.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// Adds the next entry of the bucket; keys must ascend.
    pub fn entry(&mut self, key: &[u8], value_bytes: u64) -> Result<(), WriteError> {
        self.builder.entry(key, value_bytes)
    }

    /// Returns the layout of the planned entries.
    pub fn finish(self) -> Result<Layout, WriteError> {
        let (SizeSink, shape) = self.builder.finish()?;
        Ok(Layout {
            options: self.options,
            shape,
        })
    }
}

/// The second pass over a source: writes a planned database sequentially.
pub struct StreamWriter<W: Write> {
    layout: Layout,
    builder: DatabaseBuilder<WriteSink<W>>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the metas; the same buckets and entries must follow that were planned.
    pub fn new(layout: Layout, out: W) -> Result<Self, WriteError> {
        let page_bytes = layout.options.page_bytes;
        let mut sink = WriteSink::new(out, page_bytes);
        sink.metas(&layout.meta(), &layout.directory())?;
        let high_water = layout.shape.high_water;
        Ok(Self {
            layout,
            builder: DatabaseBuilder::new(sink, page_bytes, high_water),
        })
    }

    /// Starts the next bucket; names must ascend.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// Adds the next entry of the bucket; keys must ascend.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.builder.entry(key, value)
    }

    /// Writes the rest and returns the target, unless the source differs from the plan.
    ///
    /// Detects changes that move a page or change the number of entries. Another value of the same
    /// length is not detected: the file is then valid and holds the entries of this pass.
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
/// The metas stay zero until [`FileWriter::finish`], so the incomplete file of a crash is never
/// taken for a database. The caller syncs and renames the file.
pub struct FileWriter<W: Write + Seek> {
    options: BulkOptions,
    builder: DatabaseBuilder<WriteSink<W>>,
}

impl<W: Write + Seek> FileWriter<W> {
    /// Starts a database in `out`, which must be empty.
    pub fn new(options: BulkOptions, out: W) -> Result<Self, WriteError> {
        let mut sink = WriteSink::new(out, options.page_bytes);
        sink.reserve_metas()?;
        Ok(Self {
            options,
            builder: DatabaseBuilder::new(sink, options.page_bytes, u64::MAX),
        })
    }

    /// Starts the next bucket; names must ascend.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.builder.bucket(name)
    }

    /// Adds the next entry of the bucket; keys must ascend.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.builder.entry(key, value)
    }

    /// Writes the rest and the metas, and returns the target, positioned at its end.
    pub fn finish(self) -> Result<(W, Layout), WriteError> {
        let (sink, shape) = self.builder.finish()?;
        let layout = Layout {
            options: self.options,
            shape,
        };
        let mut out = sink.into_inner()?;
        out.seek(SeekFrom::Start(0))?;
        let mut sink = WriteSink::new(out, self.options.page_bytes);
        sink.metas(&layout.meta(), &[])?;
        let mut out = sink.into_inner()?;
        out.seek(SeekFrom::Start(layout.file_bytes()))?;
        Ok((out, layout))
    }
}
