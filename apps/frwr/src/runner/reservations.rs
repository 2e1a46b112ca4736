//! Reservations of what is served: whose they are, where those are kept that survive, and which namespaces have none.

use super::{
    gateway::GatewayArguments,
    namespaces::{MediumConfig, SubsystemConfig},
    serve_command::{ServeConfig, TargetArguments},
};
use crate::{Error, output::in_line};
use frwr_nvmf::controller::Reservations;

/// What is kept here holds for hosts of this gateway alone.
///
/// # Errors
/// There are others, and somebody wants reservations in a file.
pub(super) fn check(target: &TargetArguments, gateway: &GatewayArguments) -> Result<(), Error> {
    if target.reservations.is_none() || !gateway.is_one_of_several() {
        return Ok(());
    }
    let text = "--reservations: is not for one of several gateways (--controller-ids, --first-port-id, --other-gateway), since \
                hosts of the others would not be held to what is kept here; leave it out";
    Err(Error::usage("reservations", text))
}

/// Of all cores and devices of the process; `None` for one of several gateways. `say` is told the namespaces that have none, where
/// somebody asks for some that survive.
///
/// # Errors
/// The file of `--reservations` cannot be used.
pub(super) fn reservations(config: &ServeConfig, say: &mut dyn FnMut(&str)) -> Result<Option<Reservations>, Error> {
    if config.arguments.gateway.is_one_of_several() {
        return Ok(None);
    }
    let Some(path) = &config.arguments.target.reservations else { return Ok(Some(Reservations::new())) };
    let kept =
        Reservations::open(path).map_err(|error| Error::failed("reservations", format!("--reservations: {error}")))?;
    config.subsystems.iter().flat_map(without).for_each(|line| say(&line));
    Ok(Some(kept))
}

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

/// Lines of namespaces that another gateway may serve as well: this process could not keep reservations for its hosts.
fn without(subsystem: &SubsystemConfig) -> impl Iterator<Item = String> {
    let shared = |medium: &MediumConfig| matches!(medium, MediumConfig::Nbd { .. } | MediumConfig::Rbd { .. });
    let namespaces = subsystem.namespaces.iter().filter(move |namespace| shared(&namespace.config.medium));
    namespaces.map(|namespace| {
        let (identifier, name, nqn) = (namespace.identifier, namespace.config.name(), subsystem.nqn.as_str());
        format!(
            "namespace {identifier} of {nqn} ({name}) has no reservations: another gateway may serve it too, whose hosts \
             would not be held to them"
        )
    })
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
