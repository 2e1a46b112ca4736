//! Files that runs leave, as somebody finds them in a folder afterwards: results, or nothing.

mod folder;

use folder::Folder;
use frwr::result_file::{ResultFile, lead_to_one};
use std::{
    fs::{self, OpenOptions},
    io::Read as _,
    os::unix::fs::{OpenOptionsExt as _, symlink},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

const LATENCY: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "latency"];
/// Of a folder that is empty.
const NONE: [PathBuf; 0] = [];
/// The program with what it is told to do.
const JOB: &[&str] = &[env!("CARGO_BIN_EXE_frwr")];
/// Within the program's limits, and more than the software NIC can do: the run fails after its files were looked at.
const TOO_MUCH: &[&str] = &["--size", "67108864"];

/// Ends with exit code, standard output and the lines of standard error.
fn told(output: Output) -> (Option<i32>, String, Vec<String>) {
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), out, err.lines().map(str::to_owned).collect())
}

fn latency(arguments: &[&str]) -> (Option<i32>, String, Vec<String>) {
    let short = ["--cores", "unpinned", "--iterations", "50", "--warm-up", "0"];
    told(Command::new(LATENCY[0]).args(&LATENCY[1..]).args(short).args(arguments).output().unwrap())
}

/// Moves the file `moved` of the folder.
fn reactor(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, Vec<String>) {
    fs::write(folder.path("moved"), [7; 10_000]).unwrap();
    let short = [&folder.path("moved"), "--runtime", "0"];
    let told = told(Command::new(JOB[0]).args(short).args(arguments).output().unwrap());
    fs::remove_file(folder.path("moved")).unwrap();
    told
}

impl Folder {
    fn named_pipe(&self) -> String {
        let path = self.path("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// Whoever forgot the reader is told so instead of waiting for ever.
#[test]
fn a_pipe_without_a_reader_is_refused_at_once() {
    let folder = Folder::new();
    let pipe = folder.named_pipe();
    for option in ["--csv", "--hgrm", "--svg"] {
        let (code, out, err) = latency(&[option, &pipe]);
        assert_eq!((code, out.as_str(), err.len()), (Some(1), "", 1), "{err:?}");
        assert!(
            err[0].starts_with(&format!("error: {option}: {pipe} cannot be written (it is a pipe that nobody reads: "))
        );
    }
    let (code, out, err) = reactor(&folder, &["--cores", "unpinned", "--trace", &pipe]);
    assert_eq!((code, out.as_str(), err.len()), (Some(1), "", 1), "{err:?}");
    assert!(err[0].contains("--trace") && err[0].contains("a pipe that nobody reads"), "{err:?}");
}

#[test]
fn a_pipe_with_a_reader_carries_the_results() {
    let folder = Folder::new();
    let pipe = folder.named_pipe();
    // There before the program starts, without a wait for it.
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let (code, _, err) = latency(&["--csv", &pipe]);
    assert_eq!((code, err), (Some(0), Vec::new()));
    let mut table = String::new();
    reader.read_to_string(&mut table).unwrap();
    assert_eq!(table.lines().count(), 3, "a head, all cores, and one: {table}");
}

/// Nobody reads the pipe: whoever opened it would wait.
#[test]
fn paths_are_compared_without_opening_them() {
    let folder = Folder::new();
    let (pipe, file, link) = (folder.named_pipe(), folder.path("file"), folder.path("link"));
    let one = |one: &str, other: &str| lead_to_one(one.as_ref(), other.as_ref());
    assert!(!one(&pipe, &file) && !one(&pipe, &pipe), "each writer adds to what is in a pipe");
    assert!(one(&file, &file), "where nothing is yet");
    symlink(&file, &link).unwrap();
    assert!(one(&file, &link), "a link to where nothing is yet");
    fs::write(&file, "").unwrap();
    assert!(one(&link, &file) && !one(&link, &folder.path("other")));
}

/// An empty file looks like a result of nothing.
#[test]
fn a_run_without_results_leaves_no_file() {
    let folder = Folder::new();
    let path = folder.path("results");
    let round_about = format!("{}/../{}/results", folder.path(""), folder.0.path().file_name().unwrap().display());
    for (code, arguments) in [
        (1, [TOO_MUCH, &["--csv", &path]].concat()),
        (1, vec!["--csv", &path, "--svg", "/nonexistent/a.svg"]),
        (2, vec!["--csv", &path, "--svg", &path]),
        (2, vec!["--csv", &path, "--svg", &round_about]),
    ] {
        let (ended, out, err) = latency(&arguments);
        assert_eq!((ended, out.as_str(), err.len()), (Some(code), "", 1), "{arguments:?}: {err:?}");
        assert_eq!(folder.files(), NONE, "{arguments:?}");
    }
    let (code, _, err) = reactor(&folder, &["--cores", "999", "--trace", &path]);
    assert_eq!((code, err.len()), (Some(2), 1), "{err:?}");
    assert_eq!(folder.files(), NONE);
}

#[test]
fn a_run_that_is_killed_leaves_no_file() {
    let folder = Folder::new();
    let mut child = Command::new(LATENCY[0])
        .args(&LATENCY[1..])
        .args(["--runtime", "3600", "--cores", "unpinned", "--csv", &folder.path("results")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Its reactors begin when the file has been looked at, beside the main thread and the one that waits for signals.
    let tasks = format!("/proc/{}/task", child.id());
    while fs::read_dir(&tasks).unwrap().count() < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(folder.files(), NONE);
}

/// Interrupted in its warm-up it has measured nothing: no rows of zeros.
#[test]
fn a_run_that_is_interrupted_before_its_first_request_leaves_no_file() {
    let folder = Folder::new();
    let [csv, hgrm, svg] = ["a.csv", "a.hgrm", "a.svg"].map(|name| folder.path(name));
    for sizes in ["8", "8,16"] {
        let files: &[&str] =
            if sizes == "8" { &["--csv", &csv, "--hgrm", &hgrm, "--svg", &svg] } else { &["--csv", &csv] };
        let child = Command::new(LATENCY[0])
            .args(&LATENCY[1..])
            .args(["--warm-up", "3600", "--cores", "unpinned", "--size", sizes])
            .args(files)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A builtin of every shell. Before its handlers are there a signal would end it: so it is asked until it has them.
        let script =
            format!("until grep -q '^SigCgt:.*[4-7c-f]...$' /proc/{0}/status; do :; done; kill -INT {0}", child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let (code, out, err) = told(child.wait_with_output().unwrap());
        assert_eq!((code, err), (Some(0), Vec::new()), "{out}");
        assert!(out.contains("nothing was measured") && !out.contains("t_typical"), "{out}");
        assert_eq!(folder.files(), NONE);
    }
}

#[test]
fn what_was_there_stays_until_there_are_results() {
    let folder = Folder::new();
    let path = folder.path("results");
    fs::write(&path, "old").unwrap();
    assert_eq!(latency(&[TOO_MUCH, &["--csv", &path]].concat()).0, Some(1));
    assert_eq!(reactor(&folder, &["--cores", "999", "--trace", &path]).0, Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(latency(&["--csv", &path]).0, Some(0));
    assert!(fs::read_to_string(&path).unwrap().starts_with("op,"));
}

/// Runs a program whose files may have so many units of 512 bytes, its standard output in `out`.
fn limited(units: u32, out: &str, program: &[&str], arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f \"$0\" && exec \"$@\"", &units.to_string()]).args(program).args(arguments);
    let (code, _, err) = told(shell.stdout(fs::File::create(out).unwrap()).output().unwrap());
    (code, err)
}

/// A part of the results looks like all of them, and a program that a signal ended (SIGXFSZ) says nothing at all.
#[test]
fn results_that_a_limit_of_file_sizes_cuts_are_an_error_and_no_part_of_them_stays() {
    let folder = Folder::new();
    let [path, out] = ["results", "out"].map(|name| folder.path(name));
    let short = ["--cores", "unpinned", "--iterations", "50", "--warm-up", "0"];
    let told = |code: Option<i32>, err: &[String], what: &str| {
        assert_eq!(code, Some(1), "{what}: {err:?}");
        assert!(err.last().is_some_and(|line| line.contains("too large")), "{what}: {err:?}");
    };
    let results = [&short[..], &["--svg", &path]].concat();
    // Room for the table, and for a part of the curve.
    let (code, err) = limited(8, &out, LATENCY, &results);
    told(code, &err, "new");
    assert!(!fs::exists(&path).unwrap());
    fs::write(&path, "old").unwrap();
    let (code, err) = limited(8, &out, LATENCY, &results);
    told(code, &err, "old");
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    // What is printed.
    let (code, err) = limited(1, &out, LATENCY, &short);
    told(code, &err, "table");
    for program in [LATENCY, JOB, &[JOB[0], "check"]] {
        let (code, err) = limited(0, &out, program, &["--help"]);
        told(code, &err, &program.join(" "));
    }
}

/// A run may take an hour, and its results are looked for by their name. What was put aside is to be kept.
#[test]
fn a_file_that_is_put_elsewhere_meanwhile_stays_as_it_is_and_results_are_where_they_belong() {
    let folder = Folder::new();
    let [path, aside] = ["results", "aside"].map(|name| folder.path(name));
    let results = || fs::read_to_string(&path).unwrap();
    fs::write(&path, "old").unwrap();
    let file = ResultFile::open(path.as_ref()).unwrap();
    fs::rename(&path, &aside).unwrap();
    file.replace(b"new").unwrap();
    assert_eq!((results(), fs::read_to_string(&aside).unwrap()), ("new".to_owned(), "old".to_owned()));
    let file = ResultFile::open(path.as_ref()).unwrap();
    fs::remove_file(&path).unwrap();
    file.replace(b"newer").unwrap();
    assert_eq!(results(), "newer");
    // As an editor saves it.
    let file = ResultFile::open(path.as_ref()).unwrap();
    fs::rename(&aside, &path).unwrap();
    file.begin().unwrap().write(b"new").unwrap();
    assert_eq!(results(), "new");
}

/// Each of both begins at the beginning of the file, and would write over the other; and what is there is somebody's.
#[test]
fn results_do_not_go_where_standard_output_or_standard_error_goes() {
    let folder = Folder::new();
    let path = folder.path("all");
    for (stream, program, arguments) in [
        ("1>>", LATENCY, "--iterations 50 --cores unpinned --csv"),
        ("1>>", LATENCY, "--iterations 50 --cores unpinned --csv /dev/null --svg"),
        ("2>>", LATENCY, "--iterations 50 --cores unpinned --json --hgrm"),
        ("1>>", JOB, "--runtime 0 --cores unpinned --trace"),
    ] {
        fs::write(&path, "old\n").unwrap();
        let by_its_stream = if stream == "1>>" { "/dev/stdout" } else { "/dev/stderr" };
        for named in [path.as_str(), by_its_stream] {
            let script = format!("{} {arguments} {named} {stream} {path}", program.join(" "));
            let (code, out, err) = told(Command::new("sh").args(["-c", &script]).output().unwrap());
            let all = fs::read_to_string(&path).unwrap() + &out + &err.join("\n");
            assert_eq!(code, Some(1), "{script}: {all}");
            assert!(all.starts_with("old\n") && all.contains("goes to that file"), "{script}: {all}");
            fs::write(&path, "old\n").unwrap();
        }
    }
    // A pipe keeps one behind the other.
    let (code, out, err) = latency(&["--csv", "/dev/stdout"]);
    assert_eq!((code, err), (Some(0), Vec::new()));
    assert!(out.starts_with("op,") && out.contains("t_typical"), "{out}");
}

/// What is moved is somebody's data.
#[test]
fn a_trace_does_not_overwrite_the_file_that_is_moved() {
    let folder = Folder::new();
    let link = folder.path("link");
    symlink("moved", &link).unwrap();
    fs::write(folder.path("moved"), "data").unwrap();
    for trace in [&folder.path("moved"), &link] {
        let arguments = [&folder.path("moved"), "--runtime", "0", "--cores", "unpinned", "--trace", trace];
        let (code, out, err) = told(Command::new(JOB[0]).args(arguments).output().unwrap());
        assert_eq!((code, out.as_str(), err.len()), (Some(2), "", 1), "{err:?}");
        assert!(err[0].contains("--trace is") && err[0].contains("the file to move"), "{err:?}");
        assert_eq!(fs::read_to_string(folder.path("moved")).unwrap(), "data");
    }
}

#[test]
fn a_link_to_a_file_that_is_not_there_makes_it_once_there_are_results() {
    let folder = Folder::new();
    let [target, link] = ["target", "link"].map(|name| folder.path(name));
    symlink("target", &link).unwrap();
    assert_eq!(latency(&[TOO_MUCH, &["--csv", &link]].concat()).0, Some(1));
    assert_eq!(folder.files(), [PathBuf::from(&link)]);
    assert_eq!(latency(&["--csv", &link, "--svg", &target]).0, Some(2));
    assert_eq!(latency(&["--csv", &link]).0, Some(0));
    assert!(fs::read_to_string(&target).unwrap().starts_with("op,") && fs::read_link(&link).is_ok());
}
