//! In what libraries and devices differ, beside what they say of themselves.

/// What a library has of type 2 windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeWindows {
    /// All of them.
    #[default]
    Working,
    /// No function allocates any, `max_mw` is 0, and no flag speaks of them (bnxt_re, hns, E810 from rdma-core 64 on). Memory that is
    /// registered for them is refused.
    None,
    /// The device speaks of them, and its library allocates none (irdma of rdma-core 37 to 63).
    NotAllocated,
    /// They are allocated, and no work request binds them (mana).
    NotBound,
}

/// What becomes of a SEND_WITH_INV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeInvalidate {
    /// It invalidates.
    #[default]
    Works,
    /// It is posted, and completes with IBV_WC_LOC_QP_OP_ERR (bnxt_re, spdk issue 3926).
    Fails,
    /// The library does not take it.
    NotPosted,
    /// It arrives as a SEND.
    Plain,
}

/// How a library and its device differ from the strictest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// Its windows.
    pub windows: FakeWindows,
    /// Its SEND_WITH_INV.
    pub send_with_invalidate: FakeInvalidate,
    /// A post writes the new key into the window that it names (irdma). All others leave it alone.
    pub writes_keys: bool,
    /// EINVAL for a bind of no bytes, and for a bind or a LOCAL_INV that is inline or solicited (ionic).
    pub strict_binds: bool,
    /// EINVAL for a bind of memory that is registered as zero-based (irdma).
    pub refuses_zero_based: bool,
    /// The system says that it is a virtual function.
    pub is_virtual: bool,
}

impl Manners {
    /// As AMD's ionic.
    pub const IONIC: Self = Self { strict_binds: true, ..Self::STRICT };
    /// As Intel's irdma on the IPU E2000.
    pub const IRDMA: Self = Self { writes_keys: true, refuses_zero_based: true, ..Self::STRICT };
    /// A card that can only respond, whatever becomes of its SEND_WITH_INV.
    #[must_use]
    pub const fn responds_only(send_with_invalidate: FakeInvalidate) -> Self {
        Self { windows: FakeWindows::None, send_with_invalidate, ..Self::STRICT }
    }

    /// As the manual pages have it.
    pub const STRICT: Self = Self {
        windows: FakeWindows::Working,
        send_with_invalidate: FakeInvalidate::Works,
        writes_keys: false,
        strict_binds: false,
        refuses_zero_based: false,
        is_virtual: false,
    };
}
