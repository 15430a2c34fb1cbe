//! How Python prints values, writes JSON and calls methods of strings, where the Jinja engine does otherwise.

use std::fmt::{self, Write};

use minijinja::{
    value::{from_args, Kwargs, ValueKind},
    Error, ErrorKind, State, Value,
};
use minijinja_contrib::pycompat;

/// Writes `value` as {{ value }} does.
pub fn print(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None => repr(out, value),
    }
}

fn repr(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => out.write_str(&float(value, "nan", "inf")),
        ValueKind::String => repr_string(out, value.as_str().unwrap_or("")),
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.write_str(if index == 0 { "" } else { ", " })?;
                repr(out, &item)?;
            }
            out.write_char(']')
        }
        ValueKind::Map => {
            out.write_char('{')?;
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.write_str(if index == 0 { "" } else { ", " })?;
                repr(out, &key)?;
                out.write_str(": ")?;
                repr(out, &value.get_item(&key).unwrap_or_default())?;
            }
            out.write_char('}')
        }
        // The engine spells None, True and whole numbers as Python does, and prints nothing for an undefined value.
        _ => write!(out, "{value}"),
    }
}

fn repr_string(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.write_char(quote)?;
    for character in text.chars() {
        match character {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            _ if character == quote => write!(out, "\\{quote}")?,
            '\u{A0}' | '\u{AD}' => write!(out, "\\x{:02x}", u32::from(character))?,
            '\u{2028}' | '\u{2029}' => write!(out, "\\u{:04x}", u32::from(character))?,
            _ if character.is_control() => write!(out, "\\x{:02x}", u32::from(character))?,
            _ => out.write_char(character)?,
        }
    }
    out.write_char(quote)
}

/// A float with the fewest digits that give it back, in Python's choice of forms: plain from 1e-4 to below 1e16.
fn float(value: &Value, nan: &str, infinity: &str) -> String {
    let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if number.is_nan() {
        return nan.to_owned();
    }
    if number.is_infinite() {
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}{infinity}");
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        let dot = if plain.contains('.') { "" } else { ".0" };
        return format!("{plain}{dot}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Wider than any person wants it, and narrow enough for the memory.
const LARGEST_INDENT: usize = 64;

/// How a JSON text is laid out.
struct Layout {
    ensure_ascii: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// transformers' filter: json.dumps with ensure_ascii=False.
pub fn to_json(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    if indent.is_some_and(|indent| indent > LARGEST_INDENT) {
        let text = format!("tojson: an indent of at most {LARGEST_INDENT} is expected");
        return Err(Error::new(ErrorKind::InvalidOperation, text));
    }
    let separators: Option<(String, String)> = match kwargs.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => Some((
            pair.get_item_by_index(0)?.to_string(),
            pair.get_item_by_index(1)?.to_string(),
        )),
        _ => None,
    };
    let item_separator = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) =
        separators.unwrap_or((item_separator.to_owned(), ": ".to_owned()));
    let layout = Layout {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut text = String::new();
    layout.write(&mut text, value, 0)?;
    Ok(text)
}

impl Layout {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(value, "NaN", "Infinity")),
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or("")),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_list(out, ['[', ']'], items.len(), depth, |out, index| {
                    self.write(out, &items[index], depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.write_list(out, ['{', '}'], keys.len(), depth, |out, index| {
                    let key = &keys[index];
                    self.write_key(out, key)?;
                    out.push_str(&self.key_separator);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            other => {
                let text = format!("tojson: a value that is {other} has no JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        }
        Ok(())
    }

    fn write_list(
        &self,
        out: &mut String,
        brackets: [char; 2],
        count: usize,
        depth: usize,
        mut write_item: impl FnMut(&mut String, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(brackets[0]);
        for index in 0..count {
            if index > 0 {
                out.push_str(&self.item_separator);
            }
            self.break_line(out, depth + 1);
            write_item(out, index)?;
        }
        if count > 0 {
            self.break_line(out, depth);
        }
        out.push(brackets[1]);
        Ok(())
    }

    fn break_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent * depth));
        }
    }

    fn write_key(&self, out: &mut String, key: &Value) -> Result<(), Error> {
        let mut text = String::new();
        match key.as_str() {
            Some(key) => text.push_str(key),
            None => self.write(&mut text, key, 0)?,
        }
        self.write_string(out, &text);
        Ok(())
    }

    fn write_string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{C}' => out.push_str("\\f"),
                ' '..='~' => out.push(character),
                _ if self.ensure_ascii || character < ' ' => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

/// Methods of Python's values that templates call.
pub fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let known = match value.as_str() {
        Some(text) => string_method(text, name, args)?,
        None => None,
    };
    match known {
        Some(value) => Ok(value),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// What the engine's own imitation of Python leaves out; `None` for the others.
fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = name == "partition";
            let split = if first {
                text.split_once(separator)
            } else {
                text.rsplit_once(separator)
            };
            match split {
                Some((before, after)) => list(&[before, separator, after]),
                None if first => list(&[text, "", ""]),
                None => list(&["", "", text]),
            }
        }
        "rsplit" => {
            let (separator, count): (Option<&str>, Option<i64>) = from_args(args)?;
            let limit = count
                .filter(|&count| count >= 0)
                .map(|count| count as usize + 1);
            let mut parts = rsplit(text, separator, limit.unwrap_or(usize::MAX));
            parts.reverse();
            list(&parts)
        }
        _ => return Ok(None),
    }))
}

fn list(texts: &[&str]) -> Value {
    texts.iter().copied().collect()
}

/// At most `limit` parts, the last one first.
fn rsplit<'a>(text: &'a str, separator: Option<&str>, limit: usize) -> Vec<&'a str> {
    if let Some(separator) = separator {
        return text.rsplitn(limit, separator).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let Some((before, part)) = rest.rsplit_once(char::is_whitespace) else {
            break;
        };
        if parts.len() + 1 == limit {
            break;
        }
        parts.push(part);
        rest = before.trim_end();
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}
