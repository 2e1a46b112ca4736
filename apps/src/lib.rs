//! NVMe-oF host and target.
