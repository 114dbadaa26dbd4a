#include "lockstep/comm/cuda/mailbox.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/tensor/cuda/copy.h"

namespace lockstep::cuda {
namespace {

static_assert(sizeof(MailboxSignals) <= kMailboxSignalBytes);

// What sender and receiver of a message have in common, and its tag.
struct MessageTag {
  explicit MessageTag(const Call& call) {
    const bool sends = call.kind == Collective::kSend;
    Fingerprint fingerprint;
    fingerprint.kind = call.kind;
    fingerprint.count = sends ? call.in.count : call.out.count;
    fingerprint.dtype = sends ? call.in.dtype : call.out.dtype;
    std::memcpy(&operation, &fingerprint, sizeof(operation));
    fingerprint.kind = Collective::kSend;
    const std::uint64_t hashed = hash(fingerprint);
    tag = static_cast<std::uint32_t>(hashed ^ hashed >> 32);
  }

  Operation operation;
  std::uint32_t tag;
};

std::uint64_t signal_of(std::uint32_t number, std::uint32_t tag) {
  return std::uint64_t{number} << 32 | tag;
}

// Calls piece(first, bytes) for the pieces of a message; of an empty one, for one without bytes.
template <class Piece>
void for_pieces(std::size_t bytes, std::size_t most, Piece&& piece) {
  std::size_t first = 0;
  do {
    const std::size_t now = std::min(most, bytes - first);
    piece(first, now);
    first += now;
  } while (first < bytes);
}

}  // namespace

Mailbox::Mailbox(const PeerMemory::Allocation& memory, int rank, int size)
    : bases_(memory.bases), slot_bytes_(mailbox_piece_bytes(size)), rank_(rank) {}

std::byte* Mailbox::slot(int receiver, int sender, std::uint32_t number) const {
  const std::size_t index =
      static_cast<std::size_t>(sender) * kMailboxSlots + number % kMailboxSlots;
  return bases_[static_cast<std::size_t>(receiver)] + kMailboxSignalBytes + index * slot_bytes_;
}

void Mailbox::queue_send(const Peers& peers, const Call& call, cudaStream_t stream) {
  const int to = call.peer;
  const MessageTag message(call);
  for_pieces(bytes_of(call.in), slot_bytes_, [&](std::size_t first, std::size_t bytes) {
    const std::uint32_t number = ++sent_[static_cast<std::size_t>(to)];
    // Of the piece that was in this slot before; there was none at first.
    launch_await(peers,
                 {.signal = &signals_of(rank_)->taken[to],
                  .theirs = nullptr,
                  .mine = message.operation,
                  .number = number - static_cast<std::uint32_t>(kMailboxSlots),
                  .tag = 0,
                  .other = to},
                 stream);
    if (bytes > 0) copy_on_gpu(slot(to, rank_, number), call.in.bytes + first, bytes, stream);
    launch_announce({.signal = &signals_of(to)->arrived[rank_][number % kMailboxSlots],
                     .operation = &signals_of(to)->operations[rank_][number % kMailboxSlots],
                     .mine = message.operation,
                     .value = signal_of(number, message.tag)},
                    stream);
  });
}

void Mailbox::queue_receive(const Peers& peers, const Call& call, cudaStream_t stream) {
  const int from = call.peer;
  const MessageTag message(call);
  for_pieces(bytes_of(call.out), slot_bytes_, [&](std::size_t first, std::size_t bytes) {
    const std::uint32_t number = ++received_[static_cast<std::size_t>(from)];
    launch_await(peers,
                 {.signal = &signals_of(rank_)->arrived[from][number % kMailboxSlots],
                  .theirs = &signals_of(rank_)->operations[from][number % kMailboxSlots],
                  .mine = message.operation,
                  .number = number,
                  .tag = message.tag,
                  .other = from},
                 stream);
    if (bytes > 0) copy_on_gpu(call.out.bytes + first, slot(rank_, from, number), bytes, stream);
    launch_announce({.signal = &signals_of(from)->taken[rank_],
                     .operation = nullptr,
                     .mine = {},
                     .value = signal_of(number, 0)},
                    stream);
  });
}

}  // namespace lockstep::cuda
