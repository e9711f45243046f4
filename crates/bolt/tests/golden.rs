//! The golden bytes of a small file: bucket `b` with `k` = `v`, pages of 1 KiB. The checksums were
//! computed by an independent program.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use support::*;

/// (offset, bytes in hex, description); every byte not listed is zero.
const GOLDEN: &[(usize, &str, &str)] = &[
    // Page 0: the newer meta.
    (0x000, "0000000000000000", "page id 0"),
    (
        0x008,
        "0400 0000 00000000",
        "meta page, no elements, no overflow",
    ),
    (0x010, "edda0ced 02000000", "magic, version 2"),
    (0x018, "00040000 00000000", "page size 1024, flags"),
    (0x020, "0300000000000000", "root of the top level: page 3"),
    (0x028, "0000000000000000", "its sequence"),
    (0x030, "ffffffffffffffff", "no freelist stored"),
    (0x038, "0400000000000000", "high-water mark: 4 pages"),
    (0x040, "0200000000000000", "transaction 2"),
    (0x048, "1a819f7eea8e2a67", "FNV-1a-64 of 0x010..0x048"),
    // Page 1: the same, one transaction older.
    (0x400, "0100000000000000", "page id 1"),
    (0x408, "0400 0000 00000000", "meta page"),
    (0x410, "edda0ced 02000000", "magic, version 2"),
    (0x418, "00040000 00000000", "page size 1024, flags"),
    (0x420, "0300000000000000", "root of the top level: page 3"),
    (0x428, "0000000000000000", "its sequence"),
    (0x430, "ffffffffffffffff", "no freelist stored"),
    (0x438, "0400000000000000", "high-water mark: 4 pages"),
    (0x440, "0100000000000000", "transaction 1"),
    (0x448, "f936b073e1c72f48", "FNV-1a-64 of 0x410..0x448"),
    // Page 2: the bucket's only leaf.
    (0x800, "0200000000000000", "page id 2"),
    (
        0x808,
        "0200 0100 00000000",
        "leaf page, one element, no overflow",
    ),
    (
        0x810,
        "00000000 10000000",
        "plain value; key 16 bytes after this element",
    ),
    (0x818, "01000000 01000000", "key 1 byte, value 1 byte"),
    (0x820, "6b 76", "k, v"),
    // Page 3: the top level, whose only entry is the bucket.
    (0xc00, "0300000000000000", "page id 3"),
    (
        0xc08,
        "0200 0100 00000000",
        "leaf page, one element, no overflow",
    ),
    (
        0xc10,
        "01000000 10000000",
        "a bucket; key 16 bytes after this element",
    ),
    (0xc18, "01000000 10000000", "name 1 byte, header 16 bytes"),
    (0xc20, "62", "b"),
    (0xc21, "0200000000000000", "root of the bucket: page 2"),
    (0xc29, "0000000000000000", "its sequence"),
];

fn golden_file() -> Vec<u8> {
    let mut file = vec![0; 4 * 1024];
    for (offset, hex, _) in GOLDEN {
        let digits: Vec<char> = hex.chars().filter(|digit| *digit != ' ').collect();
        for (index, pair) in digits.chunks(2).enumerate() {
            let pair: String = pair.iter().collect();
            file[offset + index] = u8::from_str_radix(&pair, 16).unwrap();
        }
    }
    file
}

fn contents() -> Contents {
    one_bucket([(b"k".to_vec(), b"v".to_vec())])
}

#[test]
fn writer_produces_the_golden_file() {
    let written = write_stream(&contents(), pages_of(1024));
    for (offset, _, meaning) in GOLDEN {
        let expected = &golden_file()[*offset..offset + 8];
        assert_eq!(&written[*offset..offset + 8], expected, "{meaning}");
    }
    assert_eq!(written, golden_file());
}

#[test]
fn reader_reads_the_golden_file() {
    assert_eq!(read_all(&open(golden_file())), contents());
}
