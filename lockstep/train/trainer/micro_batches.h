// Computes the micro-batches of a step and collects their losses.
//
// On the CPU a computation is done when its function returns. A GPU is asynchronous: backward()
// queues the micro-batch, its forward included, and the copy of its losses; losses() waits for all
// of them. The operations of a micro-batch are captured when they run for the second time, and
// launched as one graph from then on; not those of a model that reads back (BlockSpec::reads_back),
// which are queued one by one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/train/trainer/stage_run.h"

namespace lockstep::train {

class MicroBatches {
 public:
  // The replica must outlive it. `draws`: the model draws random numbers, so a captured micro-batch
  // is valid only for its position in a step. `most`: micro-batches of a step, or slices of them.
  MicroBatches(nn::Replica& replica, bool draws, std::int64_t most);

  void begin_step(std::size_t micro_batches);
  // One forward, backward or part of one of a step schedule (train/trainer/stage_run.h).
  // `may_capture`: no listener needs the block events.
  void forward(const StageRun::Computation& computation, const nn::Batch& batch,
               const nn::MicroBatch& micro_batch);
  void backward(const StageRun::Computation& computation, const nn::Batch& batch,
                const nn::MicroBatch& micro_batch, bool may_capture);
  // On a GPU: begins the upload of a later micro-batch, while those before it compute.
  void upload_ahead(const nn::Batch& batch);
  // The sum of losses of each micro-batch; of a stage that makes none, zeros.
  std::vector<double> losses();

 private:
  struct Captured {
    int runs = 0;
    std::unique_ptr<CapturedStep> step;
    std::uint64_t bytes_sent = 0;  // to the tensor group
  };

  // Whether forward and backward are queued together, on a GPU that has all stages.
  bool is_one_graph() const;
  // The losses, where this computation makes them.
  Tensor compute_backward(const StageRun::Computation& computation, const nn::Batch& batch,
                          const nn::MicroBatch& micro_batch);
  void take(const Tensor& losses, std::size_t micro_batch);
  void make_pinned(std::size_t copies);
  void queue(const nn::Batch& batch, const nn::MicroBatch& micro_batch, bool may_capture);

  nn::Replica& replica_;
  bool draws_;
  struct Returned {
    std::size_t micro_batch = 0;
    Tensor losses;  // pinned
  };
  std::vector<Returned> queued_;        // losses on their way from a GPU
  std::vector<double> sums_;            // of each micro-batch
  std::vector<PinnedBuffer> returned_;  // from a GPU, one for each of `most`
  std::vector<PinnedBuffer> numbers_;   // likewise, to a GPU
  // By what it does not read when it runs: whether gradients are new, and the first sequence.
  std::map<std::pair<bool, std::uint64_t>, Captured> captured_;
};

}  // namespace lockstep::train
