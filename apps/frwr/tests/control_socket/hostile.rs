//! Who means no good, or does not know what he does.

use super::{Client, Target};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::{env, fs};

/// Requests that are changed at random.
const MUTATED: usize = 1200;
/// What this process may grow by while they are told: pages of the allocator, and no request of a megabyte for each.
const GROWTH: u64 = 64 << 20;

/// xorshift64: the same course each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Whether this is a process in which nothing but this test runs, so that its memory is what the test takes. Where it is not, the test
/// has just passed in one.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "FRWR_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let status = command.args(["--exact", test]).env(ALONE, "1").status().unwrap();
    assert!(status.success(), "{test} failed in a process of its own");
    false
}

/// Resident bytes of this process, targets and clients together.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Valid requests, of which a mutation makes something else. None of them ends the target.
fn seeds() -> Vec<Vec<u8>> {
    let request = |method: &str, parameters: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters }).to_string().into_bytes()
    };
    vec![
        request("status", json!({})),
        request("namespaces", json!({ "subsystem": "nqn.2026-11.invalid.frwr:none" })),
        request("set_ana_state", json!({ "subsystem": "nqn.2026-11.invalid.frwr:none", "state": "optimized" })),
        request("set_allowed_hosts", json!({ "subsystem": "nqn.2026-11.invalid.frwr:none", "hosts": ["a", 1] })),
        [&b"["[..], &request("version", json!({})), b",", &request("cores", json!({})), b"]"].concat(),
    ]
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes.insert(at, random.below(256) as u8),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => bytes.splice(at..at, vec![b'['; random.below(300)]).for_each(drop),
            _ => bytes.splice(at..at, b"9".repeat(random.below(300))).for_each(drop),
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
}

/// Whether it has a number of JSON-RPC's or of ours.
fn is_well_told(answer: &Value) -> bool {
    match answer {
        Value::Array(all) => !all.is_empty() && all.iter().all(is_well_told),
        one => match one["error"]["code"].as_i64() {
            Some(code) => {
                (code == -32700 || (-32603..=-32600).contains(&code) || (-32004..=-32001).contains(&code))
                    && one["error"]["message"].as_str().is_some_and(|message| !message.is_empty())
            }
            None => !one["result"].is_null(),
        },
    }
}

#[test]
fn mutated_requests_are_answered_by_number_or_are_right_and_memory_is_flat() {
    if !is_alone("hostile::mutated_requests_are_answered_by_number_or_are_right_and_memory_is_flat") {
        return;
    }
    let target = Target::start(1);
    let (seeds, mut random) = (seeds(), Random(0x1234_5678_9abc_def1));
    let mut before = 0;
    let (mut errors, mut silent) = (0, 0);
    for count in 0..MUTATED {
        if count == MUTATED / 4 {
            before = resident();
        }
        let mut bytes = seeds[random.below(seeds.len())].clone();
        mutate(&mut bytes, &mut random);
        let mut client = target.client();
        client.send(&bytes).unwrap();
        client.stream.get_mut().shutdown(Shutdown::Write).unwrap();
        let mut answers = 0;
        while let Some(answer) = client.line() {
            let said = String::from_utf8_lossy(&bytes);
            assert!(is_well_told(&answer), "{said}: {answer}");
            errors += usize::from(!answer["error"].is_null());
            answers += 1;
        }
        // One whose id was lost is a notification, and one that is white space alone is nothing.
        silent += usize::from(answers == 0);
    }
    assert!(errors > MUTATED / 2 && silent < MUTATED / 10, "{errors} errors, {silent} without an answer");
    assert!(resident() < before + GROWTH, "from {before} to {}", resident());
    target.client().ask("status");
    target.end();
}

#[test]
fn a_line_of_a_hundred_megabytes_is_cut_off_at_one() {
    if !is_alone("hostile::a_line_of_a_hundred_megabytes_is_cut_off_at_one") {
        return;
    }
    let target = Target::start(1);
    let (mut client, piece) = (target.client(), vec![b'['; 1 << 20]);
    let before = resident();
    let mut sent = 0;
    while sent < 100 && client.send(&piece).is_ok() {
        sent += 1;
    }
    assert!(sent < 8, "{sent} MiB were taken");
    let answer = client.line().unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(answer["error"]["code"] == -32001 && message.contains("1048576"), "{answer}");
    assert!(client.line().is_none());
    assert!(resident() < before + GROWTH);
    target.client().ask("status");
    target.end();
}

#[test]
fn floods_half_lines_and_who_never_reads_keep_nobody_from_being_answered() {
    let target = Target::start(1);
    let connect = || UnixStream::connect(target.socket()).unwrap();
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "cores" }).to_string();
    // Some never say a whole thing, some never read, some are gone before they are answered.
    let halves: Vec<_> = (0..4).map(|_| connect()).collect();
    halves.iter().for_each(|mut half| half.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":").unwrap());
    let deaf: Vec<_> = (0..4).map(|_| connect()).collect();
    for mut one in &deaf {
        one.set_nonblocking(true).unwrap();
        while one.write(request.as_bytes()).is_ok() {}
    }
    for _ in 0..100 {
        let mut gone = connect();
        let _ = gone.write_all(request.as_bytes());
    }
    let mut client: Client = target.client();
    for _ in 0..10 {
        assert_eq!(client.ask("status")["listening"], "listening");
    }
    drop((halves, deaf));
    target.end();
}

#[test]
fn a_place_that_is_taken_is_told_and_the_target_does_not_start() {
    use super::{ADDRESS, task};
    use frwr::runner::{ServeConfig, serve};
    use frwr_engine::provider::soft::{SoftFabric, SoftOptions};

    let target = Target::start(1);
    let socket = target.socket();
    let file = target.folder.path().join("file");
    let (socket, file) = (socket.to_str().unwrap(), file.to_str().unwrap());
    let begin = |control: &str| {
        let arguments = ["--listen", ADDRESS, "--namespace", file, "--control", control, "--cores", "unpinned"];
        let frwr::Task::Serve(arguments) = task("serve", &arguments) else { panic!() };
        let device = SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap()));
        let stop = std::sync::atomic::AtomicBool::new(true);
        serve(vec![device], &ServeConfig::new(arguments).unwrap(), &stop, &mut |_| {})
            .map_err(|error| error.to_string())
    };
    let told = begin(socket).unwrap_err();
    assert!(told.contains("another process listens there") && told.contains("--control"), "{told}");
    let told = begin(file).unwrap_err();
    assert!(told.contains("no socket"), "{told}");
    assert!(begin("none").is_ok());
    target.client().ask("status");
    target.end();
    assert!(!fs::exists(socket).unwrap(), "its file has gone with it");
}
