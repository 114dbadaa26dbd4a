#include "lockstep/plan/mesh/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::plan {
namespace {

// "2 and 4 do", "4 does"
std::string these_do(const std::vector<int>& numbers) {
  return fmt::format("{} {}", join_ranks(numbers), numbers.size() == 1 ? "does" : "do");
}

void check_extents(const MeshShape& shape) {
  for (const Axis axis : kAllAxes) {
    if (shape.extent(axis) >= 1) continue;
    fail(ErrorCode::kInvalidArgument, "parallel.{} is {}; an axis has 1 or more ranks", name(axis),
         shape.extent(axis));
  }
}

void check_divides(Axis axis, int extent, int count, std::string_view what, int fits_all) {
  if (count % extent == 0) return;
  fail(ErrorCode::kInvalidArgument, "parallel.{} is {}, which does not divide {}; {}", name(axis),
       extent, counted(static_cast<std::size_t>(count), what),
       these_do(nearest_divisors(fits_all, extent)));
}

// The axes that a user chose: "parallel.tensor is 3", "parallel.tensor 3 x parallel.pipeline 2 is
// 6".
std::string chosen_axes(const MeshShape& shape) {
  std::vector<std::string> chosen;
  for (const Axis axis : {Axis::kTensor, Axis::kPipeline, Axis::kContext, Axis::kExpert}) {
    const int extent = shape.extent(axis);
    if (extent > 1) chosen.push_back(fmt::format("parallel.{} {}", name(axis), extent));
  }
  if (chosen.size() == 1) chosen[0].replace(chosen[0].find(' '), 1, " is ");
  const std::string text = fmt::format("{}", fmt::join(chosen, " x "));
  return chosen.size() > 1 ? fmt::format("{} is {}", text, shape.ranks()) : text;
}

}  // namespace

std::string_view name(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kData:
      return "data";
    case Axis::kExpert:
      return "expert";
    case Axis::kContext:
      return "context";
    case Axis::kTensor:
      return "tensor";
  }
  return "";
}

int MeshShape::extent(Axis axis) const {
  return Coordinates{data, pipeline, tensor, context, expert}.at(axis);
}

std::int64_t MeshShape::ranks() const {
  std::int64_t product = 1;
  for (const Axis axis : kAllAxes) {
    product *= extent(axis);
    // More than any job has; what is left to multiply could overflow.
    if (product > std::numeric_limits<int>::max()) return product;
  }
  return product;
}

int& Coordinates::at(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kExpert:
      return expert;
    case Axis::kContext:
      return context;
    case Axis::kTensor:
      break;
  }
  return tensor;
}

int Coordinates::at(Axis axis) const { return Coordinates(*this).at(axis); }

Mesh::Mesh(const MeshShape& shape) : shape_(shape) {
  check_extents(shape);
  if (shape.ranks() > std::numeric_limits<int>::max()) {
    fail(ErrorCode::kInvalidArgument, "a mesh of {} ranks and more is larger than any job",
         shape.ranks());
  }
  ranks_ = static_cast<int>(shape.ranks());
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (const Axis other : kAllAxes) {
    if (other > axis) stride *= shape_.extent(other);
  }
  return stride;
}

void Mesh::check_rank(int rank) const {
  if (rank >= 0 && rank < ranks_) return;
  fail(ErrorCode::kInvalidArgument, "rank {} is outside of a mesh of {} ranks", rank, ranks_);
}

int Mesh::rank_of(const Coordinates& coordinates) const {
  int rank = 0;
  for (const Axis axis : kAllAxes) {
    const int at = coordinates.at(axis);
    if (at < 0 || at >= shape_.extent(axis)) {
      fail(ErrorCode::kInvalidArgument, "coordinate {} on axis {} is outside of its {} ranks", at,
           name(axis), shape_.extent(axis));
    }
    rank += at * stride(axis);
  }
  return rank;
}

Coordinates Mesh::coordinates_of(int rank) const {
  check_rank(rank);
  Coordinates coordinates;
  for (const Axis axis : kAllAxes) {
    coordinates.at(axis) = rank / stride(axis) % shape_.extent(axis);
  }
  return coordinates;
}

int Mesh::color(Axes axes, int rank) const {
  Coordinates first = coordinates_of(rank);
  for (const Axis axis : kAllAxes) {
    if (axes.has(axis)) first.at(axis) = 0;
  }
  return rank_of(first);
}

int Mesh::key(Axes axes, int rank) const {
  const Coordinates coordinates = coordinates_of(rank);
  int position = 0;
  for (const Axis axis : kAllAxes) {
    if (axes.has(axis)) position = position * shape_.extent(axis) + coordinates.at(axis);
  }
  return position;
}

std::vector<int> Mesh::group(Axes axes, int rank) const {
  std::vector<int> ranks = {color(axes, rank)};
  // Slowest axis first, so the fastest varies fastest and ranks ascend.
  for (const Axis axis : kAllAxes) {
    if (!axes.has(axis)) continue;
    std::vector<int> more;
    for (const int first : ranks) {
      for (int at = 0; at < shape_.extent(axis); ++at) more.push_back(first + at * stride(axis));
    }
    ranks = std::move(more);
  }
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(Axes axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (color(axes, rank) == rank) all.push_back(group(axes, rank));
  }
  return all;
}

bool Mesh::crosses_nodes(Axes axes, std::span<const int> nodes) const {
  if (std::ssize(nodes) != ranks_) {
    fail(ErrorCode::kInvalidArgument, "nodes of {} ranks are given for a mesh of {}", nodes.size(),
         ranks_);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const int first = color(axes, rank);
    if (nodes[static_cast<std::size_t>(first)] != nodes[static_cast<std::size_t>(rank)]) {
      return true;
    }
  }
  return false;
}

std::vector<int> nearest_divisors(int count, int extent) {
  std::vector<int> nearest;
  for (int below = std::min(extent - 1, count); below >= 1; --below) {
    if (count % below != 0) continue;
    nearest.push_back(below);
    break;
  }
  for (int above = extent + 1; above <= count; ++above) {
    if (count % above != 0) continue;
    nearest.push_back(above);
    break;
  }
  return nearest;
}

Mesh mesh_of(int ranks, MeshShape shape) {
  if (ranks < 1) fail(ErrorCode::kInvalidArgument, "a mesh of {} ranks; 1 or more are fine", ranks);
  const int data = shape.data;
  shape.data = 1;
  check_extents(shape);
  const std::int64_t others = shape.ranks();
  if (others > ranks || ranks % others != 0) {
    const auto extent = static_cast<int>(std::min<std::int64_t>(others, ranks + std::int64_t{1}));
    const std::vector<int> fitting = nearest_divisors(ranks, extent);
    fail(ErrorCode::kInvalidArgument, "{}, which does not divide {}; {}", chosen_axes(shape),
         counted(static_cast<std::size_t>(ranks), "rank"), these_do(fitting));
  }
  shape.data = static_cast<int>(ranks / others);
  if (data != 0 && data != shape.data) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.data is {}, but {} and the other axes leave {}; leave parallel.data out or set "
         "it to {}",
         data, counted(static_cast<std::size_t>(ranks), "rank"), shape.data, shape.data);
  }
  return Mesh(shape);
}

void check_limits(const MeshShape& shape, const MeshLimits& limits) {
  check_extents(shape);
  const int heads = limits.heads.value_or(0);
  const int kv_heads = limits.kv_heads.value_or(0);
  const int fits_both = std::gcd(heads, kv_heads);
  if (limits.heads) check_divides(Axis::kTensor, shape.tensor, heads, "head", fits_both);
  if (limits.kv_heads) check_divides(Axis::kTensor, shape.tensor, kv_heads, "kv head", fits_both);
  if (limits.tokens) {
    check_divides(Axis::kContext, shape.context, *limits.tokens, "token", *limits.tokens);
  }
  if (limits.experts) {
    check_divides(Axis::kExpert, shape.expert, *limits.experts, "expert", *limits.experts);
  }
  if (!limits.layers) return;
  const int most = *limits.layers / limits.chunks;
  if (most < 1) {
    fail(ErrorCode::kInvalidArgument, "{} chunks per stage need {} layers or more, not {}",
         limits.chunks, limits.chunks, *limits.layers);
  }
  if (shape.pipeline > most) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.pipeline is {}, but {} with {} per stage make {} stages at most", shape.pipeline,
         counted(static_cast<std::size_t>(*limits.layers), "layer"),
         counted(static_cast<std::size_t>(limits.chunks), "chunk"), most);
  }
}

std::string describe_rank(const Mesh& mesh, int rank) {
  const Coordinates coordinates = mesh.coordinates_of(rank);
  std::vector<std::string> texts;
  for (const Axis axis :
       {Axis::kData, Axis::kPipeline, Axis::kTensor, Axis::kContext, Axis::kExpert}) {
    if (mesh.shape().extent(axis) == 1) continue;
    texts.push_back(fmt::format("{} {}", name(axis), coordinates.at(axis)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace lockstep::plan
