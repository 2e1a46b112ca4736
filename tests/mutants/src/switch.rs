//! The module that stands in the copy of each crate, behind which all its mutants are.

/// Which mutant this process is: its number, or "reached" to write down the numbers of all that are reached.
pub(crate) const MUTANT: &str = "FRWR_GENERATED_MUTANT";
/// The value of [`MUTANT`] that changes nothing, and writes down what is reached.
pub(crate) const RECORD: &str = "reached";
/// Where those numbers go, one a line.
pub(crate) const REACHED: &str = "FRWR_GENERATED_REACHED";

/// The name of the module.
pub(crate) const MODULE: &str = "__mutant";

/// Its source, for numbers below `count`. The environment is read once; what is reached is appended at once, so that a process that is
/// killed has told as much as one that ends.
pub(crate) fn source(count: u32) -> String {
    let words = count / 32 + 1;
    format!(
        r#"
use std::io::Write;
use std::sync::atomic::{{AtomicU32, Ordering::Relaxed}};

const UNREAD: u32 = u32::MAX;
const RECORDS: u32 = u32::MAX - 1;
const NOBODY: u32 = u32::MAX - 2;

static WANTED: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicU32; {words}] = [const {{ AtomicU32::new(0) }}; {words}];

#[inline(always)]
pub(crate) fn is(number: u32) -> bool {{
    let wanted = WANTED.load(Relaxed);
    wanted == number || wanted >= RECORDS && unusual(wanted, number)
}}

#[cold]
fn unusual(wanted: u32, number: u32) -> bool {{
    if wanted == UNREAD {{
        let read = std::env::var("{MUTANT}").map_or(NOBODY, |text| {{
            if text == "{RECORD}" {{ RECORDS }} else {{ text.parse().unwrap_or(NOBODY) }}
        }});
        WANTED.store(read, Relaxed);
        return is(number);
    }}
    let bit = 1 << (number % 32);
    if SEEN[number as usize / 32].fetch_or(bit, Relaxed) & bit == 0 {{
        let path = std::env::var_os("{REACHED}").expect("{REACHED} names a file");
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("{REACHED} can be written to");
        file.write_all(format!("{{number}}\n").as_bytes()).expect("{REACHED} can be written to");
    }}
    false
}}
"#
    )
}
