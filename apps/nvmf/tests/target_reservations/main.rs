//! Reservations of a target's namespaces: several hosts, on several cores and devices.

mod commands;
mod hosts;
mod notifications;
mod persistence;
mod preemption;
mod races;
mod stepped;
