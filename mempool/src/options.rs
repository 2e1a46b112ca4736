//! What all structs of options have in common, here and in the crates above.

/// Declares a struct of options: all fields public, and `#[non_exhaustive]`, so that a new one breaks nobody. Each field
/// has a setter of its own name, to be chained behind `new` or `default`. Setters take what the field is, and check
/// nothing: that does whoever the options are given to.
///
/// ```
/// frwr_mempool::options! {
///     /// How to brew.
///     #[derive(Clone, Copy, Debug, Default)]
///     pub struct Brewing {
///         /// Spoons for a cup.
///         pub spoons: u8,
///         /// Degrees Celsius; `None` for boiling.
///         pub degrees: Option<u8>,
///     }
/// }
///
/// let brewing = Brewing::default().spoons(2).degrees(Some(80));
/// assert_eq!((brewing.spoons, brewing.degrees), (2, Some(80)));
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* pub $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $kind,)*
        }

        /// A setter for each field.
        impl $name {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
