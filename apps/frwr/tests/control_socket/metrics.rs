//! Metrics, as what collects them sees them.

use super::{FILE_BYTES, SUBSYSTEM, Target};
use clap::Parser as _;
use frwr::runner::ServeConfig;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// What is got over HTTP: its head, and the text.
pub(super) fn got(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(super) fn scraped(address: SocketAddr) -> Samples {
    let wanted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let (head, text) = got(address, &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {wanted}\r\n\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", text.len())), "{head}");
    samples(&text)
}

/// Figures by name and labels as they stand in the text.
type Samples = HashMap<String, f64>;

fn is_name(name: &str) -> bool {
    name.starts_with("frwr_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Reads OpenMetrics text, and checks what `promtool check metrics` and the standard want of it: each family once, with its help and type
/// in front, its samples together, counters with `_total`, units as the end of names, no sample twice, histograms that grow to the count of all,
/// and an end.
fn samples(text: &str) -> Samples {
    let (mut samples, mut families) = (Samples::new(), HashSet::new());
    let (mut family, mut kind, mut bucket) = (String::new(), String::new(), 0.0);
    let body = text.strip_suffix("# EOF\n").expect("it ends");
    for line in body.lines() {
        if let Some(said) = line.strip_prefix("# ") {
            let mut words = said.splitn(3, ' ');
            let (what, name, value) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => {
                    assert!(is_name(name) && families.insert(name.to_owned()), "{line}");
                    assert!(value.ends_with('.'), "{line}");
                    (family, kind) = (name.to_owned(), String::new());
                }
                "TYPE" => {
                    assert!(name == family && ["counter", "gauge", "histogram"].contains(&value), "{line}");
                    assert!(!name.ends_with("_total"), "{line}");
                    kind = value.to_owned();
                }
                "UNIT" => assert!(name == family && name.ends_with(&format!("_{value}")), "{line}"),
                other => panic!("{other}: {line}"),
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let expected: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_sum", "_count", "_bucket"],
            _ => &[""],
        };
        assert!(name.strip_prefix(&family).is_some_and(|end| expected.contains(&end)), "{line} in {family}");
        let value: f64 = value.parse().unwrap();
        if name.ends_with("_bucket") {
            assert!(value >= core::mem::replace(&mut bucket, value), "{line} is below the one in front of it");
            if sample.contains("le=\"+Inf\"") {
                let count = sample.replace("_bucket{", "_count{").replace("le=\"+Inf\",", "");
                assert_eq!((samples[&count], core::mem::take(&mut bucket)), (value, value), "{line}");
            }
        }
        assert!(value >= 0.0 && samples.insert(sample.to_owned(), value).is_none(), "{line}");
    }
    samples
}

#[test]
fn a_scrape_has_what_the_cores_and_namespaces_did() {
    let target = Target::start(2);
    let before = scraped(target.metrics);
    assert_eq!(before["frwr_listener_up{address=\"127.0.0.1:4420\"}"], 1.0);
    assert_eq!(before["frwr_io_bytes_total{command=\"read\"}"], 0.0);
    let host = target.host("3600");
    target.client().until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    let during = scraped(target.metrics);
    let namespace = format!("{{subsystem=\"{SUBSYSTEM}\",namespace=\"1\"}}");
    assert!(during["frwr_io_bytes_total{command=\"read\"}"] >= FILE_BYTES as f64, "{during:?}");
    assert!(during[&format!("frwr_namespace_operations_total{namespace}")] > 0.0, "{during:?}");
    assert!(during[&format!("frwr_namespace_size_bytes{namespace}")] >= FILE_BYTES as f64, "{during:?}");
    let command = format!("subsystem=\"{SUBSYSTEM}\",namespace=\"1\",command");
    let latency = |what: &str| format!("frwr_namespace_latency_seconds_{what}{{{command}=\"read\"}}");
    let reads = during["frwr_io_commands_total{command=\"read\"}"];
    assert!(during[&latency("count")] > 0.0 && during[&latency("sum")] > 0.0, "{during:?}");
    assert!(during[&latency("count")] <= reads, "{reads}: {during:?}");
    let is_bucket = |name: &&String| {
        name.starts_with("frwr_namespace_latency_seconds_bucket{") && name.contains(&format!("{command}=\"read\""))
    };
    let ends = during.keys().filter(is_bucket);
    assert_eq!(ends.count(), frwr_nvmf::controller::LATENCIES);
    assert!(during.contains_key(
        "frwr_reactor_long_iterations_by_length_total{reactor=\"0\",cpu=\"unpinned\",up_to=\"1.31072\"}"
    ));
    assert_eq!(during.keys().filter(|name| name.starts_with("frwr_controller_ready{")).count(), 1);
    assert!(during.keys().any(|name| name.starts_with("frwr_queue_commands_in_flight{")), "{during:?}");
    for reactor in 0..2 {
        let name = |what: &str| format!("frwr_reactor_{what}{{reactor=\"{reactor}\",cpu=\"unpinned\"}}");
        assert_eq!(during[&name("answered")], 1.0);
        assert!(during[&name("iterations_total")] > before[&name("iterations_total")]);
        let poller = format!("frwr_poller_polls_total{{reactor=\"{reactor}\",poller=\"target\"}}");
        assert!(during[&poller] > before[&poller]);
    }
    // Whatever counts goes up.
    for (name, value) in before.iter().filter(|(name, _)| name.split('{').next().unwrap().ends_with("_total")) {
        assert!(during[name] >= *value, "{name}");
    }
    host.end().unwrap();
    target.end();
}

#[test]
fn the_socket_has_the_same_figures() {
    let target = Target::start(1);
    let (of_socket, of_port) = (target.client().ask("metrics"), scraped(target.metrics));
    let of_socket = samples(of_socket.as_str().unwrap());
    let names = |samples: &Samples| samples.keys().cloned().collect::<HashSet<_>>();
    assert_eq!(names(&of_socket), names(&of_port));
    target.end();
}

#[test]
fn a_reader_that_never_reads_and_one_that_asks_for_something_else_harm_nobody() {
    let target = Target::start(1);
    let deaf: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(target.metrics).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    assert!(got(target.metrics, "GET /etc/passwd HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(got(target.metrics, "DELETE /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    scraped(target.metrics);
    target.client().ask("status");
    drop(deaf);
    target.end();
}

#[test]
fn metrics_for_other_machines_have_to_be_asked_for() {
    let config = |metrics: &[&str]| {
        let fixed = ["frwr", "serve", "--device", "test", "--listen", "127.0.0.1:4420", "--namespace", "x"];
        let line = frwr::CommandLine::try_parse_from([&fixed[..], metrics].concat()).unwrap();
        let Some(frwr::Task::Serve(arguments)) = line.task else { panic!() };
        ServeConfig::new(arguments).map(|_| ()).map_err(|error| (error.exit_code(), error.to_string()))
    };
    let (code, told) = config(&["--metrics", "0.0.0.0:9100"]).unwrap_err();
    assert!(code == 2 && told.contains("0.0.0.0:9100") && told.contains("--metrics-anywhere"), "{told}");
    assert_eq!(config(&["--metrics", "0.0.0.0:9100", "--metrics-anywhere"]), Ok(()));
    assert_eq!(config(&["--metrics", "[::1]:9100"]), Ok(()));
}

/// Each name that the dashboard asks for is one that is told.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let target = Target::start(1);
    let host = target.host("3600");
    target.client().until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    let samples = scraped(target.metrics);
    let dashboard: Value = serde_json::from_str(include_str!("../../../../docs/grafana.json")).unwrap();
    let names: HashSet<_> = samples.keys().map(|sample| sample.split('{').next().unwrap()).collect();
    let panels = dashboard["panels"].as_array().unwrap();
    let of_panel = |panel: &Value| panel["targets"].as_array().unwrap().clone();
    let asked: Vec<_> = panels.iter().flat_map(of_panel).map(|target| target["expr"].to_string()).collect();
    assert!(asked.len() > panels.len(), "{asked:?}");
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    for expression in &asked {
        let at = expression.find("frwr_").unwrap();
        let name = expression[at..].split(|letter| !is_letter(letter)).next().unwrap();
        // Nothing has failed.
        assert!(names.contains(name) || name == "frwr_namespace_errors_total", "{name} in {expression}");
    }
    host.end().unwrap();
    target.end();
}

/// Of many namespaces all figures are longer than an answer may be.
#[test]
fn figures_of_one_namespace_are_asked_for() {
    let target = Target::start(2);
    let mut client = target.client();
    let new = serde_json::json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": 65536 });
    client.call("add_namespace", new).unwrap();
    let mut found = |only: Value| {
        let text = client.call("metrics", only).unwrap();
        let all = samples(text.as_str().unwrap());
        let has = |nsid: u32| all.keys().any(|name| name.contains(&format!("namespace=\"{nsid}\"")));
        assert!(all.keys().any(|name| name.starts_with("frwr_reactor_polls") || name.starts_with("frwr_uptime")));
        [has(1), has(2)]
    };
    assert_eq!(found(serde_json::json!({})), [true, true]);
    assert_eq!(found(serde_json::json!({ "namespace": 2 })), [false, true]);
    assert_eq!(found(serde_json::json!({ "subsystem": SUBSYSTEM, "namespace": 1 })), [true, false]);
    assert_eq!(found(serde_json::json!({ "subsystem": "nqn.2026-11.invalid.frwr:other" })), [false, false]);
    target.end();
}
