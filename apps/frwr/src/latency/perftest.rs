//! Flags of perftest, and some of fio. Those that mean the same are taken; of the others is told what they are called here, for whoever
//! types them first.

use clap::{
    Args, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Flags of perftest that ask for what is so here anyhow: they are taken, and change nothing.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OfPerftest {
    /// Connections are made by rdma_cm.
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    rdma_cm: bool,
    /// The same.
    #[arg(short = 'z', long = "comm_rdma_cm", hide = true)]
    comm_rdma_cm: bool,
    /// A governor is warned of, and does not end a run.
    #[arg(short = 'F', long = "CPU-freq", hide = true)]
    cpu_freq: bool,
    /// No peak is looked for.
    #[arg(short = 'N', long = "noPeak", hide = true)]
    no_peak: bool,
    /// Rates are in Gbit/s beside MiB/s.
    #[arg(long = "report_gbits", hide = true)]
    report_gbits: bool,
    /// Hugepages are taken where there are some.
    #[arg(long = "use_hugepages", hide = true)]
    use_hugepages: bool,
    /// The share of the time that a core was busy is shown.
    #[arg(long = "cpu_util", hide = true)]
    cpu_util: bool,
    /// What is in front of the measurement is not counted.
    #[arg(long = "perform_warm_up", hide = true)]
    perform_warm_up: bool,
}

/// A flag of another program.
struct Flag {
    /// Its names, without dashes.
    names: &'static [&'static str],
    /// Something follows it that belongs to it.
    has_value: bool,
    /// What it is here.
    is: &'static str,
}

const fn flag(names: &'static [&'static str], has_value: bool, is: &'static str) -> Flag {
    Flag { names, has_value, is }
}

/// What follows a name in the line that tells of it.
const FLAGS: [Flag; 21] = [
    flag(&["bs"], true, "is --size here, such as --size 64K"),
    flag(&["numjobs"], true, "is --connections here, of each core; --cores for more cores"),
    flag(&["iodepth"], true, "is --depth here, of each connection; 1 unless it is said"),
    flag(&["r", "rx-depth"], true, "is not needed here: receives are as many as --depth needs; leave it out"),
    flag(&["l", "post_list"], true, "is --ranges here, or --rounds one with --depth, for one doorbell of several"),
    flag(&["S", "sl"], true, "is not there; with RoCE v2 --traffic-class says the class"),
    flag(&["e", "events"], false, "is not there: completions are polled for"),
    flag(&["c", "connection"], true, "is not there: connections are always reliable (RC)"),
    flag(&["Q", "cq-mod"], true, "is not needed here: completions are as few as --depth lets them be; leave it out"),
    flag(&["b", "bidirectional"], false, "is not there; --op send goes both ways"),
    flag(&["report-both", "report_both"], false, "is not there; MiB/s are of one direction"),
    flag(&["H", "report-histogram"], false, "is not there; --hgrm FILE has the percentiles, --svg FILE their curve"),
    flag(&["U", "report-unsorted"], false, "is not there: a run is a histogram; --hgrm FILE has its percentiles"),
    flag(&["C", "report-cycles"], false, "is not there: times are in microseconds"),
    flag(&["rate_limit", "rate_iops"], true, "is --rate here, in requests per second of all cores"),
    flag(&["rate_units", "burst_size"], true, "is not there; --rate takes requests per second of all cores"),
    flag(&["out_json"], false, "is --json here, on standard output"),
    flag(&["out_json_file"], true, "is --json here, on standard output; --csv FILE has the table"),
    flag(&["bind_source_ip"], true, "is --listen here, on the server"),
    flag(&["use_cuda", "use_rocm"], true, "is not there: memory is the processor's"),
    flag(&["rw", "readwrite"], true, "is --op here: read, write, send, register or request"),
];

fn known(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.names.contains(&name))
}

/// Flags of other programs on a command line, each with its dashes; `is_ours` is asked of long ones.
fn foreign(arguments: &[String], is_ours: impl Fn(&str) -> bool) -> Vec<(String, &'static Flag)> {
    let mut found = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            break;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if let Some(flag) = known(name).filter(|_| name.len() > 1 && !is_ours(name)) {
                found.push((format!("--{name}"), flag));
                if flag.has_value && value.is_none() {
                    rest.next();
                }
            }
        } else if let Some(short) = argument.strip_prefix('-') {
            for (at, letter) in short.char_indices() {
                let end = at + letter.len_utf8();
                let Some(flag) = known(&short[at..end]) else { break };
                found.push((format!("-{letter}"), flag));
                if flag.has_value {
                    if end == short.len() {
                        rest.next();
                    }
                    break;
                }
            }
        }
    }
    found
}

/// What is said of a wrong command line, by clap but for flags that other programs have: those are all told, with what they are here.
#[must_use]
pub fn explained(mut error: Error, arguments: &[String], command: &clap::Command) -> String {
    // Nothing that begins with a dash is a host.
    error.remove(ContextKind::Suggested);
    let plain = |error: &Error| crate::output::usage_line("frwr latency", error);
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return plain(&error) };
    if error.kind() != ErrorKind::UnknownArgument {
        return plain(&error);
    }
    let found = foreign(arguments, |name| command.get_arguments().any(|ours| ours.get_long() == Some(name)));
    // What is wrong may be something that nobody knows, beside what others know.
    if !found.iter().any(|(name, _)| wrong.starts_with(name.as_str())) {
        return plain(&error);
    }
    let mut told: Vec<String> = Vec::new();
    for (name, flag) in found {
        let told_of = format!("{name} {}", flag.is);
        if !told.contains(&told_of) {
            told.push(told_of);
        }
    }
    format!("{}; `frwr latency --help` lists what is accepted", told.join("; "))
}
