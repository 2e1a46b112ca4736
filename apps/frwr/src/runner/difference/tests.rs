//! Tables of what there is, what a file says, and what follows.

use super::{super::key_files::KeyFiles, *};
use frwr_nvmf::{storage::Backing, wire::AnaState};
use serde_json::json;
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

fn nqn(name: &str) -> Nqn {
    Nqn::new(&format!("nqn.2026-11.x:{name}")).unwrap()
}

const MEMORY: MediumConfig = MediumConfig::Memory { bytes: 1 << 20 };

fn file(path: &str) -> MediumConfig {
    MediumConfig::Stored { path: path.into(), kind: MediumKind::File, backing: Backing::Auto, direct: true }
}

fn wanted(identifier: u32, medium: MediumConfig) -> ListedNamespace {
    let config = NamespaceConfig { medium, block_bytes: 4096, read_only: false, ana_group: 1 };
    ListedNamespace { identifier, nguid: None, active: true, bytes: None, config }
}

fn subsystem(name: &str, namespaces: Vec<ListedNamespace>) -> SubsystemConfig {
    let (nqn, allowed_hosts, ana) = (nqn(name), AllowedHosts::Any, AnaStates::default());
    SubsystemConfig { nqn, allowed_hosts, serial: None, ana, namespaces }
}

fn all_in(state: AnaState) -> AnaStates {
    AnaStates { all: state, ..AnaStates::default() }
}

fn at(port: u16) -> Listen {
    SocketAddr::from(([10, 0, 0, 1], port)).into()
}

/// What a target is that was started with these; each medium has 1 MiB.
fn started(subsystems: &[SubsystemConfig]) -> Present {
    let namespace = |of: &Nqn, one: &ListedNamespace| PresentNamespace {
        identifier: one.identifier,
        nguid: one.nguid(of),
        active: one.active,
        blocks: one.bytes.unwrap_or(1 << 20) / 4096,
        medium_blocks: 256,
        config: one.config.clone(),
    };
    let present = |one: &SubsystemConfig| PresentSubsystem {
        nqn: one.nqn,
        serial: one.serial.unwrap_or_else(|| SerialNumber::of_subsystem(&one.nqn)),
        hosts: one.allowed_hosts.clone(),
        ana: one.ana.clone(),
        namespaces: one.namespaces.iter().map(|of| namespace(&one.nqn, of)).collect(),
    };
    let taken = subsystems.iter().map(|one| one.namespaces.len()).sum();
    let room = Room { namespaces: 8, taken, highest: 8, hosts: 2 };
    Present { listeners: vec![at(4420)], subsystems: subsystems.iter().map(present).collect(), room }
}

/// Two namespaces of one file cannot be served at a time.
fn one_medium(one: &NamespaceConfig, other: &NamespaceConfig) -> bool {
    one.path().is_some() && one.path() == other.path()
}

/// What is told of it, without the names of subsystems in front.
fn told(before: &[SubsystemConfig], after: &[SubsystemConfig]) -> Result<Vec<String>, Vec<String>> {
    let short = |line: String| line.replace("nqn.2026-11.x:", "");
    let all = |lines: Vec<String>| lines.into_iter().map(short).collect();
    let steps = difference(&started(before), &[at(4420)], after, &one_medium);
    steps.map(|steps| all(steps.iter().flat_map(Step::lines).collect())).map_err(all)
}

fn base() -> Vec<SubsystemConfig> {
    vec![
        SubsystemConfig {
            allowed_hosts: AllowedHosts::Listed(vec![nqn("h1"), nqn("h2")]),
            ..subsystem("a", vec![wanted(1, MEMORY), wanted(3, file("/f"))])
        },
        subsystem("b", vec![wanted(1, file("/g"))]),
    ]
}

/// A file that says something else in one place.
fn but(change: impl FnOnce(&mut Vec<SubsystemConfig>)) -> Vec<SubsystemConfig> {
    let mut all = base();
    change(&mut all);
    all
}

#[test]
fn listeners_come_when_all_is_there_that_they_lead_to_and_go_behind_that() {
    let comes = but(|all| all.push(subsystem("c", vec![wanted(1, MEMORY)])));
    let steps = difference(&started(&base()), &[at(4421), at(4422)], &comes, &one_medium).unwrap();
    let lines: Vec<_> = steps.iter().flat_map(Step::lines).skip(2).collect();
    assert_eq!(lines, ["+ listener 10.0.0.1:4421", "+ listener 10.0.0.1:4422", "- listener 10.0.0.1:4420"]);
    let calls: Vec<_> = steps.iter().skip(2).map(Step::call).collect();
    assert_eq!(calls[0], ("add_listener", parameters(json!({ "address": "10.0.0.1:4421" }))));
    assert_eq!(calls[2], ("remove_listener", parameters(json!({ "address": "10.0.0.1:4420" }))));
}

#[test]
fn a_listener_that_is_in_the_way_goes_first() {
    let lines = |before: &[&str], after: &[&str]| {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Listen>>();
        let present = Present { listeners: all(before), ..started(&base()) };
        let steps = difference(&present, &all(after), &base(), &one_medium).unwrap();
        steps.iter().flat_map(Step::lines).collect::<Vec<_>>()
    };
    for (before, after) in [("0.0.0.0:1", "10.0.0.1:1"), ("10.0.0.1:1", "0.0.0.0:1"), ("[::]:1", "0.0.0.0:1")] {
        assert_eq!(lines(&[before], &[after]), [format!("- listener {before}"), format!("+ listener {after}")]);
    }
    assert_eq!(lines(&["0.0.0.0:1"], &["10.0.0.1:2"]), ["+ listener 10.0.0.1:2", "- listener 0.0.0.0:1"]);
    // Of as many as there may be, one is another one.
    let all: Vec<_> = (1..=MAX_LISTENERS + 1).map(|port| format!("10.0.0.1:{port}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    assert_eq!(lines(&all[1..], &all[..MAX_LISTENERS]), ["- listener 10.0.0.1:17", "+ listener 10.0.0.1:1"]);
}

#[test]
fn a_listener_of_another_device_is_another_one_and_an_address_is_free_before_it_comes_there() {
    let lines = |before: &[&str], after: &[&str]| {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Listen>>();
        let present = Present { listeners: all(before), ..started(&base()) };
        let steps = difference(&present, &all(after), &base(), &one_medium).unwrap();
        steps.iter().flat_map(Step::lines).collect::<Vec<_>>()
    };
    let told = |text: &str| text.split(", ").map(|line| line.replace(' ', " listener ")).collect::<Vec<_>>();
    assert_eq!(lines(&["a/10.0.0.1:1"], &["b/10.0.0.1:1"]), told("- a/10.0.0.1:1, + b/10.0.0.1:1"));
    assert_eq!(lines(&["a/10.0.0.1:1"], &["b/10.0.0.2:1"]), told("+ b/10.0.0.2:1, - a/10.0.0.1:1"));
    // Each device has as many as there may be.
    let of = |device: &str| (1..=MAX_LISTENERS).map(|port| format!("{device}/10.0.0.1:{port}")).collect::<Vec<_>>();
    let (full, other) = (of("a"), "b/10.0.0.2:1".to_owned());
    let before: Vec<_> = full.iter().map(String::as_str).collect();
    let after: Vec<_> = full[1..].iter().chain([&other]).map(String::as_str).collect();
    assert_eq!(lines(&before, &after), told("+ b/10.0.0.2:1, - a/10.0.0.1:1"));
}

fn parameters(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn groups_that_have_their_state_are_not_touched() {
    let with = |namespaces, all, but: &[(u32, AnaState)]| {
        vec![SubsystemConfig {
            ana: AnaStates { all, but: but.iter().copied().collect() },
            ..subsystem("a", namespaces)
        }]
    };
    let but = |all, but: &[(u32, AnaState)]| with(Vec::new(), all, but);
    let in_9 = || {
        let config = NamespaceConfig { ana_group: 9, ..wanted(1, MEMORY).config };
        vec![ListedNamespace { config, ..wanted(1, MEMORY) }]
    };
    let (optimized, change, lost) = (AnaState::Optimized, AnaState::Change, AnaState::PersistentLoss);
    let one = told(&but(optimized, &[]), &but(optimized, &[(7, change)]));
    assert_eq!(one.unwrap(), ["~ ana_state of ANA group 7 of a: optimized -> change"]);
    let all = told(&but(optimized, &[(3, lost)]), &but(change, &[(9, lost)])).unwrap();
    assert_eq!(
        all,
        ["~ ana_state of a: optimized -> change", "~ ana_state of ANA group 9 of a: change -> persistent_loss"]
    );
    let all_but_one = told(&with(in_9(), optimized, &[]), &with(in_9(), change, &[(9, optimized)])).unwrap();
    assert!(all_but_one.len() == 127 && !all_but_one.iter().any(|line| line.contains("group 9 of")), "{all_but_one:?}");
    // Of a group without namespaces hosts see nothing.
    let all = told(&but(optimized, &[]), &but(change, &[(9, optimized)])).unwrap();
    assert_eq!(all, ["~ ana_state of a: optimized -> change", "~ ana_state of ANA group 9 of a: change -> optimized"]);
    // Nor is a namespace opened between two states in which it cannot be reached.
    let closed = told(&with(in_9(), lost, &[]), &with(in_9(), optimized, &[(9, change)])).unwrap();
    assert!(
        closed.len() == 128 && closed[8] == "~ ana_state of ANA group 9 of a: persistent_loss -> change",
        "{closed:?}"
    );
    let opened = told(&with(in_9(), change, &[]), &with(in_9(), optimized, &[(9, AnaState::NonOptimized)])).unwrap();
    assert_eq!(opened.len(), 2, "{opened:?}");
}

#[test]
fn another_export_of_a_server_is_another_medium() {
    let export = |uri: &str| vec![subsystem("a", vec![wanted(1, MediumConfig::nbd("--nbd", uri).unwrap())])];
    let before = export("nbd://a/disk?x-connections=2");
    assert_eq!(told(&before, &before), Ok(Vec::new()));
    for uri in ["nbd://a:10809/other?x-connections=2", "nbd://a:10809/disk", "nbd+unix:///disk?socket=a"] {
        let refused = told(&before, &export(uri)).unwrap_err();
        assert!(refused.len() == 1 && refused[0].contains("nbd is") && refused[0].contains(uri), "{refused:?}");
    }
}

#[test]
fn what_is_the_same_is_not_touched() {
    assert_eq!(told(&base(), &base()), Ok(Vec::new()));
    let reordered = but(|all| {
        all.reverse();
        all[1].allowed_hosts = AllowedHosts::Listed(vec![nqn("h2"), nqn("h1")]);
        all[1].namespaces.reverse();
        all[1].serial = Some(SerialNumber::of_subsystem(&nqn("a")));
        all[1].namespaces[1].nguid = Some(nqn("a").identifier(1));
        all[1].namespaces[1].bytes = Some((1 << 20) + 17);
    });
    // Bytes behind the last whole block count for nothing.
    assert_eq!(told(&base(), &reordered), Ok(Vec::new()));
}

#[test]
fn what_comes_is_there_before_what_goes_is_gone() {
    let inactive = |one| ListedNamespace { active: false, ..one };
    for (after, lines) in [
        (but(|all| all[0].namespaces.push(wanted(2, file("/h")))), vec!["+ namespace 2 of a: /h"]),
        (
            but(|all| all[0].namespaces[0] = inactive(wanted(2, MEMORY))),
            vec!["+ namespace 2 of a: memory, inactive", "- namespace 1 of a: memory"],
        ),
        (
            but(|all| {
                all[1] =
                    SubsystemConfig { ana: all_in(AnaState::Inaccessible), ..subsystem("c", vec![wanted(1, MEMORY)]) }
            }),
            vec![
                "+ subsystem c",
                "~ ana_state of c: optimized -> inaccessible",
                "+ namespace 1 of c: memory",
                "- subsystem b, with 1 namespaces",
            ],
        ),
        (
            but(|all| all[0].allowed_hosts = AllowedHosts::Listed(vec![nqn("h2"), nqn("h3")])),
            vec!["+ host h3 of a", "- host h1 of a"],
        ),
        (but(|all| all[0].allowed_hosts = AllowedHosts::Any), vec!["~ hosts of a: h1, h2 -> all"]),
        (but(|all| all[1].allowed_hosts = AllowedHosts::Listed(Vec::new())), vec!["~ hosts of b: all -> none"]),
        (but(|all| all[0].namespaces[1].bytes = Some(8192)), vec!["~ size of namespace 3 of a: 1048576 -> 8192 bytes"]),
        (
            but(|all| all[0].namespaces[0] = wanted(1, MediumConfig::Memory { bytes: 65536 })),
            vec!["~ size of namespace 1 of a: 1048576 -> 65536 bytes"],
        ),
        (but(|all| all[0].namespaces.clear()), vec!["- namespace 1 of a: memory", "- namespace 3 of a: /f"]),
    ] {
        assert_eq!(told(&base(), &after), Ok(lines.into_iter().map(str::to_owned).collect()));
    }
}

#[test]
fn a_host_has_its_key_before_all_else_and_loses_it_behind_all_else() {
    let after = but(|all| {
        all[0].allowed_hosts = AllowedHosts::Listed(vec![nqn("other")]);
        all.pop();
    });
    let others = difference(&started(&base()), &[at(4420)], &after, &one_medium).unwrap();
    let files = KeyFiles { dhchap_key: "/key".into(), dhchap_ctrl_key: None };
    let gone = Step::ClearHostKey { host: "nqn.gone".to_owned() };
    let new = Step::HostKey { host: "nqn.new".to_owned(), files, had: false };
    let all: Vec<_> = [new.clone()].into_iter().chain(others.clone()).chain([gone.clone()]).collect();
    assert!(others.len() > 1);
    assert_eq!(in_order([vec![gone, new], Vec::new(), others]), all);
}

/// A path in a file is UTF-8; the folder that it is of may not be.
#[test]
fn a_key_in_a_folder_whose_name_is_no_text_is_told_all_the_same() {
    let dhchap_key = PathBuf::from(OsString::from_vec(b"/\xff/key".to_vec()));
    let files = KeyFiles { dhchap_key, dhchap_ctrl_key: None };
    let (method, parameters) = Step::HostKey { host: "nqn.a".to_owned(), files, had: false }.call();
    assert_eq!((method, &parameters["dhchap_key"]), ("set_host_key", &json!("/\u{fffd}/key")));
}

#[test]
fn what_is_in_the_way_goes_before() {
    let own = |one| ListedNamespace { nguid: Some([7; 16]), ..one };
    for (after, lines) in [
        // The file goes to another namespace, and to another subsystem.
        (but(|all| all[0].namespaces[1].identifier = 2), vec!["- namespace 3 of a: /f", "+ namespace 2 of a: /f"]),
        (
            but(|all| {
                all.remove(1);
                all[0].namespaces.push(wanted(4, file("/g")));
            }),
            vec!["- subsystem b, with 1 namespaces", "+ namespace 4 of a: /g"],
        ),
        // Another medium has the identifier, and hosts are told.
        (
            but(|all| all[0].namespaces[1] = own(wanted(3, file("/h")))),
            vec!["- namespace 3 of a: /f", "+ namespace 3 of a: /h"],
        ),
    ] {
        assert_eq!(told(&base(), &after), Ok(lines.into_iter().map(str::to_owned).collect()));
    }
    // There is room for eight.
    let full = vec![subsystem("a", (1..=8).map(|identifier| wanted(identifier, MEMORY)).collect())];
    let after = [
        subsystem("a", (2..=8).map(|identifier| wanted(identifier, MEMORY)).collect()),
        subsystem("b", vec![wanted(1, MEMORY)]),
    ];
    let lines = ["- namespace 1 of a: memory", "+ subsystem b", "+ namespace 1 of b: memory"];
    assert_eq!(told(&full, &after), Ok(lines.map(str::to_owned).to_vec()));
}

#[test]
fn what_cannot_be_is_told_by_its_key_with_the_remedy_and_all_of_it() {
    let medium = |change: fn(&mut NamespaceConfig)| but(|all| change(&mut all[0].namespaces[1].config));
    for (after, says) in [
        (but(|all| all[0].serial = Some(SerialNumber::new("S1").unwrap())), ["a: serial is S1", "start serve anew"]),
        (
            medium(|config| config.read_only = true),
            ["a, namespace 3: read_only is true, and false", "nguid of its own"],
        ),
        (medium(|config| config.block_bytes = 512), ["block_size is 512, and 4096", "another nsid"]),
        (medium(|config| config.medium = MEMORY), ["memory is 1048576", "nguid of its own"]),
        (medium(|config| config.medium = file("/h")), ["file is \"/h\", and \"/f\"", "nguid of its own"]),
        (
            medium(|config| {
                if let MediumConfig::Stored { backing, .. } = &mut config.medium {
                    *backing = Backing::Thread;
                }
            }),
            ["backing is \"thread\", and \"auto\"", "start serve anew"],
        ),
        (but(|all| all[0].namespaces[1].nguid = Some([7; 16])), ["nguid is 0707", "leave it as it is"]),
        (but(|all| all[0].namespaces[1].bytes = Some(1 << 21)), ["bytes is 2097152, and there are 1048576", "longer"]),
        (
            but(|all| all[0].namespaces[0].config.medium = MediumConfig::Memory { bytes: 1 << 21 }),
            ["memory is 2097152, and there are 1048576", "start serve anew"],
        ),
        (but(|all| all[0].namespaces[0].identifier = 9), ["nsid is 9, and may be 8", "spare_namespaces"]),
        (
            but(|all| all[1].namespaces.extend((2..=7).map(|identifier| wanted(identifier, MEMORY)))),
            ["there would be 9, and may be 8", "spare_namespaces"],
        ),
        (
            but(|all| all[1].allowed_hosts = AllowedHosts::Listed(vec![nqn("h1"), nqn("h2"), nqn("h3")])),
            ["allowed_hosts are 3, and may be 2", "name fewer"],
        ),
    ] {
        let refused = told(&base(), &after).unwrap_err();
        assert!(refused.len() == 1 && says.iter().all(|part| refused[0].contains(part)), "{refused:?}");
    }
    let both = but(|all| {
        all[0].serial = Some(SerialNumber::new("S1").unwrap());
        all[0].namespaces[1].config.read_only = true;
        all[0].namespaces.push(wanted(2, MEMORY));
    });
    assert_eq!(told(&base(), &both).unwrap_err().len(), 2);
}

/// Each step is a call of a method, by its parameters.
#[test]
fn steps_are_calls_of_methods() {
    let after = but(|all| {
        (all[0].namespaces[0].bytes, all[0].namespaces[0].active) = (Some(8192), false);
        all[0].namespaces[1] =
            ListedNamespace { nguid: Some([7; 16]), bytes: Some(4096), active: false, ..wanted(3, file("/h")) };
        all[1] = SubsystemConfig { ana: all_in(AnaState::Change), ..subsystem("c", Vec::new()) };
        all[0].allowed_hosts = AllowedHosts::Any;
    });
    let known = super::super::operator::methods();
    let known: Vec<_> = known.collect();
    let steps = difference(&started(&base()), &[at(4420)], &after, &one_medium).unwrap();
    let mut methods = Vec::new();
    for step in &steps {
        let (method, parameters) = step.call();
        let described = known.iter().find(|known| known.name == method).unwrap();
        let is_known = |name: &String| described.parameters.iter().any(|known| known.name == name);
        assert!(parameters.keys().all(is_known), "{method}: {parameters:?}");
        let is_there =
            |known: &&super::super::operator::Parameter| !known.required || parameters.contains_key(known.name);
        assert!(described.parameters.iter().all(|known| is_there(&known)), "{method}: {parameters:?}");
        methods.push(method);
    }
    let all = [
        "remove_namespace",
        "add_subsystem",
        "set_ana_state",
        "set_allowed_hosts",
        "add_namespace",
        "resize_namespace",
        "set_namespace_active",
        "remove_subsystem",
    ];
    assert_eq!(methods, all);
}

#[test]
fn a_medium_is_the_same_by_whatever_folder_it_is_named_from() {
    let here = std::env::current_dir().unwrap().display().to_string();
    let nbd = |socket: &str| MediumConfig::nbd("nbd", &format!("nbd+unix:///a?socket={socket}")).unwrap();
    let of =
        |all: [MediumConfig; 3]| vec![subsystem("a", (1..).zip(all).map(|(nsid, one)| wanted(nsid, one)).collect())];
    let loaded = |path: &str| MediumConfig::Loaded { path: path.into() };
    let before = of([nbd("s"), file("f"), loaded("l")]);
    let after = of([nbd(&format!("{here}/s")), file(&format!("{here}/f")), loaded(&format!("{here}/l"))]);
    assert_eq!(told(&before, &after).unwrap(), Vec::<String>::new());
    // A name of the abstract namespace lies in no folder.
    let after = of([nbd(&format!("%00{here}/s")), file("f"), loaded("l")]);
    assert!(told(&before, &after).unwrap_err()[0].contains("nbd is "));
}
