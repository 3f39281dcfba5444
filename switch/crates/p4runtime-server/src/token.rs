//! The token that proves a client to be a holder.

use subtle::ConstantTimeEq;

/// Fewest characters of a token, so that it cannot be guessed.
pub const TOKEN_CHARACTERS_MIN: usize = 32;

/// A token of the switch.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

impl Token {
    /// A token of these characters, without white space around them.
    ///
    /// # Errors
    /// It is too short to be safe, or not of visible ASCII characters.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARACTERS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {TOKEN_CHARACTERS_MIN} visible ASCII characters"
            ));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// Whether a client has given this token. The time does not depend on the position of an error.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl std::fmt::Debug for Token {
    /// Writes everything but the characters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_visible_and_not_shown() {
        let text = "0123456789abcdef0123456789abcdef";
        let token = Token::new(&format!(" {text}\n")).expect("a token");
        assert!(token.is(text.as_bytes()));
        assert!(!token.is(b"") && !token.is(&text.as_bytes()[1..]));
        assert!(!format!("{token:?}").contains("0123"));
        assert!(Token::new("short").is_err());
        assert!(Token::new(&"\u{7f}".repeat(40)).is_err());
    }
}
