//! Splits the bytes of a fuzzer into the parts that a target needs.
//!
//! Every split is total: there is no input that a target cannot use, so that no mutation of a
//! fuzzer is wasted.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Removes the first byte; 0 if there is none.
pub(crate) fn take_byte(data: &mut &[u8]) -> u8 {
    match data.split_first() {
        None => 0,
        Some((first, rest)) => {
            *data = rest;
            *first
        }
    }
}

/// Removes a part with a length of two bytes, little endian, in front; all of the rest if it is
/// shorter.
pub(crate) fn take_part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::from(u16::from_le_bytes([take_byte(data), take_byte(data)]));
    let (part, rest) = data.split_at(length.min(data.len()));
    *data = rest;
    part
}

/// Splits at the first line break; the second part is empty if there is none.
pub(crate) fn line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        None => (data, &[]),
        Some(at) => (&data[..at], &data[at + 1..]),
    }
}

/// How often other tasks run before a future that waits is given up: nothing here waits for a
/// network or a disk, so that a future that is not ready then waits for a client or for a clock.
const TURNS_MAX: usize = 1000;

/// Runs a future on a runtime of its own. The tasks that are left end with the runtime.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Polls a future until it is ready, or until no task makes progress any more. The result does not
/// depend on the load of the machine.
pub(crate) async fn until_idle<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..TURNS_MAX {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}
