// The subcommands of `lockstep`, one file each. add_x() declares x's flags and its body; the body
// runs after parsing and puts the process's exit code into `exit_code`.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace lockstep::cli {

// The prefix of error messages.
inline constexpr const char* kErrorPrefix = "lockstep: ";

// Exit codes: of settings, arguments or data that are not possible, of a loss or a gradient that is
// NaN or infinite, and of a command that was interrupted, as shells have it.
inline constexpr int kUsageError = 2;
inline constexpr int kNonFiniteError = 3;
inline constexpr int kInterrupted = 130;

void add_explain(CLI::App& app, int& exit_code);
void add_launch(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_import(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_runs(CLI::App& app, int& exit_code);
void add_sweep(CLI::App& app, int& exit_code);
void add_resize(CLI::App& app, int& exit_code);
void add_watch(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);

}  // namespace lockstep::cli
