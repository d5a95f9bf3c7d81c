//! Entity tags: which bytes of which life of a stream a page holds.

use std::fmt;

use super::offset::Offset;

/// What identifies a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTag {
    /// The life of the stream, so that a re-created stream has other tags.
    pub life: u64,
    /// Where the page begins.
    pub from: Offset,
    /// Where it ends.
    pub to: Offset,
    /// Whether the page ends a closed stream: closing adds no byte, but changes the answer.
    pub is_the_end: bool,
}

impl fmt::Display for PageTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_the_end { ":c" } else { "" };
        write!(f, "\"{:x}:{}:{}{end}\"", self.life, self.from.bytes(), self.to.bytes())
    }
}

/// Whether an `If-None-Match` names `tag`. Weak tags count; `*` names every page.
pub fn names(if_none_match: &str, tag: &str) -> bool {
    let given = if_none_match.split(',').map(str::trim);
    given.into_iter().any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(life: u64, from: u64, to: u64, is_the_end: bool) -> PageTag {
        PageTag { life, from: Offset::new(from), to: Offset::new(to), is_the_end }
    }

    proptest! {
        #[test]
        fn different_pages_have_different_tags(
            a in (0..5u64, 0..30u64, 0..30u64, any::<bool>()),
            b in (0..5u64, 0..30u64, 0..30u64, any::<bool>()),
        ) {
            let text = |(life, from, to, end)| tag(life, from, to, end).to_string();
            prop_assert_eq!(a == b, text(a) == text(b));
        }
    }

    #[test]
    fn a_list_may_name_the_tag() {
        let tag = tag(1, 0, 5, true).to_string();
        assert_eq!(tag, "\"1:0:5:c\"");
        assert!(names(&tag, &tag));
        assert!(names(&format!("\"x\", W/{tag}"), &tag));
        assert!(names("*", &tag));
        assert!(!names("\"x\"", &tag));
    }
}
