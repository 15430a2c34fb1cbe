//! Reckoner's C border to the Rust text stack. The contract of every function is in reckoner_text.h.

mod deepseek;
mod failure;
mod folder;
mod grammar;
mod prompt;
mod python;
mod stream;
mod template;
mod tiktoken;
mod tokenizer;

use std::{path::Path, ptr, slice, str};

use failure::{guarded, Code, Failure};
use grammar::{Grammar, Grammars, Kind};
use prompt::{Prompt, Prompts};
use stream::{Step, Stream};
use tokenizer::Tokenizer;

const OK: i32 = 0;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slice {
    data: *const u8,
    size_bytes: usize,
}

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size_bytes: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    count: usize,
}

#[repr(C)]
pub struct CStep {
    text: Bytes,
    stop_index: i64,
}

#[repr(C)]
pub struct CPrompt {
    messages_json: Slice,
    tools_json: Slice,
    kwargs_json: Slice,
    add_generation_prompt: i32,
}

/// A vector's memory for the caller: exactly its length, so that pointer and length are enough to free it.
fn give<T>(items: Vec<T>) -> (*mut T, usize) {
    if items.is_empty() {
        return (ptr::null_mut(), 0);
    }
    let count = items.len();
    (Box::into_raw(items.into_boxed_slice()).cast(), count)
}

/// Frees what [`give`] gave.
///
/// # Safety
/// `data` and `count` come from one call of [`give`] and are freed once.
unsafe fn take_back<T>(data: *mut T, count: usize) {
    if !data.is_null() {
        // SAFETY: the caller's promise, which is this function's.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, count)) });
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (data, size_bytes) = give(bytes);
        Self { data, size_bytes }
    }
}

impl From<Step> for CStep {
    fn from(step: Step) -> Self {
        Self {
            text: step.text.into_bytes().into(),
            stop_index: step.stop.map_or(-1, |index| index as i64),
        }
    }
}

impl Slice {
    /// # Safety
    /// The slice's memory is readable for the call.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size_bytes == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(self.data, self.size_bytes) }
    }

    /// # Safety
    /// The slice's memory is readable for the call.
    unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        // SAFETY: the caller's promise.
        str::from_utf8(unsafe { self.bytes() }).map_err(|error| {
            let place = error.valid_up_to();
            let text = format!("{what}: not UTF-8 at byte {place}");
            Failure::new(Code::Argument, text)
        })
    }
}

/// Runs `body` under the guard and writes its value to `*out`, or its failure to `*error`.
///
/// # Safety
/// `out` and `error` are writable.
unsafe fn answer<T>(
    out: *mut T,
    error: *mut Bytes,
    body: impl FnOnce() -> Result<T, Failure>,
) -> i32 {
    match guarded(body) {
        Ok(value) => {
            // SAFETY: the caller's promise; what was there before is not read.
            unsafe { out.write(value) };
            OK
        }
        Err(failure) => {
            let code = failure.code as i32;
            // SAFETY: as above.
            unsafe { error.write(failure.text.into_bytes().into()) };
            code
        }
    }
}

/// # Safety
/// See reckoner_text.h; the bytes come from this library and are freed once.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_bytes(bytes: Bytes) {
    // SAFETY: the caller's promise.
    unsafe { take_back(bytes.data, bytes.size_bytes) };
}

/// # Safety
/// See reckoner_text.h; the ids come from this library and are freed once.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_ids(ids: Ids) {
    // SAFETY: the caller's promise.
    unsafe { take_back(ids.data, ids.count) };
}

/// Drops a handle. A panic in a destructor has nobody to be told to.
///
/// # Safety
/// `handle` is null or comes from `Box::into_raw` and is freed once.
unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = guarded(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}

/// # Safety
/// See reckoner_text.h; nobody uses the tokenizer any more.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_tokenizer(tokenizer: *mut Tokenizer) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(tokenizer) };
}

/// # Safety
/// See reckoner_text.h; nobody uses the stream any more.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_stream(stream: *mut Stream) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(stream) };
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_load(
    folder: Slice,
    tokenizer: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(tokenizer, error, || {
            let folder = Path::new(folder.text("folder")?);
            Ok(Box::into_raw(Box::new(Tokenizer::load(folder)?)))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_load_from_memory(
    tokenizer_json: Slice,
    chat_template: Slice,
    tokenizer: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(tokenizer, error, || {
            let template = chat_template.text("chat template")?;
            let loaded = Tokenizer::from_memory(tokenizer_json.bytes(), template)?;
            Ok(Box::into_raw(Box::new(loaded)))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_encode(
    tokenizer: &Tokenizer,
    text: Slice,
    add_special_tokens: i32,
    ids: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(ids, error, || {
            let (data, count) =
                give(tokenizer.encode(text.text("text")?, add_special_tokens != 0)?);
            Ok(Ids { data, count })
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_decode(
    tokenizer: &Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: i32,
    text: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(text, error, || {
            let ids = if count == 0 {
                &[]
            } else {
                slice::from_raw_parts(ids, count)
            };
            let decoded = tokenizer.decode(ids, skip_special_tokens != 0)?;
            Ok(decoded.into_bytes().into())
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_piece(
    tokenizer: &Tokenizer,
    id: u32,
    bytes: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe { answer(bytes, error, || Ok(tokenizer.piece(id)?.into())) }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_token_id(
    tokenizer: &Tokenizer,
    token: Slice,
    id: *mut u32,
    found: *mut i32,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(found, error, || {
            let Some(value) = tokenizer.library.token_to_id(token.text("token")?) else {
                return Ok(0);
            };
            id.write(value);
            Ok(1)
        })
    }
}

#[no_mangle]
pub extern "C" fn reckoner_text_vocab_size(tokenizer: &Tokenizer) -> usize {
    tokenizer.vocab_size()
}

#[no_mangle]
pub extern "C" fn reckoner_text_is_added(tokenizer: &Tokenizer, id: u32) -> i32 {
    guarded(|| Ok(i32::from(tokenizer.added_ids().contains(&id)))).unwrap_or(0)
}

#[no_mangle]
pub extern "C" fn reckoner_text_base_vocab_size(tokenizer: &Tokenizer) -> usize {
    guarded(|| Ok(tokenizer.base_vocab_size())).unwrap_or(0)
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_config_token(
    tokenizer: &Tokenizer,
    which: i32,
    token: *mut Bytes,
    found: *mut i32,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe {
        answer(found, error, || {
            let given = match which {
                0 => &tokenizer.bos_token,
                _ => &tokenizer.eos_token,
            };
            let Some(text) = given else {
                return Ok(0);
            };
            token.write(text.clone().into_bytes().into());
            Ok(1)
        })
    }
}

#[no_mangle]
pub extern "C" fn reckoner_text_prompt_format(tokenizer: &Tokenizer) -> i32 {
    match tokenizer.prompts {
        Prompts::None => 0,
        Prompts::Template(_) | Prompts::KimiK25(_) => 1,
        Prompts::DeepseekV32 => 2,
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_prompt_source(
    tokenizer: &Tokenizer,
    name: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe {
        answer(name, error, || {
            Ok(tokenizer.prompts.name().as_bytes().to_vec().into())
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_render(
    tokenizer: &Tokenizer,
    prompt: &CPrompt,
    text: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(text, error, || {
            let prompt = Prompt {
                messages: prompt.messages_json.text("messages")?,
                tools: prompt.tools_json.text("tools")?,
                kwargs: prompt.kwargs_json.text("chat_template_kwargs")?,
                add_generation_prompt: prompt.add_generation_prompt != 0,
            };
            Ok(prompt.render(tokenizer)?.into_bytes().into())
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_open_stream(
    tokenizer: &Tokenizer,
    stop_strings: *const Slice,
    stop_count: usize,
    skip_special_tokens: i32,
    stream: *mut *mut Stream,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(stream, error, || {
            let stops = (0..stop_count)
                .map(|index| Ok((*stop_strings.add(index)).text("stop string")?.to_owned()))
                .collect::<Result<Vec<_>, Failure>>()?;
            let opened = Stream::new(tokenizer, stops, skip_special_tokens != 0)?;
            Ok(Box::into_raw(Box::new(opened)))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_push(
    stream: &mut Stream,
    id: u32,
    step: *mut CStep,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe { answer(step, error, || Ok(stream.push(id)?.into())) }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_finish(
    stream: &mut Stream,
    step: *mut CStep,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe { answer(step, error, || Ok(stream.finish()?.into())) }
}

/// # Safety
/// See reckoner_text.h; nobody uses the grammars any more.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_grammars(grammars: *mut Grammars) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(grammars) };
}

/// # Safety
/// See reckoner_text.h; nobody uses the grammar any more.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_free_grammar(grammar: *mut Grammar) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(grammar) };
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_open_grammars(
    tokenizer: &Tokenizer,
    eos_ids: *const u32,
    eos_count: usize,
    vocab_size: usize,
    grammars: *mut *mut Grammars,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(grammars, error, || {
            let eos = if eos_count == 0 {
                &[]
            } else {
                slice::from_raw_parts(eos_ids, eos_count)
            };
            let opened = Grammars::new(tokenizer, eos, vocab_size)?;
            Ok(Box::into_raw(Box::new(opened)))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_compile_grammar(
    grammars: &Grammars,
    kind: i32,
    text: Slice,
    grammar: *mut *mut Grammar,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is read and written here.
    unsafe {
        answer(grammar, error, || {
            let kind = Kind::from_number(kind)?;
            let compiled = grammars.compile(kind, text.text("grammar")?)?;
            Ok(Box::into_raw(Box::new(compiled)))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_fill_mask(
    grammar: &mut Grammar,
    mask: *mut u32,
    count: usize,
    error: *mut Bytes,
) -> i32 {
    let mut nothing = ();
    // SAFETY: the caller's promise, for all that is written here.
    unsafe {
        answer(&mut nothing, error, || {
            grammar.fill_mask(slice::from_raw_parts_mut(mask, count))
        })
    }
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_accept(
    grammar: &mut Grammar,
    id: u32,
    error: *mut Bytes,
) -> i32 {
    let mut nothing = ();
    // SAFETY: the caller's promise, for all that is written here.
    unsafe { answer(&mut nothing, error, || grammar.accept(id)) }
}

#[no_mangle]
pub extern "C" fn reckoner_text_grammar_finished(grammar: &Grammar) -> i32 {
    guarded(|| Ok(i32::from(grammar.finished()))).unwrap_or(1)
}

/// # Safety
/// See reckoner_text.h.
#[no_mangle]
pub unsafe extern "C" fn reckoner_text_chat_template(
    tokenizer: &Tokenizer,
    text: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    // SAFETY: the caller's promise, for all that is written here.
    unsafe {
        answer(text, error, || {
            Ok(tokenizer.prompts.text().as_bytes().to_vec().into())
        })
    }
}
