//! A verified load while somebody asks for its target's metrics ten times a second and reads no answer, beside the same
//! load by itself (goal A27: p99.9 within 2 %).
//!
//! Runs are short and take turns: a machine that is slow for a second is slow for both of a pair, or for one of many.
//! Every other pair has them in the opposite order. The target is `frwr serve`, the host `frwr load`, over the software
//! NIC.

use std::{
    collections::VecDeque,
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Of the namespace, which is in memory.
const BYTES: usize = 4 << 20;
/// How long a load counts: some ten thousand requests, and ten of those that ask.
const SECONDS: &str = "1";
/// Requests in flight.
const DEPTH: &str = "8";
/// Between two questions.
const PERIOD: Duration = Duration::from_millis(100);
/// Connections that are kept open, as many as a target keeps.
const KEPT: usize = 8;
const QUESTION: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n";

/// Where the cores of host and target are. All other threads, and who asks, are where the system puts them.
#[derive(Clone, Copy, Debug)]
struct Cores {
    target: &'static str,
    host: &'static str,
    /// What they do where nothing is to do.
    idle: &'static str,
}

impl Cores {
    fn of(word: &str) -> Result<Self, String> {
        match word {
            // The other processor is for who is no core, as where a machine has more processors than cores.
            "one" => Ok(Self { target: "1", host: "1", idle: "sleep:0" }),
            "two" => Ok(Self { target: "0", host: "1", idle: "spin" }),
            _ => Err(crate::arguments::unknown(word, "one, two")),
        }
    }
}

/// So many pairs.
///
/// # Errors
/// A text: what does not run, or a word that is none.
pub fn run(word: &str, pairs: u64) -> Result<String, String> {
    let cores = Cores::of(word)?;
    let program = env::current_exe().map_err(|error| format!("where this program is: {error}"))?.with_file_name("frwr");
    let folder = env::temp_dir().join(format!("frwr-metered-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let measured = Programs { program, folder: folder.clone(), cores }.measure(pairs);
    let _ = fs::remove_dir_all(&folder);
    let (ratios, answered) = measured?;
    told(ratios, answered)
}

fn told(mut ratios: Vec<f64>, answered: usize) -> Result<String, String> {
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios.get((ratios.len() * quarter / 4).min(ratios.len().saturating_sub(1))).copied();
    let (Some(low), Some(median), Some(high)) = (at(1), at(2), at(3)) else { return Err("no pair".to_owned()) };
    let pairs = ratios.len();
    // What nobody answered disturbed nobody.
    if answered < pairs {
        return Err(format!("{answered} questions were answered in {pairs} runs"));
    }
    Ok(format!("{pairs} pairs, {answered} answers, the middle half from {low:.3} to {high:.3}, ratio {median:.4}"))
}

/// Both halves, and where they meet.
struct Programs {
    program: PathBuf,
    folder: PathBuf,
    cores: Cores,
}

/// A target that listens; ended when it goes.
struct Server {
    child: Child,
    metrics: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Programs {
    /// The ratio of each pair, and how many questions were answered.
    fn measure(&self, pairs: u64) -> Result<(Vec<f64>, usize), String> {
        let server = self.serve()?;
        // What runs for the first time is slow by itself.
        self.load()?;
        let (mut ratios, mut answered) = (Vec::new(), 0);
        for pair in 0..pairs {
            let (mut alone, mut metered) = (0.0, 0.0);
            for asks in if pair % 2 == 0 { [false, true] } else { [true, false] } {
                if asks {
                    let (p999, answers) = self.load_metered(&server.metrics)?;
                    (metered, answered) = (p999, answered + answers);
                } else {
                    alone = self.load()?;
                }
            }
            ratios.push(metered / alone);
        }
        Ok((ratios, answered))
    }

    fn command(&self, half: &str, cores: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args([
            half,
            "--device",
            "soft",
            "--pages",
            "plain",
            "--cores",
            cores,
            "--idle",
            self.cores.idle,
            "--json",
        ]);
        command.args(more).env("XDG_RUNTIME_DIR", &self.folder).stdin(Stdio::null());
        command
    }

    fn serve(&self) -> Result<Server, String> {
        let text = |error: io::Error| format!("{}: {error}", self.program.display());
        let file = self.folder.join("namespace");
        fs::write(&file, vec![7; BYTES]).map_err(|error| format!("{}: {error}", file.display()))?;
        let more = ["--listen", "127.0.0.1:4420", "--metrics", "127.0.0.1:0", "--control", "none", "--namespace"];
        let mut command = self.command("serve", self.cores.target, &more);
        command.arg(file);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(text)?;
        let said = child.stderr.take();
        let mut server = Server { child, metrics: String::new() };
        let mut lines = BufReader::new(said.ok_or("it has no standard error")?).lines();
        let listening = lines.find_map(|line| line.ok().filter(|line| line.starts_with("listening on ")));
        let listening = listening.ok_or("frwr serve does not listen")?;
        let metrics = listening.split_once("metrics http://").and_then(|(_, rest)| rest.split_once('/'));
        metrics.ok_or_else(|| format!("no metrics: {listening}"))?.0.clone_into(&mut server.metrics);
        // It goes on saying what it does.
        thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }

    /// Its p99.9, in microseconds.
    fn load(&self) -> Result<f64, String> {
        let more = ["--connect", "127.0.0.1:4420", "--queue-depth", DEPTH, "--runtime", SECONDS];
        let output = self.command("load", self.cores.host, &more).output();
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let p999 = report["latency_us"]["p999"].as_f64().filter(|_| report["verified"] == true);
        p999.ok_or_else(|| format!("frwr load: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The same, and how many questions were answered.
    fn load_metered(&self, metrics: &str) -> Result<(f64, usize), String> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let asks = scope.spawn(|| ask(metrics, &over));
            let p999 = self.load();
            over.store(true, Relaxed);
            let answered = asks.join().map_err(|_| "who asks panicked")?;
            Ok((p999?, answered.map_err(|error| format!("metrics at {metrics}: {error}"))?))
        })
    }
}

/// Asks again and again, and reads no answer. Returns how many there were.
fn ask(metrics: &str, over: &AtomicBool) -> io::Result<usize> {
    let (mut kept, mut answered) = (VecDeque::with_capacity(KEPT), 0);
    while !over.load(Relaxed) {
        let mut stream = TcpStream::connect(metrics)?;
        stream.write_all(QUESTION)?;
        thread::sleep(PERIOD);
        answered += usize::from(is_answered(&stream)?);
        kept.push_back(stream);
        if kept.len() == KEPT {
            kept.pop_front();
        }
    }
    Ok(answered)
}

/// There is something to be read, which stays where it is.
fn is_answered(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    Ok(matches!(stream.peek(&mut [0]), Ok(1..)))
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn the_median_counts_and_what_nobody_answered_counts_nothing() {
        let line = told(vec![1.5, 0.5, 1.01, 1.0, 1.02], 40).unwrap();
        assert_eq!(line, "5 pairs, 40 answers, the middle half from 1.000 to 1.020, ratio 1.0100");
        assert!(told(vec![1.0; 5], 4).is_err() && told(Vec::new(), 0).is_err());
    }
}
