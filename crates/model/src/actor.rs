//! The actor of a change.

/// The actor, and the login if it differs. A producer may name any actor; the database verifies only the login.
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
    fn a_login_is_shown_if_it_differs() {
        assert_eq!(in_words("alice", None), "alice");
        assert_eq!(in_words("alice", Some("shop_app")), "alice (claimed by login shop_app)");
    }
}
