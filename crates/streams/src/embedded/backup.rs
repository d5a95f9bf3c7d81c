//! A copy of the store, taken while it works, and its way back.
//!
//! Sealed segments never change, and the log grows only at its end. So a backup is a new checkpoint, every segment in
//! use, and the active one up to the end of the last commit; the maintainer waits meanwhile, because it is the only
//! one that removes files. Appends go on. What was acknowledged before the backup began is in it, and a restored store
//! opens like any other: it replays the log behind the checkpoint.
//!
//! The list of files with their checksums is written last. Without it a directory is no backup.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::disk::DiskFile;
use super::segment::{file_name, index_name};
use super::shared::Shared;
use super::{Config, Embedded, maintain, recover};
use crate::Error;

const LIST: &str = "BACKUP";
const LIST_NEW: &str = "BACKUP.new";
const TITLE: &str = "towpath-streams backup 1";
const STEP: usize = 1 << 20;

/// What a backup holds, or what was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The last commit in it.
    pub commit: u64,
}

/// A file of a backup.
struct Copied {
    name: String,
    bytes: u64,
    sum: u32,
}

/// Writes a backup into a new directory.
pub(super) fn write(shared: &Shared, directory: &Path) -> Result<Backup, Error> {
    if let Some(why) = shared.poisoned() {
        return Err(Error::Poisoned(why));
    }
    make_empty(directory)?;
    maintain::after_checkpoint(shared, || {
        let (position, segments) = {
            let index = shared.index();
            (index.position, index.segments.values().cloned().collect::<Vec<_>>())
        };
        let mut copied = vec![];
        for name in [recover::VERSION_NAME, super::checkpoint::NAME] {
            let file =
                shared.disk.open(name).map_err(|error| Error::io(format!("cannot open {name}"), &error))?;
            copied.push(copy(&*file, name.to_owned(), None, directory)?);
        }
        for segment in segments {
            let end = (segment.number == position.segment).then_some(position.end);
            copied.push(copy(&*segment.file, file_name(segment.number), end, directory)?);
            if let Some(index) = segment.index.get() {
                copied.push(copy(&**index, index_name(segment.number), None, directory)?);
            }
        }
        write_list(directory, position.commit, &copied)
    })
}

/// Puts a backup into the place of a store, which must be empty, and opens it once. Files are checked first.
pub fn restore(backup: &Path, directory: &Path) -> Result<Backup, Error> {
    let (done, files) = read_list(backup)?;
    for file in &files {
        check(backup, file)?;
    }
    make_empty(directory)?;
    for file in &files {
        let from = backup.join(&file.name);
        let copied = fs::copy(&from, directory.join(&file.name)).and_then(|_| {
            let file = File::options().write(true).open(directory.join(&file.name))?;
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            file.sync_all()
        });
        copied.map_err(|error| Error::io(format!("cannot copy {}", from.display()), &error))?;
    }
    sync_directory(directory)?;
    let store = Embedded::open(Config { background: false, ..Config::new(directory) })?;
    let damage = store.recovery().damage.clone();
    store.shut_down();
    match damage {
        Some(damage) => Err(Error::Corrupt(format!("the backup is damaged: {damage}"))),
        None => Ok(done),
    }
}

/// Creates the directory, or takes one that is empty; anything else may be somebody's data.
fn make_empty(directory: &Path) -> Result<(), Error> {
    let shown = directory.display();
    let failed = |error: io::Error| Error::io(format!("cannot create {shown}"), &error);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    if fs::read_dir(directory).map_err(failed)?.next().is_some() {
        return Err(Error::Unsupported(format!("{shown} is not empty; name a new directory")));
    }
    Ok(())
}

/// Copies a file up to `end`, or all of it.
fn copy(file: &dyn DiskFile, name: String, end: Option<u64>, directory: &Path) -> Result<Copied, Error> {
    let work = || {
        let bytes = match end {
            Some(end) => end,
            None => file.len()?,
        };
        let mut out = File::options().write(true).create_new(true).mode(0o600).open(directory.join(&name))?;
        let (mut at, mut sum) = (0, 0);
        let mut buffer = vec![0; STEP];
        while at < bytes {
            let step = (bytes - at).min(STEP as u64) as usize;
            file.read_at(&mut buffer[..step], at)?;
            out.write_all(&buffer[..step])?;
            sum = crc32c::crc32c_append(sum, &buffer[..step]);
            at += step as u64;
        }
        out.sync_all()?;
        Ok((bytes, sum))
    };
    let (bytes, sum) = work().map_err(|error: io::Error| Error::io(format!("cannot copy {name}"), &error))?;
    Ok(Copied { name, bytes, sum })
}

fn write_list(directory: &Path, commit: u64, copied: &[Copied]) -> Result<Backup, Error> {
    let mut text = format!("{TITLE}\ncommit {commit}\n");
    for Copied { name, bytes, sum } in copied {
        text += &format!("file {name} {bytes} {sum:08x}\n");
    }
    text += "end\n";
    let work = || {
        let new = directory.join(LIST_NEW);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, directory.join(LIST))
    };
    work().map_err(|error| Error::io("cannot write the list of the backup", &error))?;
    sync_directory(directory)?;
    Ok(Backup { files: copied.len(), bytes: copied.iter().map(|file| file.bytes).sum(), commit })
}

fn sync_directory(directory: &Path) -> Result<(), Error> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::io(format!("cannot sync {}", directory.display()), &error))
}

fn read_list(backup: &Path) -> Result<(Backup, Vec<Copied>), Error> {
    let shown = backup.display();
    let text = fs::read_to_string(backup.join(LIST)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Unsupported(format!(
            "{shown} is not a backup, or an unfinished one: it has no file {LIST}"
        )),
        _ => Error::io(format!("cannot read {shown}/{LIST}"), &error),
    })?;
    let bad = || Error::Corrupt(format!("{shown}/{LIST} is damaged, or of another version"));
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(bad());
    }
    let commit = lines.next().and_then(|line| line.strip_prefix("commit ")?.parse().ok()).ok_or_else(bad)?;
    let mut files = vec![];
    let mut is_whole = false;
    for line in lines {
        is_whole = line == "end";
        if !is_whole {
            files.push(read_line(line).ok_or_else(bad)?);
        }
    }
    if !is_whole {
        return Err(bad());
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    Ok((Backup { files: files.len(), bytes, commit }, files))
}

fn read_line(line: &str) -> Option<Copied> {
    let mut parts = line.strip_prefix("file ")?.split(' ');
    let (name, bytes, sum) = (parts.next()?, parts.next()?, parts.next()?);
    // Names come from a file that somebody may have changed.
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    let sum = u32::from_str_radix(sum, 16).ok()?;
    is_plain.then_some(Copied { name: name.to_owned(), bytes: bytes.parse().ok()?, sum })
}

fn check(backup: &Path, file: &Copied) -> Result<(), Error> {
    let path = backup.join(&file.name);
    let work = || {
        let mut from = File::open(&path)?;
        let (mut bytes, mut sum) = (0u64, 0);
        let mut buffer = vec![0; STEP];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok((bytes, sum)),
                read => {
                    sum = crc32c::crc32c_append(sum, &buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
    };
    let found =
        work().map_err(|error: io::Error| Error::io(format!("cannot read {}", path.display()), &error))?;
    if found != (file.bytes, file.sum) {
        return Err(Error::Corrupt(format!("{} is damaged: its checksum differs", path.display())));
    }
    Ok(())
}
