// What `run` and `serve` do by themselves when a value is not finite: the step is looked into once, its origin is said in one line, and a
// bundle is written.
#pragma once

#include <string>

#include "cli/console.h"
#include "cli/session.h"
#include "engine/engine.h"

namespace reckoner {

// --trace-dir: the folder of bundles; empty: the cache folder; "off": steps are not looked into.
void add_trace_dir_option(CLI::App& app, std::string& trace_dir);

// At most one step an hour is looked into. `session` and `console` must outlive the engine.
void trace_bad_steps(Engine& engine, const Session& session, const std::string& trace_dir, Console& console);

// $XDG_CACHE_HOME/reckoner/traces, or ~/.cache/reckoner/traces, or traces in the current folder.
std::filesystem::path default_trace_folder();

// A name that no other bundle of this folder has: "<folder>/20260131-093000-step12.safetensors".
std::filesystem::path new_bundle_path(const std::filesystem::path& folder, const std::string& what);

}  // namespace reckoner
