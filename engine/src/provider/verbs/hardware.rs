//! What user space can do on which hardware, by driver, generation and version of rdma-core, each with its source. Only what the device
//! says and its self-test decide what happens (`keys`, `self_test`): this is for people. README.md and docs/hardware.md show it; a test
//! compares them.

use super::quirks::Evidence;
use std::fmt::Write as _;

/// What a device can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// It opens keys by work requests, and responds to peers that do.
    Requests,
    /// It opens none: it can only respond.
    Responds,
    /// This provider does not drive it.
    Nothing,
}

/// Hardware of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// As [`super::system::driver`] names it.
    pub driver: &'static str,
    /// The kernel's drivers that tell it from other hardware of the same driver; none where there is no other.
    pub kernel_drivers: &'static [&'static str],
    /// What people call it.
    pub devices: &'static str,
    /// What it can be used for.
    pub uses: Uses,
    /// Type 2 windows in user space, by version of rdma-core.
    pub windows: &'static str,
    /// SEND_WITH_INV in user space, by version of rdma-core.
    pub send_with_invalidate: &'static str,
    /// Where that is from: commits and files of rdma-core, and what else was read.
    pub source: &'static str,
    /// How that is known.
    pub evidence: Evidence,
}

/// A row that nobody has run.
const fn read(driver: &'static str, devices: &'static str, uses: Uses) -> Hardware {
    Hardware {
        driver,
        kernel_drivers: &[],
        devices,
        uses,
        windows: "none",
        send_with_invalidate: "yes",
        source: "",
        evidence: Evidence::NotRunOnHardware,
    }
}

/// The table. Read in rdma-core up to 691953d8d (August 2026, behind 64.0).
pub static HARDWARE: [Hardware; 15] = [
    Hardware {
        windows: "since 36",
        source: "8337db5df; run by every test of this project, with the kernel of Debian 12",
        evidence: Evidence::Run,
        ..read("rxe", "soft RoCE of Linux", Uses::Requests)
    },
    Hardware {
        windows: "in all versions; virtual functions may have none",
        source: "providers/mlx5/qp.c; NVIDIA's documentation has windows on physical functions and native machines only",
        ..read("mlx5", "NVIDIA ConnectX-4 and later, BlueField", Uses::Requests)
    },
    Hardware {
        windows: "in all versions",
        source: "providers/mlx4/verbs.c, providers/mlx4/qp.c",
        ..read("mlx4", "NVIDIA ConnectX-3", Uses::Requests)
    },
    Hardware {
        windows: "since 61.0",
        source: "6d82ac7ba (providers/ionic/ionic_verbs.c)",
        ..read("ionic", "AMD Pensando Pollara and Vulcano", Uses::Requests)
    },
    Hardware {
        kernel_drivers: &["idpf"],
        windows: "since 64.0",
        source: "0e7966498, pull request 1640 of rdma-core",
        ..read("irdma", "Intel IPU E2000", Uses::Requests)
    },
    Hardware {
        kernel_drivers: &["ice"],
        windows: "never: 37 to 63 refuse to allocate them, later the kernel says that there are none",
        source: "14a0fc824 and 0e7966498 (irdma_ualloc_mw); their iWARP is refused",
        ..read("irdma", "Intel E810 and E82x over RoCE v2", Uses::Responds)
    },
    Hardware {
        kernel_drivers: &["i40e"],
        windows: "never, as E810",
        source: "14a0fc824; iWARP, whose connections this provider cannot make",
        ..read("irdma", "Intel X722", Uses::Nothing)
    },
    Hardware {
        windows: "never",
        send_with_invalidate: "since 47 (some cards fail it)",
        source: "6045fdfe8; spdk issue 3926: LOC_QP_OP_ERR from a card that says otherwise",
        ..read("bnxt_re", "Broadcom NetXtreme-E", Uses::Responds)
    },
    Hardware {
        windows: "21 to 58, removed in 59.0",
        source: "021c89f0f, 2e412b9f1; cbdf5e32a",
        ..read("hns", "Huawei HNS", Uses::Responds)
    },
    Hardware {
        windows: "never: since 63.0 allocated, but there is no bind",
        send_with_invalidate: "since 53.0",
        source: "4c1aee0a7, ec26fedd5",
        ..read("mana", "Microsoft Azure MANA", Uses::Responds)
    },
    Hardware {
        windows: "never",
        send_with_invalidate: "since 60.0",
        source: "11d1baaa0; where its connections are those of iWARP it is refused",
        ..read("erdma", "Alibaba ERDMA", Uses::Responds)
    },
    Hardware {
        windows: "never",
        source: "d44190bdf; its iWARP is refused",
        ..read("qedr", "Marvell FastLinQ over RoCE", Uses::Responds)
    },
    Hardware {
        windows: "never",
        send_with_invalidate: "since 22",
        source: "d439003b2; iWARP, whose connections this provider cannot make",
        ..read("cxgb4", "Chelsio T4 and later", Uses::Nothing)
    },
    Hardware {
        windows: "never",
        source: "fb399ae66; iWARP, whose connections this provider cannot make",
        ..read("siw", "soft iWARP of Linux", Uses::Nothing)
    },
    Hardware {
        windows: "never",
        send_with_invalidate: "no",
        source: "providers/efa/verbs.c: no reliable connections",
        ..read("efa", "Amazon EFA", Uses::Nothing)
    },
];

impl Uses {
    /// A few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Requests => "requests and serves",
            Self::Responds => "serves only",
            Self::Nothing => "refused",
        }
    }
}

impl Evidence {
    /// A few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Run => "every test run",
            Self::NotRunOnHardware => "**not run on hardware**",
        }
    }
}

/// What is known of the windows of a driver's hardware, for whoever has none: one line, or nothing.
#[must_use]
pub fn windows_of(driver: &str) -> Option<String> {
    let rows = HARDWARE.iter().filter(|row| row.driver == driver);
    let known: Vec<String> = rows.map(|row| format!("{}: {}", row.devices, row.windows)).collect();
    (!known.is_empty()).then(|| format!("windows by version of rdma-core: {}", known.join("; ")))
}

/// What README.md shows.
#[must_use]
pub fn short_table() -> String {
    let mut table = "| driver | devices | use | state |\n|---|---|---|---|\n".to_owned();
    for Hardware { driver, devices, uses, evidence, .. } in HARDWARE {
        let _ = writeln!(table, "| `{driver}` | {devices} | {} | {} |", uses.text(), evidence.text());
    }
    table
}

/// What docs/hardware.md shows.
#[must_use]
pub fn table() -> String {
    let head = "| driver | devices | use | type 2 windows (rdma-core) | SEND_WITH_INV (rdma-core) | source |\n";
    let mut table = format!("{head}|---|---|---|---|---|---|\n");
    for row in &HARDWARE {
        let kernel = match row.kernel_drivers {
            [] => String::new(),
            drivers => format!(" ({})", drivers.join(", ")),
        };
        let Hardware { driver, devices, uses, windows, send_with_invalidate, source, .. } = row;
        let uses = uses.text();
        let _ = writeln!(
            table,
            "| `{driver}`{kernel} | {devices} | {uses} | {windows} | {send_with_invalidate} | {source} |"
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Evidence, HARDWARE, Uses, short_table, table, windows_of};
    use crate::provider::verbs::{quirks::KNOWN_DEVICES, system::driver_of};

    /// A file of the project.
    fn project(name: &str) -> String {
        let path = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The table behind a heading, up to the first line that is none of it.
    fn table_behind(text: &str, heading: &str) -> String {
        let from = text.find(heading).unwrap_or_else(|| panic!("no heading {heading}"));
        let lines = text[from..].lines().skip_while(|line| !line.starts_with('|'));
        lines.take_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn documents_show_the_table_as_it_is() {
        for (file, heading, expected) in
            [("README.md", "\n### Devices\n", short_table()), ("docs/hardware.md", "\n## 6. Devices\n", table())]
        {
            let shown = table_behind(&project(file), heading);
            assert_eq!(shown, expected, "{file} shows another table than the code has; it should be\n{expected}");
        }
    }

    #[test]
    fn every_row_has_a_source_and_only_soft_roce_was_run() {
        for row in &HARDWARE {
            assert!(!row.source.is_empty() && !row.devices.is_empty(), "{row:?}");
            assert_eq!(row.evidence == Evidence::Run, row.driver == "rxe", "{row:?}");
        }
        for known in &KNOWN_DEVICES {
            let rows = HARDWARE.iter().filter(|row| row.driver == known.driver && row.uses == Uses::Requests);
            assert_eq!(
                rows.count(),
                1,
                "what is known of the windows of {} is of hardware that has them",
                known.driver
            );
        }
    }

    #[test]
    fn hardware_of_one_driver_is_told_apart_by_the_kernel_drivers() {
        for row in &HARDWARE {
            let same = HARDWARE.iter().filter(|other| other.driver == row.driver).count();
            assert_eq!(row.kernel_drivers.is_empty(), same == 1, "{row:?}");
            assert!(row.kernel_drivers.iter().all(|kernel| driver_of(kernel) == row.driver), "{row:?}");
        }
    }

    #[test]
    fn who_has_no_windows_is_told_what_is_known_of_them() {
        let irdma = windows_of("irdma").unwrap();
        assert!(irdma.contains("Intel IPU E2000: since 64.0") && irdma.contains("Intel E810"), "{irdma}");
        assert!(windows_of("ionic").is_some_and(|known| known.ends_with("since 61.0")));
        assert_eq!(windows_of("nobody"), None);
    }
}
