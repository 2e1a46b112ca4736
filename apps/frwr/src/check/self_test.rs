//! The start-up self-test of RDMA devices: all that `check` knows of the verbs provider.

use super::rdma::SelfTest;

/// Opens a device, which tests it, and says what was found. Without the feature `verbs` it says so.
#[cfg(feature = "verbs")]
#[must_use]
pub fn self_test(device: &str) -> SelfTest {
    use super::rdma::{Finding, FindingOutcome};
    use frwr_engine::provider::verbs::{self, OpenError, Outcome, Role, VerbsDevice, VerbsOptions};

    // Of a device that opens no keys there is to be told what else it can.
    let options = VerbsOptions::new(device).unsettled(true).role(Role::Responder);
    let findings = match VerbsDevice::open(&options) {
        Ok(opened) => opened.findings().clone(),
        // What was found shows why.
        Err(OpenError::SelfTest { findings, .. }) if !findings.rows().is_empty() => findings,
        Err(error) => return SelfTest::NotOpened(error.to_string()),
    };
    let finding = |finding: &verbs::Finding| Finding {
        name: finding.name.to_owned(),
        outcome: match finding.outcome {
            Outcome::AsSpecified => FindingOutcome::Passed,
            Outcome::Deviates => FindingOutcome::Deviates,
            Outcome::Unusable => FindingOutcome::Failed,
        },
        text: finding.text.clone(),
    };
    SelfTest::Ran(findings.rows().iter().map(finding).collect())
}

/// Opens a device, which tests it, and says what was found. Without the feature `verbs` it says so.
#[cfg(not(feature = "verbs"))]
#[must_use]
pub fn self_test(_device: &str) -> SelfTest {
    SelfTest::NotBuilt
}
