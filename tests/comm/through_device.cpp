#include "tests/comm/through_device.h"

#include <cstring>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::testing {
namespace {

class ThroughDevice final : public Communicator {
 public:
  ThroughDevice(std::unique_ptr<Communicator> device)
      : comm_(std::move(device)), memory_(memory_of(comm_->device())) {}

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  std::string_view backend() const override { return comm_->backend(); }
  std::vector<int> machines() const override { return comm_->machines(); }
  std::uint64_t bytes_sent() const override { return comm_->bytes_sent(); }
  std::optional<Error> failure() const override { return comm_->failure(); }

  void run(const Call& call) override { start(call).wait(); }

  Work start(const Call& call) override {
    validate(call, rank(), size());
    const std::size_t in = call.in.count * size_of(call.in.dtype);
    const std::size_t out = call.out.count * size_of(call.out.dtype);
    Call there = call;
    const bool one = call.kind == Collective::kBroadcast || call.in.bytes == call.out.bytes;
    there.in.bytes = in > 0 ? place(call.in.bytes, in) : nullptr;
    if (one && in > 0 && out == in) {
      there.out.bytes = const_cast<std::byte*>(there.in.bytes);
    } else if (out > 0) {
      there.out.bytes = inside(call, in, out, there);
    }
    if (call.kind != Collective::kReceive && in > 0) {
      memory_.copy(const_cast<std::byte*>(there.in.bytes), call.in.bytes, in);
    }
    return Work(std::make_shared<Returned>(comm_->start(there), *this, call.out.bytes,
                                           there.out.bytes, out));
  }

  void signal(int peer) override { comm_->signal(peer); }
  void wait_signal(int peer) override { comm_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = comm_->split(color, key);
    return part ? std::make_unique<ThroughDevice>(std::move(part)) : nullptr;
  }
  SymmetricBuffer allocate(std::size_t bytes) override {
    const SymmetricBuffer there = comm_->allocate(bytes);
    auto here = std::make_shared<std::vector<std::byte>>(bytes + 64);
    auto* const data = here->data();
    const std::lock_guard lock(mutex_);
    shadows_[data] = {there.data(), bytes};
    const std::shared_ptr<void> owner(data, [this, there, here](void* shadow) {
      const std::lock_guard at_end(mutex_);
      shadows_.erase(static_cast<std::byte*>(shadow));
    });
    return {owner, data, bytes};
  }
  void abort(std::string_view reason) override { comm_->abort(reason); }
  Choice choice(const Call& call) const override { return comm_->choice(call); }

 private:
  // Copies the result when the call has ended.
  class Returned final : public Work::State {
   public:
    Returned(Work work, ThroughDevice& from, std::byte* here, const std::byte* there,
             std::size_t bytes)
        : work_(std::move(work)), from_(from), here_(here), there_(there), bytes_(bytes) {}
    bool wait_until(std::chrono::steady_clock::time_point until) override {
      const std::lock_guard lock(mutex_);
      if (returned_) return true;
      if (until == std::chrono::steady_clock::time_point::max()) {
        try {
          work_.wait();
        } catch (const Error&) {
        }
      } else if (!work_.done()) {
        return false;
      }
      returned_ = true;
      if (!work_.error() && bytes_ > 0) from_.memory_.copy(here_, there_, bytes_);
      return true;
    }
    std::optional<Error> error() const override { return work_.error(); }

   private:
    std::mutex mutex_;
    Work work_;
    ThroughDevice& from_;
    std::byte* here_;
    const std::byte* there_;
    std::size_t bytes_;
    bool returned_ = false;
  };

  // Where data of the host lies on the device: in symmetric memory, or in new memory at the same
  // distance from a multiple of 16. Memory is not freed before the end, which would wait for calls
  // of all ranks in this process.
  std::byte* place(const std::byte* here, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (const auto& [shadow, there] : shadows_) {
      if (here >= shadow && here + bytes <= shadow + there.second) {
        return there.first + (here - shadow);
      }
    }
    constexpr std::size_t kArena = std::size_t{256} << 20;
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(here) % 16;
    if (arenas_.empty() || used_ + bytes + 32 > arenas_.back().bytes()) {
      arenas_.emplace_back(std::max(kArena, bytes + 32), comm_->device());
      used_ = 0;
    }
    std::byte* const made = arenas_.back().data() + used_ + offset;
    used_ += (bytes + 31) / 16 * 16;
    return made;
  }

  // In place the two lie as they do on the host.
  std::byte* inside(const Call& call, std::size_t in, std::size_t out, Call& there) {
    const bool out_holds_in =
        call.in.bytes >= call.out.bytes && call.in.bytes + in <= call.out.bytes + out && in > 0;
    const bool in_holds_out =
        call.out.bytes >= call.in.bytes && call.out.bytes + out <= call.in.bytes + in && in > 0;
    if (in_holds_out) {
      return const_cast<std::byte*>(there.in.bytes) + (call.out.bytes - call.in.bytes);
    }
    std::byte* const made = place(call.out.bytes, out);
    if (out_holds_in) there.in.bytes = made + (call.in.bytes - call.out.bytes);
    return made;
  }

  std::unique_ptr<Communicator> comm_;
  DeviceMemory& memory_;
  std::mutex mutex_;
  std::map<std::byte*, std::pair<std::byte*, std::size_t>> shadows_;
  std::vector<Buffer> arenas_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> through_device(std::unique_ptr<Communicator> host,
                                             const DeviceCommunicatorOptions& options) {
  return std::make_unique<ThroughDevice>(make_device_communicator(std::move(host), options));
}

}  // namespace lockstep::testing
