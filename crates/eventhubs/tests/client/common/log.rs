//! The captured log, under the name that these tests use.

#![allow(unused_imports, reason = "each test file uses a part of it")]

pub(crate) use ephor_testkit::CapturedLog as Log;
