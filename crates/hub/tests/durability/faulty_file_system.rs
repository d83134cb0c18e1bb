//! Tests of the simulated file system that the crash tests rely on.

use std::collections::BTreeSet;
use std::io;

use ephor_hub::files::{Files, is_disk_full};
use rustix::io::Errno;

use crate::common::faulty_files::{Fate, FaultyFiles};

const NEVER: u64 = u64::MAX;
const SEEDS: u64 = 2_000;
const ROUNDS: u64 = 100;

/// A file "file" of this content, all of it durable.
fn with_durable(bytes: &[u8]) -> FaultyFiles {
    let files = FaultyFiles::new(NEVER);
    let file = files.create("file").expect("create");
    file.write_at(0, &[bytes]).expect("write");
    file.sync().expect("sync");
    files.sync_folder("").expect("sync folder");
    files
}

/// All that a crash may leave in "file", by many seeds; none where the file is gone.
fn outcomes(files: &FaultyFiles) -> BTreeSet<Option<Vec<u8>>> {
    let read = |seed| files.after_crash(Fate::Random(seed)).read("file").map(|bytes| bytes.to_vec());
    (0..SEEDS).map(read).collect()
}

fn names(files: &FaultyFiles) -> Vec<String> {
    files.files().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn what_is_synced_survives_every_fate() {
    let files = with_durable(b"durable");
    for fate in [Fate::AllLost, Fate::AllKept, Fate::TornAt(0)] {
        assert_eq!(files.after_crash(fate).files(), [("file".to_owned(), 7)], "{fate:?}");
    }
    assert_eq!(outcomes(&files), BTreeSet::from([Some(b"durable".to_vec())]));
}

#[test]
fn from_the_crash_on_every_call_fails_and_none_is_counted() {
    let files = FaultyFiles::new(1);
    let file = files.create("file").unwrap();
    assert!(file.write_at(0, &[b"cut"]).unwrap_err().to_string().contains("the power is off"));
    assert!(files.has_crashed());
    assert!(file.read_at(0, &mut [0]).is_err());
    assert!(file.len().is_err());
    assert!(file.sync().is_err());
    assert!(files.list("").is_err());
    assert!(files.open("file").is_err());
    assert!(files.create("other").is_err());
    assert_eq!(files.operations(), 2);
    let after = files.after_crash(Fate::AllKept);
    assert!(file.len().is_err(), "a handle from before the crash stays dead");
    assert_eq!(after.read("file").unwrap().as_slice(), b"cut");
    assert_eq!(after.operations(), 0);
}

#[test]
fn an_unsynced_write_is_kept_lost_torn_or_zeroed() {
    let files = with_durable(b"old");
    files.open("file").unwrap().write_at(1, &[b"NE", b"W"]).unwrap();
    assert_eq!(files.after_crash(Fate::AllLost).read("file").unwrap().as_slice(), b"old");
    assert_eq!(files.after_crash(Fate::AllKept).read("file").unwrap().as_slice(), b"oNEW");
    assert_eq!(files.after_crash(Fate::TornAt(1)).read("file").unwrap().as_slice(), b"oNd");
    let expected = [&b"old"[..], b"oNEW", b"oNd", b"oNE", b"old\0", b"oNd\0", b"oNE\0"];
    assert_eq!(outcomes(&files), expected.map(|bytes| Some(bytes.to_vec())).into());
}

#[test]
fn a_write_cut_by_the_crash_has_the_same_fates() {
    let files = FaultyFiles::new(4);
    let file = files.create("file").unwrap();
    files.sync_folder("").unwrap();
    file.write_at(0, &[b"old"]).unwrap();
    file.sync().unwrap();
    file.write_at(3, &[b"new"]).unwrap_err();
    assert_eq!(files.after_crash(Fate::AllLost).read("file").unwrap().as_slice(), b"old");
    assert_eq!(files.after_crash(Fate::AllKept).read("file").unwrap().as_slice(), b"oldnew");
    assert_eq!(files.after_crash(Fate::TornAt(2)).read("file").unwrap().as_slice(), b"oldne");
}

#[test]
fn a_sync_cut_by_the_crash_may_have_done_nothing() {
    let files = FaultyFiles::new(3);
    let file = files.create("file").unwrap();
    files.sync_folder("").unwrap();
    file.write_at(0, &[b"x"]).unwrap();
    file.sync().unwrap_err();
    let possible = outcomes(&files);
    assert!(possible.contains(&Some(Vec::new())) && possible.contains(&Some(b"x".to_vec())));
}

#[test]
fn the_later_of_two_writes_may_survive_alone_with_zeros_before_it() {
    let files = with_durable(b"");
    let file = files.open("file").unwrap();
    file.write_at(0, &[b"first"]).unwrap();
    file.write_at(5, &[b"second"]).unwrap();
    let possible = outcomes(&files);
    for expected in [&b""[..], b"first", b"firstsecond", b"\0\0\0\0\0second", b"firstse"] {
        assert!(possible.contains(&Some(expected.to_vec())), "{expected:?} never happens");
    }
}

#[test]
fn sectors_of_one_write_survive_in_any_combination() {
    let files = with_durable(&[b'o'; 1024]);
    files.open("file").unwrap().write_at(256, &[&[b'n'; 1024]]).unwrap();
    // The boundaries are those of the disk: 256 bytes, two whole sectors of which the last is 256 bytes long.
    let possible: BTreeSet<[bool; 3]> = outcomes(&files)
        .into_iter()
        .flatten()
        .map(|bytes| [256, 512, 1024].map(|at| bytes.get(at) == Some(&b'n')))
        .collect();
    assert_eq!(possible.len(), 8, "{possible:?}");
}

#[test]
fn a_length_that_was_not_synced_is_the_old_or_the_new_one() {
    for length in [1, 5] {
        let files = with_durable(b"old");
        files.open("file").unwrap().set_len(length).unwrap();
        let mut new = b"old".to_vec();
        new.resize(length as usize, 0);
        assert_eq!(outcomes(&files), [Some(b"old".to_vec()), Some(new)].into());
    }
}

#[test]
fn a_synced_file_without_a_durable_name_is_lost() {
    let files = FaultyFiles::new(NEVER);
    let file = files.create("file").unwrap();
    file.write_at(0, &[b"x"]).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&files), [None, Some(b"x".to_vec())].into());
    files.sync_folder("").unwrap();
    assert_eq!(outcomes(&files), [Some(b"x".to_vec())].into());
}

#[test]
fn a_durable_name_may_lead_to_a_file_without_content() {
    let files = with_durable(b"old");
    files.create("new").unwrap().write_at(0, &[b"new"]).unwrap();
    files.rename("new", "file").unwrap();
    files.sync_folder("").unwrap();
    let possible = outcomes(&files);
    assert!(possible.contains(&Some(Vec::new())) && possible.contains(&Some(b"new".to_vec())));
    assert!(!possible.contains(&Some(b"old".to_vec())));
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let files = with_durable(b"old");
    let new = files.create("new").unwrap();
    new.write_at(0, &[b"new"]).unwrap();
    new.sync().unwrap();
    files.sync_folder("").unwrap();
    files.rename("new", "file").unwrap();
    assert_eq!(outcomes(&files), [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
    for seed in 0..SEEDS {
        let after = files.after_crash(Fate::Random(seed));
        assert_eq!(after.read("new").is_none(), after.read("file").unwrap().as_slice() == b"new");
    }
}

#[test]
fn names_in_one_folder_survive_in_order() {
    let files = FaultyFiles::new(NEVER);
    for name in ["c", "a", "b"] {
        files.create(name).unwrap();
    }
    files.remove("c").unwrap();
    let possible: BTreeSet<Vec<String>> =
        (0..SEEDS).map(|seed| names(&files.after_crash(Fate::Random(seed)))).collect();
    let expected: [&[&str]; 5] = [&[], &["c"], &["a", "c"], &["a", "b", "c"], &["a", "b"]];
    assert_eq!(possible, expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).into());
}

#[test]
fn names_in_different_folders_survive_independently() {
    let files = FaultyFiles::new(NEVER);
    for folder in ["a", "b"] {
        files.create_folder(folder).unwrap();
    }
    files.sync_folder("").unwrap();
    files.create("a/x").unwrap();
    files.create("b/x").unwrap();
    let possible: BTreeSet<usize> = (0..SEEDS)
        .map(|seed| files.after_crash(Fate::Random(seed)).files())
        .map(|files| files.iter().map(|(path, _)| if path == "a/x" { 1 } else { 2 }).sum())
        .collect();
    assert_eq!(possible, [0, 1, 2, 3].into());
}

#[test]
fn a_move_to_another_folder_never_loses_or_doubles_the_file() {
    let files = FaultyFiles::new(NEVER);
    files.create_folder("to").unwrap();
    files.create_folder("from").unwrap();
    files.create("from/file").unwrap();
    files.sync_folder("from").unwrap();
    files.sync_folder("").unwrap();
    files.create("from/before").unwrap();
    files.rename("from/file", "to/file").unwrap();
    files.create("to/after").unwrap();
    for seed in 0..SEEDS {
        let names = names(&files.after_crash(Fate::Random(seed)));
        assert_eq!(names.iter().filter(|name| name.ends_with("/file")).count(), 1, "{names:?}");
        let has = |name: &str| names.iter().any(|other| other == name);
        assert!(!has("to/after") || has("to/file"), "in order: {names:?}");
        assert!(!has("to/file") || has("from/before"), "in order: {names:?}");
    }
    files.sync_folder("to").unwrap();
    assert_eq!(names(&files.after_crash(Fate::AllLost)), ["from/before", "to/after", "to/file"]);
}

#[test]
fn files_in_a_folder_without_a_durable_name_are_lost() {
    let files = FaultyFiles::new(NEVER);
    files.create_folder("folder").unwrap();
    files.create("folder/file").unwrap().sync().unwrap();
    files.sync_folder("folder").unwrap();
    assert_eq!(names(&files.after_crash(Fate::AllLost)), [""; 0]);
    files.sync_folder("").unwrap();
    assert_eq!(names(&files.after_crash(Fate::AllLost)), ["folder/file"]);
}

#[test]
fn a_removed_folder_comes_back_whole_in_part_or_not() {
    let files = FaultyFiles::new(NEVER);
    files.create_folder("folder").unwrap();
    files.create("folder/a").unwrap();
    files.create("folder/b").unwrap();
    files.sync_folder("folder").unwrap();
    files.sync_folder("").unwrap();
    files.remove_folder("folder").unwrap();
    let possible: BTreeSet<Option<usize>> = (0..SEEDS)
        .map(|seed| files.after_crash(Fate::Random(seed)).list("folder").ok().map(|names| names.len()))
        .collect();
    assert_eq!(possible, [None, Some(0), Some(1), Some(2)].into());
    files.sync_folder("").unwrap();
    assert!(files.after_crash(Fate::AllLost).list("folder").is_err());
}

#[test]
fn a_crash_can_be_followed_by_another() {
    let files = with_durable(b"old");
    files.open("file").unwrap().write_at(3, &[b"er"]).unwrap();
    let after = files.after_crash(Fate::AllKept);
    after.crash_at(1);
    let file = after.open("file").unwrap();
    file.write_at(0, &[b"c"]).unwrap();
    file.set_len(0).unwrap_err();
    assert_eq!(after.after_crash(Fate::AllLost).read("file").unwrap().as_slice(), b"older");
    assert_eq!(after.after_crash(Fate::TornAt(0)).read("file").unwrap().as_slice(), b"clder");
    assert_eq!(after.after_crash(Fate::TornAt(1)).read("file").unwrap().as_slice(), b"");
}

#[test]
fn one_seed_gives_one_outcome() {
    let files = with_durable(&[b'o'; 4096]);
    files.open("file").unwrap().write_at(100, &[&[b'n'; 4096]]).unwrap();
    files.create("other").unwrap();
    for seed in 0..100 {
        let [one, two] = [0, 1].map(|_| files.after_crash(Fate::Random(seed)));
        assert_eq!((one.files(), one.read("file")), (two.files(), two.read("file")));
    }
}

#[test]
fn what_a_failed_sync_gave_up_is_not_made_durable_by_the_next() {
    let files = with_durable(b"");
    let file = files.open("file").unwrap();
    file.write_at(0, &[b"first"]).unwrap();
    files.fail_next_syncs(1);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    file.write_at(5, &[b"second"]).unwrap();
    file.sync().unwrap();
    assert_eq!(files.read("file").unwrap().as_slice(), b"firstsecond");
    assert_eq!(files.after_crash(Fate::AllKept).read("file").unwrap().as_slice(), b"\0\0\0\0\0second");
}

#[test]
fn a_failed_write_has_the_error_asked_for_and_wrote_half() {
    let files = with_durable(b"");
    let file = files.open("file").unwrap();
    files.fail_next_writes(1, Errno::IO);
    assert_eq!(file.write_at(0, &[b"abcd"]).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert_eq!(files.read("file").unwrap().as_slice(), b"ab");
    file.write_at(0, &[b"abcd"]).unwrap();
    assert_eq!(files.read("file").unwrap().as_slice(), b"abcd");
}

#[test]
fn a_full_disk_takes_what_fits_and_then_nothing_until_there_is_room() {
    let files = with_durable(b"1234");
    files.limit_bytes(6);
    let file = files.open("file").unwrap();
    file.write_at(0, &[b"abcd"]).unwrap();
    let full = |done: io::Result<()>| is_disk_full(&done.unwrap_err());
    assert!(full(file.reserve(7)));
    assert!(full(file.write_at(4, &[b"efgh"])));
    assert_eq!(files.read("file").unwrap().as_slice(), b"abcdef");
    assert!(full(files.create("other").map(|_| ())));
    assert!(full(file.set_len(7)));
    file.set_len(5).unwrap();
    files.create("other").unwrap().write_at(0, &[b"x"]).unwrap();
    files.lift_limit();
    file.write_at(5, &[b"fgh"]).unwrap();
}

#[test]
fn a_flipped_bit_is_there_before_and_after_a_crash() {
    let files = with_durable(b"abc");
    files.flip_bit("file", 1, 0);
    assert_eq!(files.read("file").unwrap().as_slice(), b"acc");
    assert_eq!(files.after_crash(Fate::AllLost).read("file").unwrap().as_slice(), b"acc");
}

/// A journal as one might write it: the model must be fast enough to try all its crash points many times.
fn workload(files: &FaultyFiles) -> io::Result<()> {
    files.create_folder("log")?;
    files.sync_folder("")?;
    for segment in 0..4 {
        let temporary = files.create("log/new")?;
        temporary.write_at(0, &[&[7; 512]])?;
        temporary.sync()?;
        files.rename("log/new", &format!("log/{segment}"))?;
        files.sync_folder("log")?;
        for append in 0..4 {
            temporary.write_at(512 + append * 1024, &[&[1; 24], &[2; 1000]])?;
            temporary.sync()?;
        }
    }
    Ok(())
}

#[test]
fn a_workload_that_syncs_in_order_survives_every_crash_point() {
    let dry_run = FaultyFiles::new(NEVER);
    workload(&dry_run).unwrap();
    for seed in 0..ROUNDS {
        for crash_at in 0..dry_run.operations() {
            let files = FaultyFiles::new(crash_at);
            workload(&files).unwrap_err();
            let after = files.after_crash(Fate::Random(seed));
            for (path, length) in after.files().into_iter().filter(|(path, _)| path != "log/new") {
                assert!(length >= 512, "crash {crash_at}, seed {seed}: {path} has {length} bytes");
                let bytes = after.read(&path).unwrap();
                assert_eq!(bytes[..512], [7; 512], "crash {crash_at}, seed {seed}: {path}");
            }
        }
    }
}
