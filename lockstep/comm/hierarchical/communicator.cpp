#include "lockstep/comm/hierarchical/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"

namespace lockstep::hierarchical {
namespace {

// Between two looks of the thread that watches.
constexpr std::chrono::milliseconds kLookInterval(20);
// How long the host may need to learn why a level has lost a rank.
constexpr std::chrono::seconds kHostNews(2);
constexpr std::size_t kLeastStagedBlock = 16;  // the alignment of pieces, too
constexpr std::uint64_t kTreeOrderMark = 1;
constexpr std::uint64_t kForcedMark = 2;
constexpr char kTwoLevels[] = "two_levels";  // as algorithms are named

// What ranks tell each other about a call, as bytes.
struct ComparedCall {
  Fingerprint call;
  std::uint64_t is_symmetric = 0;
};

bool is_message(const Call& call) {
  return call.kind == Collective::kSend || call.kind == Collective::kReceive;
}

std::size_t bytes_of_data(const ConstData& data) { return data.count * size_of(data.dtype); }

}  // namespace

// ---- making it

HierarchicalCommunicator::HierarchicalCommunicator(std::unique_ptr<Communicator> host,
                                                   Levels levels,
                                                   const HierarchicalOptions& options)
    : host_(std::move(host)),
      levels_(std::move(levels)),
      options_(options),
      two_levels_(levels_, host_->rank(), options.two_levels),
      all_levels_{
          {*levels_.inside, "inside the node",
           options.two_levels.grid.ranks_of_node(options.two_levels.grid.node_of(host_->rank()))},
          {*levels_.across, "across nodes",
           options.two_levels.grid.ranks_of_lane(options.two_levels.grid.place_of(host_->rank()))},
          {*levels_.flat, "between all ranks", {}}} {
  const NodeGrid& grid = options_.two_levels.grid;
  const std::size_t least =
      static_cast<std::size_t>(grid.nodes + grid.places + grid.ranks()) * kLeastStagedBlock;
  if (options_.two_levels.staging_bytes < least ||
      levels_.staging.bytes() < options_.two_levels.staging_bytes) {
    fail(ErrorCode::kInvalidArgument, "{} of staging memory are less than the {} needed",
         format_bytes(static_cast<double>(options_.two_levels.staging_bytes)),
         format_bytes(static_cast<double>(least)));
  }
  links_ = options_.measure && !options_.forced
               ? measured_level_links(*host_, levels_, grid, options_.two_levels.staging_bytes)
               : assumed_level_links();
  watch_ = std::thread([this] { watch(); });
}

HierarchicalCommunicator::~HierarchicalCommunicator() {
  collectives_.run([] {});
  ends_ = true;
  watch_.join();
}

std::unique_ptr<Communicator> HierarchicalCommunicator::split(int color, int key) {
  collectives_.run([] {});
  std::unique_ptr<Communicator> part = host_->split(color, key);
  return part == nullptr ? nullptr : options_.make_part(std::move(part));
}

SymmetricBuffer HierarchicalCommunicator::allocate(std::size_t bytes) {
  collectives_.run([] {});
  throw_failure();
  Fingerprint mine;  // of an allocation
  mine.count = bytes;
  compare(mine, true);
  auto held = std::make_shared<SymmetricBuffer>();
  try {
    *held = levels_.inside->allocate(bytes);
  } catch (const Error& error) {
    fail_and_throw(error_of_level(all_levels_[0], error));
  }
  std::byte* const data = held->data();
  symmetric_->add(data, bytes);
  const std::shared_ptr<void> owner(data, [held, ranges = symmetric_](void* first) mutable {
    ranges->remove(static_cast<const std::byte*>(first));
    held.reset();
  });
  return {owner, data, bytes};
}

std::uint64_t HierarchicalCommunicator::bytes_sent() const {
  return levels_.inside->bytes_sent() + levels_.across->bytes_sent() + levels_.flat->bytes_sent();
}

std::optional<std::uint64_t> HierarchicalCommunicator::bytes_across() const {
  const std::optional<std::uint64_t> flat = levels_.flat->bytes_across();
  if (!flat) return std::nullopt;
  return *flat + levels_.across->bytes_sent();
}

// ---- calls

void HierarchicalCommunicator::run(const Call& call) {
  validate(call, rank(), size());
  if (is_message(call)) return levels_.flat->run(call);
  // On the calling thread, whose stream the levels find.
  collectives_.run([] {});
  perform(call);
}

Work HierarchicalCommunicator::start(const Call& call) {
  validate(call, rank(), size());
  if (is_message(call)) return levels_.flat->start(call);
  return collectives_.submit([this, call] { perform(call); });
}

void HierarchicalCommunicator::perform(const Call& call) {
  if (call.kind == Collective::kCopy) return levels_.flat->run(call);
  throw_failure();
  if (options_.check) options_.check(call);
  const bool is_direct = compare(fingerprint_of(call, 0), is_symmetric(call));
  if (options_.begin) options_.begin();
  if (is_in_two_levels(call, is_direct)) {
    perform_in_two_levels(call, is_direct);
  } else {
    perform_in_one_level(call);
  }
  if (options_.end) options_.end();
}

void HierarchicalCommunicator::perform_in_two_levels(const Call& call, bool is_direct) {
  try {
    two_levels_.run(call, is_direct);
  } catch (const Error& error) {
    const Level* const failed = failed_level();
    fail_and_throw(failed == nullptr ? error : error_of_level(*failed, error));
  }
}

// What the communicator of all ranks refuses it refuses at all of them, and works on.
void HierarchicalCommunicator::perform_in_one_level(const Call& call) {
  try {
    levels_.flat->run(call);
  } catch (const Error& error) {
    if (!levels_.flat->failure()) throw;
    fail_and_throw(error_of_level(all_levels_.back(), error));
  }
}

bool HierarchicalCommunicator::is_symmetric(const Call& call) const {
  const auto is_held = [&](const ConstData& data) {
    return symmetric_->hold(data.bytes, bytes_of_data(data));
  };
  if (call.kind == Collective::kAllReduce) return is_held(call.in) && is_held(call.out);
  return call.kind != Collective::kReduceScatter || is_held(call.in);
}

LevelCall HierarchicalCommunicator::level_call(const Call& call, bool is_direct) const {
  const bool gathers = call.kind == Collective::kAllGather;
  return {.kind = call.kind,
          .bytes = static_cast<double>(bytes_of_data(gathers ? ConstData(call.out) : call.in)),
          .rounds = two_levels_.rounds(call, is_direct),
          .is_exchange = options_.is_exchange && options_.is_exchange(call)};
}

bool HierarchicalCommunicator::is_in_two_levels(const Call& call, bool is_direct) const {
  if (!two_levels_.serves(call)) return false;
  if (options_.forced) return true;
  const LevelCall one = level_call(call, is_direct);
  const NodeGrid& grid = options_.two_levels.grid;
  return seconds_in_two_levels(one, grid, links_) < seconds_in_one_level(one, grid, links_);
}

Choice HierarchicalCommunicator::choice(const Call& call) const {
  if (is_message(call) || !two_levels_.serves(call)) return levels_.flat->choice(call);
  if (options_.forced) return {kTwoLevels, "two levels wherever they serve"};
  const LevelCall one = level_call(call, is_symmetric(call));
  const NodeGrid& grid = options_.two_levels.grid;
  const double in_two = seconds_in_two_levels(one, grid, links_);
  const double in_one = seconds_in_one_level(one, grid, links_);
  const std::string why = fmt::format("on links {} two levels take {}, one takes {}",
                                      links_.is_measured ? "measured" : "assumed",
                                      format_seconds(in_two), format_seconds(in_one));
  if (in_two < in_one) return {kTwoLevels, why};
  return {levels_.flat->choice(call).algorithm, why};
}

bool HierarchicalCommunicator::compare(Fingerprint mine, bool is_symmetric) {
  mine.sequence = ++operations_;
  // Ranks must agree on these, too.
  if (options_.two_levels.tree_order) mine.extra += kTreeOrderMark;
  if (options_.forced) mine.extra += kForcedMark;
  const ComparedCall here{.call = mine, .is_symmetric = is_symmetric ? 1u : 0u};
  std::vector<ComparedCall> all(static_cast<std::size_t>(size()));
  try {
    host_->all_gather(ConstData(&here, sizeof(here), DType::kU8),
                      Data(all.data(), all.size() * sizeof(here), DType::kU8));
  } catch (const Error& error) {
    fail_and_throw(error);
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].call == mine) continue;
    // All ranks find it, and no level waits for a rank: none has to be ended.
    fault_.report(disagreement(rank(), mine, static_cast<int>(r), all[r].call));
    throw_failure();
  }
  return std::ranges::all_of(all, [](const ComparedCall& one) { return one.is_symmetric == 1; });
}

// ---- errors

std::optional<Error> HierarchicalCommunicator::failure() const {
  look_at_levels();
  return fault_.error();
}

void HierarchicalCommunicator::throw_failure() const {
  if (const std::optional<Error> error = failure()) throw *error;
}

void HierarchicalCommunicator::fail_and_throw(const Error& error) const {
  fail_with(error);
  throw *fault_.error();
}

void HierarchicalCommunicator::fail_with(const Error& error) const {
  if (!fault_.report(error)) return;
  // First, so that all ranks find the reason there.
  if (!host_->failure()) host_->abort(error.what());
  for (const Level& level : all_levels_) {
    if (!level.communicator.failure()) level.communicator.abort(error.what());
  }
}

void HierarchicalCommunicator::abort(std::string_view reason) {
  host_->abort(reason);
  fail_with(host_->failure().value_or(Error(ErrorCode::kAborted, std::string(reason))));
}

const HierarchicalCommunicator::Level* HierarchicalCommunicator::failed_level() const {
  for (const Level& level : all_levels_) {
    if (level.communicator.failure()) return &level;
  }
  return nullptr;
}

void HierarchicalCommunicator::look_at_levels() const {
  if (fault_.present()) return;
  if (const std::optional<Error> error = host_->failure()) return fail_with(*error);
  for (const Level& level : all_levels_) {
    const std::optional<Error> error = level.communicator.failure();
    if (error) return fail_with(error_of_level(level, *error));
  }
}

// A level that lost a rank, or was ended, knows less than the host.
Error HierarchicalCommunicator::error_of_level(const Level& level, const Error& error) const {
  const bool is_own_finding =
      error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kMismatch;
  if (!is_own_finding) host_->wait_for_failure(kHostNews);
  if (const std::optional<Error> known = host_->failure()) return *known;
  if (level.ranks.empty()) return error;
  std::vector<int> ranks;
  for (const int one : error.ranks()) {
    const auto index = static_cast<std::size_t>(one);
    if (index < level.ranks.size()) ranks.push_back(level.ranks[index]);
  }
  return Error(error.code(),
               fmt::format("{}, where ranks 0 to {} are ranks {}: {}", level.name,
                           level.ranks.size() - 1, fmt::join(level.ranks, ", "), error.what()),
               std::move(ranks));
}

void HierarchicalCommunicator::watch() {
  while (!ends_ && !fault_.present()) {
    host_->wait_for_failure(kLookInterval);
    if (!ends_) look_at_levels();
  }
}

}  // namespace lockstep::hierarchical
