//! The services of the operating system that the SQLite store needs. Linux only; a port replaces this file,
//! and `os.rs` of `ephor-runtime`.
//!
//! | a port provides | the store needs it for |
//! |---|---|
//! | [`file_id`], [`name_count`], [`is_mounted`] | refusing a database that has two logs, or was replaced |
//! | [`network_file_system`] | refusing file systems on which SQLite's locks do not work |
//! | [`check_access`], [`create_private`], [`mode`], [`set_mode`] | permissions, checked and set without opening |
//! | [`try_lock`] | the lock against every process that has the database open |
//! | [`exclusive_locks`], [`program_and_state`] | naming the process that keeps others from writing |
//! | [`is_open_in_this_process`] | not losing the locks of this process |
//!
//! Except for [`try_lock`], nothing here opens a database or takes a handle of it: `lock_holder.rs` explains why.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, FlockOperation, Mode, StatxAttributes, StatxFlags, fcntl_lock, major,
    minor,
};

/// The device and inode of a file. They change if the file is replaced.
pub(super) fn file_id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The number of names (hard links) that a file has: 0 after it was removed.
pub(super) fn name_count(file: &Metadata) -> u64 {
    file.nlink()
}

/// Whether a file is the root of a mount; false where the kernel does not know.
pub(super) fn is_mounted(path: &Path) -> bool {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Fails if this process may not read and write a file, or create files in a folder.
pub(super) fn check_access(path: &Path) -> io::Result<()> {
    let mut access = Access::READ_OK | Access::WRITE_OK;
    if path.is_dir() {
        access |= Access::EXEC_OK;
    }
    Ok(rustix::fs::access(path, access)?)
}

/// Creates an empty file that only the user of this process may read and write, without opening it.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0)?)
}

/// The permissions of user, group and others, three bits each.
pub(super) fn mode(file: &Metadata) -> u32 {
    file.permissions().mode() & 0o777
}

/// Sets the permissions of user, group and others.
pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The kinds of a lock on a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockKind {
    Shared,
    Exclusive,
}

/// Locks a whole file for this process, or fails if other processes have locks on it. Never waits. The lock
/// ends when this process closes any handle of the file.
pub(super) fn try_lock(file: &File, kind: LockKind) -> io::Result<()> {
    let operation = match kind {
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    Ok(fcntl_lock(file, operation)?)
}

/// File systems that other machines may write to: their magic numbers, as `statfs` returns them, and their names.
const REFUSED: [(u32, &str); 22] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE (sshfs, virtiofs and others)"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x6163_6673, "ACFS"),
    (0x786F_4256, "a VirtualBox shared folder"),
    (0xBACB_ACBC, "a VMware shared folder"),
    (0x7C7C_6673, "a Parallels shared folder"),
];

/// The name of the file system of a folder, if other machines may write to it; none for any other.
pub(super) fn network_file_system(folder: &Path) -> io::Result<Option<&'static str>> {
    magic(folder).map(network_name)
}

fn network_name(magic: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The magic number of the file system that a folder lies on.
fn magic(folder: &Path) -> io::Result<u32> {
    // The field's width and sign differ between machines; the number has 32 bits.
    Ok(rustix::fs::statfs(folder)?.f_type as u32)
}

/// The exclusive locks of all processes of this machine. One call may miss locks that change meanwhile.
pub(super) fn exclusive_locks() -> io::Result<Vec<ExclusiveLock>> {
    let locks = fs::read_to_string("/proc/locks")?;
    Ok(locks.lines().filter_map(ExclusiveLock::parse).collect())
}

/// An exclusive lock, as `/proc/locks` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExclusiveLock {
    pub(super) process: u32,
    device: (u32, u32),
    inode: u64,
    pub(super) first: u64,
    last: u64,
}

impl ExclusiveLock {
    /// Parses `1: POSIX  ADVISORY  WRITE 3548 fe:00:13374 120 120`. Returns none for shared locks and for
    /// locks that a process waits for (`->`).
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let exclusive = words.next()? == "POSIX" && words.next().is_some() && words.next()? == "WRITE";
        let process = words.next().filter(|_| exclusive)?.parse().ok()?;
        let mut place = words.next()?.split(':');
        let major = u32::from_str_radix(place.next()?, 16).ok()?;
        let minor = u32::from_str_radix(place.next()?, 16).ok()?;
        let inode = place.next()?.parse().ok()?;
        let first = words.next()?.parse().ok()?;
        let last = words.next()?.parse().unwrap_or(u64::MAX);
        Some(Self { process, device: (major, minor), inode, first, last })
    }

    pub(super) fn covers(&self, byte: u64) -> bool {
        (self.first..=self.last).contains(&byte)
    }

    pub(super) fn is_on(&self, file: &Path) -> bool {
        let Ok(file) = fs::metadata(file) else { return false };
        let device = (major(file.dev()), minor(file.dev()));
        // On btrfs and overlay the lock names another device than the file: compare with the files
        // that the process has open.
        file.ino() == self.inode && (device == self.device || has_open(self.process, &file))
    }
}

/// Whether this process has a file open; also true where that is unknown.
pub(super) fn is_open_in_this_process(file: &fs::Metadata) -> bool {
    !Path::new("/proc/self/fd").is_dir() || has_open(std::process::id(), file)
}

fn has_open(process: u32, file: &fs::Metadata) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let same = |open: fs::Metadata| file_id(&open) == file_id(file);
    handles.flatten().any(|handle| fs::metadata(handle.path()).is_ok_and(same))
}

/// The name of a process's program, and whether it is stopped. Reads `1234 (my-host) T 1 …`. The name may contain any character, also brackets.
pub(super) fn program_and_state(process: u32) -> (String, bool) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let named = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let (program, rest) = named.unwrap_or(("unknown", ""));
    (program.to_owned(), rest.trim_start().starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_told_from_a_file_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ephor.db");
        assert!(!is_mounted(&file), "it is not there");
        std::fs::write(&file, "").unwrap();
        assert!(!is_mounted(&file));
        assert!(is_mounted(Path::new("/proc")));
    }

    #[test]
    fn network_file_systems_are_known_and_local_ones_are_not() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0xFE53_4D42, "SMB2"),
            (0x0102_1997, "9p"),
            (0x00C3_6400, "Ceph"),
            (0x0BD0_0BD0, "Lustre"),
            (0x5346_414F, "AFS"),
        ] {
            assert_eq!(network_name(magic), Some(name));
        }
        assert!(network_name(0x6573_5546).is_some_and(|name| name.contains("sshfs")));
        // ext4, btrfs, xfs, tmpfs, overlay, zfs, f2fs.
        for magic in [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010] {
            assert_eq!(network_name(magic), None);
        }
    }

    #[test]
    fn a_folder_of_this_machine_has_a_magic_number() {
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(magic(folder.path()).unwrap(), 0);
        assert!(magic(&folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn exclusive_locks_are_read_and_others_passed_over() {
        let lock = ExclusiveLock::parse("1: POSIX  ADVISORY  WRITE 3548 fe:10:13374 120 127").unwrap();
        let expected =
            ExclusiveLock { process: 3548, device: (0xfe, 0x10), inode: 13374, first: 120, last: 127 };
        assert_eq!(lock, expected);
        assert!(lock.covers(120) && lock.covers(127) && !lock.covers(128));
        assert_eq!(ExclusiveLock::parse("2: POSIX  ADVISORY  WRITE 1 00:01:2 0 EOF").unwrap().last, u64::MAX);
        for other in [
            "",
            "3: POSIX  ADVISORY  READ 3548 fe:10:13374 120 120",
            "4: FLOCK  ADVISORY  WRITE 3548 fe:10:13374 0 EOF",
            "5: -> POSIX  ADVISORY  WRITE 3548 fe:10:13374 120 120",
            "6: POSIX  ADVISORY  WRITE x fe:10:13374 120 120",
        ] {
            assert_eq!(ExclusiveLock::parse(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_is_running_and_nobody_is_unknown() {
        let (program, stopped) = program_and_state(std::process::id());
        assert!(program != "unknown" && !stopped);
        assert_eq!(program_and_state(u32::MAX), ("unknown".into(), false));
    }
}
