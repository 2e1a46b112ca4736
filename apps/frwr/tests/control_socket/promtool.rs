//! What Prometheus' own tool says of the metrics.

use super::{Target, metrics::got};
use std::{
    env,
    io::Write as _,
    process::{Command, Stdio},
};

const TOOL: &str = "promtool";

/// What the tool has to say of a text; `None` where it is not here.
fn checked(text: &str) -> Option<(bool, String)> {
    let mut check = Command::new(TOOL);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = check.spawn().ok()?;
    running.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    Some((output.status.success(), said.concat()))
}

#[test]
fn promtool_finds_nothing_to_say_of_a_target_under_load() {
    let target = Target::start(2);
    let host = target.host("3600");
    target.client().until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    let (head, text) = got(target.metrics, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(text.contains("\nfrwr_namespace_latency_seconds_bucket{"), "{text}");
    match checked(&text) {
        Some(said) => assert_eq!(said, (true, String::new()), "{text}"),
        None => {
            println!("SKIPPED: no {TOOL} (Debian has it in the package prometheus) to check metrics with");
            assert!(env::var_os("CI").is_none_or(|value| value != "true"), "SKIPPED under CI");
        }
    }
    host.end().unwrap();
    target.end();
}
