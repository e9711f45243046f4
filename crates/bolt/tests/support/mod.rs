//! Test databases: as a map, written by the crate, or patched byte by byte.
#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::io::Cursor;

use bytes::Bytes;
use portunus_bolt::{BulkOptions, FileWriter, Layout, Planner, Reader, StreamWriter};

pub type Contents = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

pub const ETCD_BUCKETS: [&str; 10] = [
    "alarm",
    "auth",
    "authRoles",
    "authUsers",
    "cluster",
    "key",
    "lease",
    "members",
    "members_removed",
    "meta",
];

pub fn pages_of(page_bytes: u32) -> BulkOptions {
    BulkOptions::with_page_bytes(page_bytes).unwrap()
}

pub fn one_bucket(entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Contents {
    Contents::from([(b"b".to_vec(), entries.into_iter().collect())])
}

/// `count` entries with ascending 8-byte keys and values of `value_bytes`.
pub fn numbered(count: u64, value_bytes: usize) -> Contents {
    one_bucket((0..count).map(|n| {
        let value = n.to_le_bytes().into_iter().cycle().take(value_bytes);
        (n.to_be_bytes().to_vec(), value.collect())
    }))
}

pub fn plan(contents: &Contents, options: BulkOptions) -> Layout {
    let mut planner = Planner::new(options);
    for (name, entries) in contents {
        planner.bucket(name).unwrap();
        for (key, value) in entries {
            planner.entry(key, value.len() as u64).unwrap();
        }
    }
    planner.finish().unwrap()
}

pub fn write_stream(contents: &Contents, options: BulkOptions) -> Vec<u8> {
    let mut writer = StreamWriter::new(plan(contents, options), Vec::new()).unwrap();
    for (name, entries) in contents {
        writer.bucket(name).unwrap();
        for (key, value) in entries {
            writer.entry(key, value).unwrap();
        }
    }
    writer.finish().unwrap()
}

pub fn write_seekable(contents: &Contents, options: BulkOptions) -> Vec<u8> {
    let mut writer = FileWriter::new(options, Cursor::new(Vec::new())).unwrap();
    for (name, entries) in contents {
        writer.bucket(name).unwrap();
        for (key, value) in entries {
            writer.entry(key, value).unwrap();
        }
    }
    writer.finish().unwrap().0.into_inner()
}

pub fn open(file: Vec<u8>) -> Reader {
    Reader::from_bytes(Bytes::from(file)).unwrap()
}

pub fn read_all(reader: &Reader) -> Contents {
    reader
        .buckets()
        .map(|bucket| {
            let (name, bucket) = bucket.unwrap();
            let entries = bucket.iter().map(|pair| {
                let (key, value) = pair.unwrap();
                (key.to_vec(), value.to_vec())
            });
            (name.to_vec(), entries.collect())
        })
        .collect()
}

/// Header of a page, decoded without the crate.
#[derive(Debug, Clone, Copy)]
pub struct RawPage {
    pub at: usize,
    pub id: u64,
    pub flags: u16,
    pub count: u16,
    pub overflow: u32,
}

pub const BRANCH: u16 = 1;
pub const LEAF: u16 = 2;
pub const FREELIST: u16 = 0x10;

/// All pages of a file in order, overflow skipped.
pub fn raw_pages(file: &[u8], page_bytes: usize) -> Vec<RawPage> {
    let mut pages = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let page = RawPage {
            at,
            id: u64::from_le_bytes(file[at..at + 8].try_into().unwrap()),
            flags: u16::from_le_bytes(file[at + 8..at + 10].try_into().unwrap()),
            count: u16::from_le_bytes(file[at + 10..at + 12].try_into().unwrap()),
            overflow: u32::from_le_bytes(file[at + 12..at + 16].try_into().unwrap()),
        };
        pages.push(page);
        at += (page.overflow as usize + 1) * page_bytes;
    }
    pages
}

pub fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// FNV-1a-64, for metas patched by a test.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

pub const META_ROOT: usize = 16;
pub const META_FREELIST: usize = 32;
pub const META_HIGH_WATER: usize = 40;
pub const META_TXID: usize = 48;

/// Changes a 64-bit field of the meta on page `page` and updates its checksum.
pub fn patch_meta(file: &mut [u8], page_bytes: usize, page: usize, field: usize, value: u64) {
    let meta = page * page_bytes + 16;
    put(file, meta + field, &value.to_le_bytes());
    let sum = checksum(&file[meta..meta + 56]);
    put(file, meta + 56, &sum.to_le_bytes());
}

/// A branch or leaf page of one page's length, elements as (flags or child, key, value).
pub fn leaf_page(
    id: u64,
    overflow: u32,
    elements: &[(u32, &[u8], &[u8])],
    length: usize,
) -> Vec<u8> {
    let mut page = page_header(id, LEAF, elements.len() as u16, overflow);
    let mut data = Vec::new();
    for (index, (flags, key, value)) in elements.iter().enumerate() {
        let position = (elements.len() - index) * 16 + data.len();
        for field in [
            *flags,
            position as u32,
            key.len() as u32,
            value.len() as u32,
        ] {
            page.extend_from_slice(&field.to_le_bytes());
        }
        data.extend_from_slice(key);
        data.extend_from_slice(value);
    }
    page.extend_from_slice(&data);
    page.resize(length.max(page.len()), 0);
    page
}

pub fn branch_page(id: u64, children: &[(&[u8], u64)], length: usize) -> Vec<u8> {
    let mut page = page_header(id, BRANCH, children.len() as u16, 0);
    let mut data = Vec::new();
    for (index, (key, child)) in children.iter().enumerate() {
        let position = (children.len() - index) * 16 + data.len();
        page.extend_from_slice(&(position as u32).to_le_bytes());
        page.extend_from_slice(&(key.len() as u32).to_le_bytes());
        page.extend_from_slice(&child.to_le_bytes());
        data.extend_from_slice(key);
    }
    page.extend_from_slice(&data);
    page.resize(length, 0);
    page
}

pub fn freelist_page(id: u64, free: &[u64], length: usize) -> Vec<u8> {
    let mut page = page_header(id, FREELIST, free.len() as u16, 0);
    for free in free {
        page.extend_from_slice(&free.to_le_bytes());
    }
    page.resize(length, 0);
    page
}

fn page_header(id: u64, flags: u16, count: u16, overflow: u32) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend_from_slice(&flags.to_le_bytes());
    page.extend_from_slice(&count.to_le_bytes());
    page.extend_from_slice(&overflow.to_le_bytes());
    page
}

/// A file of 1 KiB pages: two metas with `root` and `freelist`, then `pages` from page 2 on.
pub fn file_of(root: u64, freelist: u64, pages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for (page, txid) in [(0, 2), (1, 1_u64)] {
        let mut meta = page_header(page, 4, 0, 0);
        meta.extend_from_slice(&0xED0C_DAED_u32.to_le_bytes());
        meta.extend_from_slice(&2_u32.to_le_bytes());
        meta.extend_from_slice(&1024_u32.to_le_bytes());
        meta.extend_from_slice(&0_u32.to_le_bytes());
        let body: usize = pages.iter().map(Vec::len).sum();
        for field in [root, 0, freelist, (2 + body / 1024) as u64, txid] {
            meta.extend_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&meta[16..]);
        meta.extend_from_slice(&sum.to_le_bytes());
        meta.resize(1024, 0);
        file.extend_from_slice(&meta);
    }
    for page in pages {
        file.extend_from_slice(page);
    }
    file
}

pub const NO_FREELIST: u64 = u64::MAX;

/// The value of a bucket that has its own root page.
pub fn bucket_header(root: u64, sequence: u64) -> Vec<u8> {
    [root.to_le_bytes(), sequence.to_le_bytes()].concat()
}

/// The value of a bucket that is stored inline.
pub fn inline_bucket(sequence: u64, elements: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let mut value = bucket_header(0, sequence);
    value.extend_from_slice(&leaf_page(0, 0, elements, 0));
    value
}
