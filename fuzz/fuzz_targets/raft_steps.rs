#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| portunus_fuzz::raft_steps(data));
