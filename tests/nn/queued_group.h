// A communicator over host memory that says of itself that it is one of GPUs: code that queues
// calls among operations runs as it does there, and every call ends before the next begins. But a
// send waits only where two others to the same rank are under way, as in a mailbox.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_communicator.h"

namespace lockstep {

class QueuedGroup final : public Communicator {
 public:
  explicit QueuedGroup(Communicator& host, std::string backend = "cuda")
      : host_(host), backend_(std::move(backend)) {}
  ~QueuedGroup() override {
    for (auto& [peer, messages] : under_way_) {
      for (Message& message : messages) {
        try {
          message.work->wait();
        } catch (const Error&) {  // its receiver has it too
        }
      }
    }
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string_view backend() const override { return backend_; }
  Device device() const override { return {DeviceKind::kCuda, 0}; }
  std::vector<int> machines() const override { return host_.machines(); }
  std::uint64_t bytes_sent() const override { return host_.bytes_sent(); }
  std::optional<Error> failure() const override { return failure_; }

  void run(const Call& call) override {
    ++calls;
    if (call.kind != Collective::kSend) return host_.run(call);
    std::deque<Message>& messages = under_way_[call.peer];
    if (messages.size() == kMailboxSlots) {
      messages.front().work->wait();
      messages.pop_front();
    }
    Message& message = messages.emplace_back();
    message.bytes.assign(call.in.bytes, call.in.bytes + call.in.count * size_of(call.in.dtype));
    Call from_slot = call;
    from_slot.in.bytes = message.bytes.data();
    message.work = host_.start(from_slot);
  }
  Work start(const Call& call) override {
    ++started;
    return host_.start(call);
  }
  void signal(int peer) override { host_.signal(peer); }
  void wait_signal(int peer) override { host_.wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return host_.split(color, key);
  }
  SymmetricBuffer allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  void abort(std::string_view reason) override { host_.abort(reason); }
  Choice choice(const Call& call) const override { return host_.choice(call); }

  void fail_with(Error error) { failure_ = std::move(error); }

  int calls = 0;
  int started = 0;

 private:
  struct Message {
    std::vector<std::byte> bytes;
    std::optional<Work> work;
  };

  Communicator& host_;
  std::string backend_;
  std::optional<Error> failure_;
  std::map<int, std::deque<Message>> under_way_;  // by receiver
};

}  // namespace lockstep
