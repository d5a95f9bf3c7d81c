//! "Did you mean": the known name closest to a mistyped one.

/// The known name closest to `name`, if it is close enough to be a likely typo.
///
/// Half of the longer name may differ. Beyond that a suggestion only misleads.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| distance * 2 <= name.len().max(candidate.len()))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_the_slip_and_nothing_far_away() {
        let known = ["listen", "data", "log_format"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("log-format", known), Some("log_format"));
        assert_eq!(nearest("quantum", known), None);
    }
}
