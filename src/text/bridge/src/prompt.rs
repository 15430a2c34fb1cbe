//! From a request's JSON to the text of its prompt.

use std::collections::HashMap;

use llm_tokenizer::encoders::kimi_k25_tools::encode_tools_to_typescript;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    deepseek,
    failure::{Code, Failure},
    folder::Template,
    template::{ChatTemplate, Inputs},
    tokenizer::Tokenizer,
};

/// What a model's prompts are made with.
pub enum Prompts {
    None,
    Template(Box<ChatTemplate>),
    /// A template whose tools are declared in TypeScript by the model's own program.
    KimiK25(Box<ChatTemplate>),
    DeepseekV32,
}

impl Prompts {
    /// A template that a folder has is what the model was published with: DeepSeek-V3.2-Exp has the architecture of
    /// DeepSeek-V3.2, and prompts of another form.
    pub fn choose(template: Option<Template>, model_config: &Value) -> Result<Self, Failure> {
        let Some(Template { name, text }) = template else {
            return Ok(
                if says(model_config, "deepseek_v32", "DeepseekV32ForCausalLM") {
                    Self::DeepseekV32
                } else {
                    Self::None
                },
            );
        };
        let template = Box::new(ChatTemplate::parse(&name, &text)?);
        Ok(
            if says(model_config, "kimi_k25", "KimiK25ForConditionalGeneration") {
                Self::KimiK25(template)
            } else {
                Self::Template(template)
            },
        )
    }

    /// Where the form of prompts comes from, for a person.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Template(template) | Self::KimiK25(template) => template.name(),
            Self::DeepseekV32 => deepseek::NAME,
        }
    }

    /// The template, if there is one.
    pub fn text(&self) -> &str {
        match self {
            Self::None | Self::DeepseekV32 => "",
            Self::Template(template) | Self::KimiK25(template) => template.text(),
        }
    }
}

/// Whether config.json says that the model is of this type, in one of the two fields that do.
pub fn says(model_config: &Value, model_type: &str, architecture: &str) -> bool {
    let architectures = model_config["architectures"].as_array();
    model_config["model_type"] == model_type
        || architectures.is_some_and(|all| all.iter().any(|one| one == architecture))
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
        let mut changed = false;
        for message in &mut messages {
            changed |= arguments_to_objects(message);
        }
        let tools: Option<Vec<Value>> = parse_unless_empty("tools", self.tools)?;
        // An empty list offers nothing, yet some templates open their tools section for it.
        let tools = tools.as_deref().filter(|tools| !tools.is_empty());
        let mut kwargs: Option<HashMap<String, Value>> =
            parse_unless_empty("chat_template_kwargs", self.kwargs)?;
        let template = match &tokenizer.prompts {
            Prompts::None => return Err(Failure::new(Code::Template, NO_TEMPLATE)),
            Prompts::DeepseekV32 => {
                let opens = self.add_generation_prompt;
                return deepseek::render(messages, tools, kwargs.as_ref(), opens);
            }
            Prompts::KimiK25(template) => {
                // Without the variable the template declares tools in JSON, as the program has it for schemas that
                // it cannot put into TypeScript.
                if let Some(declared) = tools.and_then(encode_tools_to_typescript) {
                    let kwargs = kwargs.get_or_insert_default();
                    kwargs.insert("tools_ts_str".to_owned(), Value::String(declared));
                }
                template
            }
            Prompts::Template(template) => template,
        };
        let mut inputs = Inputs {
            messages: &messages,
            tools,
            kwargs: kwargs.as_ref(),
            add_generation_prompt: self.add_generation_prompt,
            special_tokens: tokenizer.library.get_special_tokens(),
        };
        let rendered = template.render(&inputs);
        if rendered.is_ok() || !changed {
            return rendered;
        }
        // Some templates join the arguments to other texts, as DeepSeek-V3's does: to these an object is an error.
        let as_sent: Vec<Value> = parse("messages", self.messages)?;
        inputs.messages = &as_sent;
        template.render(&inputs).or(rendered)
    }
}

const NO_TEMPLATE: &str = "there is no chat template: no chat_template.jinja in the model folder, and no chat_template in \
                           its tokenizer_config.json";

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

/// OpenAI's clients send the arguments of a tool call as a JSON text; templates iterate them as a mapping. Says whether it
/// changed any.
fn arguments_to_objects(message: &mut Value) -> bool {
    let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) else {
        return false;
    };
    let mut changed = false;
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
            changed = true;
        } else if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
            *arguments = object;
            changed = true;
        }
    }
    changed
}
