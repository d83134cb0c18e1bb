//! Tests of the model and of its search. One program, so that it is built once.
#![allow(clippy::print_stdout, reason = "the findings are printed")]

mod exhaustive;
mod mutations;
mod state_reduction;
