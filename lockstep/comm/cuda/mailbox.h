// Messages between GPUs of one node, in the order of streams.
//
// Every rank has a *mailbox* in symmetric memory, with two slots for each sender. A message goes
// through them in pieces:
//
//   sender      waits until the slot is free | copies a piece into it          | signals `arrived`
//   receiver                                   waits for it | copies it out    | signals `taken`
//
// So two pieces may be under way, and a sender that is further ahead waits. Signals carry the
// number of the piece between these two ranks, and `arrived` a hash of the message, so a receiver
// of something else gets an error that names both. Numbers are the host's: messages cannot be
// captured.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "lockstep/comm/call.h"
#include "lockstep/comm/cuda/message_kernels.h"
#include "lockstep/comm/cuda/peer_memory.h"
#include "lockstep/comm/device_communicator.h"

namespace lockstep::cuda {

// At the start of a mailbox; zero at first.
struct MailboxSignals {
  std::uint64_t arrived[kMostRanks][kMailboxSlots];  // by the sender
  std::uint64_t taken[kMostRanks];                   // by the receiver of what this rank sent
  Operation operations[kMostRanks][kMailboxSlots];   // of what has arrived
};

class Mailbox {
 public:
  // Of kMailboxBytes on each rank, whose signals are zero.
  Mailbox(const PeerMemory::Allocation& memory, int rank, int size);

  // One thread at a time.
  void queue_send(const Peers& peers, const Call& call, cudaStream_t stream);
  void queue_receive(const Peers& peers, const Call& call, cudaStream_t stream);

 private:
  MailboxSignals* signals_of(int rank) const {
    return reinterpret_cast<MailboxSignals*>(bases_[static_cast<std::size_t>(rank)]);
  }
  // In the mailbox of `receiver`, of piece `number` from `sender`.
  std::byte* slot(int receiver, int sender, std::uint32_t number) const;

  std::array<std::byte*, kMostRanks> bases_;
  std::size_t slot_bytes_;
  int rank_;
  std::array<std::uint32_t, kMostRanks> sent_{};  // pieces, by the other rank
  std::array<std::uint32_t, kMostRanks> received_{};
};

}  // namespace lockstep::cuda
