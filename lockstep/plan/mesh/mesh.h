// Ranks have coordinates: a mesh of data x pipeline x tensor x context x expert parallelism.
//
// Words. An *axis* is one way to divide the work of a step. The *extent* of an axis is how many
// parts it has. A rank has one coordinate on every axis. The *group* of a rank on an axis is the
// ranks that differ from it on this axis only, in the order of their coordinates.
//
//   axis      what its ranks divide               what they exchange
//   tensor    every matrix of a layer             all-reduce after attention and after feed-forward
//   context   the tokens of a sequence            keys and values of every attention
//   expert    the experts of a mixture            all-to-all of tokens in every such layer
//   data      the sequences of a batch            gradients, once per step
//   pipeline  the layers                          activations of one layer, per micro-batch
//
// Ranks are numbered with tensor fastest, then context, expert, data, and pipeline slowest. The
// table is in that order: the axis that exchanges most often is innermost, so that its groups are
// consecutive ranks, which share a node. The pipeline sends least and crosses nodes first. Megatron
// has the same order (tp-cp-ep-dp-pp).
//
//   pipeline 2 x data 2 x tensor 2:   stage 0: [0 1] [2 3]     [t t'] is one tensor group
//                                     stage 1: [4 5] [6 7]     rank 1's data group is 1 3
//
// Expert is an axis of its own: ranks are data x pipeline x tensor x context x expert. Ranks of an
// expert group read different sequences, so to parameters outside of experts this axis is more data
// parallelism: their gradients are averaged over {data, expert, context}, those of an expert over
// {data, context}.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

enum class Axis : std::uint8_t { kPipeline, kData, kExpert, kContext, kTensor };

// From the slowest to the fastest.
inline constexpr Axis kAllAxes[] = {Axis::kPipeline, Axis::kData, Axis::kExpert, Axis::kContext,
                                    Axis::kTensor};

std::string_view name(Axis axis);  // "tensor"

// A set of axes. A group over several axes is the ranks that differ on these axes only.
class Axes {
 public:
  constexpr Axes(Axis axis) : bits_(bit(axis)) {}
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }

 private:
  static constexpr unsigned bit(Axis axis) { return 1u << static_cast<unsigned>(axis); }
  unsigned bits_ = 0;
};

// The extents of a mesh.
struct MeshShape {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int context = 1;
  int expert = 1;

  int extent(Axis axis) const;
  std::int64_t ranks() const;  // the product
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// The place of a rank, each from 0.
struct Coordinates {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
  int context = 0;
  int expert = 0;

  int at(Axis axis) const;
  int& at(Axis axis);
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

class Mesh {
 public:
  // Throws Error(kInvalidArgument) for an extent below 1 or more ranks than an int counts.
  explicit Mesh(const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  int ranks() const { return ranks_; }

  // Both throw Error(kInvalidArgument) for what is outside of the mesh.
  int rank_of(const Coordinates& coordinates) const;
  Coordinates coordinates_of(int rank) const;

  // The ranks that differ from `rank` on these axes only, ascending.
  std::vector<int> group(Axes axes, int rank) const;
  // All groups over these axes, by their first ranks. Every rank is in exactly one.
  std::vector<std::vector<int>> groups(Axes axes) const;

  // What `rank` passes to Communicator::split() to get its group: the group's first rank, and the
  // rank's position in the group.
  int color(Axes axes, int rank) const;
  int key(Axes axes, int rank) const;

  // Whether any group over these axes has ranks of different nodes. nodes[r] is the node of rank r.
  bool crosses_nodes(Axes axes, std::span<const int> nodes) const;

 private:
  int stride(Axis axis) const;
  void check_rank(int rank) const;

  MeshShape shape_;
  int ranks_ = 1;
};

// The mesh of that many ranks. With shape.data = 0, data is what the other axes leave. Throws
// Error(kInvalidArgument), which names the nearest extents that fit.
Mesh mesh_of(int ranks, MeshShape shape);

// The coordinates of a rank on the axes that have several ranks: "data 1, pipeline 0, tensor 1".
std::string describe_rank(const Mesh& mesh, int rank);

// What the axes of a mesh have to divide. A count that is absent is not checked.
struct MeshLimits {
  std::optional<int> heads;     // tensor divides them
  std::optional<int> kv_heads;  // tensor divides them
  std::optional<int> layers;    // every stage, and every chunk of it, has one or more
  std::optional<int> experts;   // expert divides them
  std::optional<int> tokens;    // of a sequence; context divides them
  int chunks = 1;               // of a pipeline stage
};

// Throws Error(kInvalidArgument) for a mesh that the model cannot be divided over:
// "parallel.tensor is 3, which does not divide 8 heads; 2 and 4 do".
void check_limits(const MeshShape& shape, const MeshLimits& limits);

// The divisors of `count` that are next to `extent`: one below and one above, where there is one.
std::vector<int> nearest_divisors(int count, int extent);

}  // namespace lockstep::plan
