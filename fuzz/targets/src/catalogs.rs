//! `ephor_fuzz::catalogs::run`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ephor_fuzz::catalogs::run(data));
