//! Rows in the virtual machine: the jobs of benches/guest, run by tests/vm/run in one boot.
//!
//! A job writes lines "KEY VALUE" into a file `figures`, one for each sample, "= KEY" when it has taken all of them, and "! KEY
//! reason" where it cannot.

use super::figure::{Figure, Measured};
use super::programs::{Places, ending_with_us, last_line};
use super::quantity::Quantity;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs of frwr that the jobs start.
const PROGRAMS: &[&str] = &["frwr"];
/// Peers in C, and what pkg-config is asked for.
const PEERS: &[(&str, &[&str])] = &[
    ("verbs_write", &["libibverbs"]),
    ("verbs_keys", &["libibverbs"]),
    ("verbs_request", &["libibverbs"]),
    ("ucx_keys", &["ucx"]),
];
/// Modules of UCX that it loads by itself, with the folder that they must lie in.
const UCX_MODULES: &[&str] = &["libuct_ib.so.0"];
const UCX_FOLDER: &str = "/usr/lib/x86_64-linux-gnu/ucx";
/// The peer that needs them.
const UCX_PEER: &str = "ucx_keys";
/// What the rig cannot do without, as a job would declare it.
const EMULATOR: &str = "# tools: qemu-system-x86_64:qemu-system-x86";
/// Begins the line of a job that names the tools which it needs from this machine, each as COMMAND:PACKAGE.
const TOOLS: &str = "# tools:";
/// Where Debian keeps tools that the PATH of an ordinary user does not have.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs the jobs that these figures come from.
pub(super) fn measure(places: &Places, quantities: &[Quantity]) -> Vec<(Quantity, Measured)> {
    if quantities.is_empty() {
        return Vec::new();
    }
    let mut jobs: Vec<&str> = quantities.iter().filter_map(|quantity| Some(key(quantity)?.0)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    // The rig gives up as a whole where a tool is missing; one job's tool is not to cost all the others.
    let mut left_out = Vec::new();
    jobs.retain(|job| match absent_tool(places, job) {
        Some(reason) => {
            eprintln!("guest: {job}: {reason}");
            left_out.push((*job, reason));
            false
        }
        None => true,
    });
    let outcome = if jobs.is_empty() { Ok(()) } else { run(places, &jobs) };
    let texts: Vec<(&str, String)> = jobs.iter().map(|job| (*job, figures_text(places, job))).collect();
    let measured =
        |quantity: &Quantity| match left_out.iter().find(|(job, _)| key(quantity).is_some_and(|of| of.0 == *job)) {
            Some((_, reason)) => Err(reason.clone()),
            None => figure(quantity, &texts, &outcome),
        };
    quantities.iter().map(|quantity| (*quantity, measured(quantity))).collect()
}

fn script(places: &Places, job: &str) -> PathBuf {
    places.root.join(format!("benches/guest/{job}.sh"))
}

/// Why a job cannot run here: a tool that it declares and that is not installed.
fn absent_tool(places: &Places, job: &str) -> Option<String> {
    // A job that cannot be read is the rig's to complain of.
    absent(&fs::read_to_string(script(places, job)).ok()?)
}

/// The first tool that such a text declares and that is not installed here.
fn absent(text: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect();
    missing(text, |tool| folders.iter().any(|folder| folder.join(tool).is_file()))
}

/// The first tool that a job declares and that is not present.
fn missing(job: &str, present: impl Fn(&str) -> bool) -> Option<String> {
    let tools = job.lines().filter_map(|line| line.strip_prefix(TOOLS)).flat_map(str::split_whitespace);
    let mut tools = tools.map(|tool| tool.split_once(':').unwrap_or((tool, tool)));
    let (tool, package) = tools.find(|(tool, _)| !present(tool))?;
    Some(format!("{tool} is not installed; it is in the package {package}"))
}

/// Job and name of a guest's figure.
fn key(quantity: &Quantity) -> Option<(&'static str, &'static str)> {
    let Quantity::Guest(key, _) = quantity else { return None };
    key.split_once('/')
}

fn figure(quantity: &Quantity, texts: &[(&str, String)], outcome: &Result<(), String>) -> Measured {
    let (Some((job, name)), Quantity::Guest(_, best)) = (key(quantity), quantity) else {
        return Err(format!("{} names no job of the guest", quantity.text()));
    };
    let text = texts.iter().find(|(of, _)| *of == job).map_or("", |(_, text)| text);
    match samples(text, name) {
        Ok((samples, true)) => {
            Figure::best_of(&samples, *best).ok_or_else(|| format!("job {job} has no sample of {name}"))
        }
        Ok((samples, false)) => {
            let reason = outcome.as_ref().err().cloned().unwrap_or_else(|| format!("job {job} did not take them all"));
            let taken = if samples.is_empty() { "no sample".to_owned() } else { format!("only {}", samples.len()) };
            Err(format!("{taken} of {name}: {reason}"))
        }
        Err(reason) => Err(reason),
    }
}

/// The samples of a figure and whether they are all, or why there are none.
fn samples(text: &str, name: &str) -> Result<(Vec<f64>, bool), String> {
    let (mut samples, mut all) = (Vec::new(), false);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("!"), Some(of)) if of == name => return Err(words.collect::<Vec<_>>().join(" ")),
            (Some("="), Some(of)) if of == name => all = true,
            (Some(of), Some(value)) if of == name => {
                let number = value.parse().ok().filter(|number: &f64| number.is_finite());
                samples.push(number.ok_or_else(|| format!("{name}: \"{value}\" is no number"))?);
            }
            _ => {}
        }
    }
    Ok((samples, all))
}

fn results(places: &Places, job: &str) -> PathBuf {
    places.target.join("vm/results").join(job)
}

fn figures_text(places: &Places, job: &str) -> String {
    fs::read_to_string(results(places, job).join("figures")).unwrap_or_default()
}

/// One boot with these jobs. An error is the reason for figures that are not there; others are as good as ever.
fn run(places: &Places, jobs: &[&str]) -> Result<(), String> {
    for job in jobs {
        // A figure of an earlier run must not be taken for this one's; of several boots the one before may have to be looked at.
        let earlier = results(places, job).with_extension("previous");
        let _ = fs::remove_dir_all(&earlier);
        if fs::rename(results(places, job), earlier).is_err() {
            let _ = fs::remove_dir_all(results(places, job));
        }
    }
    // Building takes minutes, and only then the rig would say so.
    if let Some(reason) = absent(EMULATOR) {
        return Err(reason);
    }
    build(places)?;
    let list = places.target.join("vm/benches.list");
    write_list(places, &list)?;
    let scripts = jobs.iter().map(|job| script(places, job));
    eprintln!("guest: {}", jobs.join(", "));
    let mut rig = ending_with_us(places.root.join("tests/vm/run"));
    rig.env("CARGO_TARGET_DIR", &places.target).arg("--programs").arg(&list).args(scripts);
    // Standard output is the table's.
    let output = rig.stderr(Stdio::inherit()).output().map_err(|error| format!("tests/vm/run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    eprint!("{text}");
    let told = |word: &str| text.lines().find(|line| line.starts_with(word)).map(str::to_owned);
    match told("SKIPPED: vm: ").or_else(|| told("FAILED: vm")) {
        Some(reason) => Err(reason),
        None if output.status.success() => Ok(()),
        None => Err(format!("tests/vm/run: {}", output.status)),
    }
}

/// In the same folder as the guest's tests, so that what they share is built once.
fn build(places: &Places) -> Result<(), String> {
    eprintln!("guest: building {}", PROGRAMS.join(", "));
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--release", "-p", "frwr", "--features", "verbs"]);
    cargo.args(PROGRAMS.iter().flat_map(|name| ["--bin", name]));
    cargo.current_dir(&places.root).env("CARGO_TARGET_DIR", places.target.join("guest"));
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the guest's programs did not build: {}", last_line(&output.stderr)))
}

/// A peer or module that is absent costs only its rows; the jobs say so when they miss it.
fn write_list(places: &Places, list: &Path) -> Result<(), String> {
    let mut lines = String::new();
    for name in PROGRAMS {
        let path = places.target.join("guest/release").join(name);
        if path.is_file() {
            lines += &format!("program {name} {}\n", path.display());
        }
    }
    let modules: Vec<_> = UCX_MODULES.iter().map(|name| (name, Path::new(UCX_FOLDER).join(name))).collect();
    let absent = modules.iter().find(|(_, path)| !path.is_file());
    for (name, packages) in PEERS {
        // The rig refuses a list that names a file which is not there.
        if *name == UCX_PEER
            && let Some((_, path)) = absent
        {
            eprintln!("guest: {name}: there is no {}", path.display());
            continue;
        }
        match places.guest_peer(name, packages) {
            Ok(path) => lines += &format!("program {name} {}\n", path.display()),
            Err(reason) => {
                eprintln!("guest: {name}: {reason}");
                continue;
            }
        }
        if *name == UCX_PEER {
            for (module, path) in &modules {
                lines += &format!("library ucx/{module} {}\n", path.display());
            }
        }
    }
    if let Some(folder) = list.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(list, lines).map_err(|error| format!("{}: {error}", list.display()))
}

#[cfg(test)]
mod tests {
    use super::super::figure::Best;
    use super::*;

    const TEXT: &str = "a 5\nab 7\na 4.5\n= a\nb x\n! c frwr: no such device\nd\n";

    #[test]
    fn samples_are_read_by_name() {
        for (name, expected) in [
            ("a", Ok((vec![5.0, 4.5], true))),
            ("ab", Ok((vec![7.0], false))),
            ("b", Err("b: \"x\" is no number".to_owned())),
            ("c", Err("frwr: no such device".to_owned())),
            ("d", Ok((Vec::new(), false))),
            ("e", Ok((Vec::new(), false))),
        ] {
            assert_eq!(samples(TEXT, name), expected, "{name}");
        }
    }

    #[test]
    fn a_job_is_left_out_for_a_tool_that_is_absent() {
        let job = "# Row A0.\n# tools: here:one gone:two\n# limit: 9\n";
        let reason = Some("gone is not installed; it is in the package two".to_owned());
        assert_eq!(missing(job, |tool| tool == "here"), reason);
        assert_eq!(missing(job, |_| true), None);
        assert_eq!(missing("# limit: 9\n", |_| false), None);
    }

    #[test]
    fn a_figure_that_is_not_there_has_the_runs_reason() {
        let texts = [("writes", TEXT.to_owned())];
        let of = |key, outcome: Result<(), String>| figure(&Quantity::Guest(key, Best::Least), &texts, &outcome);
        let broken = Err("the guest died".to_owned());
        assert_eq!(
            of("writes/a", broken.clone()),
            Ok(Figure { value: 4.5, spread: 5.0 / 4.5 - 1.0, ..Figure::default() })
        );
        assert_eq!(of("writes/e", broken), Err("no sample of e: the guest died".to_owned()));
        let few = Err("only 1 of ab: job writes did not take them all".to_owned());
        assert_eq!(of("writes/ab", Ok(())), few);
        let none = Err("no sample of a: job requests did not take them all".to_owned());
        assert_eq!(of("requests/a", Ok(())), none);
    }
}
