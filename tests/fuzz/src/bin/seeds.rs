//! `fuzz-seeds`: the targets, each with its share of the time. `fuzz-seeds FOLDER`: writes the seeds of each into a folder of its name.

use frwr_fuzz::TARGETS;
use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        TARGETS.iter().for_each(|target| println!("{} {}", target.name, target.share));
        return Ok(());
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
