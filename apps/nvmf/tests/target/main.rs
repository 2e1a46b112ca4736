//! The target as its hosts, its storages and who operates it see it: on one core and on two, stepped by hand. One program, because each
//! would build target and host once more; a module of it runs by its name: `cargo test -p frwr-nvmf --test target changes::`.

mod admin;
mod admission;
mod ana;
mod changes;
mod changes_model;
mod clauses;
mod cores;
mod drain;
mod durability;
mod former;
mod fused;
mod hung;
mod inventory;
mod late;
mod listeners;
mod media;
mod protocol;
mod session;
mod sleep;
mod start;
