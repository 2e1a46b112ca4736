//! Flags of perftest, and some of fio: what they are called here, for whoever types them first.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

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
const FLAGS: [Flag; 41] = [
    flag(&["s", "bs", "msg-size"], true, "is --size here, such as --size 64K"),
    flag(&["a", "all"], false, "is --size here, with each size by name, such as --size 8,64,512,4K,64K"),
    flag(&["n", "iters"], true, "is --iterations here"),
    flag(&["D", "duration"], true, "is --runtime here, in seconds"),
    flag(&["run_infinitely"], false, "is --runtime here, up to 86400 seconds; Ctrl-C ends it with what there is"),
    flag(&["q", "qp", "numjobs"], true, "is --connections here, of each core; --cores for more cores"),
    flag(&["t", "tx-depth", "iodepth"], true, "is --depth here, of each connection; 1 unless it is said"),
    flag(&["r", "rx-depth"], true, "is not needed here: receives are as many as --depth needs; leave it out"),
    flag(&["l", "post_list"], true, "is --ranges here, or --rounds one with --depth, for one doorbell of several"),
    flag(&["d", "ib-dev"], true, "is --device here"),
    flag(&["i", "ib-port"], true, "is --ib-port here"),
    flag(&["x", "gid-index"], true, "is --gid-index here"),
    flag(&["p", "port"], true, "is part of HOST:PORT and --listen ADDRESS:PORT here"),
    flag(&["m", "mtu"], true, "is --mtu here"),
    flag(&["I", "inline_size"], true, "is --inline-size here"),
    flag(&["u", "qp-timeout"], true, "is --ack-timeout here"),
    flag(&["T", "tos", "tclass"], true, "is --traffic-class here"),
    flag(&["S", "sl"], true, "is not there; with RoCE v2 --traffic-class says the class"),
    flag(&["R", "rdma_cm"], false, "is not needed here: connections are always made by rdma_cm; leave it out"),
    flag(&["z", "comm_rdma_cm"], false, "is not needed here: connections are always made by rdma_cm; leave it out"),
    flag(
        &["F", "CPU-freq"],
        false,
        "is not needed here: a governor is warned of, and does not end a run; leave it out",
    ),
    flag(&["e", "events"], false, "is not there: completions are polled for"),
    flag(&["c", "connection"], true, "is not there: connections are always reliable (RC)"),
    flag(&["Q", "cq-mod"], true, "is not needed here: completions are as few as --depth lets them be; leave it out"),
    flag(&["N", "noPeak"], false, "is not needed here: there is no peak; leave it out"),
    flag(&["b", "bidirectional"], false, "is not there; --op send goes both ways"),
    flag(&["report-both", "report_both"], false, "is not there; MiB/s are of one direction"),
    flag(&["report_gbits"], false, "is not there: rates are in MiB/s, 0.00838861 Gbit/s each"),
    flag(&["H", "report-histogram"], false, "is not there; --hgrm FILE has the percentiles, --svg FILE their curve"),
    flag(&["U", "report-unsorted"], false, "is not there: a run is a histogram; --hgrm FILE has its percentiles"),
    flag(&["C", "report-cycles"], false, "is not there: times are in microseconds"),
    flag(&["rate_limit", "rate_iops"], true, "is --rate here, in requests per second of all cores"),
    flag(&["rate_units", "burst_size"], true, "is not there; --rate takes requests per second of all cores"),
    flag(&["perform_warm_up"], false, "is --warm-up here, in seconds; 0.5 unless it is said"),
    flag(&["use_hugepages"], false, "is --pages here; hugepages are taken where there are some"),
    flag(&["out_json"], false, "is --json here, on standard output"),
    flag(&["out_json_file"], true, "is --json here, on standard output; --csv FILE has the table"),
    flag(&["bind_source_ip"], true, "is --listen here, on the server"),
    flag(&["use_cuda", "use_rocm"], true, "is not there: memory is the processor's"),
    flag(&["rw", "readwrite"], true, "is --op here: read, write, send, register or request"),
    flag(
        &["cpu_util"],
        false,
        "is not needed here: the share of the time that a core was busy is always shown; leave it out",
    ),
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
    let plain = |error: &Error| crate::output::usage_line("frwr-latency", error);
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
    format!("{}; `frwr-latency --help` lists what is accepted", told.join("; "))
}
