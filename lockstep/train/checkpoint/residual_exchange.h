// Saves and restores the residuals of compressed gradients (parallel::Residual): workers have them,
// and the leader writes the checkpoint.
//
// A *buffer* is one float for each element of the flat buffer of parameters: one per worker for its
// gradients; another per worker for their velocity, with topk; and with two stages one for the
// sums, of which every worker has some ranges. Buffers are transferred in chunks of 4 MB between
// the workers' memory and the file, so no worker needs memory for more than a chunk.
// residuals.safetensors holds them as tensors of f32:
//
//   worker.<w>.<first>    a chunk of the flat buffer of worker w, from element <first> on
//   velocity.<w>.<first>  the same of its average
//   sums.<first>          the same of the sums
//
// A run that continues with the same number of workers restores each buffer. With another number of
// workers, or another strategy, nothing is lost either: each worker gets an equal share of the sum
// of all residuals, and of the sum of all velocities.
//
// All workers make one, after the same step, and call the same methods; with one worker there is
// nothing to do. Errors are those of Communicator.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/io/hashed_file.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/tensor/device.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

class ResidualExchange {
 public:
  // `elements` of the flat buffer of parameters. Group and strategy outlive it.
  ResidualExchange(RunGroup& group, parallel::Strategy& strategy, std::size_t elements);

  // Whether there are residuals; the same at all workers.
  bool any() const { return !parts_.empty(); }

  // Leader: writes the file, which the caller finishes; the residuals of the others are received
  // whether or not that succeeds. / Others: send theirs.
  std::unique_ptr<io::SyncedFile> write(const std::filesystem::path& file);
  void give();
  // Ends the others' give() if write() was not reached. Returns the leader's `saved` on all
  // workers.
  bool settle(bool saved);

  // Restores the residuals from a file of the leader; nothing on other workers, or if there is
  // none. `tell` is called on the leader if they could not be restored exactly.
  void restore(const std::optional<std::filesystem::path>& file,
               const std::function<void(const std::string&)>& tell);

 private:
  struct Part {
    int worker;
    nn::FlatRange range;
    parallel::Residual::Kind kind;
    float* values;  // nullptr: another worker's
    Device device;  // of the values
  };
  // Flat buffers of gradients by worker, then of averages by worker, then of the sums, as there
  // are.
  std::size_t buffers() const { return workers_ * (has_velocity_ ? 2 : 1) + (has_sums_ ? 1 : 0); }
  std::size_t buffer_of(const Part& part) const;
  std::string tensor_name(std::size_t buffer, std::size_t first) const;
  // f(part, its elements within the chunk) for each part of a flat buffer.
  template <class F>
  void for_parts(std::size_t buffer, nn::FlatRange chunk, F&& f) const;
  template <class F>
  void for_chunks(F&& f) const;
  // This worker's values of a part from `own` on, on the host: themselves, or a copy.
  const float* read(const Part& part, const float* own, std::size_t elements);
  void gather(std::size_t buffer, nn::FlatRange chunk, float* to);
  void scatter(std::size_t buffer, nn::FlatRange chunk, const float* from);

  RunGroup& group_;
  std::size_t elements_;
  std::size_t workers_;
  bool has_velocity_ = false;
  bool has_sums_ = false;
  bool moved_ = false;       // all chunks have been gathered
  std::vector<float> copy_;  // of a chunk of what lies on a GPU
  std::vector<Part> parts_;  // of all workers, in the order of the flat buffer
};

}  // namespace lockstep::train
