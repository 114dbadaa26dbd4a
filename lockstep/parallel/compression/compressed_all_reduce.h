// The all-reduce of one bucket of gradients, compressed by a codec: every rank's gradients become
// their sum over all ranks, with the same bits on all ranks.
//
// Payloads with scales or selected elements cannot be summed. So the bucket is cut into one *shard*
// per rank, which is its *owner*, and there are two stages, here for rank 1 of 3:
//
//      gradients        [ shard 0 | shard 1 | shard 2 ]
//      encoded          [    p0   |    p1   |    p2   ]   residual of the whole bucket
//      all-to-all       p0 -> 0, p2 -> 2; p1 of all ranks arrives
//      decoded, added             [  sum 1  ]             in the order of ranks
//      encoded again              [    q1   ]             residual of the shard
//      all-gather       [    q0   |    q1   |    q2   ]
//      decoded          [  sum 0  |  sum 1  |  sum 2  ]   the owner, too, takes what q1 says
//
// So with any number of ranks, a rank sends (N - 1) / N of the bucket's payloads, once for
// gradients and once for sums. "none" and "bf16" need no scales: they are an all-reduce in the
// gradients' type or in bf16.
//
// With topk, payloads of sums have more elements (sparse.h), so with a few ranks one stage sends
// fewer bytes: every rank sends one payload of the whole bucket to every other, and all sum them in
// the order of ranks. topk encodes averages of each rank's gradients (own_momentum.h).
//
// With one rank nothing is done, and nothing is lost.
//
// All memory is on the device of the CodecDevice, and the communicator is one of that device. On a
// GPU payloads are made and summed there (codec_device.h), and the hosts agree on a collective
// before it is queued, as for other calls outside of streams.
//
// One thread at a time may use an object, and no other thread may use the communicator meanwhile;
// run() blocks. All ranks run the same buckets in the same order. After an error the communicator
// and the object are unusable; a rank that rejects a payload should abort() it, or the others wait
// until their deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/compression/shards.h"

namespace lockstep::parallel {

class CompressedAllReduce {
 public:
  // The memory of a bucket on every rank. The residual is kept from step to step; the staging
  // buffer is used only during run(), so buckets may share the largest.
  struct Memory {
    std::size_t residual_elements = 0;
    std::size_t staging_bytes = 0;

    std::size_t bytes() const { return residual_elements * sizeof(float) + staging_bytes; }
  };
  static Memory memory(std::size_t elements, DType gradients, int ranks,
                       const CompressionOptions& options, Device device = {});

  // The staging buffer must be aligned for floats (Error(kInvalidArgument)); if it is symmetric
  // memory (Communicator::allocate()), ranks of a node need no copies. The residual is set to zero.
  // The communicator, the device and both spans must outlive the object. Gradients are f32, bf16 or
  // f16.
  CompressedAllReduce(Communicator& communicator, const CompressionOptions& options,
                      std::size_t elements, DType gradients, std::span<float> residual,
                      std::span<std::byte> staging, CodecDevice& device = cpu_codec_device());

  // With topk: how gradients are averaged. Otherwise they are encoded directly.
  void set_momentum(OwnMomentum momentum) { momentum_ = momentum; }

  // Replaces gradients by their sum over ranks. `seed` is the same on all ranks and different in
  // every step. Returns the bytes that this rank sent, as counted by the communicator.
  std::uint64_t run(Data gradients, std::uint64_t seed);

  // The residuals: of all elements; the velocities, with topk; and of the sums of this rank's
  // shard, with two stages. They are part of a checkpoint, and must be scaled when the loss scale
  // changes.
  std::span<float> residual() const { return residual_; }
  std::span<float> velocity() const { return velocity_; }
  std::span<float> residual_of_sums() const { return residual_of_sums_; }
  void scale_residual(float factor);

 private:
  void run_in(DType wire, Data gradients);
  void run_one_stage(Data gradients, std::uint64_t seed);
  void run_two_stages(Data gradients, std::uint64_t seed);

  Communicator* communicator_;
  CodecDevice* device_;
  Compression compression_;
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Codec> codec_of_sums_;
  BucketShards shards_;
  bool one_stage_;
  std::size_t own_;  // this rank, and its shard
  DType dtype_;
  std::span<float> residual_;
  std::span<float> velocity_;
  std::span<float> residual_of_sums_;
  OwnMomentum momentum_;
  std::vector<std::size_t> payload_sizes_;  // by shard; or by rank, of the whole bucket
  std::vector<std::size_t> sums_sizes_;     // of payloads of sums, by shard
  std::vector<std::size_t> own_sizes_;      // of this rank's shard, by rank
  // Parts of the staging buffer.
  std::span<float> values_;       // f32 copies of what is encoded at once, if gradients are not f32
  std::span<std::byte> scratch_;  // of the codecs
  std::span<std::byte> payloads_;  // of all shards: of gradients, then of sums; or of all ranks
  std::span<std::byte> incoming_;  // payloads of this rank's shard from all ranks
};

}  // namespace lockstep::parallel
