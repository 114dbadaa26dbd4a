// The topics of `lockstep explain` besides collectives: each is a subcommand that prints a short
// text, or draws a picture with --svg. All are computed by the code that a run uses.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

void add_explain_block(CLI::App& explain, int& exit_code);
void add_explain_memory(CLI::App& explain, int& exit_code);
void add_explain_buckets(CLI::App& explain, int& exit_code);
void add_explain_zero(CLI::App& explain, int& exit_code);
void add_explain_gathers(CLI::App& explain, int& exit_code);
void add_explain_symmetric(CLI::App& explain, int& exit_code);
void add_explain_server(CLI::App& explain, int& exit_code);
void add_explain_checkpoint(CLI::App& explain, int& exit_code);
void add_explain_mesh(CLI::App& explain, int& exit_code);
void add_explain_pipeline(CLI::App& explain, int& exit_code);

// A flag's number that has to be more than 0 and is no larger than makes sense. Throws
// Error(kInvalidArgument).
void check_amount(std::string_view flag, double amount);

// Adds --svg FILE.
void add_svg_flag(CLI::App& command, std::string& path);
// Writes the picture and prints one line that names the file.
void write_picture(const std::string& path, std::string_view svg);

}  // namespace lockstep::cli
