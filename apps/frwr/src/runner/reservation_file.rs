//! The file in which reservations are kept, as it is told of.

use crate::output::in_line;
use frwr_nvmf::controller::Reservations;

/// Why the file cannot be written, told once for each reason, and that it can again.
#[derive(Debug)]
pub(super) struct FileWatch {
    of: Reservations,
    told: Option<String>,
}

impl FileWatch {
    pub(super) fn new(of: Reservations) -> Self {
        Self { of, told: None }
    }

    /// Says what is news.
    pub(super) fn tell(&mut self, say: &mut dyn FnMut(&str)) {
        let fault = self.of.fault();
        if fault != self.told {
            say(&line(fault.as_deref()));
            self.told = fault;
        }
    }
}

fn line(fault: Option<&str>) -> String {
    match fault {
        Some(fault) => format!(
            "--reservations: {}; reservations hold all the same, and hosts that want theirs to survive are answered Internal \
             Error; make it writable, and have them ask again",
            in_line(fault)
        ),
        None => {
            "--reservations: the file is written again, with all that hosts were answered Internal Error for".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn that_the_file_cannot_be_written_and_that_it_can_again_are_lines_with_path_reason_and_remedy() {
        let failed = line(Some("/var/lib/a\nb: No space left on device (os error 28)"));
        for part in ["--reservations", "a\\nb: No space left", "Internal Error", "make it writable"] {
            assert!(failed.contains(part), "{failed}");
        }
        assert!(line(None).contains("written again"));
    }
}
