//! The host by itself: over controllers that answer as a test wants, and where it meets what no target of ours does. One program, because
//! each would build host and target once more; a module of it runs by its name: `cargo test -p frwr-nvmf --test host retries::`.

mod ana;
mod bring_up;
mod chaos;
mod clauses;
mod device;
mod discovery;
mod events;
mod following;
mod fused;
mod interplay;
mod limits;
mod refused;
mod reservations;
mod retries;
mod statuses;
mod stops;
mod times;
mod turns;
mod unusual;
