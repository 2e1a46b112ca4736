//! Counters of a path.

frwr_mempool::statistics! {
    /// What a path has done for the requests of its caller. What its host did beside that, [`super::super::HostStatistics`] has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct PathStatistics {
        /// Requests handed to it; one that comes back and is handed to it again counts again.
        pub requests: u64,
        /// Those of them that it, or another path, had given back before.
        pub resubmitted: u64,
        /// Requests that it gave back because its session ended before they were answered.
        pub lost: u64,
        /// Requests that it gave back unsent, or refused because of the path: no controller executes them.
        pub refused: u64,
        /// Changes of the medium among the lost ones, which had to wait until the controller was over.
        pub fenced: u64,
        /// Those that wait for that now.
        pub waiting: u64 => Gauge,
        /// Requests that it has now.
        pub outstanding: u64 => Gauge,
        /// How often it came to serve, and how often it ceased to before it was shut down.
        pub came: u64,
        /// See [`PathStatistics::came`].
        pub went: u64,
    }
}
