//! Each fault that an engine can meet, with one request in each state that a request can be in. `docs/faults.md` has
//! them by their numbers.

mod dropped;
mod faults;
mod interferences;
mod positions;
mod state;
mod strike;
