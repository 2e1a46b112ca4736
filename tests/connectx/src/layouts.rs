//! The layouts of an interface of the kernel: plain structures whose sizes are checked when they are compiled.

macro_rules! layouts {
    ($($(#[$meta:meta])* $name:ident, $bytes:literal { $($member:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
            #[repr(C)]
            pub(super) struct $name { $(pub(super) $member: $type),* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

pub(crate) use layouts;
