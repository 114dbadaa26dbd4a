// Common flags of benches with a Python peer.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

struct PeerFlags {
  bool peers = false;
  std::string python;
  std::string peers_folder;
  std::string json;
};

// --peers ("also run PEER"), --python ("a Python that has LIBRARY"), --peers-folder and --json.
void add_peer_options(CLI::App& command, PeerFlags& flags, const std::string& peer,
                      const std::string& library);

// The `lockstep` program itself, and the folder of the peers' scripts.
std::filesystem::path this_program();
std::filesystem::path peers_folder_of(const PeerFlags& flags);

// For any bench that has these fields.
template <class Bench>
void set_peers(const PeerFlags& flags, Bench& bench) {
  bench.peers = flags.peers;
  bench.python = flags.python;
  bench.json = flags.json;
  bench.command = this_program();
  bench.peers_folder = peers_folder_of(flags);
}

// Runs a bench and returns its exit code: 0 if it returned true. Reports an interruption.
int run_bench(const std::function<bool()>& bench);

}  // namespace lockstep::cli
