//! From a request's JSON to the text of its prompt.

use std::{collections::HashMap, sync::Arc};

use llm_tokenizer::{
    chat_template::ChatTemplateParams, traits::Tokenizer as LibraryTokenizer, ChatTemplateState,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    deepseek,
    failure::{Code, Failure},
    folder::Template,
    tokenizer::Tokenizer,
};

/// What a model's prompts are made with.
pub enum Prompts {
    None,
    Template {
        name: String,
        state: ChatTemplateState,
    },
    /// A template of which the library replaces parts: it declares tools to Kimi-K2.5 as the model's own program does.
    LibraryTemplate {
        name: String,
    },
    DeepseekV32,
}

impl Prompts {
    /// A template that a folder has is what the model was published with: DeepSeek-V3.2-Exp has the architecture of
    /// DeepSeek-V3.2, and prompts of another form.
    pub fn choose(template: Option<Template>, model_config: &Value) -> Result<Self, Failure> {
        match template {
            Some(template) => {
                let state = parse_template(&template)?;
                let name = template.name;
                Ok(Self::Template { name, state })
            }
            None if deepseek::serves(model_config) => Ok(Self::DeepseekV32),
            None => Ok(Self::None),
        }
    }

    /// Has the library render `template`.
    pub fn by_library(
        template: Option<Template>,
        library: &mut Arc<dyn LibraryTokenizer>,
    ) -> Result<Self, Failure> {
        let Some(Template { name, text }) = template else {
            return Ok(Self::None);
        };
        let unshared = Arc::get_mut(library)
            .ok_or_else(|| Failure::new(Code::Internal, "the new tokenizer is shared"))?;
        match unshared.set_chat_template(text) {
            Ok(()) => Ok(Self::LibraryTemplate { name }),
            Err(error) => Err(template_failure(&name, &error)),
        }
    }

    /// Where the form of prompts comes from, for a person.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Template { name, .. } | Self::LibraryTemplate { name } => name,
            Self::DeepseekV32 => deepseek::NAME,
        }
    }
}

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
        let library = &tokenizer.library;
        // A renderer that reads the argument strings itself says so.
        let by_library = matches!(tokenizer.prompts, Prompts::LibraryTemplate { .. });
        if !(by_library && library.renderer_capabilities().raw_tool_call_arguments) {
            messages.iter_mut().for_each(arguments_to_objects);
        }
        let tools: Option<Vec<Value>> = parse_unless_empty("tools", self.tools)?;
        // An empty list offers nothing, yet some templates open their tools section for it.
        let tools = tools.as_deref().filter(|tools| !tools.is_empty());
        let kwargs: Option<HashMap<String, Value>> =
            parse_unless_empty("chat_template_kwargs", self.kwargs)?;
        let params = ChatTemplateParams {
            add_generation_prompt: self.add_generation_prompt,
            tools,
            template_kwargs: kwargs.as_ref(),
            special_tokens: Some(library.get_special_tokens()),
            ..ChatTemplateParams::default()
        };
        match &tokenizer.prompts {
            Prompts::None => Err(Failure::new(Code::Template, NO_TEMPLATE)),
            Prompts::Template { name, state } => state
                .apply(&messages, params)
                .map_err(|error| template_failure(name, &error)),
            Prompts::LibraryTemplate { name } => library
                .apply_chat_template(&messages, params)
                .map_err(|error| template_failure(name, &error)),
            Prompts::DeepseekV32 => {
                deepseek::render(messages, tools, kwargs.as_ref(), self.add_generation_prompt)
            }
        }
    }
}

const NO_TEMPLATE: &str = "there is no chat template: no chat_template.jinja in the model folder, and no chat_template in \
                           its tokenizer_config.json";

pub fn parse_template(template: &Template) -> Result<ChatTemplateState, Failure> {
    ChatTemplateState::new(Some(template.text.clone()))
        .map_err(|error| template_failure(&template.name, &error))
}

/// The library's errors call every template "chat"; a person needs the file.
fn template_failure(name: &str, error: &impl std::fmt::Display) -> Failure {
    let text = error.to_string();
    Failure::new(
        Code::Template,
        text.replace("(in chat:", &format!("(in {name}:")),
    )
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
