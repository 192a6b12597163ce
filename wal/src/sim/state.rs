//! The simulated disk itself: files and folders, each as a reader sees it now and as stable storage has it.

use std::collections::{BTreeMap, BTreeSet};

use cell_random::Random;

use super::content::Content;
use super::faults::{Faults, Landing, PowerCut, due, land};
use crate::device::{LogEvent, LogWrite, PrepareSegment};
use crate::error::Errno;
use crate::flush_choice::FlushWay;
use crate::flush_rounds::FlushRounds;
use crate::segment::SegmentName;
use crate::storage::parent;

/// An operation that a device has sent and that has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Names it in [`SimDisk::complete`].
    pub id: u64,
    /// How many bytes it writes: a log write's frame, a segment's length, or zero.
    pub bytes: u64,
    /// Whether it is a log write.
    pub is_log_write: bool,
    /// Whether it is a flush of the disk.
    pub is_flush: bool,
    pub(super) process: u64,
}

/// A write that stable storage lacks.
#[derive(Clone)]
pub(super) struct Unsynced {
    /// Counts such writes over all files.
    pub(super) number: u64,
    /// Whose it is, if it is in the disk's cache, where a flush finds it; none: it is in the system's.
    pub(super) process: Option<u64>,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    current: Content,
    pub(super) stable: Content,
    /// Writes that stable storage lacks, in order.
    pub(super) unsynced: Vec<Unsynced>,
    /// Bytes at its end that the disk has back.
    given_back: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    File(u64),
    Folder,
}

impl Entry {
    fn inode(&self) -> Option<u64> {
        if let Entry::File(inode) = self { Some(*inode) } else { None }
    }
}

#[derive(Clone, Debug)]
enum NameChange {
    Add(String, Entry),
    Remove(String),
    Rename(String, String),
}

#[derive(Clone, Default)]
struct Folder {
    current: BTreeMap<String, Entry>,
    stable: BTreeMap<String, Entry>,
    unsynced: Vec<NameChange>,
}

/// What a device asked for.
pub(super) enum Operation {
    Write {
        write: LogWrite,
        /// Whether it is left to a flush.
        is_plain: bool,
    },
    Prepare(PrepareSegment),
    Remove(SegmentName),
    /// Of what the disk's cache had when it was sent: writes with lower numbers.
    Flush {
        until: u64,
    },
}

struct Sent {
    id: u64,
    process: u64,
    device: u64,
    operation: Operation,
}

#[derive(Clone)]
struct Late {
    inode: u64,
    offset: u64,
    bytes: Vec<u8>,
}

pub(super) struct SimState {
    pub(super) inodes: BTreeMap<u64, Inode>,
    folders: BTreeMap<String, Folder>,
    pub(super) faults: Faults,
    random: Random,
    id_next: u64,
    /// Processes that are not dead.
    alive: BTreeSet<u64>,
    sent: Vec<Sent>,
    /// How often `sent` has changed.
    pub(super) sent_changes: u64,
    events: Vec<(u64, u64, LogEvent)>,
    late: Vec<Late>,
    /// How new devices write.
    pub(super) log_flush: FlushWay,
    /// The flushes that the devices of a process share.
    pub(super) flush_rounds: BTreeMap<u64, FlushRounds>,
    /// The number of the next write that stable storage lacks.
    pub(super) unsynced_next: u64,
}

impl SimState {
    pub(super) fn new(seed: u64) -> SimState {
        SimState {
            inodes: BTreeMap::new(),
            folders: BTreeMap::from([(String::new(), Folder::default())]),
            faults: Faults::default(),
            random: Random::new(seed),
            id_next: 1,
            alive: BTreeSet::from([0]),
            sent: Vec::new(),
            sent_changes: 0,
            events: Vec::new(),
            late: Vec::new(),
            log_flush: FlushWay::PerWrite,
            flush_rounds: BTreeMap::new(),
            unsynced_next: 0,
        }
    }

    /// A copy of the disk; writes in flight become late ones of the copy's past.
    pub(super) fn fork(&self, seed: u64) -> SimState {
        let mut late = self.late.clone();
        late.extend(self.sent.iter().filter_map(|sent| self.as_late(&sent.operation)));
        SimState {
            inodes: self.inodes.clone(),
            folders: self.folders.clone(),
            faults: self.faults.clone(),
            random: Random::new(seed),
            id_next: self.id_next,
            alive: self.alive.clone(),
            sent: Vec::new(),
            sent_changes: 0,
            events: Vec::new(),
            late,
            log_flush: self.log_flush,
            flush_rounds: BTreeMap::new(),
            unsynced_next: self.unsynced_next,
        }
    }

    fn new_id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    pub(super) fn new_process(&mut self) -> u64 {
        let process = self.new_id();
        self.alive.insert(process);
        process
    }

    pub(super) fn new_device(&mut self) -> u64 {
        self.new_id()
    }

    /// A dead process does nothing any more.
    pub(super) fn check_alive(&self, process: u64) -> Result<(), Errno> {
        if self.alive.contains(&process) && !self.faults.off { Ok(()) } else { Err(Errno::EIO) }
    }

    // Devices.

    pub(super) fn send(&mut self, process: u64, device: u64, operation: Operation) {
        if self.check_alive(process).is_ok() {
            let id = self.new_id();
            self.sent.push(Sent { id, process, device, operation });
            self.sent_changes += 1;
        }
    }

    pub(super) fn pending(&self) -> Vec<Pending> {
        let bytes = |operation: &Operation| match operation {
            Operation::Write { write, .. } => write.length as u64,
            Operation::Prepare(request) if request.recycle.is_none() => request.bytes,
            Operation::Prepare(_) | Operation::Remove(_) | Operation::Flush { .. } => 0,
        };
        let pending = |sent: &Sent| Pending {
            id: sent.id,
            bytes: bytes(&sent.operation),
            is_log_write: matches!(sent.operation, Operation::Write { .. }),
            is_flush: matches!(sent.operation, Operation::Flush { .. }),
            process: sent.process,
        };
        self.sent.iter().map(pending).collect()
    }

    pub(super) fn choose_pending(&mut self) -> Option<u64> {
        if self.sent.is_empty() || self.faults.off {
            return None;
        }
        let chosen = self.random.below(self.sent.len() as u64);
        Some(self.sent[crate::check::index(chosen)].id)
    }

    pub(super) fn take_pending(&mut self, id: u64) -> Option<(u64, u64, Operation)> {
        let at = self.sent.iter().position(|sent| sent.id == id).filter(|_| !self.faults.off)?;
        // A real preparer works on one request after the other.
        let sent = self.sent.remove(at);
        self.sent_changes += 1;
        Some((sent.process, sent.device, sent.operation))
    }

    pub(super) fn deliver(&mut self, process: u64, device: u64, event: LogEvent) {
        if self.check_alive(process).is_ok() {
            self.events.push((process, device, event));
        }
    }

    pub(super) fn take_events(&mut self, process: u64, device: u64, events: &mut Vec<LogEvent>) {
        if self.check_alive(process).is_err() {
            return;
        }
        for (owner, target, event) in std::mem::take(&mut self.events) {
            if (owner, target) == (process, device) {
                events.push(event);
            } else {
                self.events.push((owner, target, event));
            }
        }
    }

    /// A write past the page cache, with a data-sync or a process's plain one. A failed one may have written
    /// some of its sectors; after one whose sync failed all of it can be read, and is gone after a power cut.
    pub(super) fn log_write(
        &mut self,
        segment: SegmentName,
        offset: u64,
        bytes: &[u8],
        plain_of: Option<u64>,
    ) -> Result<(), Errno> {
        let inode = self.file(&segment.path())?;
        if let Err(errno) = self.faults.operate().and(due(&mut self.faults.write)) {
            let landed = land(&mut self.random, Landing::Random, bytes.len().div_ceil(512));
            self.write_sectors(inode, offset, bytes, 512, &landed, true);
            return Err(errno);
        }
        let unsynced = plain_of.map(|process| self.unsynced(Some(process), offset, bytes.to_vec()));
        let file = self.inodes.get_mut(&inode).ok_or(Errno::ENOENT)?;
        if offset + bytes.len() as u64 > file.current.length() {
            return Err(Errno::EINVAL); // strict: log writes never grow a file
        }
        file.current.write(offset, bytes);
        if let Some(unsynced) = unsynced {
            file.unsynced.push(unsynced);
            return Ok(());
        }
        due(&mut self.faults.sync)?;
        file.stable.write_as(&file.current, offset, bytes);
        Ok(())
    }

    // Ends.

    pub(super) fn kill(&mut self, process: u64) {
        let sent = std::mem::take(&mut self.sent);
        let (dead, living): (Vec<_>, Vec<_>) = sent.into_iter().partition(|sent| sent.process == process);
        self.sent = living;
        self.sent_changes += 1;
        let late: Vec<_> = dead.iter().filter_map(|sent| self.as_late(&sent.operation)).collect();
        self.late.extend(late);
        self.alive.remove(&process);
        self.flush_rounds.remove(&process);
        self.events.retain(|(owner, ..)| *owner != process);
    }

    fn as_late(&self, operation: &Operation) -> Option<Late> {
        let Operation::Write { write, .. } = operation else { return None };
        let inode = self.file(&write.segment.path()).ok()?;
        Some(Late { inode, offset: write.offset, bytes: write.buffer.bytes()[..write.length].to_vec() })
    }

    pub(super) fn land_late(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let chosen = self.random.below(self.late.len() as u64);
        let late = self.late.remove(crate::check::index(chosen));
        let sectors = late.bytes.len().div_ceil(512);
        let landing = if self.random.below(2) == 0 { Landing::Everything } else { Landing::Random };
        let landed = land(&mut self.random, landing, sectors);
        // What nobody waits for may stay in the disk's cache.
        let cached = self.random.below(2) == 0;
        self.write_sectors(late.inode, late.offset, &late.bytes, 512, &landed, !cached);
        true
    }

    pub(super) fn power_cut(&mut self, cut: PowerCut) {
        for process in self.alive.clone() {
            self.kill(process);
        }
        for late in std::mem::take(&mut self.late) {
            let landed = land(&mut self.random, cut.writes, late.bytes.len().div_ceil(cut.sector_bytes));
            self.write_sectors(late.inode, late.offset, &late.bytes, cut.sector_bytes, &landed, true);
        }
        self.cut_contents(cut);
        self.cut_names(cut);
        self.forget_nameless();
        self.faults = Faults { capacity: self.faults.capacity, ..Faults::default() };
    }

    fn cut_contents(&mut self, cut: PowerCut) {
        let inodes: Vec<u64> = self.inodes.keys().copied().collect();
        for inode in inodes {
            let Some(file) = self.inodes.get_mut(&inode) else { continue };
            file.current = file.stable.clone();
            for Unsynced { offset, bytes, .. } in std::mem::take(&mut file.unsynced) {
                let landed = land(&mut self.random, cut.writes, bytes.len().div_ceil(cut.sector_bytes));
                self.write_sectors(inode, offset, &bytes, cut.sector_bytes, &landed, true);
            }
        }
    }

    fn cut_names(&mut self, cut: PowerCut) {
        for folder in self.folders.values_mut() {
            let changes = std::mem::take(&mut folder.unsynced);
            let landed = land(&mut self.random, cut.names, changes.len());
            for (change, _) in changes.iter().zip(landed).filter(|(_, landed)| *landed) {
                apply(&mut folder.stable, change);
            }
            folder.current = folder.stable.clone();
        }
        let mut reachable = BTreeSet::from([String::new()]);
        // Parents sort before their children.
        for (path, _) in self.folders.clone() {
            let name = path.rsplit('/').next().unwrap_or(&path);
            let above = self.folders.get(parent(&path)).and_then(|folder| folder.current.get(name));
            if reachable.contains(parent(&path)) && above == Some(&Entry::Folder) {
                reachable.insert(path);
            }
        }
        self.folders.retain(|path, _| reachable.contains(path));
        for (path, folder) in &mut self.folders.clone() {
            // A folder whose own creation survived without what was in it is empty.
            for name in folder.current.keys() {
                let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                if folder.current[name] == Entry::Folder && !self.folders.contains_key(&below) {
                    self.folders.insert(below, Folder::default());
                }
            }
        }
    }

    /// Drops files without a name: nobody has them open after a power cut.
    fn forget_nameless(&mut self) {
        let names = self.folders.values().flat_map(|folder| folder.current.values());
        let named: BTreeSet<u64> = names.filter_map(Entry::inode).collect();
        self.inodes.retain(|inode, _| named.contains(inode));
    }

    /// Writes those sectors that landed: onto stable storage, or into the disk's cache.
    fn write_sectors(
        &mut self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        sector_bytes: usize,
        landed: &[bool],
        stable: bool,
    ) {
        for (sector, (chunk, _)) in
            bytes.chunks(sector_bytes).zip(landed).enumerate().filter(|(_, (_, landed))| **landed)
        {
            let at = offset + (sector * sector_bytes) as u64;
            let unsynced = (!stable).then(|| self.unsynced(None, at, chunk.to_vec()));
            let Some(file) = self.inodes.get_mut(&inode) else { return };
            file.current.write(at, chunk);
            match unsynced {
                None => file.stable.write(at, chunk),
                Some(unsynced) => file.unsynced.push(unsynced),
            }
        }
    }

    // Damage.

    pub(super) fn flip(&mut self, path: &str, offset: u64, mask: u8) -> bool {
        let Some(file) = self.inode_mut(path).filter(|file| offset < file.current.length()) else {
            return false;
        };
        for content in [&mut file.current, &mut file.stable] {
            let mut byte = [0];
            content.read(offset, &mut byte);
            content.write(offset, &[byte[0] ^ mask]);
        }
        true
    }

    pub(super) fn copy_block(&mut self, from: (&str, u64), to: (&str, u64), length: usize) -> bool {
        let mut bytes = vec![0; length];
        let Some(source) = self.inode_mut(from.0) else { return false };
        source.current.read(from.1, &mut bytes);
        let Some(target) = self.inode_mut(to.0) else { return false };
        target.current.write(to.1, &bytes);
        target.stable.write(to.1, &bytes);
        true
    }

    pub(super) fn truncate(&mut self, path: &str, length: u64) -> bool {
        let Some(file) = self.inode_mut(path) else { return false };
        file.current.set_length(length);
        file.stable.set_length(length);
        true
    }

    pub(super) fn content(&self, path: &str) -> Option<Vec<u8>> {
        let content = &self.inodes.get(&self.file(path).ok()?)?.current;
        let mut bytes = vec![0; crate::check::index(content.length())];
        content.read(0, &mut bytes);
        Some(bytes)
    }

    fn inode_mut(&mut self, path: &str) -> Option<&mut Inode> {
        let inode = self.file(path).ok()?;
        self.inodes.get_mut(&inode)
    }

    // Files.

    pub(super) fn used(&self) -> u64 {
        let named = self.folders.values().flat_map(|folder| folder.current.values());
        let files = named.filter_map(Entry::inode).filter_map(|inode| self.inodes.get(&inode));
        files.map(|file| file.current.length() - file.given_back).sum()
    }

    pub(super) fn file(&self, path: &str) -> Result<u64, Errno> {
        match self.entry(path)? {
            Entry::File(inode) => Ok(inode),
            Entry::Folder => Err(Errno(libc::EISDIR)),
        }
    }

    fn entry(&self, path: &str) -> Result<Entry, Errno> {
        let folder = self.folders.get(parent(path)).ok_or(Errno::ENOENT)?;
        folder.current.get(name(path)).copied().ok_or(Errno::ENOENT)
    }

    fn change(&mut self, folder: &str, change: NameChange) -> Result<(), Errno> {
        self.faults.operate()?;
        let folder = self.folders.get_mut(folder).ok_or(Errno::ENOENT)?;
        apply(&mut folder.current, &change);
        folder.unsynced.push(change);
        Ok(())
    }

    pub(super) fn create(&mut self, path: &str) -> Result<u64, Errno> {
        match self.entry(path) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(_) if !self.folders.contains_key(parent(path)) => return Err(Errno::ENOENT),
            Err(_) => {}
        }
        let inode = self.new_id();
        self.change(parent(path), NameChange::Add(name(path).to_owned(), Entry::File(inode)))?;
        self.inodes.insert(inode, Inode::default());
        Ok(inode)
    }

    pub(super) fn create_folder(&mut self, path: &str) -> Result<(), Errno> {
        if self.entry(path).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.change(parent(path), NameChange::Add(name(path).to_owned(), Entry::Folder))?;
        self.folders.insert(path.to_owned(), Folder::default());
        Ok(())
    }

    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>, Errno> {
        Ok(self.folders.get(folder).ok_or(Errno::ENOENT)?.current.keys().cloned().collect())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let inode = self.file(from)?;
        if parent(from) != parent(to) {
            if !cell_terms::mutant::planted(cell_terms::mutant::Mutant::ZombieSegments) {
                return Err(Errno::EINVAL); // strict: only within a folder
            }
            self.change(parent(from), NameChange::Remove(name(from).to_owned()))?;
            return self.change(parent(to), NameChange::Add(name(to).to_owned(), Entry::File(inode)));
        }
        self.change(parent(from), NameChange::Rename(name(from).to_owned(), name(to).to_owned()))
    }

    pub(super) fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        self.file(path)?;
        self.change(parent(path), NameChange::Remove(name(path).to_owned()))
    }

    pub(super) fn remove_folder(&mut self, path: &str) -> Result<(), Errno> {
        if !self.list(path)?.is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
        self.change(parent(path), NameChange::Remove(name(path).to_owned()))?;
        self.folders.remove(path);
        Ok(())
    }

    pub(super) fn sync_folder(&mut self, path: &str) -> Result<(), Errno> {
        if !self.folders.contains_key(path) {
            return Err(Errno::ENOENT);
        }
        self.faults.operate().and(due(&mut self.faults.sync))?;
        let folder = self.folders.get_mut(path).ok_or(Errno::ENOENT)?;
        folder.stable = folder.current.clone();
        folder.unsynced.clear();
        Ok(())
    }

    pub(super) fn read(&mut self, inode: u64, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        due(&mut self.faults.read)?;
        Ok(self.inodes.get(&inode).ok_or(Errno::EIO)?.current.read(offset, bytes))
    }

    pub(super) fn length(&self, inode: u64) -> Result<u64, Errno> {
        Ok(self.inodes.get(&inode).ok_or(Errno::EIO)?.current.length())
    }

    pub(super) fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.faults.operate().and(due(&mut self.faults.write))?;
        let limit = self.faults.capacity.map(|capacity| (capacity, self.used()));
        let unsynced = self.unsynced(None, offset, bytes.to_vec());
        let file = self.inodes.get_mut(&inode).ok_or(Errno::EIO)?;
        let end = offset + bytes.len() as u64;
        let growth = end.saturating_sub(file.current.length());
        if growth > 0 && limit.is_some_and(|(capacity, used)| used + growth > capacity) {
            return Err(Errno::ENOSPC);
        }
        file.current.write(offset, bytes);
        file.unsynced.push(unsynced);
        Ok(())
    }

    pub(super) fn give_back(&mut self, inode: u64, offset: u64) -> Result<(), Errno> {
        self.faults.operate().and(due(&mut self.faults.write))?;
        let file = self.inodes.get_mut(&inode).ok_or(Errno::EIO)?;
        file.given_back = file.given_back.max(file.current.length().saturating_sub(offset));
        let cleared = file.current.clear_from(offset);
        for page in cleared {
            let zeros = self.unsynced(None, page, vec![0; 4096]);
            self.inodes.get_mut(&inode).ok_or(Errno::EIO)?.unsynced.push(zeros);
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, inode: u64) -> Result<(), Errno> {
        self.faults.operate()?;
        let failed = due(&mut self.faults.sync);
        let file = self.inodes.get_mut(&inode).ok_or(Errno::EIO)?;
        let unsynced = std::mem::take(&mut file.unsynced);
        failed?; // what it should have written stays readable, and is gone after a power cut
        for Unsynced { offset, bytes, .. } in unsynced {
            file.stable.write(offset, &bytes);
        }
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<String, Entry>, change: &NameChange) {
    match change {
        NameChange::Add(name, entry) => {
            names.insert(name.clone(), *entry);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(entry) = names.remove(from) {
                names.insert(to.clone(), entry);
            }
        }
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
