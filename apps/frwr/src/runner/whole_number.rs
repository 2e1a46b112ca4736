//! Whole numbers in the words of somebody who types them, where serde names a type of Rust.

/// What a type of whole numbers takes; nothing of any other.
pub(super) fn in_words(kind: &str) -> Option<String> {
    let most = match kind {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        "u64" | "usize" => u64::MAX,
        _ => return None,
    };
    Some(format!("a whole number from 0 to {most}"))
}
