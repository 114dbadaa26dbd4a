#include "lockstep/cli/bench/peers.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {

void add_peer_options(CLI::App& command, PeerFlags& flags, const std::string& peer,
                      const std::string& library) {
  command.add_flag("--peers", flags.peers, "also run " + peer);
  command.add_option("--python", flags.python, "a Python that has " + library)->type_name("PATH");
  command
      .add_option("--peers-folder", flags.peers_folder,
                  "where the peers' scripts are (peers beside this program)")
      ->type_name("FOLDER");
  command.add_option("--json", flags.json, "write the results as an array of objects")
      ->type_name("FILE");
}

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::filesystem::path peers_folder_of(const PeerFlags& flags) {
  if (flags.peers_folder.empty()) return this_program().parent_path() / "peers";
  return std::filesystem::absolute(flags.peers_folder);
}

int run_bench(const std::function<bool()>& bench) {
  try {
    return bench() ? 0 : 1;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kAborted) throw;
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return kInterrupted;
  }
}

}  // namespace lockstep::cli
