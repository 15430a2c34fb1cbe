//! What is read of a model folder besides the library, and what the library must not see as it is.

use std::{
    env, fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use llm_tokenizer::{
    chat_template::load_chat_template_from_file, factory::discover_chat_template_in_dir,
};
use serde_json::Value;

use crate::failure::{Code, Failure};

/// Ids from here on are taken for damage: the library's tables are dense, so that one absurd id in a file would
/// cost gigabytes. Published vocabularies end near 2^18.
pub const ID_LIMIT: u64 = 1 << 24;

pub struct Template {
    /// How errors name the place it came from.
    pub name: String,
    pub text: String,
}

pub fn read_text(path: &Path, code: Code) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(code, format!("{}: {error}", path.display())))
}

/// tokenizer_config.json, or null when there is none. The library drops a file that does not parse, and with it the
/// special tokens and the template, so it is checked here.
pub fn read_config(folder: &Path) -> Result<Value, Failure> {
    read_object(&folder.join("tokenizer_config.json"))
}

/// config.json, which says what to do where the tokenizer's files do not; null when there is none.
pub fn read_model_config(folder: &Path) -> Result<Value, Failure> {
    read_object(&folder.join("config.json"))
}

fn read_object(path: &Path) -> Result<Value, Failure> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    let fail = |what: String| Failure::new(Code::ConfigFile, format!("{}: {what}", path.display()));
    match serde_json::from_str(&read_text(path, Code::ConfigFile)?) {
        Ok(config @ Value::Object(_)) => Ok(config),
        Ok(_) => Err(fail("expected a JSON object".to_owned())),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// The template that transformers would take. A .jinja file is read here rather than by the library, which turns a
/// written `\n` into a line break: that changes a template's meaning where it says `\\n`, and every line number.
pub fn find_template(folder: &Path, config: &Value) -> Result<Option<Template>, Failure> {
    if let Some(found) = discover_chat_template_in_dir(folder) {
        let path = PathBuf::from(found);
        let name = path.display().to_string();
        let text = if path
            .extension()
            .is_some_and(|extension| extension == "jinja")
        {
            Some(read_text(&path, Code::Template)?.replace("\r\n", "\n"))
        } else {
            load_chat_template_from_file(&name)
                .map_err(|error| Failure::new(Code::Template, format!("{name}: {error}")))?
        };
        return Ok(text.map(|text| Template { name, text }));
    }
    let in_config = match config.get("chat_template") {
        Some(Value::Array(named)) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str()),
        other => other.and_then(Value::as_str),
    };
    let path = folder.join("tokenizer_config.json");
    Ok(in_config.map(|text| Template {
        name: format!("chat_template of {}", path.display()),
        text: text.to_owned(),
    }))
}

/// The JSON of a tokenizer, if it is JSON and its ids are of a believable size (see [`ID_LIMIT`]).
pub fn parse_tokenizer(json: &str) -> Result<Value, String> {
    let file: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    // A vocabulary that is a list has positions for ids; whatever else it may be, the library judges it.
    let absurd = file["model"]["vocab"].as_object().and_then(|vocab| {
        vocab
            .iter()
            .find(|(_, id)| id.as_u64().is_some_and(|id| id >= ID_LIMIT))
    });
    match absurd {
        Some((token, id)) => Err(format!(
            "the id of token {token:?} is {id}; ids up to {} are expected",
            ID_LIMIT - 1
        )),
        None => Ok(file),
    }
}

/// A tokenizer.json that the library can take as it is: the folder's own, or a copy that lives as long as this.
pub enum TokenizerJson {
    AsPublished(PathBuf),
    Copy(ShadowFolder),
}

impl TokenizerJson {
    /// Some files carry the truncation or padding of the run that saved them. transformers resets both before it
    /// encodes; the library obeys them, and would cut every prompt to that length without a word.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("tokenizer.json");
        let fail = |what| {
            let text = format!("{}: {what}", path.display());
            Failure::new(Code::TokenizerFile, text)
        };
        let mut file = parse_tokenizer(&read_text(&path, Code::TokenizerFile)?).map_err(fail)?;
        if file["truncation"].is_null() && file["padding"].is_null() {
            return Ok(Self::AsPublished(path));
        }
        file["truncation"] = Value::Null;
        file["padding"] = Value::Null;
        ShadowFolder::create(folder, &file.to_string())
            .map(Self::Copy)
            .map_err(|error| {
                fail(format!(
                    "asks for truncation or padding, and a copy without cannot be written to {}: {error}",
                    env::temp_dir().display()
                ))
            })
    }

    pub fn path(&self) -> PathBuf {
        match self {
            Self::AsPublished(path) => path.clone(),
            Self::Copy(shadow) => shadow.0.join("tokenizer.json"),
        }
    }
}

/// A temporary folder: links to all of a model folder, with a tokenizer.json of its own. The library reads the files
/// beside a tokenizer.json too, and takes files only.
pub struct ShadowFolder(PathBuf);

impl ShadowFolder {
    fn create(folder: &Path, tokenizer_json: &str) -> std::io::Result<Self> {
        let shadow = Self(Self::new_folder()?);
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name() != "tokenizer.json" {
                symlink(entry.path(), shadow.0.join(entry.file_name()))?;
            }
        }
        fs::write(shadow.0.join("tokenizer.json"), tokenizer_json)?;
        Ok(shadow)
    }

    /// A folder that did not exist before; a killed process may have left one of the same name.
    fn new_folder() -> std::io::Result<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("reckoner-tokenizer-{}-{number}", process::id());
            let path = env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                outcome => return outcome.map(|()| path),
            }
        }
    }
}

impl Drop for ShadowFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // left behind at worst; links are removed, not followed
    }
}
