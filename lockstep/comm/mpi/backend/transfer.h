// The data movement of an operation by MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/comm/call.h"
#include "lockstep/comm/mpi/backend/reduction.h"

namespace lockstep::mpi {

// A group of ranks as seen from one of them.
struct Group {
  MPI_Comm comm;
  int rank;
  int size;
  int largest_piece;
};

inline constexpr int kPayloadTag = 1;

// Throws Error(kUnsupported) for blocks of more elements than MPI counts.
void expect_countable(const Call& call, int ranks);

// Starts MPI's nonblocking calls for a validated Call; finish() completes the call after they are
// done. MPI uses its memory until then.
class Transfer {
 public:
  Transfer(const Call& call, const Group& group);
  // MPI holds pointers to it.
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  bool done();  // asks MPI
  void finish();
  // Cancels receives that have not matched a message.
  void cancel();
  bool has_requests() const { return !requests_.empty(); }

 private:
  void start();
  void start_reduction();
  void start_blocks();
  void start_varying();
  void exchange_blocks();  // all_to_all_v
  // f(offset in elements, count) for pieces that MPI can count, each with a request of its own.
  template <class F>
  void in_pieces(std::size_t count, F&& f);
  MPI_Request* next_request();

  const Call& call_;
  Group group_;
  const void* in_;
  void* out_;
  bool in_place_;
  std::unique_ptr<Reduction> reduction_;
  std::vector<std::byte> scratch_;
  std::vector<int> sizes_, offsets_;
  std::vector<MPI_Request> requests_;
};

}  // namespace lockstep::mpi
