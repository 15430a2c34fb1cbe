//! DeepSeek-V3.2's own prompt encoding. The model ships it as a program in place of a chat template, and the library has it;
//! here stands what the library leaves out of a request as OpenAI's clients send it.

use std::collections::HashMap;

use llm_tokenizer::encoders::deepseek_v32::{
    encode_messages, EncodeParams, ThinkingMode, THINKING_END_TOKEN, THINKING_START_TOKEN,
};
use serde_json::{json, Map, Value};

use crate::failure::{Code, Failure};

/// How messages name the encoding.
pub const NAME: &str = "DeepSeek-V3.2's own prompt encoding";

const ASSISTANT_TOKEN: &str = "<｜Assistant｜>";

/// The prompt's text. `kwargs`: `thinking` or `enable_thinking`, off unless given.
pub fn render(
    mut messages: Vec<Value>,
    tools: Option<&[Value]>,
    kwargs: Option<&HashMap<String, Value>>,
    add_generation_prompt: bool,
) -> Result<String, Failure> {
    for (index, message) in messages.iter_mut().enumerate() {
        prepare(message).map_err(|what| argument(format!("messages[{index}]: {what}")))?;
    }
    if let Some(tools) = tools {
        for tool in tools {
            check_function(tool, "tools").map_err(argument)?;
        }
        attach(tools, &mut messages);
    }
    let declares_tools = messages.iter().any(|message| {
        let tools = message["tools"].as_array();
        tools.is_some_and(|tools| !tools.is_empty())
    });
    let params = EncodeParams {
        add_default_bos_token: true,
        // Reasoning before the last user message is left out in any case. This also takes developer messages before it
        // away, which must not happen to the one with the tools.
        drop_thinking: !declares_tools,
    };
    let mode = if thinking(kwargs)? {
        ThinkingMode::Thinking
    } else {
        ThinkingMode::Chat
    };
    let mut text = encode_messages(&messages, mode, &params)
        .map_err(|error| Failure::new(Code::Template, format!("{NAME}: {error}")))?;
    if !add_generation_prompt {
        let last_role = messages.last().and_then(|message| message["role"].as_str());
        remove_generation_prompt(&mut text, last_role);
    }
    Ok(text)
}

/// Other models' templates call the switch `enable_thinking`, and so do their clients; this one's call it `thinking`.
fn thinking(kwargs: Option<&HashMap<String, Value>>) -> Result<bool, Failure> {
    let given = kwargs.and_then(|kwargs| {
        ["thinking", "enable_thinking"]
            .into_iter()
            .find_map(|name| Some((name, kwargs.get(name)?)))
    });
    match given {
        None | Some((_, Value::Null)) => Ok(false),
        Some((_, Value::Bool(thinking))) => Ok(*thinking),
        Some((name, other)) => Err(argument(format!(
            "chat_template_kwargs: {name}: expected true or false, found {other}"
        ))),
    }
}

/// Brings a message to the form that the published program takes. What it cannot take is an error: the library would
/// leave it out without a word.
fn prepare(message: &mut Value) -> Result<(), String> {
    let Value::Object(fields) = message else {
        return Err(format!("expected an object, found {message}"));
    };
    fields.retain(|_, value| !value.is_null());
    if let Some(content) = fields.get_mut("content") {
        *content = Value::String(text_of(content)?);
    }
    for tool in list(fields, "tools")? {
        check_function(tool, "tools")?;
    }
    for call in list(fields, "tool_calls")? {
        let function = check_function(call, "tool_calls")?;
        // The text of an object was made that object before.
        match function.get("arguments") {
            None | Some(Value::Object(_)) => {}
            Some(other) => {
                return Err(format!(
                    "tool_calls: expected the JSON text of an object as arguments, found {other}"
                ))
            }
        }
    }
    Ok(())
}

fn list<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], String> {
    match fields.get(name) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(format!("{name}: expected a list, found {other}")),
    }
}

fn check_function<'a>(item: &'a Value, name: &str) -> Result<&'a Map<String, Value>, String> {
    let function = item["function"].as_object();
    function
        .filter(|function| function.get("name").is_some_and(Value::is_string))
        .ok_or_else(|| format!("{name}: expected a function with a name, found {item}"))
}

/// The text of a content, which may be a list of parts.
fn text_of(content: &Value) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let texts: Result<Vec<&str>, String> = parts.iter().map(part_text).collect();
            Ok(texts?.join("\n"))
        }
        other => Err(format!("content: expected a text or a list, found {other}")),
    }
}

fn part_text(part: &Value) -> Result<&str, String> {
    part.as_str()
        .or_else(|| part["text"].as_str())
        .ok_or_else(|| format!("content: this model takes text only, found {part}"))
}

/// The published program finds the tools in the system message.
fn attach(tools: &[Value], messages: &mut Vec<Value>) {
    let first_role = messages
        .first()
        .and_then(|message| message["role"].as_str());
    if !matches!(first_role, Some("system" | "developer")) {
        messages.insert(0, json!({"role": "system", "content": ""}));
    }
    messages[0]["tools"] = Value::Array(tools.to_vec());
}

/// The program opens the answer as part of the message before it.
fn remove_generation_prompt(text: &mut String, last_role: Option<&str>) {
    let before_thinking = match last_role {
        Some("user" | "developer") => ASSISTANT_TOKEN,
        Some("tool") => "\n\n",
        _ => return,
    };
    for opening in [THINKING_START_TOKEN, THINKING_END_TOKEN] {
        let opening = format!("{before_thinking}{opening}");
        if text.ends_with(&opening) {
            text.truncate(text.len() - opening.len());
            return;
        }
    }
}

fn argument(text: String) -> Failure {
    Failure::new(Code::Argument, text)
}
