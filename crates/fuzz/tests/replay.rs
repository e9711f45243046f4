//! Every target with its corpus, and with mutations of the corpus.
//!
//! The mutations are the same in every run. `cargo fuzz run NAME` searches for more; see
//! docs/fuzzing.md.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portunus_fuzz::{TARGETS, Target};

/// Mutations of the files of a corpus together, at least one of each file.
const MUTATIONS: usize = 2000;
/// Mutations for targets that do more for an input, such as to open a store or write a file.
const MUTATIONS_OF_SLOW_TARGETS: usize = 500;
const SLOW_TARGETS: [&str; 9] = [
    "api_connections",
    "api_requests",
    "config_files",
    "continue_tokens",
    "flags",
    "log_entries",
    "olm_configs",
    "peer_connections",
    "tls_files",
];

/// An input that takes longer is a finding. Ten times what a fuzzer allows, because builds of
/// tests are not optimised and other tests run at the same time.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

/// Files and bytes of a corpus, so that the repository stays small.
const CORPUS_FILES_MAX: usize = 120;
const CORPUS_BYTES_MAX: usize = 256 * 1024;

/// Panics of all threads: those of a task of a runtime do not reach its test.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            print(information);
        }));
    });
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of a target with the names of their files, sorted.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = root().join("corpus").join(name);
    let files = fs::read_dir(&directory);
    let files = files.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<_> = files
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, fs::read(file.path()).unwrap())
        })
        .collect();
    inputs.sort();
    inputs
}

/// Runs one input. Prints it if it is a finding.
fn run(target: &Target, source: &str, input: &[u8]) {
    let before = PANICS.load(Ordering::SeqCst);
    let begun = Instant::now();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let elapsed = begun.elapsed();
    let is_good = outcome.is_ok() && PANICS.load(Ordering::SeqCst) == before;
    assert!(
        is_good && elapsed < INPUT_TIME_MAX,
        "{}: {source} is a finding after {elapsed:?}; as a file: printf '{}' > input",
        target.name,
        input.escape_ascii()
    );
}

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Changes an input in one to four places, sometimes with a part of another one.
fn mutate(numbers: &mut Numbers, input: &[u8], other: &[u8]) -> Vec<u8> {
    const INTERESTING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b','];
    let mut mutated = input.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(mutated.len() + 1);
        let bytes = numbers.below(9);
        match numbers.below(7) {
            0 if at < mutated.len() => mutated[at] ^= 1 << numbers.below(8),
            1 if at < mutated.len() => mutated[at] = INTERESTING[numbers.below(8)],
            2 => mutated.insert(at, numbers.next() as u8),
            3 => drop(mutated.drain(at..(at + bytes).min(mutated.len()))),
            4 => mutated.truncate(at),
            5 => {
                let end = (at + bytes).min(mutated.len());
                let part = mutated[at..end].to_vec();
                mutated.splice(at..at, part);
            }
            _ => {
                let from = numbers.below(other.len() + 1);
                let part = &other[from..(from + bytes * 4).min(other.len())];
                mutated.splice(at..at, part.iter().copied());
            }
        }
    }
    mutated
}

#[test]
fn corpora_and_their_mutations_have_no_finding() {
    count_panics();
    for target in TARGETS {
        let begun = Instant::now();
        let inputs = corpus(target.name);
        for (name, input) in &inputs {
            run(target, name, input);
        }
        let replayed = begun.elapsed();
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mutations_max = match SLOW_TARGETS.contains(&target.name) {
            true => MUTATIONS_OF_SLOW_TARGETS,
            false => MUTATIONS,
        };
        let begun = Instant::now();
        let mut mutations = 0;
        for _ in 0..mutations_max.div_ceil(inputs.len()) {
            for (name, input) in &inputs {
                let (_, other) = &inputs[numbers.below(inputs.len())];
                let mutated = mutate(&mut numbers, input, other);
                run(target, &format!("mutation {mutations} of {name}"), &mutated);
                mutations += 1;
            }
        }
        println!(
            "{}: {} files in {replayed:?}, {mutations} mutations in {:?}",
            target.name,
            inputs.len(),
            begun.elapsed()
        );
    }
}

#[test]
fn every_target_has_a_program_and_a_small_corpus() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let programs = manifest.matches("[[bin]]").count();
    assert_eq!(programs, TARGETS.len());
    for Target { name, .. } in TARGETS {
        let program = root().join(format!("fuzz_targets/{name}.rs"));
        let program = fs::read_to_string(&program).unwrap();
        assert!(
            program.contains(&format!("portunus_fuzz::{name}(")),
            "{name}"
        );
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")));
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        let bytes: usize = inputs.iter().map(|(_, input)| input.len()).sum();
        let is_small = inputs.len() <= CORPUS_FILES_MAX && bytes <= CORPUS_BYTES_MAX;
        assert!(
            is_small,
            "{name}: {} files with {bytes} bytes: run `cargo fuzz cmin {name}`",
            inputs.len()
        );
    }
    let directories = fs::read_dir(root().join("corpus")).unwrap().count();
    assert_eq!(directories, TARGETS.len(), "a corpus without a target");
}
