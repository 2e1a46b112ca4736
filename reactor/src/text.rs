//! Pages of the program and of its libraries, mapped before a core needs them: otherwise the first run of a piece of code is a page
//! fault, in the middle of whatever its core had to do, and a read of a disk where nobody ran it lately.

use core::ops::Range;
use std::collections::HashSet;
use std::fs;

use crate::cpu;

/// Has the kernel map what this process runs, its constants with it; of files that are not in memory yet it reads them. What it cannot
/// give is mapped when it is touched, as it would have been without.
pub(crate) fn populate() {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for range in constant_ranges_of_code(&maps) {
        // Linux before 5.14 refuses all of them.
        if !cpu::populate(range) {
            return;
        }
    }
}

/// What proc_pid_maps(5) says of one mapping of a file.
struct Mapping<'a> {
    range: Range<usize>,
    permissions: &'a str,
    /// Device and inode: two files may have one name, where one was replaced.
    file: (&'a str, &'a str),
}

impl<'a> Mapping<'a> {
    /// `None` of a line of another form, and of memory without a file.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(begin, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let (permissions, _offset, file) = (words.next()?, words.next()?, (words.next()?, words.next()?));
        (file.1 != "0").then_some(Self { range, permissions, file })
    }

    fn runs(&self) -> bool {
        self.permissions.contains('x')
    }

    /// Nobody writes there, so that what is mapped stays what it is.
    fn is_constant(&self) -> bool {
        self.permissions.starts_with("r-")
    }
}

/// The constant mappings of each file of which some mapping runs: an embedder's large files of data are none of them.
fn constant_ranges_of_code(maps: &str) -> Vec<Range<usize>> {
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let code: HashSet<_> = mappings.iter().filter(|mapping| mapping.runs()).map(|mapping| mapping.file).collect();
    let constant = |mapping: &Mapping<'_>| mapping.is_constant() && code.contains(&mapping.file);
    mappings.into_iter().filter(constant).map(|mapping| mapping.range).collect()
}

#[cfg(test)]
mod tests {
    use super::constant_ranges_of_code;

    #[test]
    fn constants_of_files_that_run() {
        let maps = "\
            1000-3000 r--p 00000000 fe:00 41    /usr/bin/a program\n\
            3000-9000 r-xp 00002000 fe:00 41    /usr/bin/a program\n\
            9000-a000 rw-p 00008000 fe:00 41    /usr/bin/a program\n\
            a000-c000 rw-p 00000000 00:00 0     [heap]\n\
            d000-ff000 r--p 00000000 fe:00 42   /srv/of data\n\
            100000-101000 --xp 00000000 fe:00 43 /lib/that is only run\n\
            7ff0000-7ff1000 r-xp 00000000 00:00 0 [vdso]\n\
            no mapping\n";
        assert_eq!(constant_ranges_of_code(maps), [0x1000..0x3000, 0x3000..0x9000]);
    }
}
