//! A damaged file gives a typed error that names the page; nothing panics or loops.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::sync::LazyLock;

use bytes::Bytes;
use portunus_bolt::{
    EntryValue, MetaFault, OpenError, PROBLEMS_KEPT_MAX, PageId, Problem, ReadError, Reader, check,
    snapshot,
};
use proptest::collection::vec;
use proptest::prelude::*;
use support::*;

/// Calls every function of the reader on a file and ignores the results.
fn exercise(file: Vec<u8>) {
    let Ok(reader) = Reader::from_bytes(Bytes::from(file)) else {
        return;
    };
    let report = check(&reader);
    let _ = snapshot::status(&reader);
    let _ = snapshot::hash(&reader, |_, _| false);
    let _ = reader.freelist().map(|list| list.map(Iterator::count));
    let walked: Result<u64, ReadError> = reader.buckets().try_fold(0, |entries, bucket| {
        let (_, bucket) = bucket?;
        let _ = bucket.get(&[0, 0, 0, 0, 0, 0, 0, 9]);
        let _ = bucket.iter_from(&[0, 0, 0, 0, 0, 0, 0, 7]).take(10).count();
        bucket.entries().try_fold(entries, |entries, entry| {
            if let EntryValue::Bucket(inner) = entry?.value {
                let _ = inner.iter().count();
            }
            Ok(entries + 1)
        })
    });
    // The checker finds at least the errors of a walk.
    if let Err(error) = walked {
        assert!(!report.is_clean(), "the walk failed with {error}");
    }
}

/// Three levels, an overflow value, an empty bucket, 1 KiB pages.
fn rich_file() -> Vec<u8> {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(write_rich_file);
    FILE.clone()
}

fn write_rich_file() -> Vec<u8> {
    let mut contents = numbered(2_000, 20);
    contents.insert(b"empty".to_vec(), Default::default());
    contents.insert(
        b"large".to_vec(),
        [(b"k".to_vec(), vec![1; 5_000]), (b"l".to_vec(), vec![2; 9])].into(),
    );
    write_stream(&contents, pages_of(1024))
}

/// Two inline buckets, a nested one, a stored freelist.
fn go_like_file() -> Vec<u8> {
    let small = inline_bucket(7, &[(0, b"a", b"1"), (0, b"b", b"2")]);
    let empty = inline_bucket(0, &[]);
    let outer = bucket_header(4, 3);
    let inner = bucket_header(5, 0);
    file_of(
        3,
        2,
        &[
            freelist_page(2, &[6], 1024),
            leaf_page(
                3,
                0,
                &[
                    (1, b"empty", &empty),
                    (1, b"outer", &outer),
                    (1, b"small", &small),
                ],
                1024,
            ),
            leaf_page(
                4,
                0,
                &[(1, b"inner", &inner), (0, b"plain", b"value")],
                1024,
            ),
            leaf_page(5, 0, &[(0, b"deep", b"down")], 1024),
            leaf_page(77, 0, &[], 1024),
        ],
    )
}

fn problems(file: Vec<u8>) -> Vec<Problem> {
    check(&open(file)).problems
}

fn walk_error(file: Vec<u8>) -> ReadError {
    let reader = open(file);
    for bucket in reader.buckets() {
        let bucket = match bucket {
            Ok((_, bucket)) => bucket,
            Err(error) => return error,
        };
        if let Some(Err(error)) = bucket.iter().find(Result::is_err) {
            return error;
        }
    }
    panic!("the walk found no error");
}

#[test]
fn reader_accepts_inline_and_nested_buckets_and_a_freelist() {
    let reader = open(go_like_file());
    assert_eq!(check(&reader).problems, []);
    assert_eq!(check(&reader).buckets, 4);
    assert_eq!(check(&reader).entries, 4);
    assert_eq!(check(&reader).pages_free, 1);

    let free: Vec<PageId> = reader.freelist().unwrap().unwrap().collect();
    assert_eq!(free, [PageId(6)]);

    let small = reader.bucket(b"small").unwrap().unwrap();
    assert_eq!((small.root(), small.sequence()), (None, 7));
    assert_eq!(small.get(b"b").unwrap(), Some(&b"2"[..]));
    assert_eq!(small.iter_from(b"aa").count(), 1);
    let empty = reader.bucket(b"empty").unwrap().unwrap();
    assert_eq!(empty.iter().count(), 0);

    let outer = reader.bucket(b"outer").unwrap().unwrap();
    assert_eq!((outer.root(), outer.sequence()), (Some(PageId(4)), 3));
    let entries: Vec<_> = outer.entries().map(Result::unwrap).collect();
    let EntryValue::Bucket(inner) = entries[0].value else {
        panic!("the first entry is a bucket");
    };
    assert_eq!(inner.get(b"deep").unwrap(), Some(&b"down"[..]));
    assert!(matches!(entries[1].value, EntryValue::Bytes(b"value")));

    let refused = ReadError::UnexpectedBucket {
        page: PageId(4),
        index: 0,
    };
    assert_eq!(outer.get(b"inner"), Err(refused));
    assert_eq!(outer.iter().collect::<Vec<_>>(), [Err(refused)]);
}

#[test]
fn freelist_of_more_than_65534_pages_has_its_length_in_the_first_slot() {
    let mut page = freelist_page(2, &[], 65_540 * 8);
    page[10..12].copy_from_slice(&u16::MAX.to_le_bytes());
    page[16..24].copy_from_slice(&65_535_u64.to_le_bytes());
    page.resize(page.len().next_multiple_of(1024), 0);
    let overflow = (page.len() / 1024 - 1) as u32;
    page[12..16].copy_from_slice(&overflow.to_le_bytes());
    let file = file_of(2 + page.len() as u64 / 1024, 2, &[page, Vec::new()]);
    assert_eq!(open(file).freelist().unwrap().unwrap().count(), 65_535);
}

#[test]
fn open_uses_the_newer_valid_meta() {
    let mut file = rich_file();
    assert_eq!(open(file.clone()).meta().txid, 2);
    patch_meta(&mut file, 1024, 1, META_TXID, 3);
    assert_eq!(open(file.clone()).meta().txid, 3);
    // If one meta is torn, the other one is used.
    file[1024 + 16 + 20] ^= 1;
    assert_eq!(open(file.clone()).meta().txid, 2);
    file[1024 + 16 + 20] ^= 1;
    file[16 + 20] ^= 1;
    assert_eq!(open(file).meta().txid, 3);
}

#[test]
fn open_finds_the_second_meta_at_any_page_size_if_page_0_is_torn() {
    for page_bits in 10..=24 {
        let mut file = write_stream(&numbered(5, 5), pages_of(1 << page_bits));
        file[16] ^= 1;
        let reader = open(file);
        assert_eq!(reader.meta().txid, 1);
        assert_eq!(read_all(&reader), numbered(5, 5));
    }
}

#[test]
fn open_without_a_valid_meta_reports_the_fault_of_both() {
    let mut file = rich_file();
    file[16 + 30] ^= 1;
    file[1024 + 16 + 4] = 3;
    match Reader::from_bytes(file.into()) {
        Err(OpenError::NoMeta { first, second }) => {
            assert_eq!(first, MetaFault::Checksum);
            assert_eq!(second, MetaFault::Version { found: 3 });
        }
        other => panic!("{other:?}"),
    }
    for length in [0, 1, 16, 79, 80, 1024, 8192] {
        assert!(matches!(
            Reader::from_bytes(vec![0; length].into()),
            Err(OpenError::NoMeta { .. })
        ));
    }
}

#[test]
fn open_refuses_a_truncated_file() {
    let file = rich_file();
    let cut = file[..file.len() - 1].to_vec();
    assert!(matches!(
        Reader::from_bytes(cut.into()),
        Err(OpenError::Cut {
            page_bytes: 1024,
            ..
        })
    ));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty");
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(Reader::open(&path), Err(OpenError::NoMeta { .. })));
}

#[test]
fn page_with_a_wrong_id_is_reported() {
    let mut file = rich_file();
    put(&mut file, 2 * 1024, &99_u64.to_le_bytes());
    let error = ReadError::PageId {
        page: PageId(2),
        found: 99,
    };
    assert_eq!(walk_error(file.clone()), error);
    assert!(problems(file).contains(&Problem::Malformed(error)));
}

#[test]
fn page_of_no_tree_type_is_reported() {
    let mut file = rich_file();
    put(&mut file, 2 * 1024 + 8, &0x13_u16.to_le_bytes());
    let error = ReadError::PageType {
        page: PageId(2),
        flags: 0x13,
    };
    assert_eq!(walk_error(file.clone()), error);
    assert!(problems(file).contains(&Problem::Malformed(error)));
}

#[test]
fn page_with_overflow_beyond_the_file_is_reported() {
    let mut file = rich_file();
    put(&mut file, 2 * 1024 + 12, &u32::MAX.to_le_bytes());
    assert_eq!(
        walk_error(file),
        ReadError::Overflow {
            page: PageId(2),
            overflow: u32::MAX
        }
    );
}

#[test]
fn page_with_more_elements_than_fit_is_reported() {
    let mut file = rich_file();
    put(&mut file, 2 * 1024 + 10, &64_u16.to_le_bytes());
    assert_eq!(
        walk_error(file),
        ReadError::Count {
            page: PageId(2),
            count: 64
        }
    );
}

#[test]
fn elements_that_point_outside_the_page_data_are_reported() {
    for (field, value) in [(4, 1_000_000_u32), (4, 16), (8, u32::MAX), (12, u32::MAX)] {
        let mut file = rich_file();
        // The second element of page 2.
        put(&mut file, 2 * 1024 + 32 + field, &value.to_le_bytes());
        assert_eq!(
            walk_error(file),
            ReadError::Element {
                page: PageId(2),
                index: 1
            }
        );
    }
}

#[test]
fn empty_key_is_reported() {
    let mut file = rich_file();
    put(&mut file, 2 * 1024 + 16 + 8, &0_u32.to_le_bytes());
    assert_eq!(
        walk_error(file),
        ReadError::EmptyKey {
            page: PageId(2),
            index: 0
        }
    );
}

#[test]
fn references_to_metas_and_beyond_the_end_are_reported() {
    for root in [0_u64, 1, 3, 1 << 40, u64::MAX] {
        let header = bucket_header(root, 0);
        let file = file_of(
            2,
            NO_FREELIST,
            &[leaf_page(2, 0, &[(1, b"b", &header)], 1024)],
        );
        if root == 0 {
            // Zero means inline, and there is no inline page.
            assert_eq!(
                walk_error(file),
                ReadError::BucketHeader {
                    page: PageId(2),
                    index: 0
                }
            );
        } else {
            let error = ReadError::PageOutOfRange {
                page: PageId(root),
                high_water: 3,
            };
            assert_eq!(walk_error(file.clone()), error);
            assert_eq!(problems(file), [Problem::Malformed(error)]);
        }
    }
}

/// A bucket `b` rooted at page 3, with these pages from page 3 on.
fn tree(pages: &[Vec<u8>]) -> Vec<u8> {
    let header = bucket_header(3, 0);
    let mut all = vec![leaf_page(2, 0, &[(1, b"b", &header)], 1024)];
    all.extend_from_slice(pages);
    file_of(2, NO_FREELIST, &all)
}

#[test]
fn branch_that_is_its_own_child_is_reported() {
    // Unused pages follow, or the walk would reach the page limit before the depth limit.
    let unused = vec![0; 100 * 1024];
    let file = tree(&[branch_page(3, &[(b"a", 3), (b"b", 3)], 1024), unused]);
    assert_eq!(
        walk_error(file.clone()),
        ReadError::TooDeep { page: PageId(3) }
    );
    let reader = open(file.clone());
    let bucket = reader.bucket(b"b").unwrap().unwrap();
    assert_eq!(
        bucket.get(b"a"),
        Err(ReadError::TooDeep { page: PageId(3) })
    );
    assert_eq!(
        bucket.iter_from(b"b").collect::<Vec<_>>(),
        [Err(ReadError::TooDeep { page: PageId(3) })]
    );
    assert_eq!(problems(file), [Problem::PageShared { page: PageId(3) }; 2]);
}

#[test]
fn walk_of_shared_empty_children_is_bounded() {
    // Each level points twice to the next: 2^40 paths to an empty leaf.
    let mut pages: Vec<Vec<u8>> = (3..43)
        .map(|id| branch_page(id, &[(b"a", id + 1), (b"b", id + 1)], 1024))
        .collect();
    pages.push(leaf_page(43, 0, &[], 1024));
    let file = tree(&pages);
    assert!(matches!(
        walk_error(file.clone()),
        ReadError::KeyOrder { .. } | ReadError::PageShared { .. }
    ));
    assert_eq!(problems(file.clone()).len(), 40 + 39);
}

#[test]
fn leaf_with_two_parents_is_reported() {
    let file = tree(&[
        branch_page(3, &[(b"a", 4), (b"m", 4)], 1024),
        leaf_page(4, 0, &[(0, b"a", b""), (0, b"n", b"")], 1024),
    ]);
    assert_eq!(
        walk_error(file.clone()),
        ReadError::KeyOrder {
            page: PageId(3),
            index: 1
        }
    );
    assert!(problems(file).contains(&Problem::PageShared { page: PageId(4) }));
}

#[test]
fn keys_out_of_order_in_a_leaf_a_branch_and_between_them_are_reported() {
    let order = |page, index| ReadError::KeyOrder {
        page: PageId(page),
        index,
    };
    let cases = [
        (
            tree(&[leaf_page(3, 0, &[(0, b"b", b""), (0, b"a", b"")], 1024)]),
            order(3, 1),
        ),
        (
            tree(&[leaf_page(3, 0, &[(0, b"b", b""), (0, b"b", b"")], 1024)]),
            order(3, 1),
        ),
        (
            // The branch has first key `c`, the child starts with `b`.
            tree(&[
                branch_page(3, &[(b"a", 4), (b"c", 5)], 1024),
                leaf_page(4, 0, &[(0, b"a", b"")], 1024),
                leaf_page(5, 0, &[(0, b"b", b"")], 1024),
            ]),
            order(5, 0),
        ),
    ];
    for (file, error) in cases {
        assert_eq!(walk_error(file.clone()), error);
        assert_eq!(problems(file), [Problem::Malformed(error)]);
    }
    // The first child reaches into the second's range: the walk reports the second's branch
    // element, the checker the key itself.
    let file = tree(&[
        branch_page(3, &[(b"a", 4), (b"c", 5)], 1024),
        leaf_page(4, 0, &[(0, b"a", b""), (0, b"d", b"")], 1024),
        leaf_page(5, 0, &[(0, b"e", b"")], 1024),
    ]);
    assert_eq!(walk_error(file.clone()), order(3, 1));
    assert_eq!(problems(file), [Problem::Malformed(order(4, 1))]);
}

#[test]
fn branch_without_children_is_reported() {
    let file = tree(&[branch_page(3, &[], 1024)]);
    let error = ReadError::EmptyBranch { page: PageId(3) };
    assert_eq!(walk_error(file.clone()), error);
    let reader = open(file.clone());
    assert_eq!(reader.bucket(b"b").unwrap().unwrap().get(b"x"), Err(error));
    assert_eq!(problems(file), [Problem::Malformed(error)]);
}

#[test]
fn plain_value_among_the_buckets_is_reported() {
    let file = file_of(
        2,
        NO_FREELIST,
        &[leaf_page(2, 0, &[(0, b"stray", b"value")], 1024)],
    );
    let error = ReadError::UnexpectedValue {
        page: PageId(2),
        index: 0,
    };
    assert_eq!(walk_error(file.clone()), error);
    assert_eq!(open(file.clone()).bucket(b"stray").map(|_| ()), Err(error));
    assert_eq!(problems(file), [Problem::Malformed(error)]);
}

#[test]
fn bucket_inside_an_inline_bucket_is_reported() {
    let inner = inline_bucket(0, &[]);
    let outer = inline_bucket(0, &[(1, b"inner", &inner)]);
    let file = file_of(
        2,
        NO_FREELIST,
        &[leaf_page(2, 0, &[(1, b"outer", &outer)], 1024)],
    );
    assert_eq!(
        problems(file),
        [Problem::BucketInInline {
            page: PageId(2),
            index: 0
        }]
    );
}

#[test]
fn elements_that_share_bytes_are_reported() {
    let mut file = tree(&[leaf_page(3, 0, &[(0, b"a", b"xx"), (0, b"b", b"yy")], 1024)]);
    // The first element's value now reaches over the second's key.
    put(&mut file, 3 * 1024 + 16 + 12, &4_u32.to_le_bytes());
    assert_eq!(
        problems(file),
        [Problem::ElementsOverlap {
            page: PageId(3),
            index: 1
        }]
    );
}

#[test]
fn inconsistent_freelists_are_reported() {
    let with_list = |free: &[u64]| {
        file_of(
            3,
            2,
            &[
                freelist_page(2, free, 1024),
                leaf_page(3, 0, &[], 1024),
                leaf_page(4, 0, &[], 1024),
            ],
        )
    };
    let page = PageId(4);
    assert_eq!(problems(with_list(&[4])), []);
    assert_eq!(problems(with_list(&[])), [Problem::Lost { page }]);
    assert_eq!(problems(with_list(&[4, 4])), [Problem::FreeTwice { page }]);
    assert_eq!(
        problems(with_list(&[3, 4])),
        [Problem::UsedAndFree { page: PageId(3) }]
    );
    assert_eq!(
        problems(with_list(&[1, 4, 5])),
        [1, 5].map(|id| Problem::FreeOutOfRange { page: PageId(id) })
    );

    let mut wrong_type = with_list(&[4]);
    patch_meta(&mut wrong_type, 1024, 0, META_FREELIST, 4);
    assert!(problems(wrong_type).contains(&Problem::Malformed(ReadError::Freelist { page })));
    let mut too_long = with_list(&[4]);
    put(&mut too_long, 2 * 1024 + 10, &u16::MAX.to_le_bytes());
    put(&mut too_long, 2 * 1024 + 16, &u64::MAX.to_le_bytes());
    assert_eq!(
        open(too_long).freelist().map(|_| ()),
        Err(ReadError::Freelist { page: PageId(2) })
    );
}

#[test]
fn report_bounds_the_kept_problems_and_counts_all() {
    let free = vec![u64::MAX; 2_000];
    let mut page = freelist_page(2, &free, 16 * 1024);
    put(&mut page, 12, &15_u32.to_le_bytes());
    let report = check(&open(file_of(18, 2, &[page, leaf_page(18, 0, &[], 1024)])));
    assert_eq!(report.problems.len(), PROBLEMS_KEPT_MAX);
    assert_eq!(report.problems_total, 2_000);
}

#[test]
fn meta_that_points_to_itself_is_reported() {
    for root in [0, 1, u64::MAX] {
        let mut file = rich_file();
        patch_meta(&mut file, 1024, 0, META_ROOT, root);
        let reader = open(file);
        assert!(reader.bucket(b"b").is_err());
        assert!(reader.buckets().all(|bucket| bucket.is_err()));
        assert!(!check(&reader).is_clean());
    }
    let mut file = rich_file();
    patch_meta(&mut file, 1024, 0, META_HIGH_WATER, u64::MAX);
    assert!(matches!(
        Reader::from_bytes(file.into()),
        Err(OpenError::Cut { .. })
    ));
}

#[test]
fn any_changed_byte_of_a_small_file_never_panics() {
    for at in 0..go_like_file().len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut file = go_like_file();
            file[at] ^= flip;
            exercise(file);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut file = rich_file();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        exercise(file);
    }

    /// Changes headers and elements, which hold the structure.
    #[test]
    fn changed_page_heads_never_panic(
        changes in vec((any::<prop::sample::Index>(), 0_usize..80, prop_oneof![any::<u8>(), 0_u8..4]), 1..8)
    ) {
        let mut file = rich_file();
        for (page, offset, byte) in changes {
            let page = 2 + page.index(file.len() / 1024 - 2);
            file[page * 1024 + offset] = byte;
        }
        exercise(file);
    }

    #[test]
    fn swapped_pages_never_panic(a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(), renumber: bool) {
        let mut file = rich_file();
        let (a, b) = (2 + a.index(file.len() / 1024 - 2), 2 + b.index(file.len() / 1024 - 2));
        let page: Vec<u8> = file[a * 1024..(a + 1) * 1024].to_vec();
        put(&mut file, b * 1024, &page);
        if renumber {
            put(&mut file, b * 1024, &(b as u64).to_le_bytes());
        }
        exercise(file);
    }

    #[test]
    fn cut_files_never_panic(length in any::<prop::sample::Index>(), claim_less: bool) {
        let mut file = rich_file();
        file.truncate(length.index(file.len()));
        if claim_less && file.len() > 2048 {
            let pages = file.len() as u64 / 1024;
            patch_meta(&mut file, 1024, 0, META_HIGH_WATER, pages);
        }
        exercise(file);
    }

    #[test]
    fn arbitrary_pages_under_valid_metas_never_panic(body in vec(any::<u8>(), 0..6_000), root in 0_u64..9, freelist in 0_u64..9) {
        let mut page = body;
        page.resize(page.len().next_multiple_of(1024).max(1024), 0);
        for (index, page) in page.chunks_mut(1024).enumerate() {
            page[..8].copy_from_slice(&(index as u64 + 2).to_le_bytes());
            let head = [page[8] % 3, 0, page[10] % 64, 0, page[12] % 3, 0, 0, 0];
            page[8..16].copy_from_slice(&head);
        }
        exercise(file_of(root, freelist, &[page]));
    }

    #[test]
    fn arbitrary_bytes_never_panic(file in vec(any::<u8>(), 0..10_000)) {
        exercise(file);
    }
}
