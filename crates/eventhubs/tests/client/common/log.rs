//! Test helper: `Log`, a short name for the testkit's captured log.

#![allow(unused_imports, reason = "each test file uses a part of it")]

pub(crate) use ephor_testkit::CapturedLog as Log;
