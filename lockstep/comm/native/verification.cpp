#include "lockstep/comm/native/verification.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "lockstep/base/simd/crc32c.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kOneOf = 16;    // operations that comm.verify = sample checks
constexpr std::uint64_t kSamples = 16;  // elements of a reduction

// Spreads numbers that follow each other (the finalizer of SplitMix64).
std::uint64_t spread(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// Block `index` of data that has a block for each rank.
std::span<const std::byte> block_of(const ConstData& data, int index, int ranks,
                                    const std::vector<std::size_t>& counts) {
  const std::size_t element = size_of(data.dtype);
  const auto i = static_cast<std::size_t>(index);
  if (counts.empty()) {
    const std::size_t bytes = data.count / static_cast<std::size_t>(ranks) * element;
    return {data.bytes + i * bytes, bytes};
  }
  const std::size_t before =
      std::accumulate(counts.begin(), counts.begin() + index, std::size_t{0});
  return {data.bytes + before * element, counts[i] * element};
}

std::span<const std::byte> all_of(const ConstData& data) {
  return {data.bytes, data.count * size_of(data.dtype)};
}

}  // namespace

bool is_verified(VerifyChoice choice, const Call& call, std::uint64_t sequence) {
  if (choice == VerifyChoice::kOff || call.kind == Collective::kBarrier) return false;
  return choice == VerifyChoice::kAll || spread(sequence) % kOneOf == 0;
}

Verification::Verification(const Call& call, const Fingerprint& fingerprint, int rank, int ranks,
                           bool in_rank_order)
    : call_(call),
      fingerprint_(fingerprint),
      rank_(rank),
      ranks_(ranks),
      element_(size_of(dtype_of_call(call))) {
  if (reduces(call.kind) && in_rank_order && call.op.kind != ReduceOp::kUser && call.in.count > 0) {
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      samples_.push_back(spread(fingerprint.sequence * kSamples + i) % call.in.count);
    }
  }
  note_.assign(words(), 0);
  for (int other = 0; other < ranks_; ++other) {
    note_[static_cast<std::size_t>(other)] = crc32c(given_to(other));
  }
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    std::memcpy(&note_[static_cast<std::size_t>(ranks_) + 1 + i],
                call_.in.bytes + samples_[i] * element_, element_);
  }
}

std::span<const std::byte> Verification::given_to(int other) const {
  switch (call_.kind) {
    case Collective::kBroadcast:
      return rank_ == call_.root ? all_of(call_.in) : std::span<const std::byte>();
    case Collective::kScatter:
      if (rank_ != call_.root) return {};
      return block_of(call_.in, other, ranks_, call_.counts);
    case Collective::kGather:
      return other == call_.root ? all_of(call_.in) : std::span<const std::byte>();
    case Collective::kAllGather:
      return all_of(call_.in);
    case Collective::kAllToAll:
      return block_of(call_.in, other, ranks_, call_.counts);
    default:
      return {};
  }
}

std::span<const std::byte> Verification::got_from(int other) const {
  switch (call_.kind) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return other == call_.root ? all_of(call_.out) : std::span<const std::byte>();
    case Collective::kGather:
      if (rank_ != call_.root) return {};
      return block_of(call_.out, other, ranks_, call_.counts);
    case Collective::kAllGather:
      return block_of(call_.out, other, ranks_, call_.counts);
    case Collective::kAllToAll:
      return block_of(call_.out, other, ranks_, call_.out_counts);
    default:
      return {};
  }
}

const std::vector<std::uint64_t>& Verification::note() {
  if (call_.kind == Collective::kAllReduce) {
    note_[static_cast<std::size_t>(ranks_)] = crc32c(all_of(call_.out));
  }
  return note_;
}

const std::byte* Verification::result_at(std::size_t element) const {
  if (call_.kind == Collective::kAllReduce ||
      (call_.kind == Collective::kReduce && rank_ == call_.root)) {
    return call_.out.bytes + element * element_;
  }
  if (call_.kind != Collective::kReduceScatter) return nullptr;
  const std::size_t block = call_.in.count / static_cast<std::size_t>(ranks_);
  if (element / block != static_cast<std::size_t>(rank_)) return nullptr;
  return call_.out.bytes + element % block * element_;
}

void Verification::fail(int other, std::string_view what) const {
  throw Error(ErrorCode::kCorrupted,
              fmt::format("comm.verify: {} between rank {} and rank {} went wrong: {}; the memory "
                          "of this machine or a program that shares it is faulty",
                          describe(fingerprint_), other, rank_, what),
              {other, rank_});
}

void Verification::compare_sample(std::size_t index, std::span<const std::uint64_t> notes) const {
  const std::byte* const result = result_at(samples_[index]);
  if (result == nullptr) return;
  std::vector<const std::byte*> inputs;
  for (std::size_t other = 0; other < static_cast<std::size_t>(ranks_); ++other) {
    const std::size_t at = other * words() + static_cast<std::size_t>(ranks_) + 1 + index;
    inputs.push_back(reinterpret_cast<const std::byte*>(&notes[at]));
  }
  std::uint64_t combined = 0;
  auto* const output = reinterpret_cast<std::byte*>(&combined);
  combine(inputs, {&output, 1}, 1, call_.in.dtype, call_.op,
          call_.op.kind == ReduceOp::kMean ? ranks_ : 1);
  if (std::memcmp(output, result, element_) == 0) return;
  // Which rank's part differs cannot be seen in a sum.
  fail((rank_ + 1) % ranks_, fmt::format("element {} of the result is not the {} of all inputs",
                                         samples_[index], name(call_.op)));
}

void Verification::compare(std::span<const std::uint64_t> notes) const {
  const auto note_of = [&](int other) {
    return notes.subspan(static_cast<std::size_t>(other) * words(), words());
  };
  for (int other = 0; other < ranks_; ++other) {
    const auto theirs = note_of(other);
    const std::span<const std::byte> got = got_from(other);
    const std::uint64_t sent = theirs[static_cast<std::size_t>(rank_)];
    if (const std::uint64_t sum = crc32c(got); sum != sent) {
      fail(other, fmt::format("{} bytes arrived with the checksum {:08x}, sent with {:08x}",
                              got.size(), sum, sent));
    }
    const auto result = static_cast<std::size_t>(ranks_);
    if (theirs[result] != note_[result]) {
      fail(other, fmt::format("their results of {} bytes have the checksums {:08x} and {:08x}",
                              all_of(call_.out).size(), theirs[result], note_[result]));
    }
  }
  for (std::size_t i = 0; i < samples_.size(); ++i) compare_sample(i, notes);
}

}  // namespace lockstep
