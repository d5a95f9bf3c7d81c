//! Tokens that this process sends to another server, one per project. The caller stores them; this is the
//! format of a list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Choose = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Looks up the token for a project. Called before every request, so that a new token is used at once.
#[derive(Clone)]
pub struct Bearer(Arc<Choose>);

impl Bearer {
    /// With this look-up.
    pub fn new(of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Bearer {
        Bearer(Arc::new(of))
    }

    /// The same for every project.
    pub fn fixed(token: impl Into<String>) -> Bearer {
        let token = token.into();
        Bearer::new(move |_| Some(token.clone()))
    }

    /// The token for a project, if there is one.
    pub fn of(&self, project: &str) -> Option<String> {
        (self.0)(project)
    }
}

/// No token for any project.
impl Default for Bearer {
    fn default() -> Bearer {
        Bearer::new(|_| None)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(***)")
    }
}

/// A list of tokens: one per line, alone for every project, or after the name of its project. Empty lines and
/// lines that start with `#` are ignored.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TokenList {
    /// By project; the token for all others has the empty name.
    tokens: BTreeMap<String, String>,
}

/// The number of an invalid line. Its content is not repeated: it may be part of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLine(pub usize);

impl TokenList {
    /// Parses a list.
    pub fn parse(text: &str) -> Result<TokenList, BadLine> {
        let mut list = TokenList::default();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (project, token) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [token] => ("", token),
                [project, token] => (project, token),
                _ => return Err(BadLine(index + 1)),
            };
            let is_printable = token.bytes().all(|byte| byte.is_ascii_graphic());
            let is_first = is_printable && list.tokens.insert(project.to_owned(), token.to_owned()).is_none();
            if !is_first {
                return Err(BadLine(index + 1));
            }
        }
        Ok(list)
    }

    /// The token for a project, if there is one.
    pub fn of(&self, project: &str) -> Option<&str> {
        self.tokens.get(project).or_else(|| self.tokens.get("")).map(String::as_str)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

impl fmt::Debug for TokenList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tokens.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_its_own_token_or_the_common_one() {
        let list = TokenList::parse("# made today\n\nshop  abc.def.ghi\ncommon\n").unwrap();
        assert_eq!(list.of("shop"), Some("abc.def.ghi"));
        assert_eq!(list.of("other"), Some("common"));
        assert_eq!(TokenList::parse("shop abc").unwrap().of("other"), None);
        assert!(TokenList::parse("\n# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_alone() {
        for (text, line) in
            [("a\nb", 2), ("shop a\nshop b", 2), ("one two three", 1), ("shop a\n\nw\u{f6}rt", 3)]
        {
            assert_eq!(TokenList::parse(text), Err(BadLine(line)), "{text}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let list = TokenList::parse("shop s3cret").unwrap();
        let shown = format!("{list:?} {:?}", Bearer::fixed("s3cret"));
        assert!(!shown.contains("s3cret") && shown.contains("shop"), "{shown}");
    }
}
