//! Peers in C can be read by hand: each is one file of under 100 lines, and the README beside them has all.

use std::{fs, path::Path};

/// Lines of a program that somebody still reads.
const MOST_LINES: usize = 99;

#[test]
fn each_peer_is_short_and_described() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("it is there");
    let readme = text("README.md");
    let names: Vec<String> = fs::read_dir(&folder)
        .expect("it is there")
        .map(|entry| entry.expect("it is listed").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        let lines = text(name).lines().count();
        assert!(lines <= MOST_LINES, "{name} has {lines} lines");
        let program = name.strip_suffix(".c").unwrap_or(name);
        assert!(readme.contains(&format!("`{program}")), "{name} is not in the README");
    }
}
