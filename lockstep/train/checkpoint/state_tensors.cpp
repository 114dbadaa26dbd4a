#include "lockstep/train/checkpoint/state_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/math/half.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::train {
namespace {

// A kind of state: what stands before the names of its tensors, and where it is in nn::States.
struct StateKind {
  std::string_view prefix;  // of names in files; earlier checkpoints have the same
  std::string_view text;    // in messages
  Tensor nn::States::*in;
};
constexpr StateKind kParameters{"", "parameters", &nn::States::master};
// The parameters before the latest update, where a stage keeps them: of the compute type in memory,
// f32 in files.
constexpr StateKind kPrevious{"previous/", "previous parameters", &nn::States::previous};
// The replica's scaling, where it computes in FP8.
constexpr std::string_view kScalingName = "fp8/scaling";
constexpr StateKind kOfOptimizers[] = {{"moment/", "first moment", &nn::States::first_moment},
                                       {"variance/", "second moment", &nn::States::second_moment},
                                       {"velocity/", "velocity", &nn::States::velocity}};

// Which flat buffer of the replica's file it is, if any.
std::optional<std::size_t> filed_index(const nn::Replica& replica, const StateKind& kind) {
  // In f32 the parameters are the master copy.
  const bool is_master = kind.in == &nn::States::master && replica.setup().dtype == DType::kF32;
  const auto filed = replica.filed_states();
  const auto found = std::ranges::find(filed, is_master ? &nn::States::parameters : kind.in);
  if (found == filed.end()) return std::nullopt;
  return static_cast<std::size_t>(found - filed.begin());
}

// What a worker holds of a parameter in one kind of state.
struct Held {
  const nn::FlatParameter& parameter;
  const StateKind& kind;
  std::size_t first = 0;             // of its elements
  nn::FlatRange range;               // in the whole flat buffer
  std::optional<std::size_t> filed;  // in which flat buffer of the file
  Tensor elements;                   // absent then
};

// The parameters, and what of an optimizer there is.
std::vector<StateKind> kinds_of(const nn::States& states) {
  std::vector<StateKind> kinds{kParameters};
  for (const StateKind& kind : kOfOptimizers) {
    if (ops::is_given(states.*kind.in)) kinds.push_back(kind);
  }
  return kinds;
}

// The same of a replica, in memory or in a file.
std::vector<StateKind> kinds_of(const nn::Replica& replica) {
  std::vector<StateKind> kinds{kParameters};
  for (const StateKind& kind : kOfOptimizers) {
    if (ops::is_given(replica.states().*kind.in) || filed_index(replica, kind))
      kinds.push_back(kind);
  }
  return kinds;
}

// Of a kind that no file of states holds in memory's type: as f32.
bool is_widened(const Held& held) {
  return ops::is_given(held.elements) && held.elements.dtype() != DType::kF32;
}

Tensor widened(const Tensor& elements, std::vector<float>& memory) {
  memory.resize(elements.elements());
  const Tensor wide = tensor_of(std::span(memory), {static_cast<std::int64_t>(memory.size())});
  const HostView view(elements);
  const auto from = view.as<BFloat16>();
  std::ranges::transform(from, memory.begin(), [](BFloat16 x) { return to_float(x); });
  return wide;
}

std::string name_of(const StateKind& kind, const nn::FlatParameter& parameter) {
  return fmt::format("{}{}", kind.prefix, parameter.name);
}

Tensor flat_view(const Tensor& tensor) {
  return tensor.reshaped({static_cast<std::int64_t>(tensor.elements())});
}

// It is one tensor, which one worker writes.
bool stores_scaling(const nn::Replica& replica) {
  return ops::is_given(replica.scaling()) && replica.plan().sharding.worker == 0;
}

// A checkpoint of another precision, or of a model that quantizes other tensors, has none for us.
void read_scaling(const io::TensorSource& file, nn::Replica& replica) {
  const Shape& shape = replica.scaling().shape();
  const io::TensorEntry* const entry = file.find(kScalingName);
  if (!ops::is_given(replica.scaling()) || entry == nullptr || entry->shape != shape) return;
  std::vector<float> numbers(shape.elements());
  const Tensor scaling = tensor_of(std::span(numbers), shape);
  file.read(kScalingName, scaling);
  replica.set_scaling(scaling);
}

bool is_parameter(std::string_view name) { return name.find('/') == std::string_view::npos; }

// Says what differs, the first few of it.
class Differences {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kShown) texts_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void fail_if_any() const {
    if (count_ == 0) return;
    const std::string more = count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "";
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint belongs to another model: {}{}. Its config.toml has the model.* keys that "
         "match it",
         fmt::join(texts_, "; "), more);
  }

 private:
  static constexpr std::size_t kShown = 3;
  std::vector<std::string> texts_;
  std::size_t count_ = 0;
};

// What a worker holds, as parts of logical parameters that follow each other in its memory.
std::vector<io::TensorPart> parts_of(const Held& held, const Tensor& elements) {
  const nn::FlatParameter& parameter = held.parameter;
  const Shape whole = logical_shape(parameter.shape, parameter.shard);
  std::vector<nn::ShardRun> runs;
  for_runs(parameter.shape, parameter.shard, held.first, held.range.elements,
           [&](const nn::ShardRun& run) { runs.push_back(run); });
  std::vector<io::TensorPart> parts;
  for (std::size_t i = 0; i < runs.size();) {
    // Runs of one length at equal distances are one part.
    const std::size_t stride = i + 1 < runs.size() ? runs[i + 1].logical - runs[i].logical : 0;
    std::size_t next = i + 1;
    while (next < runs.size() && runs[next].elements == runs[i].elements &&
           runs[next].logical > runs[next - 1].logical &&
           runs[next].logical - runs[next - 1].logical == stride) {
      ++next;
    }
    const bool is_one = next == i + 1;
    const auto count = static_cast<std::int64_t>((next - i) * runs[i].elements);
    parts.push_back(
        {.name = name_of(held.kind, parameter),
         .shape = whole,
         .first = runs[i].logical,
         .elements = elements.slice(static_cast<std::int64_t>(runs[i].local - held.first), count),
         .run = is_one ? 0 : runs[i].elements,
         .stride = is_one ? 0 : stride});
    i = next;
  }
  return parts;
}

// Whether this worker writes a parameter to a checkpoint: one of those that hold the same does.
bool writes(const nn::Replica& replica, const nn::FlatParameter& parameter) {
  const nn::Sharding& sharding = replica.plan().sharding;
  const bool has_experts = replica.flat().has_experts(parameter.block);
  if (!sharding.any() && sharding.place_of(has_experts) > 0) return false;
  if (replica.model().is_copy(parameter.block)) return false;
  return !parameter.shard.is_replicated() || replica.tensor_group().rank == 0;
}

// f(held), in the order of a file: block by block, as updates go.
template <class F>
void for_held(const nn::Replica& replica, F&& f) {
  std::vector<StateKind> kinds = kinds_of(replica);
  if (ops::is_given(replica.states().previous)) kinds.push_back(kPrevious);
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    const nn::FlatRange mine = replica.my_range(block);
    nn::for_parameters_in(
        replica.flat(), block, mine,
        [&](const nn::FlatParameter& parameter, std::size_t first, nn::FlatRange within) {
          const nn::States part = replica.mine(block).slice(within);
          for (const StateKind& kind : kinds) {
            f(Held{parameter,
                   kind,
                   first,
                   {mine.first + within.first, within.elements},
                   filed_index(replica, kind),
                   part.*kind.in});
          }
        });
  }
}

// A run without such a version saved none. Then those of the checkpoint become the previous ones.
void read_previous(const io::TensorSource& file, nn::Replica& replica) {
  if (!ops::is_given(replica.states().previous)) return;
  const nn::FlatParameters& flat = replica.flat();
  if (file.find(name_of(kPrevious, flat.all().front())) == nullptr) return;
  std::vector<float> memory;
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    const nn::States states = replica.mine(block);
    fill_zero(states.previous);
    nn::for_parameters_in(
        flat, block, replica.my_range(block),
        [&](const nn::FlatParameter& parameter, std::size_t first, nn::FlatRange within) {
          memory.resize(within.elements);
          const Tensor all =
              tensor_of(std::span(memory), {static_cast<std::int64_t>(within.elements)});
          for_runs(parameter.shape, parameter.shard, first, within.elements,
                   [&](const nn::ShardRun& run) {
                     file.read_part(name_of(kPrevious, parameter), run.logical,
                                    all.slice(static_cast<std::int64_t>(run.local - first),
                                              static_cast<std::int64_t>(run.elements)));
                   });
          const Tensor to = states.slice(within).previous;
          if (to.dtype() == DType::kF32) return copy(to, all);
          replica.ops().run(ops::Cast{.from = all, .to = to});
          replica.ops().synchronize();
        });
  }
  replica.set_has_previous(true);
}

// `stored`: whether the file has each of the kinds; else they become zero.
void read_kinds(const io::TensorSource& file, nn::StateStream& stream,
                const nn::FlatParameters& flat, std::span<const StateKind> kinds,
                const std::vector<bool>& stored) {
  while (stream.next()) {
    const nn::States states = stream.states();
    for (const StateKind& kind : kinds) fill_zero(states.*kind.in);
    nn::for_parameters_in(
        flat, stream.block(), stream.range(),
        [&](const nn::FlatParameter& parameter, std::size_t first, nn::FlatRange within) {
          const nn::States part = states.slice(within);
          for (std::size_t i = 0; i < kinds.size(); ++i) {
            if (!stored[i]) continue;
            const Tensor& to = part.*kinds[i].in;
            for_runs(parameter.shape, parameter.shard, first, within.elements,
                     [&](const nn::ShardRun& run) {
                       file.read_part(name_of(kinds[i], parameter), run.logical,
                                      to.slice(static_cast<std::int64_t>(run.local - first),
                                               static_cast<std::int64_t>(run.elements)));
                     });
          }
        });
  }
}

}  // namespace

std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states) {
  std::vector<io::NamedTensor> tensors;
  for (const StateKind& kind : kinds_of(states)) {
    for (const nn::FlatParameter& parameter : flat.all()) {
      tensors.push_back({.name = name_of(kind, parameter),
                         .tensor = nn::FlatParameters::view(states.*kind.in, parameter)});
    }
  }
  return tensors;
}

std::vector<io::TensorPart> state_parts(const nn::Replica& replica) {
  // An address for empty tensors, which is never read.
  alignas(Buffer::kAlignment) static std::byte nowhere[Buffer::kAlignment];
  std::vector<io::TensorPart> parts;
  for_held(replica, [&](const Held& held) {
    if (!writes(replica, held.parameter)) return;
    const auto elements = static_cast<std::int64_t>(held.range.elements);
    const std::vector<io::TensorPart> of_held =
        parts_of(held, held.filed || is_widened(held) ? Tensor(nowhere, DType::kF32, {elements})
                                                      : held.elements);
    parts.insert(parts.end(), of_held.begin(), of_held.end());
  });
  if (stores_scaling(replica)) {
    parts.push_back({.name = std::string(kScalingName),
                     .shape = replica.scaling().shape(),
                     .first = 0,
                     .elements = flat_view(replica.scaling())});
  }
  return parts;
}

void write_states(const nn::Replica& replica, io::SyncedFile& file,
                  const std::function<void(std::size_t block)>& has_read, StateSnapshot* snapshot) {
  std::optional<nn::FlatFileReader> reader;
  if (replica.state_file() != nullptr) reader.emplace(*replica.state_file());
  std::size_t block = 0;
  const auto read_up_to = [&](std::size_t end) {
    for (; has_read && block < end; ++block) has_read(block);
  };
  const auto write = [&](const Tensor& elements) {
    file.write(snapshot != nullptr ? snapshot->of(elements) : elements);
  };
  if (snapshot != nullptr) snapshot->take();
  // What is not in the snapshot is updated on the host, block by block.
  if (snapshot != nullptr && snapshot->has_all()) read_up_to(replica.flat().blocks());
  std::vector<float> wide;
  for_held(replica, [&](const Held& held) {
    read_up_to(held.parameter.block);
    if (!writes(replica, held.parameter)) return;
    if (is_widened(held)) return file.write(widened(held.elements, wide));
    if (!held.filed) return write(held.elements);
    reader->read(*held.filed, held.range, [&](const Tensor& elements) { file.write(elements); });
  });
  // Like what an optimizer keeps, it changes when the last block has been read.
  if (stores_scaling(replica)) write(flat_view(replica.scaling()));
  read_up_to(replica.flat().blocks());
}

std::vector<std::size_t> files_of_parts(const io::PartedSafetensors& files,
                                        const nn::Replica& replica) {
  std::vector<std::size_t> found;
  const auto add = [&](std::string_view name, std::size_t first, std::size_t elements) {
    const auto of_part = files.files_of(name, first, elements);
    found.insert(found.end(), of_part.begin(), of_part.end());
  };
  for_held(replica, [&](const Held& held) {
    for_runs(held.parameter.shape, held.parameter.shard, held.first, held.range.elements,
             [&](const nn::ShardRun& run) {
               add(name_of(held.kind, held.parameter), run.logical, run.elements);
             });
  });
  if (ops::is_given(replica.scaling())) add(kScalingName, 0, replica.scaling().elements());
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void check_same_parameters(const io::TensorSource& file, const nn::FlatParameters& flat) {
  Differences differences;
  std::size_t common = 0;
  for (const nn::FlatParameter& parameter : flat.all()) {
    const auto* entry = file.find(parameter.name);
    if (entry == nullptr) {
      differences.add("it has no '{}' of {}", parameter.name,
                      logical_shape(parameter.shape, parameter.shard).text());
      continue;
    }
    ++common;
    const Shape shape = logical_shape(parameter.shape, parameter.shard);
    if (entry->shape != shape) {
      differences.add("its '{}' is {}, but the model's is {}", parameter.name, entry->shape.text(),
                      shape.text());
    } else if (entry->dtype != DType::kF32) {
      differences.add("its '{}' is of type {} instead of F32", parameter.name, entry->type);
    }
  }
  std::size_t parameters = 0;
  const std::vector<std::string_view> names = file.names();
  for (const std::string_view name : names) parameters += is_parameter(name) ? 1 : 0;
  if (parameters > common) {
    for (const std::string_view name : names) {
      if (!is_parameter(name)) continue;
      bool known = flat.is_elsewhere(name);
      for (const nn::FlatParameter& parameter : flat.all()) known |= parameter.name == name;
      if (!known) differences.add("the model has no '{}' of {}", name, file.at(name).shape.text());
    }
  }
  differences.fail_if_any();
}

void read_parameter_tensors(const io::TensorSource& file, const nn::FlatParameters& flat,
                            const Tensor& buffer) {
  check_same_parameters(file, flat);
  fill_zero(buffer);
  for (const nn::FlatParameter& parameter : flat.all()) {
    file.read(parameter.name, nn::FlatParameters::view(buffer, parameter));
  }
}

void read_parameter_tensors(const io::TensorSource& file, nn::Replica& replica) {
  check_same_parameters(file, replica.flat());
  nn::StateStream stream(replica, nn::StateAccess::kWrite, kParameters.in);
  read_kinds(file, stream, replica.flat(), std::span(&kParameters, 1), {true});
}

void read_state_tensors(const io::TensorSource& file, nn::Replica& replica, bool fresh) {
  const nn::FlatParameters& flat = replica.flat();
  check_same_parameters(file, flat);
  if (flat.all().empty()) return;
  const auto stored = [&](const StateKind& kind) {
    return file.find(name_of(kind, flat.all().front())) != nullptr;
  };
  for (const StateKind& kind : kOfOptimizers) {
    const bool is_held = ops::is_given(replica.states().*kind.in) || filed_index(replica, kind);
    if (fresh || stored(kind) == is_held) continue;
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint was saved {} the optimizer's {}, but this run continues {}. Use the "
         "optimizer.* keys of its config.toml, or start a new run from its parameters with "
         "run.init_from",
         stored(kind) ? "with" : "without", kind.text, stored(kind) ? "without it" : "with it");
  }
  const std::vector<StateKind> kinds = kinds_of(replica);
  std::vector<bool> are_stored;
  for (const StateKind& kind : kinds) are_stored.push_back(stored(kind));
  nn::StateStream stream(replica, nn::StateAccess::kWrite);
  read_kinds(file, stream, flat, kinds, are_stored);
  read_scaling(file, replica);
  read_previous(file, replica);
}

}  // namespace lockstep::train
