//! `compare`, which `benches/run` starts, as a person or a script runs it: whoever reads what it prints may stop, or have no room.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Read as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// `benches/run` with a cargo that builds nothing: its exit code, what it printed, and what it said. Whether it went so far as to build, it said.
fn script(arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder =
        std::env::temp_dir().join(format!("frwr-no-cargo-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::create_dir_all(&folder).expect("it is ours");
    fs::write(folder.join("cargo"), "#!/bin/sh\nexit 1\n").expect("it is ours");
    fs::set_permissions(folder.join("cargo"), Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run");
    // Of its own, since whoever uses the same one at once is refused.
    let mut command = Command::new(script);
    command.args(arguments).env("PATH", path).env("CARGO_TARGET_DIR", folder.join("target"));
    let output = command.output().expect("it is there");
    fs::remove_dir_all(&folder).expect("it is ours");
    let [out, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), out, said)
}

/// Building takes minutes, and what it needs is installed before.
#[test]
fn wrong_arguments_are_refused_before_anything_is_built() {
    for (arguments, part) in [
        (&["A0"][..], "\"A0\""),
        (&["A1x"], "\"A1x\""),
        (&["a1"], "\"a1\""),
        (&["A1", ""], "\"\""),
        (&["A1 A2"], "\"A1 A2\""),
        (&["counts"], "groups: count, cores, guest"),
        (&["--jsonn"], "there is no option \"--jsonn\"; options: --boots N, --json"),
        (&["A1", "-x"], "\"-x\""),
        (&["--boots", "0"], "from 1 to 20"),
        (&["--boots=21"], "from 1 to 20"),
        (&["--boots", "many"], "\"many\""),
        (&["guest", "--boots"], "1 to 20"),
        (&["--guard", "--renew-counts"], "name one of them"),
        (&["--guard", "A1"], "leave A1 out"),
        (&["count", "--renew-counts"], "leave count out"),
        (&["--guard", "--json"], "leave --json out"),
        (&["--boots", "5", "--renew-counts"], "leave --boots out"),
        (&["--write-docs", "--guard"], "leave --write-docs out"),
        (&["A1", "--write-docs"], "leave A1 out"),
        (&["--write-docs", "guest"], "leave guest out"),
    ] {
        let (code, out, said) = script(arguments);
        assert_eq!((code, out.as_str(), said.matches('\n').count()), (Some(2), "", 1), "{arguments:?}: {said}");
        assert!(said.starts_with("benches/run: ") && said.contains(part), "{arguments:?}: {said}");
        assert!(said.ends_with("; `benches/run --help` lists what is accepted\n"), "{said}");
        assert_eq!(compare(arguments).output().expect("it ends").status.code(), Some(2), "{arguments:?}");
    }
}

/// Script and program are of one mind.
#[test]
fn what_the_program_accepts_the_script_does() {
    let help = String::from_utf8(compare(&["--help"]).output().expect("it ends").stdout).expect("it is text");
    let options: Vec<&str> =
        help.lines().filter_map(|line| line.trim_start().split(' ').find(|word| word.starts_with("--"))).collect();
    assert!(options.len() >= 5, "{help}");
    let (code, told, said) = script(&["--help"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(options.iter().all(|option| told.contains(option)), "{options:?} in {told}");
    for (flag, words) in [("--version", "benches/run "), ("-V", "benches/run "), ("-h", "ROW")] {
        let (code, out, said) = script(&[flag]);
        assert!((code, said.as_str()) == (Some(0), "") && out.contains(words), "{flag}: {out}{said}");
    }
    let version = compare(&["--version"]).output().expect("it ends").stdout;
    assert_eq!(script(&["--version"]).1.as_bytes(), version);
    let known = |said: &str| said.split(';').nth(1).map(str::to_owned);
    let rows = known(&String::from_utf8_lossy(&compare(&["A0"]).output().expect("it ends").stderr));
    assert!(rows.as_ref().is_some_and(|rows| rows.starts_with(" rows: A1 A2 ")), "{rows:?}");
    assert_eq!(known(&script(&["A0"]).2), rows);
    for arguments in [
        &[][..],
        &["A1", "A10", "A23"],
        &["count", "cores", "guest"],
        &["--json", "--boots", "20", "A7"],
        &["--json", "--write-docs", "--boots", "20"],
        &["--boots=5", "guest"],
        &["--guard"],
        &["--renew-counts"],
    ] {
        let (code, _, said) = script(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("the programs of benches did not build"), "{arguments:?}: {said}");
    }
}

/// By another name, and from any folder.
#[test]
fn the_script_finds_its_tree() {
    let link = std::env::temp_dir().join(format!("frwr-benches-run-{}", std::process::id()));
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("run"), &link).expect("it is ours");
    let output = Command::new(&link).arg("--version").current_dir("/").output().expect("it is there");
    fs::remove_file(&link).expect("it is ours");
    assert_eq!(String::from_utf8_lossy(&output.stdout), script(&["--version"]).1);
}

/// Two at once measure each other.
#[test]
fn another_one_at_work_is_told_of() {
    let target = std::env::temp_dir().join(format!("frwr-benches-lock-{}", std::process::id()));
    fs::create_dir_all(&target).expect("it is ours");
    let mut other = Command::new("flock")
        .arg(target.join("benches.lock"))
        .args(["sh", "-c", "echo locked; read -r _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Linux has it");
    let mut word = [0; 7];
    other.stdout.take().expect("it is piped").read_exact(&mut word).expect("it says so");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run");
    let output = Command::new(script).arg("A23").env("CARGO_TARGET_DIR", &target).output().expect("it ends");
    drop(other.stdin.take());
    other.wait().expect("it is ours");
    fs::remove_dir_all(&target).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.matches('\n').count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("benches/run: another one") && said.contains("benches.lock"), "{said}");
}

/// Without a network each `apt-get update` takes long; and one line says what is missing, not one for each package.
#[test]
fn packages_that_cannot_be_installed_are_asked_for_once_and_cost_only_their_rows() {
    let folder = std::env::temp_dir().join(format!("frwr-no-network-{}", std::process::id()));
    fs::create_dir_all(folder.join("target/release")).expect("it is ours");
    let fake = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it is ours");
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    };
    fake("cargo", "exit 0");
    fake("id", "echo 0");
    fake("dpkg-query", "exit 1");
    fake(
        "apt-get",
        "echo \"$1\" >> \"$(dirname \"$0\")/asked\"; [ \"$1\" = update ] || { echo no network >&2; exit 100; }",
    );
    fake("target/release/compare", "if [ \"$1\" = --needs ]; then echo count; else echo measured; fi");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("run"));
    command.arg("A1").env("PATH", path).env("CARGO_TARGET_DIR", folder.join("target"));
    let output = command.output().expect("it is there");
    let asked = fs::read_to_string(folder.join("asked")).unwrap_or_default();
    fs::remove_dir_all(&folder).expect("it is ours");
    let [out, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "measured\n"), "{said}");
    assert_eq!(asked.matches("update").count(), 1, "{asked}");
    let told: Vec<_> = said.lines().filter(|line| line.starts_with("benches/run: could not be installed: ")).collect();
    assert!(told.len() == 2 && told[0].ends_with(": libc6-dev"), "{said}");
    assert!(told[1].contains("libdpdk-dev libucx-dev"), "{said}");
}

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

/// A number that is too large is told its limit; `bytes` makes 64 more than it is told, and both fit in 16 bits.
#[test]
fn connections_beyond_what_there_can_be_are_told_the_limit() {
    for (mode, connections, most) in [
        ("bytes", "65472", "65471"),
        ("bytes", "65536", "65471"),
        ("one", "65536", "65535"),
        ("one", "0", "65535"),
        ("turns", "many", "65535"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_connections-cost")).args([mode, connections, "1"]).output();
        let output = output.expect("it is built");
        let said = String::from_utf8_lossy(&output.stderr);
        let told = format!("CONNECTIONS is {connections}, but must be 1 to {most}");
        assert!(!output.status.success() && said.contains(&told), "{mode} {connections}: {said}");
    }
}
