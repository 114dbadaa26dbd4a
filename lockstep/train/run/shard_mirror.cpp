#include "lockstep/train/run/shard_mirror.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "lockstep/train/memory/mirror_memory.h"

namespace lockstep::train {
namespace {

// Of a block, as pack_states() orders them.
std::vector<Tensor> mirrored_states(const nn::States& states) {
  std::vector<Tensor> given;
  for (const Tensor& state :
       {states.master, states.first_moment, states.second_moment, states.velocity}) {
    if (ops::is_given(state)) given.push_back(state);
  }
  return given;
}

// All of them have ended, so their memory may be used for something else.
void wait_for_all(const std::vector<Work>& works) {
  std::exception_ptr error;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

// The first ranks of all nodes, then the second ones, and so on.
std::vector<int> mirror_holders(std::span<const int> machines) {
  std::vector<int> places(machines.size());
  std::vector<int> ring(machines.size());
  std::iota(ring.begin(), ring.end(), 0);
  const auto at = [](int worker) { return static_cast<std::size_t>(worker); };
  for (std::size_t i = 0; i < machines.size(); ++i) {
    places[i] = static_cast<int>(std::ranges::count(machines.first(i), machines[i]));
  }
  std::ranges::stable_sort(
      ring, {}, [&](int worker) { return std::pair(places[at(worker)], machines[at(worker)]); });
  std::vector<int> holders(machines.size());
  for (std::size_t i = 0; i < ring.size(); ++i) {
    holders[at(ring[i])] = ring[(i + 1) % ring.size()];
  }
  return holders;
}

ShardMirror::ShardMirror(Communicator& world, nn::Replica& replica, parallel::Trace& trace)
    : replica_(replica), trace_(trace), group_(world.split(0, world.rank())) {
  const std::vector<int> holders = mirror_holders(world.machines());
  holder_ = holders[static_cast<std::size_t>(world.rank())];
  ward_ = static_cast<int>(std::ranges::find(holders, world.rank()) - holders.begin());
  const std::size_t bytes = shard_bytes(replica.plan());
  copy_.bytes = Buffer(bytes);
  for (Slot& slot : mirrored_) slot.bytes = Buffer(bytes);
}

ShardMirror::~ShardMirror() {
  if (thread_.under_way() > 0) group_->abort("this rank ends its run");
  thread_.settle();
}

std::size_t ShardMirror::bytes() const {
  return copy_.bytes.bytes() + mirrored_[0].bytes.bytes() + mirrored_[1].bytes.bytes();
}

void ShardMirror::begin(const Trainer::Settled& settled) {
  thread_.push([this, settled] { return mirror(settled); });
}

void ShardMirror::wait() {
  if (thread_.under_way() == 0) return thread_.wait();  // throws what a task threw
  const parallel::TraceScope scope(
      trace_, {.lane = parallel::TraceLane::kWaiting, .kind = "wait for", .of = "mirror"});
  thread_.wait();
}

std::uint64_t ShardMirror::mirror(const Trainer::Settled& settled) {
  Slot& into = mirrored_[1 - newest_];
  into.of.reset();
  exchange(into);
  into.of = settled;
  newest_ = 1 - newest_;
  group_->barrier();
  copy_.of.reset();
  pack_states(replica_, {copy_.bytes.data(), copy_.bytes.bytes()});
  copy_.of = settled;
  return 0;
}

void ShardMirror::exchange(const Slot& into) {
  const nn::Shards& shards = replica_.plan().shards;
  std::vector<Work> works;
  std::byte* at = into.bytes.data();
  const std::size_t count = mirrored_states(replica_.states()).size();
  for (std::size_t block = 0; block < replica_.flat().blocks(); ++block) {
    const std::size_t elements = shards.of(block, ward_).elements;
    for (std::size_t i = 0; elements > 0 && i < count; ++i) {
      works.push_back(group_->start(receive(Data(at, elements, DType::kF32), ward_)));
      at += elements * sizeof(float);
    }
  }
  for (std::size_t block = 0; block < replica_.flat().blocks(); ++block) {
    if (replica_.my_range(block).elements == 0) continue;
    for (const Tensor& state : mirrored_states(replica_.mine(block))) {
      works.push_back(
          group_->start(send(ConstData(state.data(), state.elements(), state.dtype()), holder_)));
    }
  }
  wait_for_all(works);
}

KeptShards ShardMirror::take(const std::optional<Trainer::Settled>& settled) {
  if (thread_.under_way() > 0) group_->abort("ranks were lost");
  thread_.settle();
  KeptShards kept;
  kept.worker = replica_.plan().sharding.worker;
  kept.parts = parts_of(replica_.plan());
  kept.ward = ward_;
  if (settled && settled->state.steps > 0) {
    Buffer bytes(shard_bytes(replica_.plan()));
    pack_states(replica_, {bytes.data(), bytes.bytes()});
    kept.own.push_back({settled->state, settled->metrics, std::move(bytes)});
  }
  const auto keep = [](Slot& slot, std::vector<ShardVersion>& versions) {
    if (!slot.of || slot.of->state.steps == 0) return;
    const std::int64_t steps = slot.of->state.steps;
    const auto is_same = [&](const ShardVersion& one) { return one.state.steps == steps; };
    if (std::ranges::any_of(versions, is_same)) return;
    versions.push_back({slot.of->state, slot.of->metrics, std::move(slot.bytes)});
  };
  keep(copy_, kept.own);
  for (Slot& slot : mirrored_) keep(slot, kept.mirrored);
  return kept;
}

}  // namespace lockstep::train
