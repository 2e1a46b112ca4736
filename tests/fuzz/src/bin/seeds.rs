//! `fuzz-seeds FOLDER`: writes the seeds of each target into a folder of its name.

use frwr_fuzz::TARGETS;
use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err(io::Error::other("a folder is missing: fuzz-seeds FOLDER"));
    };
    for target in TARGETS {
        let folder = Path::new(&folder).join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
