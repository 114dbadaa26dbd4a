// The update of a step beside the next one, which computes with the parameters before it: that of
// PipeDream-2BW, W(t+1) = W(t) - rate * gradient at W(t-1).
//
// The stages of a pipeline end a step one after the other, and all of them have to know the norm of
// its gradients. None waits for the others: the gradients are copied, a thread agrees on the norm
// beside the next step, and the update is made when the next step but one needs it.
//
//   last stage    | step 1 ....... | step 2 .......... | update 1 | step 3
//   first stage   | step 1 .............. | step 2 ... | update 1 | step 3
//   agreement                             | norm 1 |
//
// The copy of the parameters before the update is the previous version of the replica
// (nn/replica/replica.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class LateUpdate {
 public:
  // Of communicators that nothing else uses; nullptr: there is no such group.
  struct Axes {
    nn::TensorAxis* tensor = nullptr;
    nn::PipelineAxis* pipeline = nullptr;
  };

  // What the ranks of a model agree on.
  struct Agreement {
    UpdateResult result;
    bool stops = false;                        // one of them was asked to stop
    std::vector<std::vector<double>> numbers;  // of every stage
    std::uint64_t bytes_sent = 0;              // by this rank, for it
  };

  LateUpdate() = default;
  // Ends an agreement that is under way, on all stages.
  ~LateUpdate();
  LateUpdate(const LateUpdate&) = delete;
  LateUpdate& operator=(const LateUpdate&) = delete;

  // All must outlive it.
  void start(nn::Replica& replica, Axes axes, Trace& trace);

  // The gradients of a step are complete on this rank: copies them and begins to agree. All ranks
  // of the model call it.
  void begin(bool stops, std::vector<double> numbers);
  bool under_way() const { return agreement_ != nullptr; }
  // Waits for the agreement that was begun. Rethrows the error of its thread.
  Agreement agree();
  // After agree(), before the next begin(): keeps the parameters as the previous version, and
  // updates.
  void update(const UpdateRequest& request, double gradient_norm);

 private:
  Agreement run(bool stops, const std::vector<double>& numbers);

  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  Axes axes_;
  std::unique_ptr<Ops> ops_;  // of the thread, beside the replica's
  std::shared_ptr<Agreement> agreement_;
  CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
