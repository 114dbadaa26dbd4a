// How an Engine moves its operations from stage to stage, and ends them when it cannot.
#include <algorithm>

#include "lockstep/base/text/text.h"
#include "lockstep/comm/mpi/backend/engine.h"
#include "lockstep/comm/mpi/backend/environment.h"

namespace lockstep::mpi {
namespace {

// How long ranks have to answer a roll call before they count as missing.
constexpr auto kGrace = std::chrono::seconds(1);

bool test(MPI_Request& request) {
  int done = 0;
  expect(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

bool same_lane(const Operation& a, const Operation& b) {
  if (a.is_collective() || b.is_collective()) return a.is_collective() && b.is_collective();
  return a.peer == b.peer && a.call.kind == b.call.kind;
}

bool compares_sizes(const Operation& operation) {
  return operation.call.kind == Collective::kAllToAll && operation.call.varying;
}

std::optional<Error> compare_header(const Header& header, const Call& call, int rank) {
  const auto sent = static_cast<DType>(header.dtype);
  if (header.count == call.out.count && (sent == call.out.dtype || header.count == 0)) {
    return std::nullopt;
  }
  return Error(ErrorCode::kMismatch,
               fmt::format("rank {} sends {} {} where rank {} receives {} {}", call.peer,
                           header.count, name(sent), rank, call.out.count, name(call.out.dtype)),
               {call.peer, rank});
}

}  // namespace

void Engine::advance() {
  if (failure_) return;
  try {
    hear_control();
    if (!failure_) advance_all();
    if (!failure_) watch_deadlines();
  } catch (const Error& error) {
    fail_all(error, Known::kHere);
  }
}

void Engine::advance_all() {
  for (auto next = operations_.begin(); next != operations_.end();) {
    const std::shared_ptr<Operation> operation = *next;
    if (!operation->ended()) advance_one(*operation);
    if (failure_) return;
    if (operation->ended()) recorder_.end(operation->record);
    next = operation->ended() ? operations_.erase(next) : std::next(next);
  }
}

void Engine::advance_one(Operation& operation) {
  if (operation.stage == Stage::kChecking && test(operation.request)) end_check(operation);
  if (operation.stage == Stage::kReady && may_move(operation)) {
    if (options_.check && compares_sizes(operation)) {
      const auto ranks = static_cast<std::size_t>(size_);
      operation.own_sizes.assign(operation.call.counts.begin(), operation.call.counts.end());
      operation.own_sizes.insert(operation.own_sizes.end(), operation.call.out_counts.begin(),
                                 operation.call.out_counts.end());
      operation.all_sizes.resize(2 * ranks * ranks);
      operation.stage = Stage::kComparingSizes;
      expect(MPI_Iallgather(operation.own_sizes.data(), 2 * size_, MPI_UINT64_T,
                            operation.all_sizes.data(), 2 * size_, MPI_UINT64_T, data_comm_,
                            &operation.request),
             "MPI_Iallgather");
    } else {
      move(operation);
    }
  }
  if (operation.stage == Stage::kComparingSizes && test(operation.request)) {
    if (auto error = compare_block_sizes(operation.all_sizes, size_)) {
      return fail_all(*error, Known::kToAll);
    }
    move(operation);
  }
  // The request is that of a send's header or of a signal here.
  if (operation.stage == Stage::kMoving && test(operation.request) &&
      (operation.transfer == nullptr || operation.transfer->done())) {
    if (operation.transfer != nullptr) operation.transfer->finish();
    operation.stage = Stage::kEnded;
  }
}

bool Engine::may_move(const Operation& operation) const {
  for (const auto& earlier : operations_) {
    if (earlier.get() == &operation) break;
    if (same_lane(*earlier, operation) && earlier->stage < Stage::kMoving) return false;
  }
  return true;
}

void Engine::end_check(Operation& operation) {
  if (operation.is_collective()) {
    // Every rank sees the same, and needs no telling.
    if (auto error = compare(operation.all)) return fail_all(*error, Known::kToAll);
  } else if (auto error = compare_header(operation.header, operation.call, rank_)) {
    return fail_all(*error, Known::kHere);
  }
  operation.stage = Stage::kReady;
}

void Engine::move(Operation& operation) {
  operation.stage = Stage::kMoving;
  // A barrier's check is a barrier already; and only checks need the steps that are no Call.
  if (operation.own.special != Special::kNone) return;
  if (operation.call.kind == Collective::kBarrier && options_.check) return;
  const MPI_Comm comm = operation.is_collective() ? data_comm_ : point_comm_;
  operation.transfer = std::make_unique<Transfer>(operation.call, group(comm));
}

void Engine::hear_control() {
  while (const auto message = control_->receive()) {
    switch (message->kind) {
      case ControlMessage::Kind::kFailed:
        return fail_all(error_of(*message), Known::kThere);
      case ControlMessage::Kind::kRollCall: {
        ControlMessage answer;
        answer.kind = ControlMessage::Kind::kPresent;
        answer.started = started_;
        control_->send(message->sender, answer);
        break;
      }
      case ControlMessage::Kind::kPresent:
        if (roll_call_ && message->started > roll_call_->operation->own.sequence) {
          roll_call_->present[static_cast<std::size_t>(message->sender)] = true;
        }
        break;
    }
  }
}

void Engine::watch_deadlines() {
  const auto now = Clock::now();
  if (roll_call_) {
    if (roll_call_->operation->ended()) return roll_call_.reset();
    if (now >= roll_call_->until) end_roll_call();
    return;
  }
  for (const auto& operation : operations_) {
    if (now < operation->deadline) continue;
    if (!operation->is_collective()) {
      return fail_all(timeout_of(*operation, {operation->peer}), Known::kHere);
    }
    roll_call_ = RollCall{operation, now + kGrace, {}};
    roll_call_->present.resize(static_cast<std::size_t>(size_), false);
    roll_call_->present[static_cast<std::size_t>(rank_)] = true;
    ControlMessage question;
    question.kind = ControlMessage::Kind::kRollCall;
    return control_->send_to_all(question);
  }
}

void Engine::end_roll_call() {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!roll_call_->present[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  }
  const auto operation = roll_call_->operation;
  roll_call_.reset();
  fail_all(timeout_of(*operation, std::move(missing)), Known::kHere);
}

Error Engine::timeout_of(const Operation& operation, std::vector<int> missing) const {
  const double seconds = std::chrono::duration<double>(options_.deadline).count();
  std::string text =
      fmt::format("{} on rank {} did not end within {} s: ", operation.text, rank_, seconds);
  if (missing.empty()) {
    text += "all ranks are there, but the data has not come through";
  } else {
    text += fmt::format("{} {} did not join", missing.size() == 1 ? "rank" : "ranks",
                        join_ranks(missing));
  }
  return Error(ErrorCode::kTimeout, text, std::move(missing));
}

void Engine::dump(const Error& error) const {
  const std::string& folder = options_.recorder_dir;
  dump_record(fmt::format("rank {} of {}: {}\nlast operations of rank {}:\n{}", rank_, size_,
                          error.what(), rank_, recorder_.text()),
              folder.empty() ? "" : fmt::format("{}/rank-{}.txt", folder, world_rank_));
}

void Engine::fail_all(const Error& error, Known known) {
  failure_ = error;
  dump(error);
  if (known != Known::kToAll) abandoned_ = true;
  for (const auto& operation : operations_) {
    if (operation->ended()) continue;
    if (!operation->is_collective() && operation->call.kind != Collective::kSend &&
        operation->request != MPI_REQUEST_NULL) {
      MPI_Cancel(&operation->request);
      MPI_Request_free(&operation->request);
    }
    if (operation->transfer != nullptr) operation->transfer->cancel();
    if (operation->request != MPI_REQUEST_NULL ||
        (operation->transfer != nullptr && operation->transfer->has_requests())) {
      abandoned_ = true;
      keep_for_good(operation);
    }
    operation->error = error;
    operation->stage = Stage::kEnded;
  }
  operations_.clear();
  roll_call_.reset();
  if (known != Known::kHere) return;
  try {
    control_->send_to_all(failure_message(error));
  } catch (const Error&) {
    // MPI itself is out of order; the others have their deadlines.
  }
}

void keep_for_good(std::shared_ptr<Operation> operation) {
  static auto* kept = new std::list<std::shared_ptr<Operation>>;
  kept->push_back(std::move(operation));
}

}  // namespace lockstep::mpi
