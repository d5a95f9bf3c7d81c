//! A directory that is closed to others: keys, passwords and data lie in it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::Uid;

/// How the names of everything that is ours in a data directory begin.
const OURS: [&str; 4] = ["towpath", "server.json", "streams", "postgres"];

/// Makes the data directory, closed to others. One that was there with wider modes is closed
/// too, if it is ours and nothing else's.
///
/// # Errors
///
/// It cannot be made or looked at.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    // Run by root, PostgreSQL has a user of its own, who must pass through; nobody may look.
    let wanted = if Uid::effective().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(wanted).create(dir)?;
    let meta = fs::metadata(dir)?;
    let mode = meta.mode() & 0o7777;
    if mode & 0o777 & !wanted == 0 {
        return Ok(());
    }
    let shown = dir.display();
    if meta.uid() != Uid::effective().as_raw() || !is_ours(dir)? {
        tracing::warn!(
            "others may look into the data directory {shown} (mode {mode:o}); choose one for towpath alone with --data"
        );
        return Ok(());
    }
    fs::set_permissions(dir, Permissions::from_mode(mode & (0o7000 | wanted)))?;
    tracing::warn!(
        "others could look into the data directory {shown} (mode {mode:o}); it is closed to them now"
    );
    Ok(())
}

/// Whether a directory holds nothing but a server's data, if anything.
fn is_ours(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            return Ok(false);
        }
    }
    Ok(true)
}
