#include "lockstep/nn/parts/classifier.h"

#include <algorithm>

namespace lockstep::nn {
namespace {

constexpr std::int64_t kMultiple = 16;  // what kernels like

std::int64_t divide_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

// The size of one of `parts` nearly equal parts of `count`.
std::int64_t even_part(std::int64_t count, std::int64_t parts) {
  return std::min(count, divide_up(divide_up(count, parts), kMultiple) * kMultiple);
}

}  // namespace

std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t classes, DType dtype,
                            std::int64_t chunk_bytes) {
  const std::int64_t row_bytes = classes * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t most = std::max(kLeastRows, chunk_bytes / row_bytes);
  return even_part(rows, divide_up(rows, most));
}

std::int64_t classes_per_part(std::int64_t classes) {
  return even_part(classes, divide_up(classes, kPartClasses));
}

void ClassifierPart::declare(Declaration& declaration) const {
  const Setup& setup = declaration.setup();
  const std::int64_t rows = setup.shape.tokens();
  const bool on_cpu = declaration.ops().device() == Device{};
  const std::int64_t chunk_bytes =
      on_cpu ? options_.chunk_bytes : std::max(options_.chunk_bytes, kLogitBytesOnGpu);
  const std::int64_t classes = own_classes().count;
  // All slices of a sequence share the chunk of the whole one, which may be longer than a slice.
  const std::int64_t all_rows = setup.slice.is_whole() ? rows : setup.slice.of * setup.shape.batch;
  const std::int64_t chunk = rows_per_chunk(all_rows, classes, setup.dtype, chunk_bytes);
  const TensorShard shard = shard_of(0, {options_.classes}, options_.tensor);
  if (options_.tied_to.empty()) {
    declaration.weight(named("weight"), classes, options_.hidden, options_.stddev);
  } else {
    declaration.tied_weight(named("weight"), classes, options_.hidden, options_.tied_to);
  }
  declaration.shard(shard);
  declaration.bias(named("bias"), classes, options_.bias);
  declaration.shard(shard);
  declaration.activation(named("chunk"), {chunk, classes}, Life::kKept);
  declaration.statistic(
      named("statistics"),
      is_divided() ? Shape{options_.tensor.size * chunk * ops::kLogitStatistics} : Shape{0},
      Life::kKept);
  declaration.activation(named("all"),
                         options_.tensor.divides_tokens ? Shape{rows, options_.hidden} : Shape{0},
                         Life::kKept);
  if (is_divided()) {
    declaration.sums(rows * options_.hidden, setup.dtype, options_.tensor);
    declaration.gathers(options_.tensor.size * rows * ops::kLogitStatistics, DType::kF32,
                        options_.tensor);
  }
  // A product of all rows in FLOPs, of a chunk in memory.
  const std::int64_t rest = rows % chunk;
  if (rows >= chunk) declaration.linear(chunk, options_.hidden, classes, false, rows / chunk);
  if (rest > 0) declaration.linear(rest, options_.hidden, classes, false);
  if (!on_cpu) return;
  const std::int64_t last = rest > 0 ? rest : chunk;
  const std::int64_t part = classes_per_part(classes);
  if (part == classes) return;
  for (const std::int64_t count : {part, classes % part}) {
    declaration.linear_part(last, options_.hidden, count, classes);
  }
}

void ClassifierPart::scale(const Pass& pass, const Tensor& x) const {
  if (options_.scale != 1) pass.ops.run(ops::Scale{.x = x, .factor = options_.scale});
}

Tensor ClassifierPart::gathered(const Pass& pass, const Tensor& x) const {
  if (!options_.tensor.divides_tokens) return x;
  const Tensor& all = tensor(pass, kAllTokens);
  pass.tensor->gather_rows(pass.ops, x, all);
  return all;
}

void ClassifierPart::compute_logits(const Pass& pass, const Tensor& x, const Tensor& logits) const {
  pass.ops.run(ops::Linear{.x = x,
                           .weight = parameter(pass, kWeight),
                           .bias = parameter(pass, kBias),
                           .residual = {},
                           .y = logits});
  if (options_.softcap > 0) pass.ops.run(ops::SoftCap{.x = logits, .cap = options_.softcap});
}

void ClassifierPart::run_cross_entropy(const Pass& pass, ops::CrossEntropy call) const {
  call.softcap = options_.softcap;
  if (is_divided()) {
    const std::int64_t rows = call.logits.shape()[0];
    const Tensor all =
        reused(tensor(pass, kStatistics), {options_.tensor.size, rows, ops::kLogitStatistics});
    call.first_class = own_classes().first;
    call.all_classes = options_.classes;
    call.statistics = all;
    pass.ops.run(ops::LogitStatistics{.logits = call.logits,
                                      .targets = call.targets,
                                      .first_class = call.first_class,
                                      .all_classes = call.all_classes,
                                      .statistics = all.row(options_.tensor.rank)});
    pass.tensor->gather(pass.ops, all);
  }
  pass.ops.run(call);
}

void ClassifierPart::forward(const Pass& pass, const Tensor& targets, const Tensor& given) const {
  scale(pass, given);
  const Tensor x = gathered(pass, given);
  const Tensor& workspace = tensor(pass, kLogits);
  const std::int64_t rows = x.shape()[0];
  const std::int64_t chunk = workspace.shape()[0];
  const bool logits_wanted = ops::is_given(pass.logits);
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const Tensor logits =
        logits_wanted ? pass.logits.slice(first, count) : workspace.slice(0, count);
    compute_logits(pass, x.slice(first, count), logits);
    if (!ops::is_given(targets)) continue;
    run_cross_entropy(pass, {.logits = logits,
                             .targets = targets.slice(first, count),
                             .losses = pass.losses.slice(first, count),
                             .gradient = false});
  }
}

void ClassifierPart::backward(const Pass& pass, const Tensor& targets, const Tensor& given) const {
  scale(pass, given);
  const Tensor x = gathered(pass, given);
  const Tensor& workspace = tensor(pass, kLogits);
  const std::int64_t rows = x.shape()[0];
  const std::int64_t chunk = workspace.shape()[0];
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const Tensor logits = workspace.slice(0, count);
    const Tensor rows_of_x = x.slice(first, count);
    compute_logits(pass, rows_of_x, logits);
    if (ops::is_given(pass.logits)) {
      pass.ops.run(ops::Cast{.from = logits, .to = pass.logits.slice(first, count)});
    }
    run_cross_entropy(pass, {.logits = logits,
                             .targets = targets.slice(first, count),
                             .losses = pass.losses.slice(first, count),
                             .gradient = true,
                             .factor = pass.loss_factor});
    add_gradient(pass, logits, rows_of_x, first + count == rows);
    pass.ops.run(ops::LinearBackwardInput{
        .dy = logits, .weight = parameter(pass, kWeight), .factor = {}, .dx = rows_of_x});
  }
  if (options_.tensor.divides_tokens) {
    pass.tensor->scatter_sum(pass.ops, x, given);
  } else if (is_divided()) {
    pass.tensor->sum(pass.ops, x);
  }
  scale(pass, given);
  finished(pass, kWeight);
  finished(pass, kBias);
}

// `last`: nothing is added afterwards.
void ClassifierPart::add_gradient(const Pass& pass, const Tensor& dlogits, const Tensor& x,
                                  bool last) const {
  const Tensor& dweight = gradient(pass, kWeight);
  const Tensor& dbias = gradient(pass, kBias);
  // On a GPU one large product is faster than the overlap is worth.
  const bool in_parts = last && pass.ops.device() == Device{};
  const std::int64_t classes = own_classes().count;
  const std::int64_t part = in_parts ? classes_per_part(classes) : classes;
  for (std::int64_t first = 0; first < classes; first += part) {
    const std::int64_t count = std::min(part, classes - first);
    pass.ops.run(ops::LinearBackwardWeight{
        .dy = dlogits,
        .x = x,
        .dweight = dweight.slice(first, count),
        .dbias = ops::is_given(dbias) ? dbias.slice(first, count) : Tensor(),
        .first_output = first});
    if (last) accumulated(pass, kWeight, first + count);
  }
}

}  // namespace lockstep::nn
