// lockstep explain block: the operations of a transformer block, and how long its tensors live.
//
// A layer of the model is run once, forward and backward, on a few tokens with operations that
// write down what they read and write (recorded_ops.h). So the picture shows what the block does.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/model_flags.h"
#include "lockstep/cli/explain/recorded_ops.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::cli {
namespace {

// Enough to run every operation, and to multiply in 8 bits.
constexpr std::int64_t kFewTokens = 4;
constexpr std::int64_t kFewTokensInFp8 = 16;
constexpr double kOpsLeft = 246;
constexpr double kOpsHead = 106;  // for the operations' names
constexpr double kOpWidth = 31;
constexpr double kBetweenPasses = 84;
constexpr double kTensorRow = 25;

// A tensor of the block, and the operations that touch it.
struct TensorLife {
  std::string name;
  std::string shape;  // in the real batch
  std::size_t bytes = 0;
  std::string colour;
  std::vector<std::size_t> reads;  // operations, counted through both passes
  std::vector<std::size_t> writes;
  std::size_t first() const {
    return std::min(reads.empty() ? writes.front() : reads.front(),
                    writes.empty() ? reads.front() : writes.front());
  }
  std::size_t last() const {
    return std::max(reads.empty() ? 0 : reads.back(), writes.empty() ? 0 : writes.back());
  }
  bool is_used() const { return !reads.empty() || !writes.empty(); }
};

struct BlockStory {
  std::string block;
  std::vector<std::string> operations;
  std::size_t forward = 0;  // operations of forward; those of backward follow
  std::vector<TensorLife> tensors;
};

std::string_view colour_of_life(nn::Life life) {
  switch (life) {
    case nn::Life::kKept:
      return "blue";
    case nn::Life::kRestored:
      return "teal";
    case nn::Life::kForward:
      return "orange";
    case nn::Life::kBackward:
      return "purple";
  }
  return "grey";
}

// The memory of one layer, every tensor by itself.
class LayerRun {
 public:
  explicit LayerRun(const ModelFlags& flags) : model_(nn::make_model(flags.shape())) {
    real_ = flags.setup();
    small_ = real_;
    small_.shape = {
        .batch = 1,
        .sequence = std::min(real_.fp8 ? kFewTokensInFp8 : kFewTokens, real_.shape.sequence)};
    small_.dtype = small_.gradient = DType::kF32;
  }

  BlockStory run() {
    nn::Block& block = model_.block(kLayer);
    const nn::BlockSpec spec = block.spec(small_, ops_);
    const nn::BlockSpec real = block.spec(real_, ops_);
    std::vector<Tensor> parameters, gradients, tensors;
    for (const nn::ParameterSpec& parameter : spec.parameters) {
      parameters.push_back(make(DType::kF32, parameter.shape));
      gradients.push_back(make(DType::kF32, parameter.shape));
    }
    const Shape stream = block.output(small_);
    const auto add = [&](std::string name, const Shape& shape, DType dtype,
                         std::string_view colour) {
      story_.tensors.push_back({.name = std::move(name),
                                .shape = shape.text(),
                                .bytes = Tensor::bytes_of(dtype, shape),
                                .colour = std::string(colour)});
    };
    const auto add_flow = [&](const char* name) {
      owners_.push_back(make(DType::kF32, stream));
      add(name, block.output(real_), real_.dtype, "grey");
      return owners_.back();
    };
    const Tensor x = add_flow("input x");
    for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
      tensors.push_back(make(spec.tensors[i].dtype, spec.tensors[i].shape));
      owners_.push_back(tensors.back());
      add(real.tensors[i].name, real.tensors[i].shape, real.tensors[i].dtype,
          colour_of_life(real.tensors[i].life));
    }
    const Tensor out = add_flow("output");
    const Tensor dout = add_flow("gradient of output");
    const Tensor dx = add_flow("gradient of x");
    const nn::Batch batch{.shape = small_.shape};
    const auto scaled = static_cast<std::int64_t>(spec.scaled.size());
    nn::Pass pass{.ops = ops_,
                  .setup = small_,
                  .batch = batch,
                  .parameters = parameters,
                  .gradients = gradients,
                  .tensors = tensors,
                  .scaling = make(DType::kF32, {scaled, ops::kScaling}),
                  .amax = make(DType::kF32, {scaled}),
                  .in = {.x = x},
                  .out = {.x = out},
                  .dout = {},
                  .din = {}};
    story_.block = block.name();
    block.forward(pass);
    record(spec, parameters, gradients);
    story_.forward = story_.operations.size();
    if (small_.recompute == nn::Recompute::kSelective) {
      pass.out = {};
      block.restore(pass);
    } else if (small_.recompute == nn::Recompute::kFull) {
      pass.out = {};
      block.forward(pass);
    }
    pass.out = {};
    pass.dout = {.x = dout};
    pass.din = {.x = dx};
    block.backward(pass);
    record(spec, parameters, gradients);
    std::erase_if(story_.tensors, [](const TensorLife& tensor) { return !tensor.is_used(); });
    std::ranges::stable_sort(story_.tensors, {}, &TensorLife::first);
    return std::move(story_);
  }

 private:
  static constexpr std::size_t kLayer = 1;  // behind the embedding

  Tensor make(DType dtype, const Shape& shape) {
    const std::size_t bytes = Tensor::bytes_of(dtype, shape);
    if (bytes == 0) return {};
    buffers_.emplace_back(bytes);
    const Tensor tensor = buffers_.back().tensor(dtype, shape);
    fill_zero(tensor);
    return tensor;
  }

  void touch(const Tensor& tensor, bool writes, std::size_t operation) {
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i].data() != tensor.data()) continue;
      auto& list = writes ? story_.tensors[i].writes : story_.tensors[i].reads;
      if (list.empty() || list.back() != operation) list.push_back(operation);
    }
  }

  // "mlp.up", "mlp.up dx"; "attention" for what has no parameter.
  static std::string name_of(const RecordedOp& op, const nn::BlockSpec& spec,
                             const std::vector<Tensor>& parameters,
                             const std::vector<Tensor>& gradients) {
    for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
      const std::byte* data = op.parameter.data();
      if (data == nullptr || (parameters[i].data() != data && gradients[i].data() != data))
        continue;
      std::string part = spec.parameters[i].name.substr(0, spec.parameters[i].name.rfind('.'));
      part = part.substr(part.rfind('.') + 1);
      if (op.kind.starts_with("linear") || op.kind == "norm") return part;
      return fmt::format("{} {}", part, op.kind);
    }
    return op.kind;
  }

  void record(const nn::BlockSpec& spec, const std::vector<Tensor>& parameters,
              const std::vector<Tensor>& gradients) {
    for (const RecordedOp& op : ops_.take()) {
      const std::size_t index = story_.operations.size();
      story_.operations.push_back(name_of(op, spec, parameters, gradients));
      for (const Tensor& tensor : op.reads) touch(tensor, false, index);
      for (const Tensor& tensor : op.writes) touch(tensor, true, index);
    }
  }

  nn::Model model_;
  nn::Setup real_;
  nn::Setup small_;
  RecordedOps ops_;
  std::deque<Buffer> buffers_;
  std::vector<Tensor> owners_;  // of the story's tensors
  BlockStory story_;
};

double x_of_operation(const BlockStory& story, std::size_t operation) {
  return kOpsLeft + static_cast<double>(operation) * kOpWidth +
         (operation >= story.forward ? kBetweenPasses : 0);
}

std::string draw_block(const ModelFlags& flags) {
  const BlockStory story = LayerRun(flags).run();
  const double right = x_of_operation(story, story.operations.size());
  Drawing drawing(
      right + Drawing::kMargin + 44,
      "A transformer block: its operations and the lives of its tensors",
      "Operations of forward and backward to the right, tensors down. A bar is the life "
      "of a tensor, a full dot writes it, an open dot reads it.");
  drawing.note(fmt::format(
      "{} of {}, recompute {}. A full dot writes the tensor, an open dot reads it. Blue and teal "
      "tensors bridge the time in which all later blocks run forward and backward: they are the "
      "activations that training keeps in memory.",
      story.block, describe(flags), flags.recompute));
  const double top = drawing.notes_end() + kOpsHead;
  const double bottom = top + static_cast<double>(story.tensors.size()) * kTensorRow;
  const double gap = x_of_operation(story, story.forward - 1) + kOpWidth;
  drawing.box({kOpsLeft, top - 6, gap - kOpsLeft, bottom - top + 6}, "band", 4);
  drawing.box({gap + kBetweenPasses, top - 6, right - gap - kBetweenPasses, bottom - top + 6},
              "band", 4);
  for (std::size_t i = 0; i < story.operations.size(); ++i) {
    const double x = x_of_operation(story, i) + kOpWidth / 2;
    drawing.slanted(x - 2, top - 12, story.operations[i], "small");
  }
  drawing.text((kOpsLeft + gap) / 2, bottom + 20, "forward", "middle strong");
  drawing.text((gap + kBetweenPasses + right) / 2, bottom + 20, "backward", "middle strong");
  drawing.text(gap + kBetweenPasses / 2, bottom + 20, "later blocks", "middle small quiet");
  for (std::size_t row = 0; row < story.tensors.size(); ++row) {
    const TensorLife& tensor = story.tensors[row];
    const double y = top + (static_cast<double>(row) + 0.5) * kTensorRow;
    drawing.text(Drawing::kMargin, y + 4, tensor.name, "small strong");
    drawing.text(kOpsLeft - 12, y + 4, format_bytes(static_cast<double>(tensor.bytes)),
                 "end small quiet");
    const double from = x_of_operation(story, tensor.first()) + 3;
    const double to = x_of_operation(story, tensor.last()) + kOpWidth - 3;
    drawing.box({from, y - 8, to - from, 16}, "soft " + tensor.colour, 8);
    for (const std::size_t operation : tensor.reads) {
      drawing.circle({x_of_operation(story, operation) + kOpWidth / 2, y}, 4,
                     fmt::format("card line-{}", tensor.colour));
    }
    for (const std::size_t operation : tensor.writes) {
      drawing.circle({x_of_operation(story, operation) + kOpWidth / 2, y}, 4, tensor.colour);
    }
  }
  constexpr std::pair<std::string_view, std::string_view> kLives[] = {
      {"blue", "kept for backward"},
      {"teal", "kept or recomputed"},
      {"orange", "forward only"},
      {"purple", "backward only"},
      {"grey", "handed from block to block"}};
  std::vector<Drawing::Key> keys;
  for (const auto& [colour, meaning] : kLives) {
    if (std::ranges::find(story.tensors, colour, &TensorLife::colour) == story.tensors.end())
      continue;
    keys.push_back({fmt::format("soft {}", colour), std::string(meaning)});
  }
  drawing.legend(Drawing::kMargin, bottom + 46, keys);
  return drawing.finish(bottom + 66);
}

std::string block_text(const ModelFlags& flags) {
  const BlockStory story = LayerRun(flags).run();
  TextTable table("lrlll");
  table.row({"tensor", "bytes", "shape", "from", "to"});
  const auto moment = [&](std::size_t operation) {
    return fmt::format("{}: {}", operation < story.forward ? "forward" : "backward",
                       story.operations[operation]);
  };
  for (const TensorLife& tensor : story.tensors) {
    table.row({tensor.name, format_bytes(static_cast<double>(tensor.bytes)), tensor.shape,
               moment(tensor.first()), moment(tensor.last())});
  }
  return fmt::format("{} of {}, recompute {}\n{}", story.block, describe(flags), flags.recompute,
                     table.text());
}

}  // namespace

void add_explain_block(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "block", "The operations of a transformer block, and how long its tensors live");
  struct BlockTopic {
    ModelFlags flags;
    std::string svg;
  };
  auto topic = std::make_shared<BlockTopic>();
  topic->flags.add_to(*command);
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain block --recompute selective --svg block.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_block(topic->flags));
    fmt::print("{}", block_text(topic->flags));
  });
}

}  // namespace lockstep::cli
