#include "lockstep/train/run/mirrored_states.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/train/memory/mirror_memory.h"

namespace lockstep::train {
namespace {

// Of ZeRO.
class ReplicaShards final : public MirroredStates {
 public:
  explicit ReplicaShards(nn::Replica& replica) : replica_(replica) {}

  std::optional<int> shard_of(int worker) const override { return worker; }
  ShardParts parts() const override { return train::parts_of(replica_.plan()); }

  std::vector<std::size_t> elements_of(int worker) const override {
    const nn::MemoryPlan& plan = replica_.plan();
    std::vector<std::size_t> elements;
    for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
      elements.insert(elements.end(), state_count(plan.optimizer),
                      plan.shards.of(block, worker).elements);
    }
    return elements;
  }

  std::size_t bytes_of(int) const override { return shard_bytes(replica_.plan()); }

  std::vector<Tensor> mine() override {
    std::vector<Tensor> tensors;
    for (std::size_t block = 0; block < replica_.flat().blocks(); ++block) {
      if (replica_.my_range(block).elements == 0) continue;
      const nn::States states = replica_.mine(block);
      for (const Tensor& state :
           {states.master, states.first_moment, states.second_moment, states.velocity}) {
        if (ops::is_given(state)) tensors.push_back(state);
      }
    }
    return tensors;
  }

 private:
  nn::Replica& replica_;
};

// Of parameter servers.
class ServerShards final : public MirroredStates {
 public:
  ServerShards(parallel::ServedStates& served, std::vector<parallel::ServedSlice> slices,
               std::size_t states)
      : served_(served), slices_(std::move(slices)), states_(states) {}

  std::optional<int> shard_of(int worker) const override {
    return worker < server_count(slices_) ? std::optional(worker) : std::nullopt;
  }
  ShardParts parts() const override { return train::parts_of(slices_); }

  std::vector<std::size_t> elements_of(int worker) const override {
    std::vector<std::size_t> elements;
    for (const parallel::ServedSlice& slice : slices_) {
      if (slice.server == worker) elements.insert(elements.end(), states_, slice.range.elements);
    }
    return elements;
  }

  std::size_t bytes_of(int worker) const override { return packed_bytes(elements_of(worker)); }

  void begin() override { rounds_ = served_.asked(); }
  void settle() override { served_.await(rounds_); }
  void stop() override { served_.stop_waiting(); }
  bool are_settled() override { return served_.has_done(served_.asked()); }
  std::vector<Tensor> mine() override { return served_.states(); }

 private:
  parallel::ServedStates& served_;
  std::vector<parallel::ServedSlice> slices_;
  std::size_t states_;
  std::uint64_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<MirroredStates> mirrored_states(Trainer& trainer) {
  nn::Replica& replica = trainer.replica();
  parallel::ServedStates* const served = trainer.strategy().served_states();
  if (served == nullptr) return std::make_unique<ReplicaShards>(replica);
  return std::make_unique<ServerShards>(*served,
                                        served_slices_of(trainer.options(), replica.plan()),
                                        state_count(replica.plan().optimizer));
}

std::size_t packed_bytes(std::span<const std::size_t> elements) {
  std::size_t bytes = 0;
  for (const std::size_t each : elements) bytes += each * sizeof(float);
  return bytes;
}

void pack(std::span<const Tensor> tensors, std::span<std::byte> bytes) {
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes() > bytes.size() - at) {
      fail(ErrorCode::kMismatch, "a shard has more than the {} bytes of its plan", bytes.size());
    }
    std::memcpy(bytes.data() + at, tensor.data(), tensor.bytes());
    at += tensor.bytes();
  }
}

}  // namespace lockstep::train
