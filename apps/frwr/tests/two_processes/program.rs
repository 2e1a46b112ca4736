//! A user's session: programs that find each other, and a folder for their files.

use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use tempfile::TempDir;

/// No multiple of any block size.
const FILE_BYTES: usize = 300_001;

/// Where programs of one test meet.
pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of this name, and its path as text.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.path(name);
        fs::write(&path, (0..FILE_BYTES).map(|at| (at * at / 7) as u8).collect::<Vec<_>>()).unwrap();
        path.display().to_string()
    }

    /// A file of so many zeros.
    pub(crate) fn zeros(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.display().to_string()
    }

    /// Names of what the programs left where they meet.
    pub(crate) fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("frwr")).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// A program on the software NIC. Cores sleep where nothing is said of that: several programs share a processor, and what polls on
    /// keeps it from what would answer.
    pub(crate) fn start(&self, words: &[&str]) -> Program {
        let device: &[&str] = if words.contains(&"--device") { &[] } else { &["--device", "soft"] };
        let fixed = ["--cores", "unpinned", "--pages", "plain", "--json"];
        // Not everything has memory of its own.
        let fixed = if words[0] == "discover" { &fixed[4..] } else { &fixed[..] };
        let sleeps = matches!(words[0], "serve" | "load") && !words.contains(&"--idle");
        let idle: &[&str] = if sleeps { &["--idle", "sleep"] } else { &[] };
        self.start_exactly(&[words, device, fixed, idle].concat())
    }

    pub(crate) fn start_exactly(&self, words: &[&str]) -> Program {
        self.start_in(words, &[])
    }

    /// With these variables as well.
    pub(crate) fn start_in(&self, words: &[&str], environment: &[(&str, &str)]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
        command.args(words).envs(environment.iter().copied());
        self.begin(command)
    }

    /// By a shell that does this first, to which the program is `$0` and the words are `$@`.
    pub(crate) fn start_by(&self, script: &str, words: &[&str]) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_frwr")]).args(words);
        self.begin(command)
    }

    fn begin(&self, mut command: Command) -> Program {
        command.env("XDG_RUNTIME_DIR", self.0.path()).env_remove("RUST_LOG");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in errors.lines() {
                // The test reads no further.
                let _ = sender.send(line.unwrap());
            }
        });
        Program { child, lines }
    }

    /// A target that listens.
    pub(crate) fn serve(&self, words: &[&str]) -> Program {
        let target = self.start(&[&["serve", "--listen", "127.0.0.1:4420"], words].concat());
        target.says("listening on 127.0.0.1:4420");
        target
    }

    /// A host.
    pub(crate) fn load(&self, words: &[&str]) -> Program {
        self.start(&[&["load", "--connect", "127.0.0.1:4420"], words].concat())
    }
}

/// One process; ended with its test.
pub(crate) struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Program {
    /// Waits until it says this on standard error; what it says instead, if it ends first.
    pub(crate) fn says(&self, text: &str) -> String {
        let mut all = Vec::new();
        for line in &self.lines {
            if line.contains(text) {
                return line;
            }
            all.push(line);
        }
        panic!("it never said {text:?}: {all:#?}")
    }

    /// Waits until it has said all of these, in any order.
    pub(crate) fn says_all(&self, texts: &[&str]) {
        let (mut all, mut left) = (Vec::new(), texts.to_vec());
        while !left.is_empty() {
            let Ok(line) = self.lines.recv() else { panic!("it never said {left:?}: {all:#?}") };
            left.retain(|text| !line.contains(text));
            all.push(line);
        }
    }

    /// Its number.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// It has not ended by itself.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it has said on standard error, and nobody has read.
    pub(crate) fn last_words(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(self) -> (Option<i32>, Value) {
        self.signal("TERM");
        self.ended()
    }

    pub(crate) fn signal(&self, name: &str) {
        // A builtin of every shell; programs of that name are not everywhere.
        let script = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    }

    /// SIGSTOP, and waits until it has stopped.
    pub(crate) fn stands_still(&self) {
        self.signal("STOP");
        let status = format!("/proc/{}/status", self.child.id());
        while !fs::read_to_string(&status).unwrap().contains("State:\tT") {}
    }

    /// Its exit code and its report.
    pub(crate) fn ended(mut self) -> (Option<i32>, Value) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code();
        let said: Vec<_> = self.lines.iter().collect();
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out:?}, {said:#?}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The report of a run that found nothing wrong.
pub(crate) fn passed((code, report): (Option<i32>, Value)) -> Value {
    assert_eq!(code, Some(0), "{report}");
    report
}

/// The same of a host that has verified what it moved.
pub(crate) fn verified(ended: (Option<i32>, Value)) -> Value {
    let report = passed(ended);
    assert_eq!(report["verified"], true, "{report}");
    report
}
