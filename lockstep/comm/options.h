// The settings of communication, comm.*, with their defaults.
//
// Each field is a configuration key (comm.timeout) and an environment variable
// (LOCKSTEP_COMM_TIMEOUT). See base/config/config.h for how they are read and options.cpp for the
// documentation of each key.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/base/net/encryption_policy.h"
#include "lockstep/base/net/link_emulation.h"
#include "lockstep/comm/call.h"

namespace lockstep {

// How ranks exchange bytes; kAuto: shared memory inside a node and TCP between nodes.
enum class TransportChoice : std::uint8_t { kAuto, kShm, kTcp };
enum class Backend : std::uint8_t { kNative, kThreads, kMpi };
// What moves the data of GPUs (comm/device_communicator.h).
enum class DeviceBackend : std::uint8_t { kAuto, kNative, kNccl, kHierarchical };
// Which collectives in shared memory are checked after the fact (comm/native/verification.h).
enum class VerifyChoice : std::uint8_t { kOff, kSample, kAll };

std::string_view name(TransportChoice transport);  // "auto", "shm", "tcp"
std::string_view name(Backend backend);            // "native", "threads", "mpi"
std::string_view name(DeviceBackend backend);      // "auto", "native", ...

inline constexpr std::string_view kAutoAlgorithm = "auto";

// XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep; empty without a home directory.
std::string default_cache_dir();

struct CommOptions {
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
  TransportChoice transport = TransportChoice::kAuto;
  Backend backend = Backend::kNative;
  DeviceBackend device_backend = DeviceBackend::kAuto;
  // The algorithm of each scheduled collective: comm.algorithm.all_reduce and so on.
  std::array<std::string, std::size(kScheduledCollectives)> algorithms;
  std::string grid;
  std::size_t window = std::size_t{512} << 10;
  std::string cache_dir = default_cache_dir();
  bool measure = true;
  std::string recorder_dir;
  std::string interface;
  bool check = true;
  std::string emulate;
  int emulated_nodes = 1;
  VerifyChoice verify = VerifyChoice::kOff;
  EncryptChoice encrypt = EncryptChoice::kAuto;
  bool trusted_network = false;

  // Not a key: a shorter deadline of operations, once ranks have met; 0: there is none.
  std::chrono::nanoseconds wait_limit{0};

  CommOptions() { algorithms.fill(std::string(kAutoAlgorithm)); }

  // The deadline of operations.
  std::chrono::nanoseconds wait_timeout() const {
    return wait_limit.count() > 0 ? std::min(timeout, wait_limit) : timeout;
  }
  // "auto" or a forced algorithm; collectives without schedules are always "auto".
  std::string_view algorithm(Collective collective) const;
  // The extents of `grid`, slowest first; empty if `grid` is. Throws Error(kInvalidArgument) for a
  // malformed one.
  std::vector<int> grid_extents() const;
  EncryptionPolicy encryption() const { return {encrypt, trusted_network}; }
  // The parsed `emulate`; nothing if it is empty. Throws Error(kInvalidArgument) for a malformed
  // one.
  std::optional<LinkEmulation> emulated_link() const;
};

// The emulated node of a rank: ranks are split in order, as evenly as possible.
constexpr int emulated_node(int rank, int ranks, int nodes) { return rank * nodes / ranks; }

// Declares the keys of CommOptions; `options` must outlive `config` and stay in place.
void bind(Config& config, CommOptions& options);

// The defaults, then the file that LOCKSTEP_CONFIG names if it is set, then the environment. The
// names of algorithms are checked when a communicator is made (comm/native/selection.h).
CommOptions comm_options();

}  // namespace lockstep
