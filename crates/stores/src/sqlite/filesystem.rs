//! Recognizes file systems on which SQLite's locks and shared memory do not work reliably.

use std::io;
use std::path::Path;

/// Their magic numbers, as `statfs` returns them, and their names.
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

/// The name of a file system that other machines may write to; none for any other.
pub(super) fn network(magic: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The magic number of the file system that a folder lies on.
pub(super) fn magic(folder: &Path) -> io::Result<u32> {
    // The field's width and sign differ between machines; the number has 32 bits.
    Ok(rustix::fs::statfs(folder)?.f_type as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(network(magic), Some(name));
        }
        assert!(network(0x6573_5546).is_some_and(|name| name.contains("sshfs")));
        // ext4, btrfs, xfs, tmpfs, overlay, zfs, f2fs.
        for magic in [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010] {
            assert_eq!(network(magic), None);
        }
    }

    #[test]
    fn a_folder_of_this_machine_has_a_magic_number() {
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(magic(folder.path()).unwrap(), 0);
        assert!(magic(&folder.path().join("nowhere")).is_err());
    }
}
