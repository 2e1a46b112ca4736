//! Regions for tests that are about what is made of one, not about pages.

use frwr_mempool::Region;

/// A region of at least so many bytes, at the start of a page.
#[cfg(not(miri))]
pub(crate) fn region(bytes: usize) -> Region {
    use frwr_mempool::{PagePolicy, PageSize, RegionOptions};

    Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap()
}

/// The same for Miri, which maps no memory that a program binds and populates: it is of the heap, so that Miri sees every
/// access to it.
#[cfg(miri)]
pub(crate) fn region(bytes: usize) -> Region {
    use std::ptr::NonNull;
    use std::sync::Arc;

    #[derive(Clone)]
    #[repr(align(4096))]
    struct Page {
        _bytes: [u64; 512],
    }
    // An address, so that no reference to the bytes is left.
    struct Pages(*mut [Page]);
    // SAFETY: it owns the pages, and does nothing with them but to free them.
    unsafe impl Send for Pages {}
    // SAFETY: as above.
    unsafe impl Sync for Pages {}
    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: of a box, and dropped once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
    let pages = vec![Page { _bytes: [0; 512] }; bytes.div_ceil(size_of::<Page>())];
    let pages = Box::into_raw(pages.into_boxed_slice());
    let len = pages.len() * size_of::<Page>();
    let first = NonNull::new(pages.cast::<u8>()).unwrap();
    // SAFETY: the bytes live as long as `Pages`, are initialised, and nobody else has a pointer to them.
    unsafe { Region::from_foreign(first, len, Arc::new(Pages(pages))) }
}
