// The stages of one operation:
//
//   collective      checking -> (comparing sizes) -> ready -> moving -> ended
//   receive         checking (the sender's header) -> ready -> moving -> ended
//   send            moving -> ended
//   wait_signal     moving -> ended
//
// Checking compares the fingerprints of all ranks. Without checks an operation starts as ready. It
// moves after the operations before it in its lane: MPI matches calls by their order, which must be
// the same on all ranks, whichever check ends first.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/mpi/backend/fingerprint.h"
#include "lockstep/comm/mpi/backend/transfer.h"

namespace lockstep::mpi {

using Clock = std::chrono::steady_clock;

enum class Stage { kChecking, kComparingSizes, kReady, kMoving, kEnded };

// What a send transmits before its data.
struct Header {
  std::uint64_t count = 0;
  std::uint64_t dtype = 0;
};

struct Operation {
  Call call;
  std::string text;        // for messages: "all_reduce of 1024 f32, sum"
  int peer = -1;           // of send, receive and wait_signal
  bool is_signal = false;  // wait_signal
  Clock::time_point deadline;
  std::uint64_t record = 0;  // in the flight recorder
  Stage stage = Stage::kReady;
  std::optional<Error> error;

  Fingerprint own;
  std::vector<Fingerprint> all;
  std::vector<std::uint64_t> own_sizes;
  std::vector<std::uint64_t> all_sizes;
  Header header;
  MPI_Request request = MPI_REQUEST_NULL;  // of every stage but moving
  std::unique_ptr<Transfer> transfer;

  bool is_collective() const { return peer < 0; }
  bool ended() const { return stage == Stage::kEnded; }
};

}  // namespace lockstep::mpi
