#include "lockstep/ops/cpu/gemm/tiles/tiled.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/blocks.h"
#include "lockstep/ops/cpu/gemm/stages.h"
#include "lockstep/ops/cpu/gemm/tiles/squares.h"
#include "lockstep/ops/cpu/team/supply.h"

namespace lockstep::cpu::gemm {
namespace {

constexpr std::size_t kLines = TileKernels::kLines;
constexpr std::size_t kSquare = TileKernels::kSquare;

// The memory of a product.
struct Workspace {
  BFloat16* shared;  // strips of a panel
  float* waiting;    // squares: for every strip of own lines those of a panel
  BFloat16* own;     // strips, of one thread after the other

  Workspace(const TiledBlocks& blocks, std::byte* scratch)
      : shared(reinterpret_cast<BFloat16*>(aligned(scratch))),
        waiting(reinterpret_cast<float*>(shared + blocks.panel * blocks.depth)),
        own(reinterpret_cast<BFloat16*>(waiting + blocks.waiting * blocks.panel)) {}
};

// Rows or columns of the output with their strips.
struct Side {
  Range lines;
  const BFloat16* strips;

  std::size_t count() const { return rounded_up(lines.size(), kLines) / kLines; }
};

class TiledProduct {
 public:
  TiledProduct(const TileKernels& kernels, const Cpu& cpu, const TiledBlocks& blocks,
               const Product& product, std::byte* scratch)
      : kernels_(kernels),
        team_(cpu.team),
        blocks_(blocks),
        product_(product),
        workspace_(blocks, scratch) {}

  void run() {
    const ProductShape& shape = product_.shape;
    const std::size_t shared = blocks_.rows_are_shared ? shape.m : shape.n;
    for_each_stage(shared, blocks_.panel, shape.k, blocks_.depth, [&](Range panel, Range depth) {
      run({panel, depth});
    });
  }

 private:
  void run(const Stage& stage) {
    constexpr std::size_t kPackedAtOnce = 128;
    Supply to_pack(stage.panel, team_.size(), kLines);
    team_.run([&](int) {
      for (Range some = to_pack.take(kPackedAtOnce); some.size() > 0;
           some = to_pack.take(kPackedAtOnce)) {
        pack(blocks_.rows_are_shared, some, stage.depth, shared_strips(stage, some.begin));
      }
    });
    const std::size_t own_lines = blocks_.rows_are_shared ? product_.shape.n : product_.shape.m;
    Supply to_multiply({0, own_lines}, team_.size(), kLines);
    team_.run([&](int thread) {
      BFloat16* own =
          workspace_.own + static_cast<std::size_t>(thread) * blocks_.own_lines * blocks_.depth;
      kernels_.begin();
      for (Range some = to_multiply.take(blocks_.own_lines); some.size() > 0;
           some = to_multiply.take(blocks_.own_lines)) {
        pack(!blocks_.rows_are_shared, some, stage.depth, own);
        meet_panel({some, own}, stage);
      }
      kernels_.end();
    });
  }

  BFloat16* shared_strips(const Stage& stage, std::size_t line) const {
    return workspace_.shared + (line - stage.panel.begin) / kLines * stage.strip_size();
  }

  void pack(bool rows, const Range& some, const Range& depth, BFloat16* strips) const {
    const Matrix matrix = rows ? matrix_a(product_) : matrix_b(product_);
    const std::size_t line_stride = rows ? matrix.row_stride : matrix.column_stride;
    const std::size_t depth_stride = rows ? matrix.column_stride : matrix.row_stride;
    const std::size_t first = some.begin * line_stride + depth.begin * depth_stride;
    const Lines lines{.data = matrix.data + first * sizeof(BFloat16),
                      .line_stride = line_stride,
                      .depth_stride = depth_stride,
                      .count = some.size(),
                      .depth = depth.size()};
    (rows ? kernels_.pack_rows : kernels_.pack_columns)(lines, strips);
  }

  void meet_panel(const Side& own, const Stage& stage) const {
    Squares squares(kernels_, product_);
    for (std::size_t line = stage.panel.begin; line < stage.panel.end; line += blocks_.group) {
      const Range lines{line, std::min(stage.panel.end, line + blocks_.group)};
      const Side group{lines, shared_strips(stage, line)};
      // While a group is worked on, the next one comes into the second cache.
      const Side next{{lines.end, std::min(stage.panel.end, lines.end + blocks_.group)},
                      shared_strips(stage, lines.end)};
      if (blocks_.rows_are_shared) {
        multiply(group, own, next, stage, squares);
      } else {
        multiply(own, group, next, stage, squares);
      }
    }
    squares.finish_last();
  }

  void multiply(const Side& rows, const Side& columns, const Side& next, const Stage& stage,
                Squares& squares) const {
    const std::size_t bytes = next.count() * stage.strip_size() * sizeof(BFloat16);
    const std::size_t all = rows.count() * columns.count();
    Fetch ahead{.first = reinterpret_cast<const std::byte*>(next.strips),
                .stride = kAlignment,
                .count = (bytes / kAlignment + all - 1) / all};
    const BFloat16* row_strip = rows.strips;
    for (std::size_t row = rows.lines.begin; row < rows.lines.end; row += kLines) {
      const BFloat16* column_strip = columns.strips;
      for (std::size_t column = columns.lines.begin; column < columns.lines.end; column += kLines) {
        const Place place{.row = row,
                          .column = column,
                          .rows = std::min(kLines, rows.lines.end - row),
                          .columns = std::min(kLines, columns.lines.end - column)};
        float* square = blocks_.waiting > 0 ? waiting_at(place, stage) : squares.free_square();
        squares.multiply(stage, row_strip, column_strip, square, place, ahead);
        ahead.first += ahead.count * ahead.stride;
        column_strip += stage.strip_size();
      }
      row_strip += stage.strip_size();
    }
  }

  float* waiting_at(const Place& place, const Stage& stage) const {
    const std::size_t own = blocks_.rows_are_shared ? place.column : place.row;
    const std::size_t shared = blocks_.rows_are_shared ? place.row : place.column;
    const std::size_t strips = blocks_.panel / kLines;
    const std::size_t strip = (shared - stage.panel.begin) / kLines;
    return workspace_.waiting + (own / kLines * strips + strip) * kSquare;
  }

  const TileKernels& kernels_;
  ThreadTeam& team_;
  const TiledBlocks& blocks_;
  const Product& product_;
  const Workspace workspace_;
};

#if defined(__x86_64__)
class Tiled final : public Implementation {
 public:
  explicit Tiled(const Cpu& cpu) : cpu_(cpu) {}

  // What is smaller takes longer to begin than to multiply.
  bool accepts(const ProductShape& shape) override {
    constexpr std::size_t kLeastProducts = std::size_t{64} * 64 * 64;
    return shape.dtype == DType::kBF16 && shape.m * shape.n * shape.k >= kLeastProducts;
  }
  std::string name(const ProductShape&) override { return "tiled, amx"; }
  std::size_t scratch(const ProductShape& shape) override {
    return plan_tiled(shape).bytes(cpu_.team.size());
  }
  void run(const Product& product, std::byte* scratch) override {
    run_tiled(kAmxTiles, cpu_, plan_tiled(product.shape), product, scratch);
  }

 private:
  Cpu cpu_;
};
#endif

}  // namespace

void run_tiled(const TileKernels& kernels, const Cpu& cpu, const TiledBlocks& blocks,
               const Product& product, std::byte* scratch) {
  TiledProduct(kernels, cpu, blocks, product, scratch).run();
}

std::unique_ptr<Implementation> make_tiled([[maybe_unused]] const Cpu& cpu) {
#if defined(__x86_64__)
  if (cpu.isa == Isa::kAmx) return std::make_unique<Tiled>(cpu);
#endif
  return nullptr;
}

}  // namespace lockstep::cpu::gemm
