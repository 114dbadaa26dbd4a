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
  fail(ErrorCode::kUnsupported,
       "the model '{}' cannot generate text: its block '{}' reads more than the preceding tokens; "
       "docs/models.md lists the families that generate",
       model.name(), block.name());
}

std::int64_t power_of_two_below(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
}

DecodeSetup step_of(DecodeSetup setup) {
  setup.rows = 1;
  setup.steps = true;
  return setup;
}

// The largest need of every number of rows that occurs.
std::size_t most_scratch(const Decoding& block, DecodeSetup setup, const Ops& ops) {
  std::size_t most = block.decode_spec(step_of(setup), ops).scratch;
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
    const std::int64_t batch = plan_.setup.batch;
    // Logits of one sequence stay while others are read.
    plan_.logits =
        add("logits", "workspace", dtype, {batch, plan_.classes}, batch > 1 ? 0 : last_, last_);
    plan_.step_tokens = add("tokens of a step", "workspace", DType::kI32, {batch}, 0, last_);
    plan_.lengths = add("lengths", "workspace", DType::kI32, {batch}, 0, last_);
    plan_.text_positions = add("positions", "workspace", DType::kI32, {batch}, 0, last_);
    plan_.seeds = add("seeds", "workspace", DType::kI64, {batch}, 0, last_);
    if (dtype != DType::kF32) {
      plan_.wide_logits =
          add("logits in f32", "workspace", DType::kF32, {plan_.classes}, last_, last_);
    }
    plan_.layout = plan_layout(plan_.requests);
  }

 private:
  std::size_t add(std::string name, const char* group, DType dtype, const Shape& shape, int first,
                  int last) {
    return add(std::move(name), group, Tensor::bytes_of(dtype, shape), first, last);
  }

  std::size_t add(std::string name, const char* group, std::size_t bytes, int first, int last) {
    if (bytes == 0) return DecoderPlan::kAbsent;
    plan_.requests.push_back({std::move(name), group, bytes, first, last});
    return plan_.requests.size() - 1;
  }

  void add_block(int i) {
    const auto index = static_cast<std::size_t>(i);
    const Decoding& decoding = decoding_of(model_, index);
    const std::string name = model_.block(index).name() + ".";
    const DecodeSetup step_setup = step_of(plan_.setup);
    const DecodeSpec spec = decoding.decode_spec(plan_.setup, ops_);
    const DecodeSpec step = decoding.decode_spec(step_setup, ops_);
    plan_.classes = spec.classes;
    plan_.reads_back = plan_.reads_back || spec.reads_back;
    DecoderPlan::BlockPlaces& places = plan_.blocks[index];
    for (const TensorSpec& tensor : spec.cache) {
      places.cache.push_back(
          add(name + tensor.name, "cache", tensor.dtype, tensor.shape, 0, last_));
    }
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      const std::size_t bytes = std::max(bytes_of(spec.tensors[t]), bytes_of(step.tensors[t]));
      places.tensors.push_back(add(name + spec.tensors[t].name, "workspace", bytes, i, i));
    }
    places.scratch =
        add(name + "scratch", "workspace", most_scratch(decoding, plan_.setup, ops_), i, i);
    if (i == last_) return;
    const auto output = [&](const DecodeSetup& setup) {
      return Tensor::bytes_of(setup.dtype, model_.block(index).output(setup.piece()));
    };
    places.output = add(name + "output", "workspace",
                        std::max(output(plan_.setup), output(step_setup)), i, i + 1);
  }

  static std::size_t bytes_of(const TensorSpec& tensor) {
    return Tensor::bytes_of(tensor.dtype, tensor.shape);
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
  if (options.positions < 1 || options.rows < 1 || options.batch < 1) {
    fail(ErrorCode::kInvalidArgument,
         "a decoder needs at least 1 position, row and sequence; got {}, {} and {}",
         options.positions, options.rows, options.batch);
  }
  DecoderPlan plan;
  const std::int64_t rows = power_of_two_below(std::min(options.rows, options.positions));
  plan.setup = {
      .rows = rows, .positions = options.positions, .batch = options.batch, .dtype = dtype};
  DecoderPlanner(model, ops, plan).run();
  return plan;
}

Decoder::Decoder(const Model& model, DType dtype, const DecoderOptions& options, Ops& ops)
    : model_(model),
      ops_(ops),
      plan_(plan_decoder(model, dtype, options, ops)),
      arena_(plan_.requests, plan_.layout, ops.device()),
      views_(model.size()),
      positions_(static_cast<std::size_t>(options.batch)) {
  const std::int64_t batch = options.batch;
  step_ = {.tokens = arena_.tensor(plan_.step_tokens, DType::kI32, {batch}),
           .lengths = arena_.tensor(plan_.lengths, DType::kI32, {batch}),
           .text_positions = arena_.tensor(plan_.text_positions, DType::kI32, {batch}),
           .seeds = arena_.tensor(plan_.seeds, DType::kI64, {batch}),
           .logits = arena_.tensor(plan_.logits, dtype, {batch, plan_.classes})};
  wide_logits_ = dtype == DType::kF32
                     ? Tensor()
                     : arena_.tensor(plan_.wide_logits, DType::kF32, {1, plan_.classes});
}

Decoder::Decoder(const Model& model, const FlatParameters& flat, const Tensor& parameters,
                 const DecoderOptions& options, Ops& ops)
    : Decoder(model, parameters.dtype(), options, ops) {
  if (flat.blocks() != model.size() || flat.elements() != parameters.elements()) {
    fail(ErrorCode::kInvalidArgument,
         "got a flat buffer of {} parameters for the model '{}', which has {}",
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

std::size_t Decoder::index(std::int64_t sequence) const {
  if (sequence < 0 || sequence >= batch()) {
    fail(ErrorCode::kInvalidArgument, "sequence {} does not exist in a decoder of {} sequences",
         sequence, batch());
  }
  return static_cast<std::size_t>(sequence);
}

// Chunks of other sizes, and steps, are other views of the same memory.
void Decoder::make_views(const DecodeSetup& setup, std::int64_t sequence) {
  const bool same = has_views_ && viewed_.steps == setup.steps && viewed_.rows == setup.rows &&
                    viewed_sequence_ == sequence;
  if (same) return;
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
      const Tensor all = view(places.cache[t], spec.cache[t].dtype, spec.cache[t].shape);
      views.cache.push_back(setup.steps ? all : all.row(sequence));
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
  if (!setup.steps) tokens_ = view(plan_.tokens, DType::kI32, {1, setup.rows});
  has_views_ = true;
  viewed_ = setup;
  viewed_sequence_ = sequence;
}

void Decoder::pass_over_blocks(const Tensor& tokens, std::int64_t position, const Tensor& lengths,
                               const Tensor& logits) {
  const Batch batch = {.shape = piece_.shape, .tokens = tokens};
  if (before_pass_) before_pass_();
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const BlockViews& views = views_[i];
    const bool last = i + 1 == model_.size();
    if (gathers_ != nullptr) gathers_->tell_before_forward(i);
    Pass pass = {.ops = ops_, .setup = piece_, .batch = batch, .training = false};
    pass.parameters = views.parameters;
    pass.tensors = views.tensors;
    pass.host_counts = &host_counts_;
    if (i > 0) pass.in.x = views_[i - 1].output;
    pass.out.x = views.output;
    if (last) pass.logits = logits;
    ops_.use_scratch(views.scratch);
    decoding_of(model_, i).decode(
        {.pass = pass, .position = position, .cache = views.cache, .lengths = lengths});
    if (gathers_ != nullptr) gathers_->tell_after_forward(i);
  }
}

void Decoder::read(std::span<const std::int32_t> tokens, std::int64_t sequence) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  DecodeSetup setup = plan_.setup;
  setup.rows = rows;
  make_views(setup, sequence);
  ids_.assign(tokens.begin(), tokens.end());
  ops_.in_order([&] { copy(tokens_, tensor_of(std::span(ids_))); });
  std::int64_t& position = positions_[index(sequence)];
  pass_over_blocks(tokens_, position, {}, step_.logits.slice(sequence, 1));
  position += rows;
}

void Decoder::run_choice(const StepChoice& choice, std::int64_t first, std::int64_t count,
                         bool raises_lengths) {
  ops_.run(ops::Sample{.logits = step_.logits.slice(first, count),
                       .choices = choice.choices,
                       .temperature = choice.options.temperature,
                       .top_k = choice.options.top_k,
                       .top_p = choice.options.top_p,
                       .seeds = step_.seeds.slice(first, count),
                       .positions = step_.text_positions.slice(first, count),
                       .lengths = raises_lengths ? step_.lengths.slice(first, count) : Tensor(),
                       .last_length = positions() - 1,
                       .tokens = step_.tokens.slice(first, count)});
}

void Decoder::queue_choice(const StepChoice& choice, std::int64_t sequence) {
  run_choice(choice, static_cast<std::int64_t>(index(sequence)), 1, false);
}

void Decoder::queue_step(const StepChoice& choice) {
  const auto queue = [&] {
    make_views(step_of(plan_.setup), 0);
    pass_over_blocks(step_.tokens.reshaped({batch(), 1}), 0, step_.lengths, step_.logits);
    run_choice(choice, 0, batch(), true);
  };
  if (captured_ != nullptr && captured_choice_ != choice) captured_.reset();
  // Operations choose their algorithms when they first run.
  constexpr int kCapturedRun = 2;
  const bool may_capture =
      ops_.can_capture() && !plan_.reads_back && gathers_ == nullptr && !before_pass_;
  if (may_capture && captured_ == nullptr && ++steps_run_ >= kCapturedRun) {
    captured_ = capture(ops_, queue);
    captured_choice_ = choice;
  }
  if (captured_ != nullptr) {
    captured_->launch();
  } else {
    queue();
  }
  for (std::int64_t& position : positions_) position = std::min(position + 1, positions());
}

Tensor Decoder::prefill(std::span<const std::int32_t> tokens, std::int64_t sequence) {
  std::int64_t& position = positions_[index(sequence)];
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count == 0) {
    fail(ErrorCode::kInvalidArgument, "the prompt is empty; give at least one token");
  }
  if (count > positions() - position) {
    fail(ErrorCode::kInvalidArgument,
         "the context is full: {} tokens after the first {} exceed its {} positions; use a shorter "
         "prompt or fewer new tokens",
         count, position, positions());
  }
  const std::int64_t before = position;
  try {
    while (!tokens.empty()) {
      const auto left = static_cast<std::int64_t>(tokens.size());
      const auto rows =
          static_cast<std::size_t>(power_of_two_below(std::min(left, plan_.setup.rows)));
      read(tokens.first(rows), sequence);
      tokens = tokens.subspan(rows);
    }
  } catch (...) {
    position = before;
    throw;
  }
  const Tensor logits = step_.logits.slice(sequence, 1);
  const bool narrow = logits.dtype() != DType::kF32;
  if (narrow) ops_.run(ops::Cast{.from = logits, .to = wide_logits_});
  ops_.synchronize();
  return (narrow ? wide_logits_ : logits).reshaped({plan_.classes});
}

void Decoder::rewind(std::int64_t position, std::int64_t sequence) {
  std::int64_t& read = positions_[index(sequence)];
  if (position < 0 || position > read) {
    fail(ErrorCode::kInvalidArgument,
         "a decoder that has read {} tokens cannot be truncated to {} tokens", read, position);
  }
  read = position;
}

}  // namespace lockstep::nn
