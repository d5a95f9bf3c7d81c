//! Tokens that this process shows to another server, one per project. How they are kept is the caller's
//! business; here is what a list of them says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Choose = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Which token to show for a project. Asked before every request, so that a new one is used at once.
#[derive(Clone)]
pub struct Bearer(Arc<Choose>);

impl Bearer {
    /// Whatever this answers for a project.
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

/// No token for anybody.
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

/// A list of tokens: one a line, alone for every project, or behind the name of the one it is for. Empty
/// lines and those that begin with `#` say nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TokenList {
    /// By project; the token for all others stands under the empty name.
    tokens: BTreeMap<String, String>,
}

/// The number of a line that is no token. What stands there is not repeated: it may be half a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLine(pub usize);

impl TokenList {
    /// Reads a list.
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
