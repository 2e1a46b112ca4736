//! What a device can really do, tried on a loop-back queue pair when it is opened: bind, access, local and remote
//! invalidation, and accesses that must be refused, posted as the device's ports will. Nothing here invalidates a key twice.

mod loopback;
mod unsettled;

use super::{
    VerbsDevice,
    findings::{Findings, Outcome, SelfTestError},
    sys::registered::KeyObjects,
    system,
};
use crate::provider::{Access, Failure, FailureStatus};
use loopback::{Delivery, LoopBack, WINDOW_BYTES, WINDOW_OFFSET};

/// How a work request ended, for people.
fn ended(result: Result<(), Failure>) -> String {
    match result {
        Ok(()) => "succeeded".to_owned(),
        // A port without a link says nothing before.
        Err(failure) if failure.status == FailureStatus::RetryExceeded => {
            format!("failed: {failure}; is the port's link up (`rdma link`)?")
        }
        Err(failure) => format!("failed: {failure}"),
    }
}

/// As it should be: the key is dead, or does not give that right, or not on those bytes.
fn is_access_error(result: Result<(), Failure>) -> bool {
    result.is_err_and(|failure| failure.status == FailureStatus::RemoteAccess)
}

/// Tries everything; each refused access costs a pair of queue pairs.
pub(super) fn self_test(device: &VerbsDevice, findings: &mut Findings) -> Result<(), SelfTestError> {
    let options = &device.options;
    let index = options.gid_index.map_or_else(String::new, |index| format!(" with index {index}"));
    let gid = system::choose_gid(&device.gids, options.gid_index)
        .ok_or(SelfTestError::NoGid { port: options.port, index })?;
    if matches!(device.keys, KeyObjects::None) {
        return replies(device, gid, findings);
    }
    normal_path(device, gid, findings)?;
    if findings.rows().iter().all(|row| row.outcome != Outcome::Unusable) {
        remote_invalidation(device, gid, findings)?;
        refused_access(device, gid, findings)?;
        bounds(device, gid, findings)?;
        // Some hosts do not survive these questions.
        if options.unsettled && device.known.driver == "mlx5" {
            unsettled::ask(device, gid, findings)?;
        }
    }
    Ok(())
}

/// A window bound in front of a SEND, used by the peer, invalidated, and bound again with its next key.
fn normal_path(device: &VerbsDevice, gid: system::Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    let mut pair = LoopBack::new(device, gid)?;
    let first = pair.bind_and_send("bind in front of a SEND", Access::RemoteReadWrite)?;
    findings.need("bind in front of a SEND", first.is_ok(), ended(first));
    if first.is_err() {
        return Ok(());
    }
    let written = pair.write("RDMA WRITE through the window", 0)?;
    let arrived = written.is_ok() && pair.has_arrived(0);
    findings.need("RDMA WRITE through the window", arrived, ended(written));
    let read = pair.read("RDMA READ through the window")?;
    findings.need("RDMA READ through the window", read.is_ok(), ended(read));
    let invalidated = pair.invalidate("LOCAL_INV")?;
    findings.need("LOCAL_INV", invalidated.is_ok(), ended(invalidated));
    let again = pair.bind_and_send("bind again with the next key", Access::RemoteReadWrite)?;
    findings.need("bind again with the next key", again.is_ok(), ended(again));
    if pair.rotates() {
        let refused = pair.write_with_old_key("RDMA WRITE with the former key")?;
        let is_refused = is_access_error(refused);
        findings.need("RDMA WRITE with the former key is refused", is_refused, ended(refused));
    }
    Ok(())
}

/// The peer's SEND_WITH_INV, and which bit says so.
fn remote_invalidation(device: &VerbsDevice, gid: system::Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    let mut pair = LoopBack::new(device, gid)?;
    let bound = pair.bind_and_send("bind for SEND_WITH_INV", Access::RemoteReadWrite)?;
    if bound.is_err() {
        findings.need("bind for SEND_WITH_INV", false, ended(bound));
        return Ok(());
    }
    let seen = pair.send_with_invalidate("SEND_WITH_INV")?;
    findings.seen.send_with_invalidate = Some(seen.was_sent());
    let Delivery::Received(seen) = seen else {
        findings.seen.remote_invalidation = Some(false);
        findings.expect("SEND_WITH_INV", false, seen.text());
        return Ok(());
    };
    let works = seen.key == Some(pair.key());
    findings.seen.remote_invalidation = Some(works);
    findings.expect("SEND_WITH_INV", works, if works { "the receive names the key" } else { "no key is named" });
    if works {
        findings.seen.flag_misplaced = Some(!seen.flag_is_right);
        let text = if seen.flag_is_right { "IBV_WC_WITH_INV" } else { "IBV_WC_IP_CSUM_OK in its place" };
        findings.expect("flag of SEND_WITH_INV", seen.flag_is_right, text);
        let refused = pair.write("RDMA WRITE after SEND_WITH_INV", 0)?;
        let is_refused = is_access_error(refused);
        findings.need("RDMA WRITE after SEND_WITH_INV is refused", is_refused, ended(refused));
    }
    Ok(())
}

/// What a device without keys of its own is for: messages, and with them the end of a peer's key. It has none that could be invalidated, so
/// what a SEND_WITH_INV names is memory registered by a system call. Whether that can be invalidated is the receiver's affair; that it was
/// asked for shows that ours was sent. A device may say that it can and fail (bnxt_re, spdk issue 3926): then replies are plain SENDs,
/// behind which peers kill their keys themselves.
fn replies(device: &VerbsDevice, gid: system::Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    const REMOTE: &str = "keys of peers are invalidated by SEND_WITH_INV";
    let sent = LoopBack::new(device, gid)?.send("SEND")?;
    findings.need("SEND", sent.is_ok(), ended(sent));
    if sent.is_ok() {
        let seen = LoopBack::new(device, gid)?.send_with_invalidate("SEND_WITH_INV")?;
        findings.seen.send_with_invalidate = Some(seen.was_sent());
        let text = if seen.was_sent() { "yes".to_owned() } else { format!("no: plain SEND; {}", seen.text()) };
        findings.expect(REMOTE, seen.was_sent(), text);
    }
    Ok(())
}

/// A window opens one right.
fn refused_access(device: &VerbsDevice, gid: system::Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    let mut pair = LoopBack::new(device, gid)?;
    let bound = pair.bind_and_send("bind for reading", Access::RemoteRead)?;
    let refused = pair.write("RDMA WRITE to a window for reading", 0)?;
    let is_refused = bound.is_ok() && is_access_error(refused);
    findings.need("RDMA WRITE to a window for reading is refused", is_refused, ended(refused));
    let mut pair = LoopBack::new(device, gid)?;
    let bound = pair.bind_and_send("bind, then LOCAL_INV", Access::RemoteReadWrite)?;
    let invalidated = pair.invalidate("LOCAL_INV")?;
    let refused = pair.write("RDMA WRITE after LOCAL_INV", 0)?;
    let is_refused = bound.is_ok() && invalidated.is_ok() && is_access_error(refused);
    findings.need("RDMA WRITE after LOCAL_INV is refused", is_refused, ended(refused));
    Ok(())
}

/// A window opens its own bytes, and not those beside it in the same base registration.
fn bounds(device: &VerbsDevice, gid: system::Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    let mut pair = LoopBack::new(device, gid)?;
    let bound = pair.bind_and_send("bind for bounds", Access::RemoteReadWrite)?;
    const _: () = assert!(WINDOW_OFFSET > 0, "there are bytes in front of the window");
    let refused = pair.write("RDMA WRITE beside the window", i64::from(WINDOW_BYTES))?;
    let enforced = bound.is_ok() && is_access_error(refused);
    findings.seen.enforces_bounds = Some(enforced);
    findings.expect("RDMA WRITE beside the window is refused", enforced, ended(refused));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ended;
    use crate::provider::{Failure, FailureStatus};

    #[test]
    fn a_device_that_hears_nothing_of_itself_is_asked_for_its_link() {
        let unheard = ended(Err(Failure::new(FailureStatus::RetryExceeded, 0x81)));
        assert!(unheard.contains("(status 12, vendor 0x81)") && unheard.contains("link up"), "{unheard}");
        assert!(!ended(Err(FailureStatus::RemoteAccess.into())).contains("link") && ended(Ok(())) == "succeeded");
    }
}
