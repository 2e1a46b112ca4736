//! Memory that one core owns.
use std::sync::Arc;
/// Stub.
#[derive(Clone, Debug)]
pub struct DeviceMemory(Arc<[u8]>);
impl DeviceMemory {
    /// Stub.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Stub.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
