//! The rules of the contract, by area.

mod arguments;
mod bookmarks;
mod caches;
mod leases;
mod lists;
mod reads;
mod watches;
mod writes;

use super::Rule;

/// Builds the list of rules: id, requirements, description and check of each one.
macro_rules! rules {
    ($($id:literal [$($requirement:literal),*] $description:literal => $check:path;)*) => {
        vec![$(Rule {
            id: $id,
            requirements: &[$($requirement),*],
            description: $description,
            check: |context| Box::pin($check(context)),
        }),*]
    };
}

/// Returns all rules of the contract, in the order in which a run checks them.
#[must_use]
pub fn rules() -> Vec<Rule> {
    rules! {
        "arguments-are-checked" ["K31", "K36"]
            "empty keys and prefixes, continue keys outside of the prefix and negative numbers are refused"
            => arguments::are_checked;
        "get-returns-pair-or-nothing" ["S4-3", "K30"]
            "a get returns the pair, or nothing for a key that does not exist, and the revision of the store"
            => reads::get_returns_pair_or_nothing;
        "get-is-linearizable" ["K6"]
            "a get of a key that does not exist returns a revision that contains all earlier writes"
            => reads::get_is_linearizable;
        "get-reads-history" ["S4-3", "K30"]
            "a get at an older revision returns the value of that revision and the newest revision of the store"
            => reads::get_reads_history;
        "get-refuses-future-revision" ["K26"]
            "a get at a revision that does not exist yet fails as such"
            => reads::get_refuses_future_revision;
        "get-refuses-compacted-revision" ["S4-3", "K26"]
            "a get at a compacted revision fails as such, one at the compact revision does not"
            => reads::get_refuses_compacted_revision;
        "values-are-opaque" ["K4"]
            "values and keys of any bytes are returned unchanged"
            => reads::values_are_opaque;
        "create-succeeds-once" ["S4-6", "S4-A3", "S4-A5", "K12"]
            "a put that expects revision 0 succeeds only if the key does not exist"
            => writes::create_succeeds_once;
        "update-compares-revision" ["S4-6", "S4-A5", "K13"]
            "a put succeeds exactly if the key has the expected revision: not a stale, zero or future one"
            => writes::update_compares_revision;
        "mismatch-returns-current-pair" ["S4-8", "K34", "K35"]
            "a mismatch returns the current pair only if it is requested and exists"
            => writes::mismatch_returns_current_pair;
        "success-returns-no-pair" ["S4-A3"]
            "a write that succeeds returns its revision and no pair"
            => writes::success_returns_no_pair;
        "delete-compares-revision" ["S4-7", "K14", "K35"]
            "a delete succeeds exactly if the key has the expected revision"
            => writes::delete_compares_revision;
        "delete-of-absent-key" ["K35"]
            "a delete of a key that does not exist succeeds with 0 without a new revision, and fails with another revision"
            => writes::delete_of_absent_key;
        "revision-counts-transactions" ["S4-17"]
            "every write has a revision of its own, in order; reads and refused writes have none"
            => writes::revision_counts_transactions;
        "recreated-key-is-new" ["K12", "K14"]
            "a key that is created again has a new create revision and version 1"
            => writes::recreated_key_is_new;
        "list-is-ordered-and-bounded" ["S4-4", "K31"]
            "a list returns exactly the keys with its prefix, in key order"
            => lists::is_ordered_and_bounded;
        "list-counts-past-its-limit" ["S4-A2", "K8", "K32"]
            "the count of a list is the number of keys from its start to the end of the prefix, whatever its limit"
            => lists::counts_past_its_limit;
        "list-continues-at-key" ["S4-A1"]
            "a list goes on at the continue key itself, and after it with a zero byte"
            => lists::continues_at_key;
        "list-pages-are-one-snapshot" ["K7", "K39"]
            "pages at the revision of the first one are its snapshot, whatever is written meanwhile"
            => lists::pages_are_one_snapshot;
        "list-pages-may-grow" ["K8", "K9", "K39"]
            "pages of growing sizes up to 10000 return every key once"
            => lists::pages_may_grow;
        "list-fills-largest-page" ["K8", "K9", "K39"]
            "a page of 10000 keys is filled, and the pages and the stream of 10001 keys are the same"
            => caches::largest_page_is_filled;
        "list-equals-watch-cache" ["K25"]
            "a list at an exact revision equals a cache that a watch has brought to that revision"
            => caches::cache_equals_list;
        "list-fails-after-compaction" ["K26", "K39"]
            "a page at a revision that was compacted after the first page fails as such"
            => lists::fails_after_compaction;
        "count-equals-list" ["S4-5", "K33", "K39"]
            "a count is the number of keys that a list returns"
            => lists::count_equals_list;
        "stream-equals-list" ["K9", "K10", "K39"]
            "a streamed range returns the same pairs as pages at the same revision"
            => lists::stream_equals_list;
        "list-without-values" ["K11"]
            "a list without values returns every key"
            => lists::without_values;
        "lease-is-replaced-and-cleared" ["S4-6", "K39"]
            "a put replaces the lease of its key, and without a lease it removes it"
            => leases::lease_is_replaced_and_cleared;
        "lease-must-exist" ["K26"]
            "a put with an unknown lease fails as such and writes nothing"
            => leases::lease_must_exist;
        "lease-deletes-its-keys" ["S4-10"]
            "a revoked lease deletes its keys in one revision, and watches see it"
            => leases::lease_deletes_its_keys;
        "lease-revoked-during-put" ["K39"]
            "no key survives with a lease that was revoked while it was written"
            => leases::lease_revoked_during_put;
        "watch-returns-changes" ["S4-14", "S4-17", "K17", "K18"]
            "a watch returns Added, Modified and Deleted with values, previous values and revisions"
            => watches::returns_changes;
        "watch-begins-after-revision" ["S4-A6", "K17"]
            "a watch begins after its revision, and with 0 after the newest one"
            => watches::begins_after_revision;
        "watch-is-bounded" ["S4-14", "K17"]
            "a watch returns only changes of its key, or of keys with its prefix"
            => watches::is_bounded;
        "watch-of-recreated-key" ["K18", "K39"]
            "a key that is deleted and created again under a watch is Deleted, then Added"
            => watches::of_recreated_key;
        "watch-waits-for-future-revision" ["K20"]
            "a watch from a revision that does not exist yet waits for it"
            => watches::waits_for_future_revision;
        "watch-fails-after-compaction" ["K20", "K26"]
            "a watch from a compacted revision ends with that error and the compact revision"
            => watches::fails_after_compaction;
        "watch-keeps-previous-values" ["S4-17", "K39"]
            "a watch returns previous values that were written before a compaction"
            => watches::keeps_previous_values;
        "watch-groups-transactions" ["S4-17", "K21", "K39"]
            "all changes of a transaction have one revision and come before anything later"
            => watches::groups_transactions;
        "watch-is-ordered-and-complete" ["K21"]
            "a watch returns every change once, in the order of revisions, live and from history"
            => watches::is_ordered_and_complete;
        "compact-key-is-watchable" ["K22"]
            "the key compact_rev_key is stored and watched like any other"
            => watches::compact_key_is_watchable;
        "bookmark-of-fresh-watch" ["S4-15", "K19", "K39"]
            "a watch without events returns a requested bookmark with the revision of the store, never 0"
            => bookmarks::of_fresh_watch;
        "bookmark-follows-events" ["S4-A7", "K19"]
            "a bookmark comes after all events up to its revision"
            => bookmarks::follows_events;
        "bookmark-does-not-split-transactions" ["S4-A7", "K21"]
            "a bookmark does not come between the changes of a transaction"
            => bookmarks::does_not_split_transactions;
        "progress-is-per-stream" ["S4-15", "S4-A8"]
            "progress is returned by all watches of the requested stream and by no other"
            => bookmarks::progress_is_per_stream;
        "progress-needs-a-watch" ["S4-A8"]
            "a progress request for a stream without a watch fails as such; the empty key is a stream"
            => bookmarks::progress_needs_a_watch;
    }
}
