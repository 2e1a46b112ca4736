//! Pinned cores.
