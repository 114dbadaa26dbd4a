#include "lockstep/ops/cpu/gemm/packed.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/stages.h"
#include "lockstep/ops/cpu/team/supply.h"

namespace lockstep::cpu::gemm {
namespace {

// Lines of a panel, and the depth that is packed of them.
struct PackedStage {
  Range panel;
  Range depth;
};

// The memory of a product.
struct Workspace {
  float* shared;   // strips of a panel
  float* waiting;  // tiles: for every strip of own lines those of a panel
  float* own;      // strips, then sums, of one thread after the other

  Workspace(const Blocks& blocks, std::byte* scratch)
      : shared(reinterpret_cast<float*>(aligned(scratch))),
        waiting(shared + blocks.shared_floats()),
        own(waiting + blocks.waiting_floats()) {}
};

// Rows or columns of the output with their strips.
struct Side {
  Range lines;
  const float* strips;
};

// The shared strips that are needed next, of one block of depth.
struct Coming {
  const std::byte* first = nullptr;
  std::size_t bytes = 0;   // of a strip
  std::size_t stride = 0;  // from a strip to the next
  std::size_t strips = 0;

  // What is fetched beside one tile, if each strip is fetched beside `tiles_of_strip`.
  Ahead part(std::size_t tile, std::size_t tiles_of_strip, std::size_t depth) const {
    const std::size_t strip = tile / tiles_of_strip;
    if (strip >= strips || depth == 0) return {.strip = first};
    const std::size_t part = bytes / tiles_of_strip;
    return {.strip = first + strip * stride + tile % tiles_of_strip * part,
            .strip_step = (part + depth - 1) / depth};
  }
};

class PackedProduct {
 public:
  PackedProduct(const Kernels& kernels, const Cpu& cpu, const Blocks& blocks,
                const Product& product, std::byte* scratch)
      : kernels_(kernels),
        inputs_(kernels.of(product.shape.dtype)),
        outputs_(kernels.of(product.shape.output)),
        team_(cpu.team),
        blocks_(blocks),
        product_(product),
        workspace_(blocks, scratch) {}

  void run() {
    const ProductShape& shape = product_.shape;
    const std::size_t shared = blocks_.rows_are_shared ? shape.m : shape.n;
    for_each_stage(shared, blocks_.panel, shape.k, blocks_.stage, [&](Range panel, Range depth) {
      run({panel, depth});
    });
  }

 private:
  std::size_t shared_width() const {
    return blocks_.rows_are_shared ? kernels_.rows : kernels_.columns;
  }
  std::size_t own_width() const {
    return blocks_.rows_are_shared ? kernels_.columns : kernels_.rows;
  }

  void run(const PackedStage& stage) {
    const std::size_t packed_at_once = 4 * shared_width();
    Supply to_pack(stage.panel, team_.size(), shared_width());
    const auto pack_shared = [&](int) {
      for (Range some = to_pack.take(packed_at_once); some.size() > 0;
           some = to_pack.take(packed_at_once)) {
        pack(blocks_.rows_are_shared, some, stage.depth, shared_strips(stage, some.begin));
      }
    };
    if (stage.panel.size() * stage.depth.size() < kWorthSharing) {
      pack_shared(0);
    } else {
      team_.run(pack_shared);
    }
    const std::size_t own_lines = blocks_.rows_are_shared ? product_.shape.n : product_.shape.m;
    const std::size_t fewest = fewest_lines(own_lines);
    const std::size_t most = blocks_.own_lines / fewest * fewest;
    Supply to_multiply({0, own_lines}, team_.size(), fewest);
    team_.run([&](int thread) {
      float* own = workspace_.own +
                   static_cast<std::size_t>(thread) * (blocks_.own_floats() + blocks_.sum_floats());
      float* sums = own + blocks_.own_floats();
      for (Range some = to_multiply.take(most); some.size() > 0; some = to_multiply.take(most)) {
        pack(!blocks_.rows_are_shared, some, stage.depth, own);
        meet_panel({some, own}, stage, sums);
      }
    });
  }

  // All shared strips come into the second cache for the lines that are taken: that pays for some,
  // but where lines are few every thread shall have its share. Shared strips that stay there cost
  // nothing: then all threads shall end together.
  std::size_t fewest_lines(std::size_t own_lines) const {
    if (blocks_.shared_floats() <= kStayNear) return own_width();
    const auto threads = static_cast<std::size_t>(team_.size());
    const std::size_t share = (own_lines + threads - 1) / threads;
    const std::size_t fewest = rounded_up(std::min(share, kFewestLines), own_width());
    return std::clamp(fewest, own_width(), blocks_.own_lines);
  }

  float* shared_strips(const PackedStage& stage, std::size_t line) const {
    return workspace_.shared + (line - stage.panel.begin) * stage.depth.size();
  }

  void pack(bool rows, const Range& some, const Range& depth, float* strips) const {
    const Matrix matrix = rows ? matrix_a(product_) : matrix_b(product_);
    const std::size_t line_stride = rows ? matrix.row_stride : matrix.column_stride;
    const std::size_t depth_stride = rows ? matrix.column_stride : matrix.row_stride;
    const std::size_t first = some.begin * line_stride + depth.begin * depth_stride;
    const Lines lines{.data = matrix.data + first * size_of(product_.shape.dtype),
                      .line_stride = line_stride,
                      .depth_stride = depth_stride,
                      .count = some.size(),
                      .depth = depth.size()};
    (rows ? inputs_.pack_rows : inputs_.pack_columns)(lines, strips);
  }

  void meet_panel(const Side& own, const PackedStage& stage, float* sums) const {
    for (std::size_t line = stage.panel.begin; line < stage.panel.end; line += blocks_.group) {
      const Side group = group_at(line, stage);
      std::size_t from = 0;
      do {
        const Range block{from, std::min(stage.depth.size(), from + blocks_.depth)};
        const bool ends = block.end == stage.depth.size();
        const Coming coming = ends ? coming_of(group_at(line + blocks_.group, stage), 0, stage)
                                   : coming_of(group, block.end, stage);
        if (blocks_.rows_are_shared) {
          multiply(group, own, block, stage, coming, sums);
        } else {
          multiply(own, group, block, stage, coming, sums);
        }
        from = block.end;
      } while (from < stage.depth.size());
    }
  }

  Side group_at(std::size_t line, const PackedStage& stage) const {
    const std::size_t begin = std::min(stage.panel.end, line);
    return {{begin, std::min(stage.panel.end, begin + blocks_.group)}, shared_strips(stage, begin)};
  }

  Coming coming_of(const Side& group, std::size_t from, const PackedStage& stage) const {
    const std::size_t depth = std::min(blocks_.depth, stage.depth.size() - from);
    return {.first = reinterpret_cast<const std::byte*>(group.strips + from * shared_width()),
            .bytes = depth * shared_width() * sizeof(float),
            .stride = stage.depth.size() * shared_width() * sizeof(float),
            .strips = (group.lines.size() + shared_width() - 1) / shared_width()};
  }

  // `block` counts from where the stage begins.
  void multiply(const Side& rows, const Side& columns, const Range& block, const PackedStage& stage,
                const Coming& coming, float* sums) const {
    const bool first = stage.depth.begin + block.begin == 0;
    const bool last = stage.depth.begin + block.end == product_.shape.k;
    alignas(kAlignment) float only[Kernels::kMostTile];
    const std::size_t depth = stage.depth.size();
    const Side& own = blocks_.rows_are_shared ? columns : rows;
    const std::size_t own_strips = (own.lines.size() + own_width() - 1) / own_width();
    std::size_t tiles = 0;
    const float* row_strip = rows.strips + block.begin * kernels_.rows;
    for (std::size_t row = rows.lines.begin; row < rows.lines.end; row += kernels_.rows) {
      const float* column_strip = columns.strips + block.begin * kernels_.columns;
      for (std::size_t column = columns.lines.begin; column < columns.lines.end;
           column += kernels_.columns, ++tiles) {
        const Place place{.row = row,
                          .column = column,
                          .rows = std::min(kernels_.rows, rows.lines.end - row),
                          .columns = std::min(kernels_.columns, columns.lines.end - column)};
        Ahead ahead = coming.part(tiles, own_strips, block.size());
        if (last) add_outputs(place, ahead);
        if (first && last && at_once(place)) {
          kernels_.multiply_and_finish(block.size(), row_strip, column_strip, product_, place,
                                       ahead);
        } else {
          float* tile = first && last ? only : sums;
          if (blocks_.waiting > 0) tile = waiting_at(place, stage);
          kernels_.multiply(place.columns)(block.size(), row_strip, column_strip, tile, !first,
                                           ahead);
          if (last) outputs_.finish(product_, tile, place);
        }
        sums += kernels_.rows * kernels_.columns;
        column_strip += depth * kernels_.columns;
      }
      row_strip += depth * kernels_.rows;
    }
  }

  bool at_once(const Place& place) const {
    return product_.shape.output == DType::kF32 && !product_.finish.activation &&
           place.rows == kernels_.rows && place.columns == kernels_.columns;
  }

  void add_outputs(const Place& place, Ahead& ahead) const {
    const Finish& with = product_.finish;
    const std::size_t element = size_of(product_.shape.output);
    ahead.rows = place.rows;
    ahead.row_bytes = place.columns * element;
    ahead.row_stride = product_.shape.n * element;
    const auto add = [&](const std::byte* matrix) {
      if (matrix == nullptr) return;
      ahead.outputs[ahead.output_count++] =
          matrix + place.row * ahead.row_stride + place.column * element;
    };
    add(product_.output);
    if (with.added != product_.output) add(with.added);
    add(with.factor);
    add(with.derivative);
    add(with.z);
  }

  float* waiting_at(const Place& place, const PackedStage& stage) const {
    const std::size_t own = blocks_.rows_are_shared ? place.column : place.row;
    const std::size_t shared = blocks_.rows_are_shared ? place.row : place.column;
    // Tiles of a strip of own lines lie side by side: own_width * panel sums.
    return workspace_.waiting + own * blocks_.panel + (shared - stage.panel.begin) * own_width();
  }

  static constexpr std::size_t kFewestLines = 48;
  static constexpr std::size_t kStayNear =
      std::size_t{128} * 1024;  // floats: half of a second cache of 1 MiB
  // Fewer floats are packed sooner than other threads have begun.
  static constexpr std::size_t kWorthSharing = std::size_t{8} * 1024;

  const Kernels& kernels_;
  const TypeKernels& inputs_;
  const TypeKernels& outputs_;
  ThreadTeam& team_;
  const Blocks& blocks_;
  const Product& product_;
  const Workspace workspace_;
};

}  // namespace

std::size_t packed_scratch(const Blocks& blocks, int threads) {
  const std::size_t floats =
      blocks.shared_floats() + blocks.waiting_floats() +
      static_cast<std::size_t>(threads) * (blocks.own_floats() + blocks.sum_floats());
  return floats * sizeof(float) + kAlignment - 1;
}

std::size_t packed_scratch(const Cpu& cpu, const ProductShape& shape) {
  return packed_scratch(plan_blocks(product_kernels(cpu.isa), shape), cpu.team.size());
}

void run_packed(const Kernels& kernels, const Cpu& cpu, const Blocks& blocks,
                const Product& product, std::byte* scratch) {
  PackedProduct(kernels, cpu, blocks, product, scratch).run();
}

void run_packed(const Cpu& cpu, const Product& product, std::byte* scratch) {
  const Kernels& kernels = product_kernels(cpu.isa);
  run_packed(kernels, cpu, plan_blocks(kernels, product.shape), product, scratch);
}

}  // namespace lockstep::cpu::gemm
