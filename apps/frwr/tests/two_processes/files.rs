//! The file of a target: saved, served again, applied, and read again at a signal.

use super::program::{Machine, Program, passed, verified};
use frwr_support::storage_harness::{
    disks::skipped,
    foreign::{Foreign, NBDKIT_FILE},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Child, Command, Stdio},
};

const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:file";

/// A machine with a target that was told by a file.
struct Configured {
    machine: Machine,
    /// The text of its file, which can be added to.
    text: String,
}

impl Configured {
    fn new() -> Self {
        let machine = Machine::new();
        let file = machine.file("file");
        let text = format!(
            "device = \"soft\"\nlisten = \"127.0.0.1:4420\"\ncores = \"unpinned:2\"\npages = \"plain\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n[[subsystem.namespace]]\nload = {file:?}\n"
        );
        Self { machine, text }
    }

    fn path(&self, name: &str) -> String {
        self.machine.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.machine.path(name), text).unwrap();
        self.path(name)
    }

    fn serve(&self, config: &str) -> Program {
        let target = self.machine.start_exactly(&["serve", "--config", config, "--json"]);
        target.says("listening on 127.0.0.1:4420");
        target
    }

    /// What it answers: exit code, standard output and standard error.
    fn ctl(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
        command.arg("ctl").args(words).env("XDG_RUNTIME_DIR", self.machine.path("")).env_remove("RUST_LOG");
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn done(&self, words: &[&str]) -> String {
        let (code, out, error) = self.ctl(words);
        assert_eq!(code, Some(0), "{words:?}: {error}");
        out
    }

    fn ask(&self, method: &str) -> Value {
        serde_json::from_str(&self.done(&["--json", method])).unwrap()
    }
}

#[test]
fn a_target_that_was_changed_is_saved_and_served_again_as_it_was() {
    let here = Configured::new();
    let target = here.serve(&here.write("first.toml", &here.text));
    let disk = here.machine.zeros("disk", 1 << 20);
    let (of, other) = (format!("subsystem={SUBSYSTEM}"), "subsystem=nqn.2026-11.invalid.frwr:other");
    let file = format!("file={disk}");
    for words in [
        &["add_namespace", &of, "namespace=5", &file, "bytes=512K", "backing=thread"][..],
        &["add_namespace", &of, "namespace=3", "memory=2M", "nguid=0123456789abcdef0123456789abcdef"],
        &["resize_namespace", &of, "namespace=3", "bytes=1M"],
        &["set_namespace_active", &of, "namespace=5", "active=false"],
        &["remove_namespace", &of, "namespace=1"],
        &["add_subsystem", other, "hosts=[\"nqn.2026-11.x:h\"]", "serial=S 1"],
        &["set_ana_state", other, "state=inaccessible"],
    ] {
        here.done(words);
    }
    let (first, second) = (here.path("a.toml"), here.path("b.toml"));
    // What was there is replaced, also through a link.
    fs::write(&first, "x".repeat(1 << 16)).unwrap();
    symlink(&first, here.machine.path("link")).unwrap();
    assert_eq!(
        here.done(&["--json", "save", &here.path("link")]),
        format!("{}\n", json!({ "saved": here.path("link") }))
    );
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let made = here.write("made", "");
    assert_eq!(mode(&first), mode(&made), "as the umask lets it");
    assert!(fs::symlink_metadata(here.machine.path("link")).unwrap().is_symlink());
    assert_eq!(here.done(&["save"]), fs::read_to_string(&first).unwrap());
    let state = |here: &Configured| {
        let facts = |mut list: Value, key: &str, names: &[&str]| -> Vec<Vec<Value>> {
            let all = list[key].take();
            all.as_array().unwrap().iter().map(|one| names.iter().map(|name| one[name].clone()).collect()).collect()
        };
        let names = ["subsystem", "namespace", "active", "blocks", "block_bytes", "read_only", "medium", "kind"];
        let subsystems = facts(here.ask("subsystems"), "subsystems", &["nqn", "serial", "allowed_hosts", "ana_state"]);
        (subsystems, facts(here.ask("namespaces"), "namespaces", &names))
    };
    let before = state(&here);
    passed(target.stop());
    let target = here.serve(&first);
    assert_eq!(state(&here), before);
    here.done(&["save", &second]);
    assert_eq!(fs::read_to_string(&second).unwrap(), fs::read_to_string(&first).unwrap());
    // It has more than hosts see, and gives it.
    here.done(&["resize_namespace", &of, "namespace=3", "bytes=2M"]);
    here.done(&["resize_namespace", &of, "namespace=5"]);
    assert_eq!(state(&here).1[1][3], 256);
    passed(target.stop());
}

#[test]
fn what_is_saved_of_listeners_ana_groups_and_exports_is_served_again_and_is_the_same() {
    let here = Configured::new();
    let target = here.serve(&here.write("first.toml", &here.text));
    let (of, second) = (format!("subsystem={SUBSYSTEM}"), "address=127.0.0.2:4421");
    for words in [
        &["add_listener", second][..],
        &["add_namespace", &of, "namespace=2", "memory=64K", "ana_group=2"],
        &["set_ana_state", &of, "state=inaccessible"],
        &["set_ana_state", &of, "group=1", "state=non_optimized"],
        // One that has no namespaces.
        &["set_ana_state", &of, "group=9", "state=change"],
    ] {
        here.done(words);
    }
    let nbdkit = Foreign::nbdkit(NBDKIT_FILE, &[]);
    if let Some(nbdkit) = &nbdkit {
        let uri = format!("nbd=nbd+unix:///?socket={}&x-patience=7", nbdkit.socket().display());
        here.done(&["add_namespace", &of, "namespace=3", &uri, "ana_group=1"]);
    }
    let (saved, again) = (here.path("saved.toml"), here.path("again.toml"));
    here.done(&["save", &saved]);
    assert_eq!(here.done(&["apply", &saved, "--dry-run"]), "nothing differs\n");
    let state = |here: &Configured| {
        let facts = |mut list: Value, key: &str, names: &[&str]| -> Vec<Vec<Value>> {
            let all = list[key].take();
            all.as_array().unwrap().iter().map(|one| names.iter().map(|name| one[name].clone()).collect()).collect()
        };
        [
            facts(here.ask("listeners"), "listeners", &["address", "port_id", "state"]),
            facts(here.ask("subsystems"), "subsystems", &["nqn", "ana_state", "ana_groups"]),
            facts(here.ask("namespaces"), "namespaces", &["namespace", "medium", "kind", "blocks", "ana_group"]),
        ]
    };
    let before = state(&here);
    assert_eq!((before[0].len(), before[2].len()), (2, if nbdkit.is_some() { 3 } else { 2 }), "{before:?}");
    passed(target.stop());
    let target = here.serve(&saved);
    assert_eq!(state(&here), before);
    target.signal("HUP");
    target.says("the file is read again: nothing differs");
    target.says("the target is as the file says");
    here.done(&["save", &again]);
    assert_eq!(fs::read_to_string(&again).unwrap(), fs::read_to_string(&saved).unwrap());
    // And back to what it was at first, by the file that it was started with.
    here.write("saved.toml", &here.text);
    target.signal("HUP");
    target.says("the target is as the file says");
    assert_eq!(here.done(&["apply", &here.path("first.toml"), "--dry-run"]), "nothing differs\n");
    assert_eq!(here.ask("status")["listen"], json!(["127.0.0.1:4420"]));
    passed(target.stop());
}

#[test]
fn who_saves_where_no_file_can_be_changes_nothing() {
    let here = Configured::new();
    let target = here.serve(&here.write("first.toml", &here.text));
    for (path, says) in
        [("/nonexistent/a.toml", "No such file"), ("/dev/null", "no regular file"), (&here.path(""), "no regular file")]
    {
        let (code, out, error) = here.ctl(&["save", path]);
        assert!(code == Some(1) && out.is_empty() && error.contains(says) && error.contains("leave it out"), "{error}");
    }
    for (words, says) in [
        (&["apply"][..], "takes one file"),
        (&["apply", "a", "b"], "takes one file"),
        (&["save", "a", "b"], "one file at most"),
        (&["status", "--dry-run"], "--dry-run is for apply"),
    ] {
        let (code, _, error) = here.ctl(words);
        assert!(code == Some(2) && error.contains(says), "{words:?}: {error}");
    }
    assert_eq!(here.done(&["save", "-"]), here.done(&["save"]));
    let (code, _, error) = here.ctl(&["apply", "/nonexistent/a.toml"]);
    assert!(code == Some(1) && error.contains("apply: \"/nonexistent/a.toml\" cannot be read"), "{error}");
    passed(target.stop());
}

#[test]
fn a_file_is_shown_and_then_applied_while_a_host_loads() {
    let here = Configured::new();
    let target = here.serve(&here.write("first.toml", &here.text));
    let file = here.path("file");
    let bytes = fs::metadata(&file).unwrap().len().to_string();
    let host = here.machine.load(&["--bytes", &bytes, "--runtime", "3600"]);
    host.says("load");
    let disk = here.machine.zeros("disk", 1 << 20);
    let after = here.write("after.toml", &format!("{}[[subsystem.namespace]]\nfile = {disk:?}\n", here.text));
    let line = format!("+ namespace 2 of {SUBSYSTEM}: {disk}");
    assert_eq!(here.done(&["apply", &after, "--dry-run"]), format!("{line}\n"));
    assert_eq!(here.ask("status")["namespaces"], 1);
    let (code, out, said) = here.ctl(&["--json", "apply", &after]);
    assert_eq!((code, said), (Some(0), format!("{line}\n")));
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!({ "changed": true, "complete": true, "changes": [line] })
    );
    assert_eq!(here.done(&["apply", &after, "--dry-run"]), "nothing differs\n");
    let (code, _, error) = here.ctl(&["apply", &here.write("wrong.toml", &format!("{}hosts = 5\n", "x = 1\n"))]);
    assert!(code == Some(2) && error.contains("wrong.toml:1: x: unknown field"), "{error}");
    let other = here.text.replace("pages = \"plain\"", "pages = \"auto\"");
    let (code, _, error) = here.ctl(&["apply", &here.write("other.toml", &other)]);
    assert!(code == Some(1) && error.contains("pages is \"auto\", and \"plain\" in what runs"), "{error}");
    let report = verified(host.stop());
    assert_eq!(report["reconnects"], 0, "{report}");
    passed(target.stop());
}

#[test]
fn a_hangup_has_the_file_read_again() {
    let here = Configured::new();
    let config = here.write("serve.toml", &here.text);
    let target = here.serve(&config);
    target.signal("HUP");
    target.says("the file is read again: nothing differs");
    target.says("the target is as the file says");
    let disk = here.machine.zeros("disk", 1 << 20);
    let more = format!("{}[[subsystem.namespace]]\nfile = {disk:?}\n", here.text);
    here.write("serve.toml", &more);
    target.signal("HUP");
    target.says("the file is read again: 1 changes");
    target.says(&format!("+ namespace 2 of {SUBSYSTEM}: {disk}"));
    target.says("the target is as the file says");
    for (text, says) in [
        (format!("{more}[[subsystem.namespace]]\ncolour = 1\n"), "serve.toml:12: "),
        (more.replace("unpinned:2", "unpinned:1"), "cores is \"unpinned\", and \"unpinned:2\" in what runs"),
        (String::new(), "the size of --config is 0"),
    ] {
        here.write("serve.toml", &text);
        target.signal("HUP");
        let line = target.says(says);
        assert!(line.starts_with("warning: ") || line.ends_with("nothing was changed"), "{line}");
    }
    fs::remove_file(Path::new(&config)).unwrap();
    target.signal("HUP");
    target.says("cannot be read");
    assert_eq!(here.ask("status")["namespaces"], 2);
    passed(target.stop());
}

/// Holds a lease on a file (fcntl(2), F_SETLEASE): who opens it waits until that is given up, at least half a minute.
struct Leased(Child);

impl Leased {
    const SCRIPT: &str = r#"$SIG{IO} = "IGNORE"; open(my $file, "+<", $ARGV[0]) or die; fcntl($file, 1024, 1) or die "$!";
                           $| = 1; print "held\n"; <STDIN>"#;

    /// `None` where it cannot be had.
    fn of(path: &str) -> Option<Self> {
        let mut command = Command::new("perl");
        command.args(["-e", Self::SCRIPT, path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(command.spawn().ok()?);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (line == "held\n").then_some(holder)
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_that_takes_long_to_be_opened_is_read_again_while_who_asks_is_answered() {
    let here = Configured::new();
    let config = here.write("serve.toml", &here.text);
    let target = here.serve(&config);
    let Some(lease) = Leased::of(&config) else {
        return skipped("a lease on a file: perl, or a file system with leases");
    };
    target.signal("HUP");
    let is_read =
        |status: &Value| status["awaited_medium"]["medium"].as_str().is_some_and(|name| name.contains("serve.toml"));
    while !is_read(&here.ask("status")) {}
    drop(lease);
    target.says("the file is read again: nothing differs");
    target.says("the target is as the file says");
    assert_eq!(here.ask("status")["awaited_medium"], Value::Null);
    passed(target.stop());
}

#[test]
fn without_a_file_a_hangup_is_said_once_and_ends_nothing() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--namespace", &file]);
    target.signal("HUP");
    target.says("there is no file to read again");
    target.signal("HUP");
    target.signal("USR1");
    // Up to the report, whatever else happens on the machine.
    loop {
        let line = target.says("");
        assert!(!line.contains("no file to read again"), "it was said: {line}");
        if line.starts_with('{') {
            break;
        }
    }
    passed(target.stop());
}
