//! Tests of the simulation and its command. One test binary, to save build time.
#![allow(clippy::print_stdout, reason = "a test that says how many seeds it took")]

mod command;
mod mutations;
mod scale;
mod seeds;
mod shrinking;
