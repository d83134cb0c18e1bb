//! The simulated disk of [`FaultyFiles`](super::FaultyFiles): cached content, durable content, and the
//! state after a crash.
//!
//!   write, set_len, reserve ─► changes of the file ──sync of the file──► durable content
//!   create, rename, remove  ─► name changes, in order ─sync of the folder─► durable names
//!
//! Until they are durable, a crash may undo them: of the changes of a file any combination, of the name changes in a
//! folder all after any one. The two are independent: a synced file without a durable name is lost, and a durable name
//! may lead to a file without its content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The bytes that a disk writes as a whole, or not at all.
const SECTOR: usize = 512;

pub const ROOT: usize = 0;

/// The effect of the power failure on everything that is not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Only what was synced is there.
    AllLost,
    /// Everything is there, the step that was cut included.
    AllKept,
    /// Everything is there, but of the last step only this many bytes (of a write) or names.
    TornAt(usize),
    /// Anything that can happen, by this seed: parts of writes, sectors in any order, zeros, some of the names.
    Random(u64),
}

#[derive(Debug)]
pub enum Node {
    File(FileNode),
    Folder(FolderNode),
}

/// Names and the nodes they lead to.
pub type Names = BTreeMap<String, usize>;

#[derive(Debug, Default)]
pub struct FolderNode {
    pub current: Names,
    durable: Names,
}

/// Both contents are shared until one of them changes, so that a crash copies nothing.
#[derive(Debug, Default)]
pub struct FileNode {
    pub current: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    unsynced: Vec<Unsynced>,
    /// New parts whose sync failed: the file system keeps them as never written.
    unwritten: Vec<Range<usize>>,
}

#[derive(Debug)]
struct Unsynced {
    step: u64,
    change: Change,
    /// A sync of it has failed: the system forgot that it is not on the disk, and no later sync writes it.
    given_up: bool,
}

#[derive(Debug)]
pub enum Change {
    Write {
        position: usize,
        bytes: Vec<u8>,
    },
    SetLen(usize),
    /// The length grows to this, but never shrinks.
    Reserve(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { position, bytes } => write(content, *position, bytes),
            Change::SetLen(length) => content.resize(*length, 0),
            Change::Reserve(length) => extend(content, *length),
        }
    }

    pub fn length_after(&self, length: usize) -> usize {
        match self {
            Change::Write { position, bytes } if !bytes.is_empty() => length.max(position + bytes.len()),
            Change::Write { .. } => length,
            Change::SetLen(length) => *length,
            Change::Reserve(reserved) => length.max(*reserved),
        }
    }

    fn apply_torn(&self, content: &mut Vec<u8>, kept: usize) {
        match self {
            Change::Write { position, bytes } => write(content, *position, &bytes[..kept.min(bytes.len())]),
            _ if kept > 0 => self.apply(content),
            _ => {}
        }
    }

    fn apply_at_random(&self, content: &mut Vec<u8>, chance: &mut fastrand::Rng) {
        let Change::Write { position, bytes } = self else {
            return self.apply_torn(content, chance.usize(0..2));
        };
        match chance.u8(0..4) {
            0 => self.apply(content),
            1 => write(content, *position, &bytes[..chance.usize(0..=bytes.len())]),
            2 => write_some_sectors(content, *position, bytes, chance),
            _ => {}
        }
        // The length is kept apart from the content, and may be durable before it.
        if !bytes.is_empty() && chance.bool() {
            extend(content, position + bytes.len());
        }
    }
}

fn extend(content: &mut Vec<u8>, length: usize) {
    if content.len() < length {
        content.resize(length, 0);
    }
}

fn write(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        extend(content, position + bytes.len());
        content[position..position + bytes.len()].copy_from_slice(bytes);
    }
}

fn write_some_sectors(content: &mut Vec<u8>, position: usize, bytes: &[u8], chance: &mut fastrand::Rng) {
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min(start + SECTOR - (position + start) % SECTOR);
        if chance.bool() {
            write(content, position + start, &bytes[start..end]);
        }
        start = end;
    }
}

impl FileNode {
    pub fn change(&mut self, step: u64, change: Change) {
        if let Change::SetLen(length) = change {
            // What is cut off is new when it is written again.
            self.unwritten.iter_mut().for_each(|part| part.end = part.end.min(length));
            self.unwritten.retain(|part| !part.is_empty());
        }
        change.apply(Arc::make_mut(&mut self.current));
        self.unsynced.push(Unsynced { step, change, given_up: false });
    }

    /// Of a write, this many bytes as `kept` says from its position and length; of the others, nothing.
    pub fn change_in_part(&mut self, step: u64, change: Change, kept: impl FnOnce(usize, usize) -> usize) {
        if let Change::Write { position, mut bytes } = change {
            bytes.truncate(kept(position, bytes.len()));
            self.change(step, Change::Write { position, bytes });
        }
    }

    pub fn sync(&mut self) {
        for unsynced in self.unsynced.drain(..).filter(|unsynced| !unsynced.given_up) {
            unsynced.change.apply(Arc::make_mut(&mut self.durable));
        }
        for part in &self.unwritten {
            let end = part.end.min(self.durable.len());
            if part.start < end {
                Arc::make_mut(&mut self.durable)[part.start..end].fill(0);
            }
        }
    }

    pub fn fail_sync(&mut self) {
        for unsynced in &mut self.unsynced {
            unsynced.given_up = true;
            if let Change::Write { position, bytes } = &unsynced.change {
                let new = (*position).max(self.durable.len())..position + bytes.len();
                self.unwritten.extend(Some(new).filter(|new| !new.is_empty()));
            }
        }
    }

    /// Writes a part past the cache.
    pub fn ensure_on_disk(&mut self, part: Range<usize>) {
        let end = part.end.min(self.current.len());
        let bytes = self.current.get(part.start..end).unwrap_or_default();
        write(Arc::make_mut(&mut self.durable), part.start, bytes);
        let left = |old: Range<usize>| [old.start..old.end.min(part.start), old.start.max(part.end)..old.end];
        self.unwritten = self.unwritten.drain(..).flat_map(left).filter(|left| !left.is_empty()).collect();
    }

    pub fn flip_bit(&mut self, position: usize, bit: u8) {
        for content in [&mut self.current, &mut self.durable] {
            if position < content.len() {
                Arc::make_mut(content)[position] ^= 1 << bit;
            }
        }
    }

    fn after_crash(&self, fate: Fate, cut: u64, chance: &mut fastrand::Rng) -> FileNode {
        let mut content = Arc::clone(&self.durable);
        if !self.unsynced.is_empty() && fate != Fate::AllLost {
            self.survive(Arc::make_mut(&mut content), fate, cut, chance);
        }
        FileNode { current: Arc::clone(&content), durable: content, ..FileNode::default() }
    }

    fn survive(&self, content: &mut Vec<u8>, fate: Fate, cut: u64, chance: &mut fastrand::Rng) {
        let changes = || self.unsynced.iter().map(|unsynced| &unsynced.change);
        match fate {
            Fate::AllLost => {}
            Fate::AllKept => changes().for_each(|change| change.apply(content)),
            Fate::TornAt(kept) => {
                for Unsynced { step, change, .. } in &self.unsynced {
                    change.apply_torn(content, if *step == cut { kept } else { usize::MAX });
                }
            }
            // The plain outcomes have their share: of many changes, chance alone would hardly ever keep all.
            Fate::Random(_) => match chance.u8(0..4) {
                0 => {}
                1 => changes().for_each(|change| change.apply(content)),
                2 => {
                    let whole = chance.usize(0..self.unsynced.len());
                    changes().take(whole).for_each(|change| change.apply(content));
                    changes().skip(whole).take(1).for_each(|change| change.apply_at_random(content, chance));
                }
                _ => changes().for_each(|change| change.apply_at_random(content, chance)),
            },
        }
    }
}

/// The changes of names by one call: all of them or none, as in a journal, also across folders.
#[derive(Debug)]
pub struct NameChange {
    pub step: u64,
    pub edits: Vec<NameEdit>,
}

/// From now on the name leads to this node, or to none.
#[derive(Debug)]
pub struct NameEdit {
    pub folder: usize,
    pub name: String,
    pub node: Option<usize>,
}

impl NameEdit {
    fn apply(&self, names: &mut Names) {
        match self.node {
            Some(node) => names.insert(self.name.clone(), node),
            None => names.remove(&self.name),
        };
    }
}

impl NameChange {
    fn folders(&self) -> BTreeSet<usize> {
        self.edits.iter().map(|edit| edit.folder).collect()
    }
}

/// Nodes are never taken out: a file that lost its name may still be open, and a crash may bring the name back.
#[derive(Debug)]
pub struct Disk {
    pub nodes: Vec<Node>,
    /// In the order in which they were made.
    unsynced_names: Vec<NameChange>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { nodes: vec![Node::Folder(FolderNode::default())], unsynced_names: Vec::new() }
    }
}

impl Disk {
    pub fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub fn change_names(&mut self, step: u64, edits: Vec<NameEdit>) {
        for edit in &edits {
            if let Node::Folder(folder) = &mut self.nodes[edit.folder] {
                edit.apply(&mut folder.current);
            }
        }
        self.unsynced_names.push(NameChange { step, edits });
    }

    /// All changes of the names in this folder become durable, and with them those of other folders that
    /// had to come first, because a move ties them together.
    pub fn sync_folder(&mut self, folder: usize) {
        let mut tied = BTreeSet::from([folder]);
        let mut durable = Vec::new();
        for index in (0..self.unsynced_names.len()).rev() {
            let folders = self.unsynced_names[index].folders();
            if !folders.is_disjoint(&tied) {
                tied.extend(folders);
                durable.push(self.unsynced_names.remove(index));
            }
        }
        for edit in durable.iter().rev().flat_map(|change| &change.edits) {
            if let Node::Folder(folder) = &mut self.nodes[edit.folder] {
                edit.apply(&mut folder.durable);
            }
        }
    }

    /// The disk when the power is back; `cut` is the last step before it went.
    pub fn after_crash(&self, fate: Fate, cut: u64) -> Disk {
        let mut chance = fastrand::Rng::with_seed(if let Fate::Random(seed) = fate { seed } else { 0 });
        let names = self.names_after_crash(fate, cut, &mut chance);
        let mut after = Disk::default();
        // Pairs of a folder before the crash and the same one after it.
        let mut folders = vec![(ROOT, ROOT)];
        while let Some((before_crash, after_crash)) = folders.pop() {
            let mut kept = Names::new();
            for (name, node) in names.get(&before_crash).into_iter().flatten() {
                let copy = match &self.nodes[*node] {
                    Node::File(file) => after.add(Node::File(file.after_crash(fate, cut, &mut chance))),
                    Node::Folder(_) => {
                        let copy = after.add(Node::Folder(FolderNode::default()));
                        folders.push((*node, copy));
                        copy
                    }
                };
                kept.insert(name.clone(), copy);
            }
            after.nodes[after_crash] = Node::Folder(FolderNode { current: kept.clone(), durable: kept });
        }
        after
    }

    fn names_after_crash(&self, fate: Fate, cut: u64, chance: &mut fastrand::Rng) -> BTreeMap<usize, Names> {
        let mut names: BTreeMap<usize, Names> = BTreeMap::new();
        for (id, node) in self.nodes.iter().enumerate() {
            if let Node::Folder(folder) = node {
                names.insert(id, folder.durable.clone());
            }
        }
        let mut left = self.name_changes_kept(fate, cut, chance);
        for change in &self.unsynced_names {
            let folders = change.folders();
            let is_kept = folders.iter().all(|folder| left.get(folder).is_some_and(|left| *left > 0));
            for folder in folders {
                // One that is lost takes all behind it along, in each folder that it touches.
                left.entry(folder).and_modify(|left| *left = if is_kept { *left - 1 } else { 0 });
            }
            for edit in change.edits.iter().filter(|_| is_kept) {
                edit.apply(names.entry(edit.folder).or_default());
            }
        }
        names
    }

    /// How many of the changes in each folder are kept, from the first one on.
    fn name_changes_kept(&self, fate: Fate, cut: u64, chance: &mut fastrand::Rng) -> BTreeMap<usize, usize> {
        let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for change in &self.unsynced_names {
            for folder in change.folders() {
                let (earlier, last) = counts.entry(folder).or_default();
                *(if change.step == cut { last } else { earlier }) += 1;
            }
        }
        let kept = counts.into_iter().map(|(folder, (earlier, last))| match fate {
            Fate::AllLost => (folder, 0),
            Fate::AllKept => (folder, earlier + last),
            Fate::TornAt(kept) => (folder, earlier + last.min(kept)),
            Fate::Random(_) => (folder, chance.usize(0..=earlier + last)),
        });
        kept.collect()
    }
}
