// The memory plan of a replica: every byte, computed before anything is allocated.
//
// One step of training is a static schedule. With L blocks it has these numbered steps, and each
// piece of memory a lifetime among them (tensor/layout.h):
//
//   0 .. L-1      forward of block i is step i
//   L .. 2L-1     backward of block i is step 2L-1-i, with what it makes again first
//   2L            the optimizer
//
// What there is, by class:
//
//   parameters         flat buffer (nn/parameters/flat_parameters.h), compute type      always
//   gathered           a block's parameters, where sharded             nn/memory/gather_plan.h
//   gradients          flat buffer in the type of gradients                             always
//   in flight          a block's gradients, where sharded      backward of the first block that
//                                                            adds to them .. one after its own
//   optimizer          master copy in f32 where the compute type has 16 bits,     always
//                      first and second moment, or velocity; sums of squares; with
//                      Setup::fp8 the scaling of what is quantized
//   activations NAME   what block NAME keeps or restores                          nn/block.h
//   hand-over          a block's output               its forward .. backward of the next block
//                      a gradient of that             backward of the next block .. its own
//                      an encoder's memory            its forward .. backward of its first reader
//                      the gradient of that           backward of the last block .. of its maker
//                      losses                         forward of the last block .. 2L
//                      messages of a stage            always
//   weight inputs      copies for gradients of weights that are computed later        always
//   workspace          within one step: kForward and kBackward tensors, scratch of operations
//
// A stage of a pipeline has several micro-batches between forward and backward. What lives from one
// to the other exists once for each *slot* (plan/pipeline/stage_buffers.h) and lives always; so do
// the buffers of messages. Everything else is used by one computation at a time. A worker that does
// not pipeline is a stage with one slot and no messages.
//
// A sharded flat buffer is as long as a shard (nn/parameters/sharding.h). What other workers read,
// to reduce or to gather it, lies in symmetric memory, which is laid out by itself.
//
// What is in another tier than the device (nn/parameters/tiers.h) has a separate layout for each
// tier. On the device it still needs: gathered parameters (none if they are used in place),
// gradients in flight, and
//
//   activations, a block's output   until one step after they were made, and again from one step
//                                   before they are read; where that leaves a step in between
//   staging                         chunks of flat buffers on the way to where the optimizer
//                                   computes, two of each; of those from a file, three
//
// On the host what lies in files has staging (nn/parameters/flat_file.h, io/staged_file.h), and
// where workers shard gradients that lie there
//
//   in flight          the largest part of a block's, as it arrives               always
//
// Tensors with kForward live in a block's backward too where forward is run again there (full).
// A batch belongs to the caller, and so do logits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/io/staged_file.h"
#include "lockstep/nn/memory/gather_plan.h"
#include "lockstep/nn/model.h"
#include "lockstep/nn/parameters/flat_file.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/parameters/sharding.h"
#include "lockstep/nn/parameters/tiers.h"
#include "lockstep/plan/pipeline/stage_buffers.h"
#include "lockstep/tensor/layout.h"

namespace lockstep::nn {

// The optimizer states of each parameter besides its f32 value.
enum class OptimizerState : std::uint8_t {
  kNone,      // plain SGD
  kVelocity,  // SGD with momentum
  kMoments,   // Adam: first and second moment
};

// Of one micro-batch, as nn/block.h counts.
struct StepFlops {
  double forward = 0;
  double backward = 0;
  double recompute = 0;  // what is done again
  double total() const { return forward + backward + recompute; }
};

// Which request (an index into MemoryPlan::requests) holds what of a block.
struct BlockRequests {
  static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  // Per tensor of its spec.
  std::vector<std::size_t> forward;
  std::vector<std::size_t> backward;
  std::size_t scratch_forward = kAbsent;
  std::size_t scratch_backward = kAbsent;
  std::size_t output = kAbsent;           // out.x
  std::size_t output_backward = kAbsent;  // the same when the next block's backward reads it
  std::size_t output_gradient = kAbsent;  // dout.x
};

// The requests of what chunks hand to each other: the residual stream, and an encoder's memory.
struct FlowRequests {
  std::size_t x = BlockRequests::kAbsent;
  std::size_t memory = BlockRequests::kAbsent;
};
// The pools of a chunk that sends and receives.
struct ChunkRequests {
  std::vector<FlowRequests> inputs;
  std::vector<FlowRequests> gradients;
  std::vector<FlowRequests> outputs;          // an input's or a slot's memory is sent from there
  std::vector<FlowRequests> input_gradients;  // the memory's is sent from `gradients`
  // For Pass::weight_gradients: of each buffer, for every block of the chunk.
  std::vector<std::vector<std::size_t>> weight_inputs;
};

// A request of a tier, of its symmetric or its private memory.
struct BufferPlace {
  std::size_t request = BlockRequests::kAbsent;
  bool symmetric = false;
  Tier tier = Tier::kDevice;
};

// A tensor that is offloaded between two steps. It has requests on the device, on the host and on
// the device again; in a file it is an item.
struct Absence {
  std::size_t before = BlockRequests::kAbsent;
  std::size_t away = BlockRequests::kAbsent;
  std::size_t after = BlockRequests::kAbsent;
  int made = 0;    // the step that makes it; it has left the device two steps later
  int needed = 0;  // the step that reads it; it may return one step before
};

struct MemoryPlan {
  Setup setup;
  Device device;  // that computes
  OptimizerState optimizer = OptimizerState::kMoments;
  Sharding sharding;
  Tiers tiers;
  std::vector<BlockSpec> specs;
  FlatParameters flat;
  Shards shards;
  StepFlops flops;

  std::vector<Request> requests;
  Layout layout;
  // Symmetric memory, which the strategy provides.
  std::vector<Request> symmetric_requests;
  Layout symmetric_layout;
  // The same on the host. Its symmetric memory follows that of the device.
  std::vector<Request> host_requests;
  Layout host_layout;
  std::vector<Request> host_symmetric_requests;
  Layout host_symmetric_layout;
  // Requests in files.
  std::vector<Request> file_requests;
  Layout file_layout;
  // The file of optimizer states and parameters; empty if they are not in a file.
  FlatFile::Layout state_file;
  // The files of offloaded activations and of this worker's gradients of each block.
  io::StagedFile::Layout activation_file;
  io::StagedFile::Layout gradient_file;
  // Memory of others for the same worker (strategy, mover), as long as the replica.
  std::vector<Request> outside;
  std::vector<Request> host_outside;

  int stages = 1;                         // of the pipeline that the model is a stage of
  std::vector<plan::BufferCounts> pools;  // of every chunk of the model
  bool one_at_a_time = true;              // micro-batches do not overlap
  int weight_versions = 1;                // that the stage computes with

  // Requests by what they hold.
  std::vector<BlockRequests> blocks;                   // in slot 0
  std::vector<std::vector<BlockRequests>> more_slots;  // of slots 1, 2, ...
  std::vector<ChunkRequests> chunks;
  BufferPlace parameters;
  BufferPlace gradients;
  BufferPlace arriving_gradients;
  std::vector<Gather> gathers;
  std::vector<std::size_t> gathered;             // requests, one for each of them
  std::vector<BufferPlace> gradients_in_flight;  // per block; symmetric if gradients are sharded
  std::vector<Absence> absences;                 // in the order of the steps that make them
  BufferPlace master;
  BufferPlace first_moment;
  BufferPlace second_moment;
  BufferPlace velocity;
  BufferPlace sums_of_squares;
  BufferPlace scaling;  // of all blocks' BlockSpec::scaled, in order
  BufferPlace amax;
  // Elements of each of the two staging chunks of a flat buffer that is in another tier than
  // tiers.update().
  std::size_t staged_elements = 0;
  BufferPlace staged_gradients;
  BufferPlace staged_parameters;
  // Of a delayed update, on the host: the gradients that it reads and the parameters that it makes.
  // With two versions of the weights the gradients are on the device.
  BufferPlace delayed_gradients;
  BufferPlace next_parameters;
  BufferPlace previous_parameters;    // with two versions: those before the latest update
  std::vector<std::size_t> memories;  // requests, one for each slot
  std::size_t memory_gradient = BlockRequests::kAbsent;  // where no later stage sends it
  std::vector<std::size_t> losses;                       // requests, one for each slot
  std::size_t memory_maker = BlockRequests::kAbsent;     // a block

  // How many tensors are quantized.
  std::int64_t scaled_tensors() const;

  // Whether parameters come to the device block by block, and gradients leave it so.
  bool gathers_parameters() const {
    return sharding.parameters || (tiers.parameters != Tier::kDevice && !tiers.in_place);
  }
  bool has_gradients_in_flight() const {
    return sharding.gradients || tiers.gradients != Tier::kDevice;
  }

  // The exact bytes of a worker in a tier: allocated by the replica, provided to it, and outside. /
  // The sum over device and host.
  std::size_t bytes(Tier tier) const;
  std::size_t bytes() const { return bytes(Tier::kDevice) + bytes(Tier::kHost); }
  // Symmetric memory that the strategy has to provide.
  std::size_t symmetric_bytes() const {
    return symmetric_layout.bytes + host_symmetric_layout.bytes;
  }
  // The classes at the peak step, in the order above, and last "gaps": the bytes that the layouts
  // lose. They sum to bytes(tier).
  std::vector<GroupBytes> by_class(Tier tier) const;
  // Classes of device and host, the latter with "host " before their names. They sum to bytes().
  std::vector<GroupBytes> by_class() const;
};

// Whether a plan has offsets. Without offsets it is made in a fraction of the time, and its bytes
// are a lower bound: usually exact, or a few per cent less.
enum class Places : std::uint8_t { kFound, kNone };

// The buffers of a worker that does not pipeline.
inline plan::StageBuffers single_stage() { return {.chunks = {{.slots = 1}}, .uses = {}}; }

// `buffers` are those of the model's stage. Throws what specs_of() and FlatParameters throw.
MemoryPlan plan_memory(const Model& model, const Setup& setup, const Ops& ops,
                       OptimizerState optimizer, const Sharding& sharding = {},
                       const Tiers& tiers = {}, Places places = Places::kFound,
                       const plan::StageBuffers& buffers = single_stage());

// A line of a table: a class, or the activations of consecutive equal layers, or halves of them.
struct ClassLine {
  std::string name;       // "gradients", "activations layer.0 .. layer.11"
  std::size_t count = 1;  // of layers
  std::size_t each = 0;   // bytes
  std::size_t bytes() const { return count * each; }
};
// by_class(), with equal layers in one line.
std::vector<ClassLine> class_lines(const MemoryPlan& plan);

// The table: classes with their bytes, and the FLOPs of a micro-batch.
std::string text(const MemoryPlan& plan);

}  // namespace lockstep::nn
