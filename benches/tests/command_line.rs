//! `compare`, which `benches/run` starts, as a person or a script runs it: whoever reads what it prints may stop, or have no room.

use std::{
    fs::OpenOptions,
    process::{Command, Stdio},
};

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(arguments).stderr(Stdio::piped());
    command
}

#[test]
fn a_reader_that_stops_is_no_failure_and_a_full_disk_is_one() {
    for arguments in [["--help", "A1"], ["--needs", "A1"]] {
        let mut child = compare(&arguments).stdout(Stdio::piped()).spawn().expect("it is there");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{arguments:?}");

        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let output = compare(&arguments).stdout(full).output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.matches('\n').count()), (Some(1), 1), "{arguments:?}: {said}");
        assert!(said.starts_with("benches/run: standard output cannot be written ("), "{said}");
    }
}

#[test]
fn rows_are_refused_where_all_are_counted_anyhow() {
    for flag in ["--guard", "--renew-counts"] {
        let output = compare(&["A1", flag]).output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.matches('\n').count()), (Some(2), 1), "{said}");
        assert!(said.contains(flag) && said.contains("leave ROW out"), "{said}");
    }
}
