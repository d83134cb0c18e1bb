//! Tests of the model and of its search. One test binary, to save build time.
#![allow(clippy::print_stdout, reason = "the findings are printed")]

mod exhaustive;
mod mutations;
mod state_reduction;
