//! Who may use a namespace on which a reservation is held (Base 8.19, NVM 2.1.3): a table, and nothing else.

use crate::wire::ReservationType;

/// What a command does to a namespace, as reservations see it: Read and Compare read; Write, Write Zeroes, Dataset Management and Flush
/// write (the table of NVM for commands in the presence of a reservation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Access {
    Read,
    Write,
}

/// What a host is to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Standing {
    /// It is not registered.
    Other,
    /// It is registered, and does not hold the reservation.
    Registrant,
    Holder,
}

/// The table.
pub(in super::super) fn permits(kind: ReservationType, access: Access, standing: Standing) -> bool {
    match standing {
        Standing::Holder => true,
        Standing::Registrant if kind.is_of_registrants() => true,
        Standing::Registrant | Standing::Other => access == Access::Read && kind.lets_read(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Standing, permits};
    use crate::wire::ReservationType;

    /// The table of the standard, written out: type, access, and what an unregistered host, a registrant and the holder get.
    #[test]
    fn the_table_of_types_accesses_and_hosts_is_the_standards() {
        use ReservationType::{
            ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants, WriteExclusive, WriteExclusiveAll,
            WriteExclusiveRegistrants,
        };
        let table = [
            (WriteExclusive, Access::Read, [true, true, true]),
            (WriteExclusive, Access::Write, [false, false, true]),
            (ExclusiveAccess, Access::Read, [false, false, true]),
            (ExclusiveAccess, Access::Write, [false, false, true]),
            (WriteExclusiveRegistrants, Access::Read, [true, true, true]),
            (WriteExclusiveRegistrants, Access::Write, [false, true, true]),
            (ExclusiveAccessRegistrants, Access::Read, [false, true, true]),
            (ExclusiveAccessRegistrants, Access::Write, [false, true, true]),
            (WriteExclusiveAll, Access::Read, [true, true, true]),
            (WriteExclusiveAll, Access::Write, [false, true, true]),
            (ExclusiveAccessAll, Access::Read, [false, true, true]),
            (ExclusiveAccessAll, Access::Write, [false, true, true]),
        ];
        assert_eq!(table.len(), 2 * ReservationType::ALL.len());
        for (kind, access, expected) in table {
            let standings = [Standing::Other, Standing::Registrant, Standing::Holder];
            let found = standings.map(|standing| permits(kind, access, standing));
            assert_eq!(found, expected, "{kind:?} {access:?}");
        }
    }
}
