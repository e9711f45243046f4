//! Booleans as Go's flags read them: `--prefix` and `--prefix=true` mean the same.

/// Reads a boolean.
///
/// # Errors
/// With Go's text, if it is none.
pub fn parse(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!(
            "strconv.ParseBool: parsing {text:?}: invalid syntax"
        )),
    }
}
