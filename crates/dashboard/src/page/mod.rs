//! One file per page.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod dead_letter;
pub(crate) mod dead_letters;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod executors;
pub(crate) mod gates;
mod health;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod overview;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod route;
pub(crate) mod routes;
pub(crate) mod schedules;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod stream;
pub(crate) mod streams;

use crate::filters::percent;

/// A query parameter that was left empty is none.
pub(crate) fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The fields of a filter that narrow, as a query.
pub(crate) fn query(fields: &[(&str, &str)]) -> String {
    let narrowing =
        fields.iter().map(|(name, value)| (name, value.trim())).filter(|(_, value)| !value.is_empty());
    narrowing.map(|(name, value)| format!("{name}={}", percent(value))).collect::<Vec<_>>().join("&")
}

/// A command with the fields of a filter that narrow as its flags, quoted for a shell.
pub(crate) fn command(base: &str, flags: &[(&str, &str)]) -> String {
    let narrowing =
        flags.iter().map(|(name, value)| (name, value.trim())).filter(|(_, value)| !value.is_empty());
    let flags = narrowing.map(|(name, value)| format!(" --{name} {}", quoted(value)));
    format!("{base}{}", flags.collect::<String>())
}

/// One word of a shell's.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_that_a_shell_reads_the_same() {
        let flags = [("kind", "mail"), ("error", "it's <down>; rm"), ("state", " ")];
        assert_eq!(
            command("towpath job list", &flags),
            r"towpath job list --kind mail --error 'it'\''s <down>; rm'"
        );
    }
}
