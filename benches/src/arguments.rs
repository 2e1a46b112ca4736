//! The command lines of the counting programs: words, and the number of iterations at the end.

use std::process::ExitCode;

/// Runs a program on its arguments: prints its line, or one line that says what is wrong.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it did")]
pub fn main_of<const WORDS: usize>(
    usage: &str,
    program: impl FnOnce([&str; WORDS], u64) -> Result<String, String>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(usage, &arguments).and_then(|(words, iterations)| program(words, iterations)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn parse<'a, const WORDS: usize>(usage: &str, arguments: &'a [String]) -> Result<([&'a str; WORDS], u64), String> {
    let wrong = || format!("usage: {usage}");
    let (last, words) = arguments.split_last().ok_or_else(wrong)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words = words.try_into().map_err(|_| wrong())?;
    Ok((words, last.parse().map_err(|error| format!("ITERATIONS \"{last}\": {error}; usage: {usage}"))?))
}

/// Refuses a word that is none of a program's.
#[must_use]
pub fn unknown(word: &str, known: &str) -> String {
    format!("there is no \"{word}\"; there are: {known}")
}
