//! What valgrind and the programs under it print.

/// One run under valgrind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Iterations that the program was told to do.
    pub(super) iterations: u64,
    /// What valgrind counted.
    pub(super) total: u64,
}

/// Instructions of a run: the line "Collected : N" of callgrind's summary.
pub(super) fn instructions(stderr: &str) -> Result<u64, String> {
    number_behind(stderr, "Collected : ").ok_or_else(|| no_total("callgrind", stderr))
}

/// Locked instructions of a run: the second number of the line "Collected : N M", whose names are in "Events    : Ir Ge".
pub(super) fn locked(stderr: &str) -> Result<u64, String> {
    let (_, rest) = stderr.split_once("Events    : Ir Ge").ok_or_else(|| no_total("callgrind", stderr))?;
    let (_, rest) = rest.split_once("Collected : ").ok_or_else(|| no_total("callgrind", stderr))?;
    let second = rest.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    second.ok_or_else(|| no_total("callgrind", stderr))
}

/// Allocations of a run: "total heap usage: N allocs" of memcheck's summary, with commas in the number.
pub(super) fn allocations(stderr: &str) -> Result<u64, String> {
    number_behind(stderr, "total heap usage: ").ok_or_else(|| no_total("memcheck", stderr))
}

fn no_total(tool: &str, stderr: &str) -> String {
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    format!("{tool} printed no total, but: {last}")
}

fn number_behind(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
    digits.parse().ok()
}

/// Objects per iteration, of a counting program's line "N iterations of M objects"; 1 where it names none.
pub(super) fn objects(stdout: &str) -> f64 {
    let of = stdout.lines().rev().find_map(|line| line.split_once(" iterations of "));
    of.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .filter(|objects| *objects > 0.0)
        .unwrap_or(1.0)
}

/// The number behind a name in what a program prints: "NAME 1.5" or "NAME=1.5". The last one counts.
pub(super) fn printed(stdout: &str, name: &str) -> Option<f64> {
    let words: Vec<_> = stdout.split(|c: char| c.is_whitespace() || c == '=' || c == ',' || c == ';').collect();
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.windows(2).rev().find(|pair| pair[0] == name).and_then(|pair| pair[1].parse().ok())
}

/// The number in front of some words in what a program prints: "0.0312 send completions". The last one counts.
pub(super) fn counted(stdout: &str, words: &str) -> Option<f64> {
    stdout.rmatch_indices(words).find_map(|(at, _)| stdout[..at].split_whitespace().next_back()?.parse().ok())
}

/// What one object costs: set-up is in both runs and cancels.
pub(super) fn per_object(few: Run, many: Run, objects: f64) -> Result<f64, String> {
    if many.iterations <= few.iterations {
        return Err(format!("{} iterations are not more than {}", many.iterations, few.iterations));
    }
    let work = many.total as f64 - few.total as f64;
    Ok(work / (many.iterations - few.iterations) as f64 / objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found() {
        let callgrind = "==7== Events    : Ir\n==7== Collected : 49374832\n==7==\n==7== I   refs:      49,374,832\n";
        assert_eq!(instructions(callgrind), Ok(49_374_832));
        let bus = "==7== Events    : Ir Ge\n==7== Collected : 138015 3026\n==7==\n==7== I   refs:      138,015\n";
        assert_eq!((instructions(bus), locked(bus)), (Ok(138_015), Ok(3026)));
        assert!(locked(callgrind).is_err());
        let memcheck = "==9== HEAP SUMMARY:\n==9==   total heap usage: 1,234 allocs, 1,230 frees, 9,000 bytes\n";
        assert_eq!(allocations(memcheck), Ok(1234));
        assert_eq!(
            instructions("valgrind: /tmp/x: No such file\n\n"),
            Err("callgrind printed no total, but: valgrind: /tmp/x: No such file".to_owned())
        );
        assert_eq!(allocations(""), Err("memcheck printed no total, but: nothing".to_owned()));
    }

    #[test]
    fn programs_say_how_many_objects_an_iteration_has() {
        for (line, expected) in [
            ("1000 iterations of 32 indices, 64 free at the end\n", 32.0),
            ("1000 iterations of 1 object\n", 1.0),
            ("20000 requests, 626 doorbells\n", 1.0),
            ("9 iterations of 0 objects", 1.0),
            ("", 1.0),
        ] {
            assert_eq!(objects(line), expected, "{line}");
        }
    }

    #[test]
    fn numbers_are_found_behind_their_name() {
        for (text, expected) in [
            ("ns 123.4\n", Some(123.4)),
            ("warm\nns 5\nns 7\n", Some(7.0)),
            ("3 iterations of 2 requests, doorbells=0.5, ns=2;", Some(2.0)),
            ("per_second 12\n", None),
            ("ns\n", None),
        ] {
            assert_eq!(printed(text, "ns"), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_found_in_front_of_their_words() {
        let text =
            "12000 iterations of 1 request: 0.0312 doorbells, 2.0000 work requests, 0.5 receive doorbells each\n";
        for (words, expected) in [
            ("doorbells", Some(0.0312)),
            ("work requests", Some(2.0)),
            ("receive doorbells", Some(0.5)),
            ("iterations", Some(12_000.0)),
            ("receives", None),
        ] {
            assert_eq!(counted(text, words), expected, "{words}");
        }
    }

    #[test]
    fn set_up_cancels() {
        let (few, many) = (Run { iterations: 100, total: 5000 }, Run { iterations: 300, total: 11_400 });
        assert_eq!(per_object(few, many, 1.0), Ok(32.0));
        assert_eq!(per_object(few, many, 32.0), Ok(1.0));
        assert!(per_object(many, few, 1.0).is_err());
    }
}
