//! Every input that was kept, and every seed, once more.

use frwr_fuzz::TARGETS;
use std::{fs, panic::catch_unwind, path::Path};

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn no_input_that_was_kept_makes_a_decoder_panic() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let kept = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut inputs: Vec<_> = kept.map(|file| file.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{} has no corpus; `fuzz-seeds` makes a first one", target.name);
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            if catch_unwind(|| (target.run)(&bytes)).is_err() {
                failed.push(input.display().to_string());
            }
        }
    }
    assert!(failed.is_empty(), "these inputs panic: {failed:#?}");
}

#[test]
fn no_seed_makes_a_decoder_panic() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| (target.run)(seed));
        (target.run)(&[]);
    }
}

#[test]
fn each_folder_of_the_corpus_has_its_target() {
    for folder in fs::read_dir(corpus()).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(frwr_fuzz::named(&name).is_ok(), "corpus/{name} has no target");
    }
}
