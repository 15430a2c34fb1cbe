#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <new>

#include "base/edit_distance.h"

namespace reckoner {
namespace {

constexpr const char* kAbout =
    "Reckoner runs large open mixture-of-experts language models from their published\n"
    "Hugging Face checkpoints, and accounts for every number on the way.";

int usage_error(Console& console, const std::string& what, const std::string& remedy) {
  console.error({what, remedy});
  return kExitUsage;
}

std::string main_footer(std::span<const Subcommand> subcommands) {
  std::string text = "Examples:\n";
  for (const Subcommand& subcommand : subcommands) {
    if (!subcommand.summary.empty()) text += fmt::format("  {}\n", subcommand.example);
  }
  return text +
         "\nMODEL is a folder with config.json and safetensors files, or the name of a repository in\n"
         "the Hugging Face cache. `reckoner COMMAND --help` lists the options of a command.";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (!option->get_group().empty()) names.push_back("--" + name);
    }
  }
  return names;
}

// What the parser did not expect: a misspelled option, or a prompt without quotes.
int unexpected_argument(Console& console, const CLI::App& app, const std::string& help) {
  std::vector<std::string> rest = app.remaining();
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& argument) { return argument.starts_with("-"); });
  if (option == rest.end()) {
    return usage_error(console, fmt::format("unexpected argument '{}'", rest.empty() ? "" : rest.front()),
                       "put text of several words in quotes; " + help);
  }
  const std::string name = option->substr(0, option->find('='));
  const std::string close = nearest(name, option_names(app));
  return usage_error(console, fmt::format("unknown option '{}'", name),
                     (close.empty() ? "" : fmt::format("did you mean {}? ", close)) + help);
}

// The parser's own words, but for those that say too little.
std::string reworded(const CLI::ParseError& error) {
  std::string what = error.what();
  constexpr std::string_view kConversion = "Could not convert: ";
  constexpr std::string_view kMissing = ": 1 required ";
  constexpr std::string_view kExcludes = " excludes ";
  if (what.starts_with(kConversion)) return "not a valid value: " + what.substr(kConversion.size());
  if (what == "A subcommand is required") return "a command is missing";
  if (const std::size_t at = what.find(kMissing); at != std::string::npos) return what.substr(0, at) + " needs a value";
  if (const std::size_t at = what.find(kExcludes); at != std::string::npos) what.replace(at, kExcludes.size(), " cannot go with ");
  return what;
}

// The command that was chosen, down to one within another; the program itself when none was.
const CLI::App& chosen_command(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.front());
}

// "reckoner bench serve"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

int parse_error(Console& console, CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& where = chosen_command(app);
  const std::string help = fmt::format("see `{} --help`", full_name(where));
  // An unknown option before the command counts as a missing command to the parser.
  const bool needs_command = where.get_require_subcommand_min() > 0;
  const bool unexpected =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) || (needs_command && where.remaining_size() > 0);
  if (unexpected) return unexpected_argument(console, where, help);
  return usage_error(console, reworded(error), help);
}

// An unknown command is caught before parsing, where the parser would only say that it did not expect it.
int unknown_command(Console& console, const std::string& word, std::span<const Subcommand> subcommands) {
  std::vector<std::string> names;
  for (const Subcommand& subcommand : subcommands) {
    if (!subcommand.summary.empty()) names.emplace_back(subcommand.name);
  }
  const std::string close = nearest(word, names);
  return usage_error(console, fmt::format("there is no command '{}'", word),
                     fmt::format("{}see `reckoner --help`", close.empty() ? "" : fmt::format("did you mean `reckoner {}`? ", close)));
}

// The parser's help, with one empty line between the parts instead of two or none.
std::string help_text(const CLI::App& app) {
  std::string text = app.get_parent() == nullptr ? app.help() : app.help(full_name(*app.get_parent()));
  text.insert(text.find("Usage:"), "\n");
  for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

int finish(Console& console, const Result<int>& status) {
  if (status) return *status;
  console.error(status.error());
  return kExitFailed;
}

Result<int> print_result(Console& console, const std::string& text) {
  TRY(console.print(text));
  return 0;
}

void describe(CLI::App& app, std::span<const Subcommand> subcommands) {
  app.set_version_flag("--version", "", "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.get_formatter()->column_width(29);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND ...");
  app.get_formatter()->label("Positionals", "Arguments");
  app.footer(main_footer(subcommands));
  app.require_subcommand(1);
}

// What the command line asks for; a usage error, the help and the version are finished actions.
Action parse(CLI::App& app, int argc, char** argv, const Action& chosen_action) {
  try {
    app.parse(argc, argv);
    return chosen_action;
  } catch (const CLI::CallForVersion&) {
    return [](Console& console) { return print_result(console, "reckoner " RECKONER_VERSION "\n"); };
  } catch (const CLI::CallForHelp&) {
    return [text = help_text(chosen_command(app))](Console& console) { return print_result(console, text); };
  } catch (const CLI::ParseError& error) {
    return [&app, error](Console& console) { return parse_error(console, app, error); };
  }
}

// The first argument that is no option: the command.
std::string first_word(int argc, char** argv) {
  char** const word = std::find_if(argv + std::min(argc, 1), argv + argc, [](const char* argument) { return *argument != '-'; });
  return word == argv + argc ? "" : *word;
}

int parse_and_run(Console& console, int argc, char** argv, std::span<const Subcommand> subcommands) {
  CLI::App app(kAbout, "reckoner");
  describe(app, subcommands);
  const std::string word = first_word(argc, argv);
  Action action;
  for (const Subcommand& subcommand : subcommands) {
    CLI::App* const child = app.add_subcommand(std::string(subcommand.name), std::string(subcommand.summary));
    child->group(subcommand.summary.empty() ? "" : "Commands");
    // Only the command that is asked for: its long description would stand in the list of commands too.
    if (subcommand.name == word) action = subcommand.add(*child);
  }
  if (argc < 2) {
    console.plain(help_text(app));
    return kExitUsage;
  }
  if (!action && !word.empty()) return unknown_command(console, word, subcommands);
  return finish(console, parse(app, argc, argv, action)(console));
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = candidate.starts_with(word) ? 1 : edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

int run_command_line(int argc, char** argv, std::span<const Subcommand> subcommands) {
  Console console;
  try {
    return parse_and_run(console, argc, argv, subcommands);
  } catch (const std::bad_alloc&) {
    console.error({"out of memory", "close other programs, or ask for a smaller --context"});
  } catch (const std::exception& error) {
    console.error({fmt::format("unexpected: {}", error.what()), "this is a bug in Reckoner: please report it with the command line"});
  }
  return kExitFailed;
}

}  // namespace reckoner
