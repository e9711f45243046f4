#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| portunus_fuzz::simple_tokens(data));
