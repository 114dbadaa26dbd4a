// One rank of a Gloo job over TCP on the loopback device, met through files in the bench's
// directory, as Gloo's own example does it. RANK and WORLD_SIZE say who we are.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/bench/collectives/worker.h"

namespace {

using lockstep::Collective;
using lockstep::DType;
using lockstep::bench::Buffers;
using lockstep::bench::Task;

std::string variable(const char* key) {
  const char* value = std::getenv(key);
  if (value == nullptr) throw std::runtime_error(std::string(key) + " is not set");
  return value;
}

std::shared_ptr<gloo::Context> connect(int rank, int size) {
  gloo::transport::tcp::attr loopback;
  loopback.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(loopback);
  gloo::rendezvous::FileStore store(variable(lockstep::bench::kDirectoryVariable));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return context;
}

// Gloo's name for an element type; it has none for bf16.
template <class T>
using GlooType = std::conditional_t<std::is_same_v<T, lockstep::Half>, gloo::float16, T>;

class GlooSubject : public lockstep::bench::Subject {
 public:
  GlooSubject(int rank, int size)
      : context_(connect(rank, size)), barrier_(context_), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::string unsupported(const Task& task) override {
    if (reduces(task.op) && task.dtype == DType::kBF16) return "Gloo has no sum of bf16";
    if (task.op == Collective::kReduceScatter && task.bytes / size_of(task.dtype) > INT_MAX) {
      return "Gloo's reduce_scatter counts elements in an int";
    }
    return {};
  }

  Buffers prepare(const Task& task) override {
    run_ = nullptr;  // before the memory it refers to
    Buffers buffers = memory_.prepare(task, size_);
    const auto extent = lockstep::bench::extent(task, size_);
    with_type(task.dtype, [&]<class T>(T) {
      if constexpr (std::is_same_v<T, lockstep::BFloat16>) {
        prepare_moves<std::uint16_t>(task, buffers, extent);
      } else {
        prepare_moves<GlooType<T>>(task, buffers, extent);
        prepare_sums<GlooType<T>>(task, buffers, extent);
      }
    });
    return buffers;
  }

  void barrier() override { gloo::barrier(barrier_); }
  void run() override { run_(); }
  std::string algorithm() override { return algorithm_; }

 private:
  template <class T>
  void prepare_moves(const Task& task, Buffers buffers, lockstep::bench::Extent extent) {
    auto* in = reinterpret_cast<T*>(buffers.in);
    auto* out = reinterpret_cast<T*>(buffers.out);
    algorithm_ = "default";
    switch (task.op) {
      case Collective::kBroadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        options->setOutput(out, extent.out);
        options->setRoot(task.root);
        run_ = [options] { gloo::broadcast(*options); };
        break;
      }
      case Collective::kAllGather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(in, extent.in);
        options->setOutput(out, extent.out);
        run_ = [options] { gloo::allgather(*options); };
        break;
      }
      case Collective::kAllToAll: {
        auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(in, extent.in);
        options->setOutput(out, extent.out);
        run_ = [options] { gloo::alltoall(*options); };
        break;
      }
      default:
        break;
    }
  }

  template <class T>
  void prepare_sums(const Task& task, Buffers& buffers, lockstep::bench::Extent extent) {
    auto* in = reinterpret_cast<T*>(buffers.in);
    if (task.op == Collective::kAllReduce) {
      const bool bcube = task.flavour == "gloo-bcube";
      algorithm_ = bcube ? "bcube" : "ring";
      auto options = std::make_shared<gloo::AllreduceOptions>(context_);
      options->setAlgorithm(bcube ? gloo::AllreduceOptions::Algorithm::BCUBE
                                  : gloo::AllreduceOptions::Algorithm::RING);
      options->setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>));
      options->setOutput(in, extent.in);
      run_ = [options] { gloo::allreduce(*options); };
    } else if (task.op == Collective::kReduceScatter) {
      // Gloo reduces and scatters in place only: the result overwrites the front of the input.
      algorithm_ = "halving_doubling";
      std::vector<int> blocks(static_cast<std::size_t>(size_), static_cast<int>(extent.block));
      auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
          context_, std::vector<T*>{in}, static_cast<int>(extent.in), blocks);
      run_ = [algorithm] { algorithm->run(); };
      buffers.out = buffers.in;
    }
  }

  std::shared_ptr<gloo::Context> context_;
  gloo::BarrierOptions barrier_;
  int rank_;
  int size_;
  lockstep::bench::PrivateBuffers memory_;
  std::string algorithm_;
  std::function<void()> run_;
};

}  // namespace

int main() {
  try {
    GlooSubject subject(std::stoi(variable("RANK")), std::stoi(variable("WORLD_SIZE")));
    return lockstep::bench::serve(subject);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
