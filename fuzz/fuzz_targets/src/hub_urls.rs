//! `ephor_fuzz::hub_urls::run`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ephor_fuzz::hub_urls::run(data));
