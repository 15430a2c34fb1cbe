//! Failures, and the guard that keeps panics on this side of the C border.

use std::{
    any::Any,
    cell::RefCell,
    panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
};

/// What a call was about when it failed; the numbers are those of `ReckonerTextCode` in reckoner_text.h.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(i32)]
pub enum Code {
    /// An argument of this call: text that is not UTF-8, JSON that does not parse, an unknown id.
    Argument = 1,
    /// The tokenizer file.
    TokenizerFile = 2,
    /// tokenizer_config.json.
    ConfigFile = 3,
    /// The chat template, at load or while it renders.
    Template = 4,
    /// A panic: a bug here or in a library below.
    Internal = 5,
}

#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub text: String,
}

impl Failure {
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

thread_local! {
    /// `Some` while this thread is inside [`guarded`]; holds the text of the panic that happened there.
    /// The panic hook is process-wide and takes no context, so this is the only way to hand the text over.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

static INSTALL_HOOK: Once = Once::new();

/// Keeps the panic text of guarded threads instead of printing it; every other panic goes to the hook that was there.
fn install_hook() {
    let previous = take_hook();
    set_hook(Box::new(move |info| {
        let kept = CAUGHT
            .try_with(|caught| match caught.try_borrow_mut() {
                Ok(mut slot) if slot.is_some() => {
                    *slot = Some(describe(info));
                    true
                }
                _ => false,
            })
            .unwrap_or(false);
        if !kept {
            previous(info);
        }
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let text = panic_text(info.payload());
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text.to_owned(),
    }
}

fn panic_text(payload: &dyn Any) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a text")
}

/// Runs `body`; a panic in it becomes a [`Code::Internal`] failure that carries the panic's text.
///
/// After a panic the objects `body` used are only ever dropped or used again through their own locks, so the
/// unwind-safety assertion holds.
pub fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    INSTALL_HOOK.call_once(install_hook);
    keep_panics(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let caught = keep_panics(None).unwrap_or_default();
    outcome.unwrap_or_else(|payload| {
        let text = if caught.is_empty() {
            panic_text(payload.as_ref()).to_owned()
        } else {
            caught
        };
        Err(Failure::new(Code::Internal, text))
    })
}

/// Replaces what [`CAUGHT`] holds. Once the thread's locals are gone (C++ frees a static object at the end of the
/// process) there is nothing to replace, and panics are printed.
fn keep_panics(text: Option<String>) -> Option<String> {
    CAUGHT
        .try_with(|caught| caught.replace(text))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure_with_its_text() {
        let failure = guarded::<()>(|| panic!("boom {}", 7)).unwrap_err();
        assert_eq!(failure.code, Code::Internal);
        assert!(failure.text.contains("boom 7"), "{}", failure.text);
        assert!(failure.text.contains("failure.rs:"), "{}", failure.text);
    }

    #[test]
    fn works_after_the_threads_locals_are_gone() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
                assert!(guarded::<()>(|| panic!("late"))
                    .unwrap_err()
                    .text
                    .contains("late"));
            }
        }
        // Locals are destroyed in the order of their first use or the reverse of it: use both orders.
        thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }
        for late_first in [true, false] {
            std::thread::spawn(move || {
                if late_first {
                    LATE.set(Some(Late));
                }
                keep_panics(None);
                if !late_first {
                    LATE.set(Some(Late));
                }
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn values_and_failures_pass_through() {
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
        let failure = guarded::<()>(|| Err(Failure::new(Code::Template, "text"))).unwrap_err();
        assert_eq!(
            (failure.code, failure.text.as_str()),
            (Code::Template, "text")
        );
    }
}
