//! Hosts that have to prove who they are, with keys in files; keys that are replaced while they use the target.

use super::Machine;
use super::program::{Program, passed, verified};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// As nvme gen-dhchap-key prints them.
const KEYS: [&str; 3] = [
    "DHHC-1:01:CRYjMD1KV2RxfouYpbK/zNnm8wANGic0QU5baHWCj5xifzXX:",
    "DHHC-1:00:CShHZoWkw+IBID9efZy72vkYN1Z1lLPS8RAvTm2Mq8rpCCdGZYSjwuEAHz5dfJu6uaiyng==:",
    "DHHC-1:03:CRAXHiUsMzpBSE9WXWRrcnmAh46VnKOqsbi/xs3U2+Lp8Pf+BQwTGiEoLzY9REtSWWBnbnV8g4qRmJ+mrbS7wtYIgz8=:",
];
const HOST: &str = "nqn.2026-11.invalid.frwr:host";

impl Machine {
    /// A file with one of the keys, of this mode.
    fn key(&self, name: &str, key: usize, mode: u32) -> String {
        let path = self.path(name);
        fs::write(&path, format!("{}\n", KEYS[key])).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }

    /// A target that knows one host by these keys, and nobody else.
    fn keyed(&self, host: &str, controller: &str) -> String {
        let config = self.path("frwr.toml");
        let text = format!(
            "device = \"soft\"\nlisten = \"127.0.0.1:4420\"\npages = \"plain\"\ncores = \"unpinned:2\"\n\
             control = \"{}\"\nrequire_authentication = true\ndhchap_dhgroups = [\"ffdhe2048\", \"null\"]\n\
             [[host]]\nnqn = \"{HOST}\"\ndhchap_key = \"{host}\"\ndhchap_ctrl_key = \"{controller}\"\n\
             [[subsystem]]\nnqn = \"nqn.2026-11.invalid.frwr:file\"\n[[subsystem.namespace]]\nmemory = \"4M\"\n",
            self.path("socket").display()
        );
        fs::write(&config, text).unwrap();
        config.display().to_string()
    }

    /// Files with the key of the host, of the controller, and of the host's next one, and a target that has the first two.
    fn asks_for_keys(&self) -> ([String; 3], Program) {
        let keys = [("host", 0), ("controller", 1), ("next", 2)]
            .map(|(name, key)| self.key(&format!("{name}.key"), key, 0o600));
        let target = self.start_exactly(&["serve", "--config", &self.keyed(&keys[0], &keys[1]), "--json"]);
        target.says("listening on 127.0.0.1:4420");
        (keys, target)
    }

    fn ctl(&self, words: &[&str]) -> (Option<i32>, serde_json::Value) {
        let socket = self.path("socket").display().to_string();
        self.start_exactly(&[&["ctl", "--json", "--control", &socket], words].concat()).ended()
    }
}

#[test]
fn a_host_with_the_key_is_served_and_goes_on_when_that_is_replaced() {
    let machine = Machine::new();
    let ([host_key, controller, next], target) = machine.asks_for_keys();
    let file = machine.file("file");
    let of_key = |key: &str| ["--file", &file, "--dhchap-key", key].map(str::to_owned);
    let load = |key: &str, more: &[&str]| {
        let words = of_key(key);
        machine.load(&[&words.each_ref().map(String::as_str)[..], more].concat())
    };
    let host = load(&host_key, &["--dhchap-ctrl-key", &controller, "--runtime", "3600", "--queues", "2"]);
    host.says("mixed load");
    // A key that the target has not, and none.
    for (more, why) in [(Some(&next), "compare the keys"), (None, "give a key (--dhchap-key)")] {
        let refused = match more {
            Some(key) => load(key, &["--reconnects", "0"]),
            None => machine.load(&["--file", &file, "--reconnects", "0"]),
        };
        refused.says(why);
    }
    target.says("does not follow from the key");
    // The host without a key was told so by Connect, and said nothing of it.
    let proofs = passed(machine.ctl(&["status"]))["authentications"].clone();
    assert!(proofs["proven"].as_u64() >= Some(3) && proofs["wrong_proof"] == 1, "{proofs}");
    assert_eq!((&proofs["running"], &proofs["no_key"]), (&0.into(), &0.into()), "{proofs}");
    let set = ["set_host_key", &format!("host={HOST}"), &format!("dhchap_key={next}")];
    assert_eq!(passed(machine.ctl(&set))["changed"], true);
    assert_eq!(passed(machine.ctl(&set))["changed"], false);
    // It goes on, and the next one needs the new key.
    host.says("mixed load");
    let report = verified(host.stop());
    assert_eq!(report["reconnects"], 0, "{report}");
    verified(load(&next, &["--runtime", "0"]).ended());
    // A file that others can read is no key, and what was before is not changed.
    let open = machine.key("open.key", 0, 0o644);
    let refused = machine.start_exactly(&[
        "ctl",
        "--control",
        &machine.path("socket").display().to_string(),
        "set_host_key",
        &format!("host={HOST}"),
        &format!("dhchap_key={open}"),
    ]);
    let line = refused.says("open.key");
    assert!(line.contains("0644") && line.contains("0600") && line.contains("nothing was changed"), "{line}");
    // What is saved names the files, and a file whose key was replaced is a change.
    let saved = passed(machine.ctl(&["save"]));
    let saved = saved.as_str().unwrap_or_default().to_owned();
    assert!(saved.contains(&format!("dhchap_key = \"{next}\"")) && !saved.contains("DHHC"), "{saved}");
    assert_eq!(passed(machine.ctl(&["clear_host_key", &format!("host={HOST}")]))["changed"], true);
    let refused = load(&next, &["--reconnects", "0"]);
    refused.says("Connect Invalid Host");
    let all: Vec<_> = target.last_words();
    assert!(all.iter().all(|line| !line.contains("DHHC")), "{all:?}");
    passed(target.stop());
}

#[test]
fn a_load_proves_itself_again_and_ends_with_a_line_where_the_target_has_another_key() {
    let machine = Machine::new();
    let ([host_key, controller, next], target) = machine.asks_for_keys();
    let file = machine.file("file");
    let load = |runtime: &str| {
        let keys = ["--file", &file, "--dhchap-key", &host_key, "--dhchap-ctrl-key", &controller, "--queues", "2"];
        machine.load(&[&keys[..], &["--reauthenticate", "1", "--runtime", runtime]].concat())
    };
    let report = verified(load("4").ended());
    assert!(report["session"]["reauthentications"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["reconnects"], &report["repeated"]), (&0.into(), &0.into()), "{report}");
    let host = load("3600");
    host.says("mixed load");
    passed(machine.ctl(&["set_host_key", &format!("host={HOST}"), &format!("dhchap_key={next}")]));
    target.says("does not follow from the key");
    let (code, report) = host.ended();
    assert_eq!(code, Some(1), "{report}");
    assert!(report["caught"].as_str().unwrap().contains("authentication failed"), "{report}");
    passed(target.stop());
}

#[test]
fn a_key_that_others_can_read_is_refused_by_name_before_anything_begins() {
    let machine = Machine::new();
    let (open, good) = (machine.key("open.key", 0, 0o640), machine.key("good.key", 1, 0o600));
    let target = machine.start_exactly(&["serve", "--config", &machine.keyed(&open, &good)]);
    let line = target.says("open.key");
    assert!(line.contains("mode 0640") && line.contains("dhchap_key") && !line.contains("--dhchap"), "{line}");
    let host = machine.load(&["--file", &machine.file("file"), "--dhchap-key", &open]);
    let line = host.says("open.key");
    assert!(line.contains("mode 0640") && line.contains("--dhchap-key"), "{line}");
}
