//! Patterns over stream names: `*` is one segment, `**` any number of them.

/// Whether `name` matches `pattern`. Both are split at `/`; empty segments do not count.
pub fn matches(pattern: &str, name: &str) -> bool {
    let segments = |text: &str| -> Vec<String> {
        text.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
    };
    let (pattern, name) = (segments(pattern), segments(name));
    // The positions in the pattern that the name read so far can reach. `**` reaches the position
    // before and after itself, so the work is bounded by the product of the two lengths.
    let mut at = vec![false; pattern.len() + 1];
    at[0] = true;
    spread(&pattern, &mut at);
    for segment in &name {
        let mut after = vec![false; pattern.len() + 1];
        for (index, part) in pattern.iter().enumerate().filter(|(index, _)| at[*index]) {
            match part.as_str() {
                "**" => after[index] = true,
                "*" => after[index + 1] = true,
                literal if literal == segment => after[index + 1] = true,
                _ => {}
            }
        }
        spread(&pattern, &mut after);
        at = after;
    }
    at[pattern.len()]
}

/// `**` may also match nothing.
fn spread(pattern: &[String], at: &mut [bool]) {
    for (index, part) in pattern.iter().enumerate() {
        if part == "**" && at[index] {
            at[index + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_segments() {
        assert!(matches("events/*", "events/a"));
        assert!(!matches("events/*", "events/a/b"));
        assert!(!matches("events/*", "events"));
        assert!(matches("**", "a/b/c"));
        assert!(matches("a/**/z", "a/z"));
        assert!(matches("a/**/z", "a/b/c/z"));
        assert!(!matches("a/**/z", "a/b/c"));
        assert!(matches("/a/*/", "a/b"));
        assert!(!matches("a*", "ab"));
    }

    /// Patterns come from outside: many stars must not cost exponential time.
    #[test]
    fn many_stars_stay_cheap() {
        let pattern = "**/".repeat(200) + "x";
        assert!(!matches(&pattern, &"a/".repeat(200)));
    }
}
