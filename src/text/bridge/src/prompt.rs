//! From a request's JSON to the text of its prompt.

use std::collections::HashMap;

use llm_tokenizer::chat_template::ChatTemplateParams;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    failure::{Code, Failure},
    tokenizer::{template_failure, Tokenizer},
};

/// What a chat template is given. The JSON texts keep their key order; `tools` and `kwargs` may be empty.
pub struct Prompt<'a> {
    pub messages: &'a str,
    pub tools: &'a str,
    pub kwargs: &'a str,
    pub add_generation_prompt: bool,
}

impl Prompt<'_> {
    pub fn render(&self, tokenizer: &Tokenizer) -> Result<String, Failure> {
        let mut messages: Vec<Value> = parse("messages", self.messages)?;
        // A renderer that reads the argument strings itself says so.
        if !tokenizer
            .library
            .renderer_capabilities()
            .raw_tool_call_arguments
        {
            messages.iter_mut().for_each(arguments_to_objects);
        }
        let tools: Option<Vec<Value>> = parse_unless_empty("tools", self.tools)?;
        let kwargs: Option<HashMap<String, Value>> =
            parse_unless_empty("chat_template_kwargs", self.kwargs)?;
        let params = ChatTemplateParams {
            add_generation_prompt: self.add_generation_prompt,
            // An empty list offers nothing, yet some templates open their tools section for it.
            tools: tools.as_deref().filter(|tools| !tools.is_empty()),
            template_kwargs: kwargs.as_ref(),
            ..ChatTemplateParams::default()
        };
        tokenizer
            .library
            .apply_chat_template(&messages, params)
            .map_err(|error| template_failure(&tokenizer.template_name, &error))
    }
}

fn parse<T: DeserializeOwned>(what: &str, json: &str) -> Result<T, Failure> {
    serde_json::from_str(json)
        .map_err(|error| Failure::new(Code::Argument, format!("{what}: {error}")))
}

/// `None` for an empty text and for JSON null.
fn parse_unless_empty<T: DeserializeOwned>(what: &str, json: &str) -> Result<Option<T>, Failure> {
    if json.trim().is_empty() {
        Ok(None)
    } else {
        parse(what, json)
    }
}

/// OpenAI's clients send the arguments of a tool call as a JSON text; templates iterate them as a mapping.
fn arguments_to_objects(message: &mut Value) {
    let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) else {
        return;
    };
    for call in calls {
        let holder = if call.get("function").is_some() {
            &mut call["function"]
        } else {
            call
        };
        let Some(arguments) = holder.get_mut("arguments") else {
            continue;
        };
        let Some(text) = arguments.as_str() else {
            continue;
        };
        if text.trim().is_empty() {
            *arguments = Value::Object(Map::new()); // how clients write a call without arguments
        } else if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
            *arguments = object;
        }
    }
}
