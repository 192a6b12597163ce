//! Enums whose variants have numbers on the wire.

/// An enum with its numbers on the wire, both ways from one list.
macro_rules! wire_enum {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $wire:ty { $($(#[$variant_doc:meta])* $variant:ident = $code:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($wire)]
        pub enum $name { $($(#[$variant_doc])* $variant = $code,)+ }

        impl $name {
            /// Every one, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> $wire {
                self as $wire
            }

            /// The one with this number.
            #[must_use]
            pub const fn from_code(code: $wire) -> Option<$name> {
                match code { $($code => Some($name::$variant),)+ _ => None }
            }
        }
    };
}
pub(crate) use wire_enum;
