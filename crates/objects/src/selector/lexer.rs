//! Splits the text of a label selector into tokens.

/// A token of a label selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'text> {
    End,
    OpenParenthesis,
    CloseParenthesis,
    Comma,
    Exclamation,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    In,
    NotIn,
    Identifier(&'text str),
}

impl<'text> Token<'text> {
    /// Returns the token where only identifiers are expected: `in` and `notin` are legal values.
    pub(super) fn as_value(self) -> Token<'text> {
        match self {
            Token::In => Token::Identifier("in"),
            Token::NotIn => Token::Identifier("notin"),
            other => other,
        }
    }

    /// Returns the text of the token.
    pub(super) fn literal(self) -> &'text str {
        match self {
            Token::End => "",
            Token::OpenParenthesis => "(",
            Token::CloseParenthesis => ")",
            Token::Comma => ",",
            Token::Exclamation => "!",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::GreaterThan => ">",
            Token::LessThan => "<",
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Identifier(text) => text,
        }
    }
}

fn is_special(letter: char) -> bool {
    "=!(),><".contains(letter)
}

fn is_blank(letter: char) -> bool {
    " \t\r\n".contains(letter)
}

/// Returns the first token of a text, and the rest. A NUL ends the text, as in Kubernetes.
pub(super) fn next_token(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches(is_blank);
    let Some(first) = text.chars().next().filter(|letter| *letter != '\0') else {
        return (Token::End, "");
    };
    if is_special(first) {
        return special_token(text, first);
    }
    let end = text
        .find(|letter| is_special(letter) || is_blank(letter) || letter == '\0')
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    // The scanner of Kubernetes takes a NUL at the end of a word for the end of the word.
    let rest = rest.strip_prefix('\0').unwrap_or(rest);
    let token = match word {
        "in" => Token::In,
        "notin" => Token::NotIn,
        word => Token::Identifier(word),
    };
    (token, rest)
}

fn special_token(text: &str, first: char) -> (Token<'_>, &str) {
    for (literal, token) in [("==", Token::DoubleEquals), ("!=", Token::NotEquals)] {
        if let Some(rest) = text.strip_prefix(literal) {
            return (token, skip_nul(rest));
        }
    }
    let token = match first {
        '(' => Token::OpenParenthesis,
        ')' => Token::CloseParenthesis,
        ',' => Token::Comma,
        '!' => Token::Exclamation,
        '=' => Token::Equals,
        '>' => Token::GreaterThan,
        _ => Token::LessThan,
    };
    (token, skip_nul(&text[first.len_utf8()..]))
}

fn skip_nul(rest: &str) -> &str {
    rest.strip_prefix('\0').unwrap_or(rest)
}
