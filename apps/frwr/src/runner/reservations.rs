//! Reservations of what is served: whose they are, where those are kept that survive, and which namespaces have none.

use super::{
    namespaces::{MediumConfig, SubsystemConfig},
    serve_command::ServeConfig,
};
use crate::Error;
use frwr_nvmf::controller::Reservations;

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
