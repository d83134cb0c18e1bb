//! The entry point of cargo-fuzz for the target `ephor_fuzz::stored_messages::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ephor_fuzz::stored_messages::run(data));
