//! `ephor_fuzz::store_urls::run`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ephor_fuzz::store_urls::run(data));
