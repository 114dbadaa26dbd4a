#include "lockstep/nn/generate/decoder.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

const Decoding& decoding_of(const Model& model, std::size_t index) {
  const Block& block = model.block(index);
  const Decoding* decoding = block.decoding();
  if (decoding != nullptr) return *decoding;
  fail(
      ErrorCode::kUnsupported,
      "the model '{}' cannot generate text: its block '{}' reads more than the tokens before; take "
      "a model of family gpt2 or llama",
      model.name(), block.name());
}

std::int64_t power_of_two_below(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
}

// The largest need of every number of rows that occurs.
std::size_t most_scratch(const Decoding& block, DecodeSetup setup, const Ops& ops) {
  std::size_t most = 0;
  for (; setup.rows >= 1; setup.rows /= 2) {
    most = std::max(most, block.decode_spec(setup, ops).scratch);
  }
  return most;
}

// A pass is a schedule of one step per block.
class DecoderPlanner {
 public:
  DecoderPlanner(const Model& model, const Ops& ops, DecoderPlan& plan)
      : model_(model), ops_(ops), plan_(plan), last_(static_cast<int>(model.size()) - 1) {}

  void run() {
    plan_.blocks.resize(model_.size());
    for (int i = 0; i <= last_; ++i) add_block(i);
    const DType dtype = plan_.setup.dtype;
    plan_.tokens = add("tokens", "workspace", DType::kI32, {plan_.setup.rows}, 0, last_);
    plan_.logits = add("logits", "workspace", dtype, {plan_.classes}, last_, last_);
    if (dtype != DType::kF32) {
      plan_.wide_logits =
          add("logits in f32", "workspace", DType::kF32, {plan_.classes}, last_, last_);
    }
    plan_.layout = plan_layout(plan_.requests);
  }

 private:
  std::size_t add(std::string name, const char* group, DType dtype, const Shape& shape, int first,
                  int last) {
    const std::size_t bytes = Tensor::bytes_of(dtype, shape);
    if (bytes == 0) return DecoderPlan::kAbsent;
    plan_.requests.push_back({std::move(name), group, bytes, first, last});
    return plan_.requests.size() - 1;
  }

  void add_block(int i) {
    const auto index = static_cast<std::size_t>(i);
    const Decoding& decoding = decoding_of(model_, index);
    const std::string name = model_.block(index).name() + ".";
    const DecodeSpec spec = decoding.decode_spec(plan_.setup, ops_);
    plan_.classes = spec.classes;
    DecoderPlan::BlockPlaces& places = plan_.blocks[index];
    for (const TensorSpec& tensor : spec.cache) {
      places.cache.push_back(
          add(name + tensor.name, "cache", tensor.dtype, tensor.shape, 0, last_));
    }
    for (const TensorSpec& tensor : spec.tensors) {
      places.tensors.push_back(
          add(name + tensor.name, "workspace", tensor.dtype, tensor.shape, i, i));
    }
    const auto scratch = static_cast<std::int64_t>(most_scratch(decoding, plan_.setup, ops_));
    places.scratch = add(name + "scratch", "workspace", DType::kU8, {scratch}, i, i);
    const Shape output = model_.block(index).output(plan_.setup.piece());
    if (i < last_) {
      places.output = add(name + "output", "workspace", plan_.setup.dtype, output, i, i + 1);
    }
  }

  const Model& model_;
  const Ops& ops_;
  DecoderPlan& plan_;
  const int last_;
};

}  // namespace

std::size_t DecoderPlan::cache_bytes() const {
  std::size_t bytes = 0;
  for (const Request& request : requests) {
    if (request.group == "cache") bytes += padded_bytes(request);
  }
  return bytes;
}

DecoderPlan plan_decoder(const Model& model, DType dtype, const DecoderOptions& options,
                         const Ops& ops) {
  if (options.positions < 1 || options.rows < 1) {
    fail(ErrorCode::kInvalidArgument,
         "a decoder needs 1 or more positions and rows; {} and {} were asked for",
         options.positions, options.rows);
  }
  DecoderPlan plan;
  const std::int64_t rows = power_of_two_below(std::min(options.rows, options.positions));
  plan.setup = {.rows = rows, .positions = options.positions, .dtype = dtype};
  DecoderPlanner(model, ops, plan).run();
  return plan;
}

Decoder::Decoder(const Model& model, DType dtype, const DecoderOptions& options, Ops& ops)
    : model_(model),
      ops_(ops),
      plan_(plan_decoder(model, dtype, options, ops)),
      arena_(plan_.requests, plan_.layout, ops.device()),
      views_(model.size()) {}

Decoder::Decoder(const Model& model, const FlatParameters& flat, const Tensor& parameters,
                 const DecoderOptions& options, Ops& ops)
    : Decoder(model, parameters.dtype(), options, ops) {
  if (flat.blocks() != model.size() || flat.elements() != parameters.elements()) {
    fail(ErrorCode::kInvalidArgument,
         "a flat buffer of {} parameters came for the model '{}', whose parameters take {}",
         parameters.elements(), model.name(), flat.elements());
  }
  const Setup piece = DecodeSetup{.dtype = parameters.dtype()}.piece();
  for (std::size_t i = 0; i < model.size(); ++i) {
    const std::size_t count = model.block(i).spec(piece, ops).parameters.size();
    for (std::size_t p = 0; p < count; ++p) {
      const FlatParameter* place = flat.place(i, p);
      views_[i].parameters.push_back(place == nullptr ? Tensor()
                                                      : FlatParameters::view(parameters, *place));
    }
  }
}

Decoder::Decoder(const Replica& replica, const DecoderOptions& options,
                 std::function<void()> before_pass)
    : Decoder(replica.model(), replica.setup().dtype, options, replica.ops()) {
  before_pass_ = std::move(before_pass);
  if (!replica.plan().gathers.empty()) gathers_ = &replica;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const std::span<const Tensor> parameters = replica.parameters_in_forward(i);
    views_[i].parameters.assign(parameters.begin(), parameters.end());
  }
}

// Pieces of another number of rows are smaller views of the same memory.
void Decoder::make_views(std::int64_t rows) {
  if (piece_.shape.sequence == rows && ops::is_given(tokens_)) return;
  DecodeSetup setup = plan_.setup;
  setup.rows = rows;
  piece_ = setup.piece();
  const auto view = [&](std::size_t request, DType dtype, const Shape& shape) {
    return request == DecoderPlan::kAbsent ? Tensor() : arena_.tensor(request, dtype, shape);
  };
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const DecodeSpec spec = decoding_of(model_, i).decode_spec(setup, ops_);
    const DecoderPlan::BlockPlaces& places = plan_.blocks[i];
    BlockViews& views = views_[i];
    views.cache.clear();
    views.tensors.clear();
    for (std::size_t t = 0; t < spec.cache.size(); ++t) {
      views.cache.push_back(view(places.cache[t], spec.cache[t].dtype, spec.cache[t].shape));
    }
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      const TensorSpec& tensor = spec.tensors[t];
      views.tensors.push_back(tensor.shape.elements() == 0
                                  ? Tensor()
                                  : view(places.tensors[t], tensor.dtype, tensor.shape));
    }
    if (places.scratch != DecoderPlan::kAbsent) views.scratch = arena_.whole(places.scratch);
    views.output = view(places.output, setup.dtype, model_.block(i).output(piece_));
  }
  tokens_ = view(plan_.tokens, DType::kI32, {1, rows});
  logits_ = view(plan_.logits, setup.dtype, {1, plan_.classes});
  wide_logits_ = setup.dtype == DType::kF32
                     ? logits_
                     : view(plan_.wide_logits, DType::kF32, {1, plan_.classes});
}

void Decoder::read(std::span<const std::int32_t> tokens) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  make_views(rows);
  ids_.assign(tokens.begin(), tokens.end());
  ops_.in_order([&] { copy(tokens_, tensor_of(std::span(ids_))); });
  const Batch batch = {.shape = piece_.shape, .tokens = tokens_};
  if (before_pass_) before_pass_();
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const BlockViews& views = views_[i];
    const bool last = i + 1 == model_.size();
    if (gathers_ != nullptr) gathers_->tell_before_forward(i);
    Pass pass = {.ops = ops_, .setup = piece_, .batch = batch, .training = false};
    pass.parameters = views.parameters;
    pass.tensors = views.tensors;
    if (i > 0) pass.in.x = views_[i - 1].output;
    pass.out.x = views.output;
    if (last) pass.logits = logits_;
    ops_.use_scratch(views.scratch);
    decoding_of(model_, i).decode({.pass = pass, .position = position_, .cache = views.cache});
    if (gathers_ != nullptr) gathers_->tell_after_forward(i);
  }
  position_ += rows;
}

Tensor Decoder::prefill(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count == 0) {
    fail(ErrorCode::kInvalidArgument, "no tokens came to be continued; one or more are needed");
  }
  if (count > positions() - position_) {
    fail(ErrorCode::kInvalidArgument,
         "the context is full: {} tokens came behind {}, and there is room for {} in all; take a "
         "shorter prompt or fewer new tokens",
         count, position_, positions());
  }
  const std::int64_t before = position_;
  try {
    while (!tokens.empty()) {
      const auto left = static_cast<std::int64_t>(tokens.size());
      const auto rows =
          static_cast<std::size_t>(power_of_two_below(std::min(left, plan_.setup.rows)));
      read(tokens.first(rows));
      tokens = tokens.subspan(rows);
    }
  } catch (...) {
    position_ = before;
    throw;
  }
  if (wide_logits_.data() != logits_.data()) {
    ops_.run(ops::Cast{.from = logits_, .to = wide_logits_});
  }
  ops_.synchronize();
  return wide_logits_.reshaped({plan_.classes});
}

void Decoder::rewind(std::int64_t position) {
  if (position < 0 || position > position_) {
    fail(ErrorCode::kInvalidArgument,
         "a decoder that has read {} tokens cannot go back to behind token {}", position_,
         position);
  }
  position_ = position;
}

}  // namespace lockstep::nn
