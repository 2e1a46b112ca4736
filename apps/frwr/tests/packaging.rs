//! What distributions pack: the unit, its configuration, manual pages, completions, and what the program says of itself.

use clap::{CommandFactory as _, Parser as _};
use frwr::{CommandLine, Task, runner::ServeConfig};
use serde_json::Value;
use std::process::{Command, Output};

const UNIT: &str = include_str!("../packaging/frwr.service");
const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/serve.toml");

fn frwr(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frwr")).args(arguments).output().unwrap()
}

fn told(arguments: &[&str]) -> String {
    let output = frwr(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Of the unit.
fn setting(name: &str) -> &'static str {
    let behind = |line: &'static str| line.strip_prefix(name)?.strip_prefix('=');
    UNIT.lines().find_map(behind).unwrap_or_else(|| panic!("the unit says no {name}"))
}

#[test]
fn the_unit_starts_what_is_understood_and_leaves_it_time_to_end() {
    let line = setting("ExecStart").replace("/etc/frwr/serve.toml", CONFIGURATION);
    let Some(Task::Serve(arguments)) = CommandLine::try_parse_from(line.split(' ')).unwrap().task else {
        panic!("{line}")
    };
    ServeConfig::new(arguments).unwrap();
    // Reloading applies the file that it was started with, where it is asked.
    let reload: Vec<_> = setting("ExecReload").split(' ').collect();
    let Some(Task::Ctl(reload)) = CommandLine::try_parse_from(&reload).unwrap().task else { panic!("{reload:?}") };
    let started: Vec<_> = setting("ExecStart").split(' ').collect();
    let behind = |option: &str| started.iter().skip_while(|word| **word != option).nth(1).copied();
    assert_eq!((reload.method.as_deref(), reload.dry_run), (Some("apply"), false));
    assert_eq!((reload.parameters.first().map(String::as_str), reload.parameters.len()), (behind("--config"), 1));
    assert_eq!(reload.socket.control.as_deref().and_then(|path| path.to_str()), behind("--control"));
    // Cores drain for ten seconds at most; what is beyond is for media.
    assert!(setting("TimeoutStopSec").parse::<u32>().unwrap() >= 20);
    assert_eq!(
        (setting("Type"), setting("LimitMEMLOCK"), setting("RestartPreventExitStatus")),
        ("notify", "infinity", "2")
    );
}

#[test]
fn every_subcommand_has_a_manual_page_and_is_completed_in_every_shell() {
    let folder = tempfile::tempdir().unwrap();
    let said = told(&["man", folder.path().to_str().unwrap()]);
    assert!(said.contains(folder.path().to_str().unwrap()), "{said}");
    let names: Vec<_> = CommandLine::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    assert!(names.len() > 5, "{names:?}");
    let shells = ["bash", "elvish", "fish", "powershell", "zsh"].map(|shell| told(&["completions", shell]));
    for name in &names {
        let page = std::fs::read_to_string(folder.path().join(format!("frwr-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{name}");
        assert!(shells.iter().all(|script| script.contains(name.as_str())), "{name}");
    }
    for method in frwr::runner::methods() {
        // The others complete options alone.
        for shell in ["bash", "zsh"] {
            let script = told(&["completions", shell]);
            assert!(script.contains(method.name), "{shell}: {}", method.name);
        }
    }
    let page = std::fs::read_to_string(folder.path().join("frwr-serve.1")).unwrap();
    assert!(page.contains("max\\-transfer"), "options are in it");
}

#[test]
fn a_folder_that_there_is_not_gets_no_manual_pages() {
    let output = frwr(&["man", "/nonexistent/folder"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no manual pages in /nonexistent/folder") && said.contains("folder that exists"), "{said}");
}

#[test]
fn the_program_says_what_it_is() {
    let line = told(&["-V"]);
    assert_eq!(line, concat!("frwr ", env!("CARGO_PKG_VERSION"), "\n"), "scripts read it");
    let text = told(&["--version"]);
    assert!(text.starts_with(&line), "{text}");
    for what in ["\ncommit: ", "\nfeatures: ", "\nlibibverbs: ", "\nlibrdmacm: "] {
        assert!(text.contains(what), "{text}");
    }
    assert_eq!(told(&["serve", "--version"]), text);
    let json: Value = serde_json::from_str(&told(&["--version", "--json"])).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    let built = json["features"].as_array().unwrap().iter().any(|feature| feature == "verbs");
    assert_eq!(built, cfg!(feature = "verbs"));
}

/// The first line of a program that tells everything, as this format has it.
fn first_line(format: &[&str]) -> String {
    let output = frwr(&[&["-v"], format, &["check", "--json"]].concat());
    String::from_utf8(output.stderr).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn lines_have_time_and_level_as_text_and_as_json() {
    let [plain, full, usual] = [&["--log-format", "plain"][..], &["--log-format", "full"], &[]].map(first_line);
    assert!(plain.starts_with("understood: "), "{plain}");
    // 2026-11-27T10:54:32.778389Z DEBUG understood: ...
    for line in [full, usual] {
        let mut words = line.split_whitespace();
        let time = words.next().unwrap();
        assert!(time.contains('T') && time.ends_with('Z'), "{line}");
        assert_eq!((words.next(), words.next()), (Some("DEBUG"), Some("understood:")), "{line}");
    }
    let json: Value = serde_json::from_str(&first_line(&["--log-format", "json"])).unwrap();
    assert_eq!(json["level"], "DEBUG");
    assert!(json["message"].as_str().unwrap().starts_with("understood: "), "{json}");
    assert!(json["timestamp"].as_str().unwrap().ends_with('Z'), "{json}");
}

#[test]
fn an_unknown_format_of_lines_is_refused_with_those_that_there_are() {
    let output = frwr(&["--log-format", "xml"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("plain, full, json"), "{said}");
}
