//! Who did something, as far as it is known.

/// The actor, and the login that said so if it is another. Whoever may enqueue may name any actor; the login
/// is what the database knows.
pub fn in_words(actor: &str, login: Option<&str>) -> String {
    match login {
        Some(login) => format!("{actor} (claimed by login {login})"),
        None => actor.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn a_login_is_told_where_it_differs() {
        assert_eq!(in_words("alice", None), "alice");
        assert_eq!(in_words("alice", Some("shop_app")), "alice (claimed by login shop_app)");
    }
}
