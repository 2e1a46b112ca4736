//! Whether a port's queue pairs are made in a thread domain: they then ring a register that no other core rings, without locks.

use super::{
    findings::Findings,
    options::VerbsOptions,
    quirks::KnownDevice,
    sys::{context::Context, thread_domain::ThreadDomain},
};
use std::{io, sync::Arc};

/// A thread domain for one port; nothing where none is wanted.
pub(super) fn allocate(
    context: &Arc<Context>,
    options: &VerbsOptions,
    known: &KnownDevice,
) -> Option<io::Result<Arc<ThreadDomain>>> {
    let is_wanted = options.thread_domains && known.thread_domains;
    is_wanted.then(|| ThreadDomain::new(context).map(Arc::new))
}

/// Tells whether there are any, where they are wanted.
pub(super) fn report(tried: Option<io::Result<Arc<ThreadDomain>>>, findings: &mut Findings) {
    const NAME: &str = "queue pairs of a core have a doorbell register of their own, never run on hardware";
    match tried {
        None => {}
        Some(Ok(_)) => findings.expect(NAME, true, "posts take no locks (ibv_alloc_td)"),
        Some(Err(error)) => {
            findings.expect(NAME, false, format!("no: {error}; queue pairs of all cores share registers under locks"));
        }
    }
}
