//! Tests that every implementation of `Files` must pass: on disk, in memory, and the simulated faulty one.

use std::io::ErrorKind;

use ephor_hub::files::{DiskFiles, File, Files, MemoryFiles};

use crate::common::faulty_files::FaultyFiles;

/// Runs one promise on all of them.
fn on_all(promise: impl Fn(&dyn Files)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    promise(&DiskFiles::new(folder.path().to_owned()));
    promise(&MemoryFiles::default());
    promise(&FaultyFiles::new(u64::MAX));
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let count = file.read_at(0, &mut bytes).expect("a file that can be read");
    assert_eq!(file.len().expect("a file with a length"), count as u64);
    bytes.truncate(count);
    bytes
}

#[test]
fn parts_are_written_one_behind_the_other_and_holes_read_as_zeros() {
    on_all(|files| {
        let file = files.create("file").unwrap();
        file.write_at(2, &[b"ab", b"", b"cde"]).unwrap();
        assert_eq!(content(&*file), b"\0\0abcde");
        file.write_at(6, &[b"xyz"]).unwrap();
        file.write_at(3, &[b"-"]).unwrap();
        file.write_at(50, &[b"", b""]).unwrap();
        assert_eq!(content(&*file), b"\0\0a-cdxyz");
        file.sync().unwrap();
        assert_eq!(content(&*files.open("file").unwrap()), b"\0\0a-cdxyz");
    });
}

#[test]
fn a_read_ends_where_the_file_ends() {
    on_all(|files| {
        let file = files.create("file").unwrap();
        file.write_at(0, &[b"abcdef"]).unwrap();
        let mut three = [0; 3];
        assert_eq!((file.read_at(2, &mut three).unwrap(), &three), (3, b"cde"));
        assert_eq!((file.read_at(5, &mut three).unwrap(), three[0]), (1, b'f'));
        assert_eq!(file.read_at(6, &mut three).unwrap(), 0);
        assert_eq!(file.read_at(600, &mut three).unwrap(), 0);
    });
}

#[test]
fn a_length_that_is_set_cuts_or_adds_zeros() {
    on_all(|files| {
        let file = files.create("file").unwrap();
        file.write_at(0, &[b"abcdef"]).unwrap();
        file.set_len(2).unwrap();
        file.set_len(4).unwrap();
        assert_eq!(content(&*file), b"ab\0\0");
    });
}

#[test]
fn reserving_room_changes_no_byte_that_was_written() {
    on_all(|files| {
        let file = files.create("file").unwrap();
        file.write_at(0, &[b"abc"]).unwrap();
        file.reserve(0).unwrap();
        file.reserve(2).unwrap();
        assert_eq!(content(&*file), b"abc");
        file.reserve(5).unwrap();
        assert!([&b"abc"[..], b"abc\0\0"].contains(&&content(&*file)[..]));
    });
}

#[test]
fn a_file_is_created_once_and_not_by_opening() {
    on_all(|files| {
        assert_eq!(files.open("file").unwrap_err().kind(), ErrorKind::NotFound);
        files.create("file").unwrap();
        assert_eq!(files.create("file").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(files.create("missing/file").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(files.create("file/file").unwrap_err().kind(), ErrorKind::NotADirectory);
    });
}

#[test]
fn names_are_listed_in_order_and_only_those_of_the_folder() {
    on_all(|files| {
        files.create_folder("").unwrap();
        files.create_folder("folder").unwrap();
        files.create_folder("folder").unwrap();
        for path in ["b", "a", "folder/z", "folder/y", "folder.txt"] {
            files.create(path).unwrap();
        }
        assert_eq!(files.list("").unwrap(), ["a", "b", "folder", "folder.txt"]);
        assert_eq!(files.list("folder").unwrap(), ["y", "z"]);
        files.sync_folder("folder").unwrap();
        files.sync_folder("").unwrap();
        assert_eq!(files.list("missing").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(files.list("a").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(files.create_folder("a").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(files.sync_folder("missing").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_rename_replaces_a_file_and_open_files_live_on() {
    on_all(|files| {
        let new = files.create("new").unwrap();
        new.write_at(0, &[b"new"]).unwrap();
        let old = files.create("old").unwrap();
        old.write_at(0, &[b"old"]).unwrap();
        files.rename("new", "old").unwrap();
        files.rename("old", "old").unwrap();
        assert_eq!(files.list("").unwrap(), ["old"]);
        assert_eq!(content(&*files.open("old").unwrap()), b"new");
        assert_eq!(content(&*old), b"old");
        new.write_at(3, &[b"er"]).unwrap();
        assert_eq!(content(&*files.open("old").unwrap()), b"newer");
        assert_eq!(files.rename("missing", "old").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_folder_is_renamed_with_all_in_it_but_never_over_files() {
    on_all(|files| {
        files.create_folder("from").unwrap();
        files.create("from/file").unwrap().write_at(0, &[b"x"]).unwrap();
        files.create_folder("full").unwrap();
        files.create("full/file").unwrap();
        files.create("plain").unwrap();
        files.create_folder("empty").unwrap();
        assert_eq!(files.rename("from", "full").unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert_eq!(files.rename("from", "plain").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(files.rename("plain", "from").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(files.rename("from", "from/inner").unwrap_err().kind(), ErrorKind::InvalidInput);
        files.rename("from", "empty").unwrap();
        assert_eq!(content(&*files.open("empty/file").unwrap()), b"x");
        files.rename("empty/file", "moved").unwrap();
        assert_eq!(files.list("").unwrap(), ["empty", "full", "moved", "plain"]);
    });
}

#[test]
fn a_removed_file_is_still_there_for_those_who_have_it_open() {
    on_all(|files| {
        let file = files.create("file").unwrap();
        file.write_at(0, &[b"old"]).unwrap();
        files.remove("file").unwrap();
        assert_eq!(files.open("file").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(files.remove("file").unwrap_err().kind(), ErrorKind::NotFound);
        files.create("file").unwrap();
        file.write_at(3, &[b"er"]).unwrap();
        assert_eq!(content(&*file), b"older");
        assert_eq!(content(&*files.open("file").unwrap()), b"");
    });
}

#[test]
fn a_folder_is_removed_with_all_in_it() {
    on_all(|files| {
        files.create_folder("folder").unwrap();
        files.create_folder("folder/inner").unwrap();
        files.create("folder/inner/file").unwrap();
        files.create("file").unwrap();
        assert_eq!(files.remove("folder").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(files.open("folder").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(files.remove_folder("file").unwrap_err().kind(), ErrorKind::NotADirectory);
        files.remove_folder("folder").unwrap();
        assert_eq!(files.list("").unwrap(), ["file"]);
        assert_eq!(files.remove_folder("folder").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn no_path_leads_out_of_the_folder() {
    on_all(|files| {
        for path in ["/tmp/x", "..", "../x", "a/../../x", "a//x", "./x", "x/"] {
            let refused = Some(ErrorKind::InvalidInput);
            assert_eq!(files.create(path).err().map(|error| error.kind()), refused, "create {path}");
            assert_eq!(files.open(path).err().map(|error| error.kind()), refused, "open {path}");
            assert_eq!(files.list(path).err().map(|error| error.kind()), refused, "list {path}");
            assert_eq!(files.create_folder(path).err().map(|error| error.kind()), refused, "folder {path}");
            assert_eq!(files.rename(path, "y").err().map(|error| error.kind()), refused, "rename {path}");
            assert_eq!(files.rename("y", path).err().map(|error| error.kind()), refused, "rename to {path}");
            assert_eq!(files.remove(path).err().map(|error| error.kind()), refused, "remove {path}");
        }
        assert_eq!(files.remove_folder("").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(files.create("").unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}
