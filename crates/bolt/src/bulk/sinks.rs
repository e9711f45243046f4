//! Sinks of finished pages: one discards them, one writes them.

use std::io::{self, BufWriter, Write};

use super::branches::BranchNode;
use super::tree::{Sink, Span};
use crate::format::{
    BUCKET_HEADER_BYTES, ELEMENT_BYTES, ELEMENT_IS_BUCKET, FLAG_BRANCH, FLAG_LEAF, FLAG_META,
    PageHeader, PageId,
};
use crate::meta::Meta;

/// Size of the write buffer for small pages.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// The sink of the planner: discards pages, since the builder numbers them.
pub(crate) struct SizeSink;

impl Sink for SizeSink {
    type Value<'v> = u64;

    fn value_bytes(value: u64) -> u64 {
        value
    }

    fn bucket_header(header: &[u8; BUCKET_HEADER_BYTES]) -> u64 {
        header.len() as u64
    }

    fn add_leaf_entry(&mut self, _: bool, _: &[u8], _: u64) {}

    fn finish_leaf(&mut self, _: Span) -> io::Result<()> {
        Ok(())
    }

    fn single_entry_leaf(&mut self, _: Span, _: bool, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn branch(&mut self, _: Span, _: &BranchNode) -> io::Result<()> {
        Ok(())
    }
}

/// Writes each page as it is finished.
pub(crate) struct WriteSink<W: Write> {
    out: BufWriter<W>,
    page_bytes: u32,
    held: Vec<LeafEntry>,
    /// Keys and values of the held entries, one after the other.
    held_data: Vec<u8>,
    /// Header and element table of the page being written; reused.
    head: Vec<u8>,
    zeros: Vec<u8>,
}

struct LeafEntry {
    is_bucket: bool,
    key_bytes: u32,
    value_bytes: u32,
}

impl<W: Write> WriteSink<W> {
    pub fn new(out: W, page_bytes: u32) -> Self {
        Self {
            out: BufWriter::with_capacity(WRITE_BUFFER_BYTES, out),
            page_bytes,
            held: Vec::new(),
            held_data: Vec::new(),
            head: Vec::new(),
            zeros: vec![0; page_bytes as usize],
        }
    }

    pub fn into_inner(self) -> io::Result<W> {
        self.out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }

    /// Writes two pages of zeros in place of the metas; until the metas are written the file is not
    /// a valid database.
    pub fn reserve_metas(&mut self) -> io::Result<()> {
        self.out.write_all(&self.zeros)?;
        self.out.write_all(&self.zeros)
    }

    /// Writes both meta pages. The first has the higher transaction id and is valid; its id is even
    /// because bbolt's next commit, an odd one, goes to page 1. `directory` follows the first meta
    /// and fits into its page.
    pub fn metas(&mut self, newest: &Meta, directory: &[u8]) -> io::Result<()> {
        let metas = [(0, newest.txid, directory), (1, newest.txid - 1, &[][..])];
        for (page, txid, directory) in metas {
            self.begin_page(page, FLAG_META, 0, 0);
            self.head
                .extend_from_slice(&Meta { txid, ..*newest }.encode());
            self.head.extend_from_slice(directory);
            self.out.write_all(&self.head)?;
            self.pad(self.head.len() as u64)?;
        }
        Ok(())
    }

    fn begin_page(&mut self, id: u64, flags: u16, count: u16, overflow: u32) {
        self.head.clear();
        let header = PageHeader {
            id,
            flags,
            count,
            overflow,
        };
        self.head.extend_from_slice(&header.encode());
    }

    /// Starts the first page of a span. Counts are below 65535, spans below 2^32 pages and lengths
    /// below 2 GiB: the builder ends pages early enough and refuses longer values, so no conversion
    /// truncates.
    fn begin_span(&mut self, span: Span, flags: u16, count: usize) {
        self.begin_page(span.first.0, flags, count as u16, (span.pages - 1) as u32);
    }

    fn push_leaf_element(&mut self, position: usize, entry: &LeafEntry) {
        let flags = if entry.is_bucket {
            ELEMENT_IS_BUCKET
        } else {
            0
        };
        for field in [flags, position as u32, entry.key_bytes, entry.value_bytes] {
            self.head.extend_from_slice(&field.to_le_bytes());
        }
    }

    fn push_branch_element(&mut self, position: usize, key_bytes: usize, child: PageId) {
        for field in [position as u32, key_bytes as u32] {
            self.head.extend_from_slice(&field.to_le_bytes());
        }
        self.head.extend_from_slice(&child.0.to_le_bytes());
    }

    /// Writes zeros up to the end of the last page of `written_bytes` bytes.
    fn pad(&mut self, written_bytes: u64) -> io::Result<()> {
        let used = (written_bytes % u64::from(self.page_bytes)) as usize;
        if used == 0 {
            return Ok(());
        }
        self.out.write_all(&self.zeros[used..])
    }
}

impl<W: Write> Sink for WriteSink<W> {
    type Value<'v> = &'v [u8];

    fn value_bytes(value: &[u8]) -> u64 {
        value.len() as u64
    }

    fn bucket_header(header: &[u8; BUCKET_HEADER_BYTES]) -> &[u8] {
        header
    }

    fn add_leaf_entry(&mut self, is_bucket: bool, key: &[u8], value: &[u8]) {
        self.held.push(LeafEntry {
            is_bucket,
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
        });
        self.held_data.extend_from_slice(key);
        self.held_data.extend_from_slice(value);
    }

    fn finish_leaf(&mut self, span: Span) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        self.begin_span(span, FLAG_LEAF, held.len());
        let mut data_start = held.len() * ELEMENT_BYTES;
        for (index, entry) in held.iter().enumerate() {
            self.push_leaf_element(data_start - index * ELEMENT_BYTES, entry);
            data_start += (entry.key_bytes + entry.value_bytes) as usize;
        }
        self.out.write_all(&self.head)?;
        self.out.write_all(&self.held_data)?;
        self.pad((self.head.len() + self.held_data.len()) as u64)?;
        self.held = held;
        self.held.clear();
        self.held_data.clear();
        Ok(())
    }

    fn single_entry_leaf(
        &mut self,
        span: Span,
        is_bucket: bool,
        key: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        let entry = LeafEntry {
            is_bucket,
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
        };
        self.begin_span(span, FLAG_LEAF, 1);
        self.push_leaf_element(ELEMENT_BYTES, &entry);
        self.out.write_all(&self.head)?;
        self.out.write_all(key)?;
        self.out.write_all(value)?;
        self.pad((self.head.len() + key.len() + value.len()) as u64)
    }

    fn branch(&mut self, span: Span, node: &BranchNode) -> io::Result<()> {
        self.begin_span(span, FLAG_BRANCH, node.count());
        let mut data_start = node.count() * ELEMENT_BYTES;
        for (index, (child, key_bytes)) in node.children().enumerate() {
            self.push_branch_element(data_start - index * ELEMENT_BYTES, key_bytes, child);
            data_start += key_bytes;
        }
        self.out.write_all(&self.head)?;
        self.out.write_all(node.keys())?;
        self.pad((self.head.len() + node.keys().len()) as u64)
    }
}
