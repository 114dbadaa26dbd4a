// The all-reduce of one bucket of gradients with payloads of a codec on the wire: every rank's
// gradients become their sum over all ranks, the same bits everywhere.
//
// With codecs that have scales or choose elements, sums of payloads are no payloads. So the
// bucket's elements are cut into one *shard* per rank, the rank being its *owner*, and there are
// two stages, here for rank 1 of 3:
//
//      gradients        [ shard 0 | shard 1 | shard 2 ]
//      encoded          [    p0   |    p1   |    p2   ]   residual of the whole bucket
//      all-to-all       p0 -> 0, p2 -> 2; p1 of all ranks arrives
//      decoded, added             [  sum 1  ]             in the order of ranks
//      encoded again              [    q1   ]             residual of the shard
//      all-gather       [    q0   |    q1   |    q2   ]
//      decoded          [  sum 0  |  sum 1  |  sum 2  ]   the owner, too, takes what q1 says
//
// So a rank sends (N - 1) / N times the payloads of the bucket and of its sums for any number of
// ranks. "none" and "bf16" need no scales: they are an all-reduce of floats of the gradients' type
// or of bf16.
//
// With topk those of sums have more elements (sparse.h), so that among a few ranks it takes fewer
// bytes to do without them: every rank sends one payload of the whole bucket, chosen among all of
// its elements, to every other, and all add up what came in the order of ranks. What is encoded
// are averages of each rank's gradients: own_momentum.h.
//
// With one rank nothing is done: there is no wire to save, so nothing is lost either.
//
// One thread at a time may use an object, and no other may use the communicator meanwhile; run()
// blocks, and may do so in a thread beside those that compute. All ranks run the same buckets in
// the same order. After an error the communicator, and so the object, is of no further use; a rank
// that refuses a payload should abort() it, or the others wait until their deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/compression/shards.h"

namespace lockstep::parallel {

class CompressedAllReduce {
 public:
  // What a bucket takes on every rank. The residual is kept from step to step; the staging is used
  // during run() alone, so buckets may share that of the largest.
  struct Memory {
    std::size_t residual_elements = 0;
    std::size_t staging_bytes = 0;

    std::size_t bytes() const { return residual_elements * sizeof(float) + staging_bytes; }
  };
  static Memory memory(std::size_t elements, DType gradients, int ranks,
                       const CompressionOptions& options);

  // The staging has to lie on an address for floats (Error(kInvalidArgument)); in memory from
  // Communicator::allocate() it moves without copies inside a machine. The residual becomes zero.
  // The communicator and both spans must outlive the object. Gradients are f32, bf16 or f16.
  CompressedAllReduce(Communicator& communicator, const CompressionOptions& options,
                      std::size_t elements, DType gradients, std::span<float> residual,
                      std::span<std::byte> staging);

  // With topk: how gradients are averaged from now on. Without it they are encoded as they are.
  void set_momentum(OwnMomentum momentum) { momentum_ = momentum; }

  // Gradients become their sum over ranks. `seed` is the same on all ranks and another in every
  // step. Gives the bytes that this rank sent, as the communicator counts them.
  std::uint64_t run(Data gradients, std::uint64_t seed);

  // What has not been sent yet: of all elements; their velocities, with topk; and of the sums of
  // this rank's shard, where there are two stages. To be saved and restored with a checkpoint, and
  // to be scaled with the gradients when the loss scale changes.
  std::span<float> residual() const { return residual_; }
  std::span<float> velocity() const { return velocity_; }
  std::span<float> residual_of_sums() const { return residual_of_sums_; }
  void scale_residual(float factor);

 private:
  void run_in(DType wire, Data gradients);
  void run_one_stage(Data gradients, std::uint64_t seed);
  void run_two_stages(Data gradients, std::uint64_t seed);

  Communicator* communicator_;
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
  // Parts of the staging.
  std::span<float> values_;        // of what is encoded at once, where gradients are not f32
  std::span<std::byte> scratch_;   // of the codecs
  std::span<std::byte> payloads_;  // of all shards: of gradients, then of sums; or of all ranks
  std::span<std::byte> incoming_;  // payloads of this rank's shard from all ranks
};

}  // namespace lockstep::parallel
