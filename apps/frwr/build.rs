//! Says which commit the program is built from, for `frwr --version`: of a checkout by git, of a published package by what cargo packs
//! into it, and else nothing.

use std::{env, fs, path::Path, process::Command};

/// What cargo packs into a published package.
const PACKED: &str = ".cargo_vcs_info.json";
/// Hexadecimal digits that name a commit.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(commit) = packed().or_else(checked_out) {
        println!("cargo::rustc-env=FRWR_COMMIT={}", &commit[..DIGITS]);
    }
}

fn packed() -> Option<String> {
    let text = fs::read_to_string(PACKED).ok()?;
    let behind = text.split_once("\"sha1\":")?.1;
    commit(behind.split('"').nth(1)?)
}

fn checked_out() -> Option<String> {
    // A package that was unpacked into somebody else's checkout is not of its commits.
    let folder = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../../.git");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("--git-dir").arg(&folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let name = git(&["rev-parse", "HEAD"])?;
    // Of each commit, checkout and pull a line is written there, of a work tree in a folder of its own. Cargo takes a file that is not there
    // for one that has changed, and would build the program again each time: so nothing is named where there is no checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    commit(&name)
}

fn commit(name: &str) -> Option<String> {
    (name.len() >= DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| name.to_owned())
}
