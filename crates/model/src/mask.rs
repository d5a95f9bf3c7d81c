//! Masks credentials in error texts: the same rules as `towpath._text_masked`.
//!
//! Providers and drivers put credentials into their messages; tables, handlers, logs and traces must not keep
//! them. Each rule is one regular expression of `sql/functions/error_text.sql`, written by hand because the regex
//! crates are large; a property test compares both. When in doubt, text is masked.

use std::borrow::Cow;

const MASK: &str = "***";

/// The text with `***` in place of every credential that can be recognised.
pub fn masked(text: &str) -> Cow<'_, str> {
    let rules: [Rule; 10] =
        [pem, url, authorization, scheme, assignment, jwt, underscored, dashed, amazon, google];
    rules.iter().fold(Cow::Borrowed(text), |text, rule| match replaced(&text, *rule) {
        Some(masked) => Cow::Owned(masked),
        None => text,
    })
}

/// A match: where the part to keep ends, and where the credential ends.
type Found = Option<(usize, usize)>;
type Rule = fn(&[u8], usize) -> Found;

/// The text after one rule, or none if it did not match.
fn replaced(text: &str, rule: Rule) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match rule(bytes, at) {
            Some((keep, end)) => {
                out.push_str(&text[copied..keep]);
                out.push_str(MASK);
                (copied, at) = (end, end.max(at + 1));
            }
            None => at += 1,
        }
    }
    (copied > 0).then(|| out + &text[copied..])
}

/// A block of PEM, or the beginning of one.
fn pem(text: &[u8], at: usize) -> Found {
    let line = |at: usize, word: &[u8]| {
        let from = literal(text, at, word)?;
        let to = run(text, from, |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b' ');
        if to > from { literal(text, to, b"-----") } else { None }
    };
    let mut end = line(at, b"-----BEGIN ")?;
    while end < text.len() && literal(text, end, b"-----END ").is_none() {
        end += 1;
    }
    Some((at, line(end, b"-----END ").unwrap_or(end)))
}

/// The password in `scheme://user:password@host`.
fn url(text: &[u8], at: usize) -> Found {
    let user = literal(text, at, b"://")?;
    let colon = run(text, user, |c| !b":/@".contains(&c) && !space(c));
    let password = literal(text, colon, b":")?;
    let end = run(text, password, |c| !b"\"'<>".contains(&c) && !space(c));
    let host = text[password..end].iter().rposition(|c| *c == b'@')?;
    Some((password, password + host))
}

/// `Authorization: Bearer …`, in any spelling.
fn authorization(text: &[u8], at: usize) -> Found {
    let value = assigned(text, word(text, at, b"authorization")?)?;
    let value = opened(text, value).unwrap_or(value);
    let scheme = ["bearer", "basic", "digest", "token", "negotiate"]
        .iter()
        .find_map(|name| spaced(text, word(text, value, name.as_bytes())?))
        .and_then(|token| Some((token, plain(text, token)?)));
    scheme.or_else(|| Some((value, plain(text, value)?)))
}

/// `Bearer …` and `Basic …` alone, followed by something that is not an ordinary word.
fn scheme(text: &[u8], at: usize) -> Found {
    let names: [&[u8]; 6] = [b"Bearer", b"bearer", b"BEARER", b"Basic", b"basic", b"BASIC"];
    let after = starts_word(text, at).then(|| names.iter().find_map(|name| literal(text, at, name)))??;
    let token = spaced(text, after)?;
    let end = run(text, token, |c| c.is_ascii_alphanumeric() || b"._~+/=-".contains(&c));
    let bytes = &text[token..end];
    let odd = telling(bytes) || bytes.iter().any(|c| b"_~+=".contains(c));
    (bytes.len() >= 8 && odd).then_some((token, end))
}

/// `password=…`, `"api_key": "…"`, `client_secret => …`.
fn assignment(text: &[u8], at: usize) -> Found {
    let single: [&[u8]; 10] = [
        b"password",
        b"passwd",
        b"passphrase",
        b"passcode",
        b"pwd",
        b"secret",
        b"token",
        b"credential",
        b"cookie",
        b"jwt",
    ];
    let of_key: [&[u8]; 6] = [b"api", b"access", b"private", b"secret", b"signing", b"encryption"];
    let compound = |first: &[u8], second: &[u8]| {
        let after = word(text, at, first)?;
        word(text, after + usize::from(text.get(after).is_some_and(|c| b"_-".contains(c))), second)
    };
    let names = single.iter().map(|name| word(text, at, name));
    let mut names = names.chain(of_key.iter().map(|first| compound(first, b"key")));
    names.find_map(|name| {
        let name = name?;
        let plural = word(text, name, b"s").unwrap_or(name);
        let value = assigned(text, plural)?;
        match opened(text, value) {
            Some(value) => Some((value, quoted(text, value))),
            None => Some((value, plain(text, value)?)),
        }
    })
}

/// A JSON Web Token, with or without its signature.
fn jwt(text: &[u8], at: usize) -> Found {
    let part = |from: usize| run(text, from, |c| c.is_ascii_alphanumeric() || b"_-".contains(&c));
    let head = literal(text, at, b"eyJ")?;
    let head_end = part(head);
    let claims = literal(text, head_end, b".")?;
    let claims_end = part(claims);
    (head_end - head >= 5 && claims_end - claims >= 5)
        .then(|| (at, literal(text, claims_end, b".").map_or(claims_end, part)))
}

/// Keys with a known prefix: `sk_…`, `whsec_…`, `ghp_…`, and Towpath's `tpx_…`.
fn underscored(text: &[u8], at: usize) -> Found {
    let names: [&[u8]; 9] =
        [b"re_", b"sk_", b"pk_", b"rk_", b"whsec_", b"tpx_", b"github_pat_", b"npm_", b"hf_"];
    let github = || {
        let letter = literal(text, at, b"gh")?;
        text.get(letter)?.is_ascii_lowercase().then_some(())?;
        literal(text, letter + 1, b"_")
    };
    let key = starts_word(text, at)
        .then(|| names.iter().find_map(|name| literal(text, at, name)).or_else(github))??;
    long(text, key, b"_+/=-")
}

/// `sk-…`, `xoxb-…`, `glpat-…`.
fn dashed(text: &[u8], at: usize) -> Found {
    let slack = || {
        let letter = literal(text, at, b"xox")?;
        text.get(letter)?.is_ascii_lowercase().then_some(())?;
        literal(text, letter + 1, b"-")
    };
    let key = starts_word(text, at)
        .then(|| literal(text, at, b"sk-").or_else(|| literal(text, at, b"glpat-")).or_else(slack))??;
    long(text, key, b"_-")
}

/// Amazon access key ids.
fn amazon(text: &[u8], at: usize) -> Found {
    let names = || literal(text, at, b"AKIA").or_else(|| literal(text, at, b"ASIA"));
    let key = starts_word(text, at).then(names)??;
    let end = run(text, key, |c| c.is_ascii_uppercase() || c.is_ascii_digit());
    (end - key >= 16).then_some((key, end))
}

/// Google API keys.
fn google(text: &[u8], at: usize) -> Found {
    let key = starts_word(text, at).then(|| literal(text, at, b"AIza"))??;
    let end = run(text, key, |c| c.is_ascii_alphanumeric() || b"_-".contains(&c));
    (end - key >= 30).then_some((key, end))
}

/// A key of twelve characters or more that is not a constraint name.
fn long(text: &[u8], key: usize, besides: &[u8]) -> Found {
    let end = run(text, key, |c| c.is_ascii_alphanumeric() || besides.contains(&c));
    (end - key >= 12 && telling(&text[key..end])).then_some((key, end))
}

/// Whether it has a digit, or a capital after a small letter, which ordinary words do not.
fn telling(bytes: &[u8]) -> bool {
    bytes.iter().any(u8::is_ascii_digit)
        || bytes.windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// What follows a name: quotes, spaces, `:` or `=` or `=>`, spaces.
fn assigned(text: &[u8], at: usize) -> Option<usize> {
    let blank = |c: u8| c == b' ' || c == b'\t';
    let at = run(text, at, |c| b"\\\"'".contains(&c));
    let sign = run(text, at, blank);
    text.get(sign).filter(|c| b":=".contains(c))?;
    Some(run(text, run(text, sign, |c| b":=>".contains(&c)), blank))
}

/// The position after an opening quote, which may have backslashes before it.
fn opened(text: &[u8], at: usize) -> Option<usize> {
    let quote = run(text, at, |c| c == b'\\');
    text.get(quote).filter(|c| b"\"'".contains(c)).map(|_| quote + 1)
}

/// The end of a quoted value: the next quote, or the backslash before it.
fn quoted(text: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(c) = text.get(end) {
        end += match (c, text.get(end + 1)) {
            (b'"' | b'\'', _) | (b'\\', None | Some(b'"' | b'\'')) => return end,
            (b'\\', Some(_)) => 2,
            _ => 1,
        };
    }
    end
}

/// The end of a value without quotes, which has at least one character.
fn plain(text: &[u8], at: usize) -> Option<usize> {
    text.get(at).filter(|c| !b":=>".contains(c))?;
    let end = run(text, at, |c| !b",;\"'&}\\".contains(&c) && !space(c));
    (end > at).then_some(end)
}

/// The position after at least one blank.
fn spaced(text: &[u8], at: usize) -> Option<usize> {
    let end = run(text, at, |c| c == b' ' || c == b'\t');
    (end > at).then_some(end)
}

/// The position after `word`, if it is here in any letter case.
fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    let end = at + word.len();
    text.get(at..end)?.eq_ignore_ascii_case(word).then_some(end)
}

/// The position after `word`, if it is here exactly.
fn literal(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

fn run(text: &[u8], at: usize, fits: impl Fn(u8) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(|c| !fits(*c)).unwrap_or(rest.len())
}

fn starts_word(text: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_none_or(|before| !text[before].is_ascii_alphanumeric() && text[before] != b'_')
}

/// The white space of the C locale.
fn space(c: u8) -> bool {
    matches!(c, b' ' | 0x09..=0x0d)
}

#[cfg(test)]
mod tests {
    use super::masked;

    /// D9: each kind of credential is masked, and the text around it stays.
    #[test]
    fn credentials_are_masked_and_the_rest_stays() {
        for (text, expected) in [
            ("kaboom token=abc123 for 7", "kaboom token=*** for 7"),
            ("password: hunter2, user: bob", "password: ***, user: bob"),
            (r#"{"client_secret": "a b c", "n": 1}"#, r#"{"client_secret": "***", "n": 1}"#),
            (r#"{\"apiKey\":\"a\\b\",\"n\":1}"#, r#"{\"apiKey\":\"***\",\"n\":1}"#),
            ("userPassword => x&y=1", "userPassword => ***&y=1"),
            ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
            ("\"authorization\": \"Basic dXNlcjpwYXNz\"", "\"authorization\": \"Basic ***\""),
            ("sent Bearer dXNlcjpwYXNz and failed", "sent Bearer *** and failed"),
            ("basic validation failed", "basic validation failed"),
            ("postgres://u:p@ss/w@h:5432/d refused", "postgres://u:***@h:5432/d refused"),
            ("redis://:pw@h", "redis://:***@h"),
            ("see http://h:80/x", "see http://h:80/x"),
            ("got eyJhbGciOi.eyJzdWIiOi.c2ln- back", "got *** back"),
            ("key AKIAIOSFODNN7EXAMPLE is bad", "key AKIA*** is bad"),
            ("tpx_0123456789abcdef0123 expired", "tpx_*** expired"),
            ("sk_live_1234567890ab, xoxb-123456789012-ab", "sk_***, xoxb-***"),
            ("violates pk_customer_orders_name", "violates pk_customer_orders_name"),
            ("a -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- b", "a *** b"),
            ("a -----BEGIN PRIVATE KEY-----\nMIIE", "a ***"),
            ("unexpected token < in JSON", "unexpected token < in JSON"),
            ("Passwörter: token=äöü ende", "Passwörter: token=*** ende"),
        ] {
            assert_eq!(masked(text), expected);
            assert_eq!(masked(expected), expected, "masking twice changes nothing");
        }
    }
}
