//! Chat templates, rendered as transformers renders them: a Jinja engine, and what Python's has beyond it.

use std::{borrow::Cow, collections::BTreeMap, collections::HashMap};

use chrono::{
    format::{Item, StrftimeItems},
    Local,
};
use llm_tokenizer::SpecialTokens;
use minijinja::{
    value::{Kwargs, ValueKind},
    AutoEscape, Environment, Error, ErrorKind, Value,
};
use serde_json::Value as Json;

use crate::{
    failure::{Code, Failure},
    python,
};

pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Where it stands, for a person; also its name in the environment, so that errors have it.
    name: String,
    text: String,
    knows_developer: bool,
}

/// What a template is given.
pub struct Inputs<'a> {
    pub messages: &'a [Json],
    pub tools: Option<&'a [Json]>,
    pub kwargs: Option<&'a HashMap<String, Json>>,
    pub add_generation_prompt: bool,
    pub special_tokens: &'a SpecialTokens,
}

impl ChatTemplate {
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n"); // as Jinja does
        let mut environment = environment();
        environment
            .add_template_owned(name.to_owned(), plain_generation_blocks(&text).into_owned())
            .map_err(failure)?;
        Ok(Self {
            environment,
            name: name.to_owned(),
            knows_developer: text.contains("developer"),
            text,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn render(&self, inputs: &Inputs) -> Result<String, Failure> {
        let messages: Vec<Value> = inputs
            .messages
            .iter()
            .map(|message| Value::from_serialize(self.known_role(message)))
            .collect();
        let mut variables = BTreeMap::from([
            (
                "tools",
                inputs.tools.map_or(Value::from(()), Value::from_serialize),
            ),
            ("documents", Value::from(())),
            ("add_generation_prompt", inputs.add_generation_prompt.into()),
        ]);
        let tokens = inputs.special_tokens;
        for (name, token) in [
            ("bos_token", &tokens.bos_token),
            ("eos_token", &tokens.eos_token),
            ("unk_token", &tokens.unk_token),
            ("pad_token", &tokens.pad_token),
        ] {
            // A token that is not there is not defined, which is what templates ask for.
            if let Some(token) = token {
                variables.insert(name, token.as_str().into());
            }
        }
        for (name, value) in inputs.kwargs.into_iter().flatten() {
            variables.insert(name, Value::from_serialize(value));
        }
        variables.insert("messages", messages.into());
        let template = self.environment.get_template(&self.name).map_err(failure)?;
        template.render(variables).map_err(failure)
    }

    /// A template that has never heard of developers would leave their messages out: it gets them as the system's.
    fn known_role<'a>(&self, message: &'a Json) -> Cow<'a, Json> {
        if self.knows_developer || message["role"] != "developer" {
            return Cow::Borrowed(message);
        }
        let mut message = message.clone();
        message["role"] = "system".into();
        Cow::Owned(message)
    }
}

fn failure(error: Error) -> Failure {
    Failure::new(Code::Template, error.to_string())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| Ok(python::print(out, value)?));
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", python::to_json);
    environment.add_function("dict", dict);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    // Python's None cannot be iterated, its strings and mappings have a length and items, and its booleans are numbers.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map
        )
    });
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    environment
}

/// The error that a template makes of what it does not serve.
fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let items: Vec<Item> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        let text = format!("strftime_now: {format:?} is no format of a date");
        return Err(Error::new(ErrorKind::InvalidOperation, text));
    }
    Ok(Local::now().format_with_items(items.iter()).to_string())
}

/// Python's dict: of nothing, a mapping or pairs, with keyword arguments over them.
fn dict(from: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    let from = from.unwrap_or_default();
    for item in from.try_iter()? {
        pairs.push(if from.kind() == ValueKind::Map {
            let value = from.get_item(&item)?;
            (item, value)
        } else {
            (item.get_item_by_index(0)?, item.get_item_by_index(1)?)
        });
    }
    for name in kwargs.args() {
        pairs.push((name.into(), kwargs.get(name)?));
    }
    Ok(Value::from_iter(pairs))
}

/// transformers has a block of its own, {% generation %}, that marks what a model is trained on and gives its body as it is.
/// The engine's {% with %} does the latter.
fn plain_generation_blocks(text: &str) -> Cow<'_, str> {
    if !text.contains("endgeneration") {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let (before, tag) = (&rest[..start], &rest[start..start + length]);
        plain.push_str(before);
        let word = tag[2..].trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        match word {
            "generation" => plain.push_str(&tag.replace(word, "with")),
            "endgeneration" => plain.push_str(&tag.replace(word, "endwith")),
            _ => plain.push_str(tag),
        }
        rest = &rest[start + length..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}
