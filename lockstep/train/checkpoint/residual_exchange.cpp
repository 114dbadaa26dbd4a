#include "lockstep/train/checkpoint/residual_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::train {
namespace {

using ResidualKind = parallel::Residual::Kind;

constexpr std::size_t kChunk = std::size_t{1} << 20;  // elements

Tensor chunk_tensor(const Buffer& memory, std::size_t elements) {
  return memory.tensor(DType::kF32, {static_cast<std::int64_t>(elements)});
}

// The flat buffers that a file has, of as many elements; none where they are not.
struct StoredResiduals {
  std::size_t workers = 0;
  bool velocity = false;
  bool sums = false;
};

std::optional<StoredResiduals> residuals_in(const io::SafetensorsFile& file, std::size_t elements) {
  std::size_t of_worker = 0;
  StoredResiduals stored;
  for (const auto& entry : file.entries()) {
    if (entry.dtype != DType::kF32) return std::nullopt;
    if (entry.name.ends_with(".0") && entry.name.starts_with("worker.")) ++stored.workers;
    if (entry.name.starts_with("worker.0.")) of_worker += entry.shape.elements();
    stored.velocity |= entry.name.starts_with("velocity.");
    stored.sums |= entry.name.starts_with("sums.");
  }
  if (stored.workers == 0 || of_worker != elements) return std::nullopt;
  return stored;
}

}  // namespace

ResidualExchange::ResidualExchange(RunGroup& group, parallel::Strategy& strategy,
                                   std::size_t elements)
    : group_(group), elements_(elements), workers_(static_cast<std::size_t>(group.size())) {
  const std::vector<parallel::Residual> mine = strategy.residuals();
  if (mine.empty()) return;
  std::string ranges;
  for (const parallel::Residual& part : mine) {
    ranges += fmt::format("{} {} {}\n", part.range.first, part.range.elements,
                          static_cast<int>(part.kind));
  }
  const std::vector<std::string> all = group.texts(ranges);
  for (std::size_t worker = 0; worker < all.size(); ++worker) {
    const char* at = all[worker].c_str();
    for (std::size_t i = 0; *at != '\0'; ++i) {
      char* end = nullptr;
      Part part{.worker = static_cast<int>(worker),
                .range = {},
                .kind = ResidualKind::kGradients,
                .values = nullptr,
                .device = {}};
      part.range.first = std::strtoull(at, &end, 10);
      part.range.elements = std::strtoull(end, &end, 10);
      part.kind = static_cast<ResidualKind>(std::strtoull(end, &end, 10));
      if (part.worker == group.rank()) {
        part.values = mine[i].values.data();
        part.device = mine[i].device;
      }
      has_velocity_ |= part.kind == ResidualKind::kVelocity;
      has_sums_ |= part.kind == ResidualKind::kSums;
      parts_.push_back(part);
      at = end + 1;
    }
  }
  std::ranges::stable_sort(parts_, {}, [](const Part& part) { return part.range.first; });
}

std::string ResidualExchange::tensor_name(std::size_t buffer, std::size_t first) const {
  if (buffer < workers_) return fmt::format("worker.{}.{}", buffer, first);
  if (has_velocity_ && buffer < 2 * workers_) {
    return fmt::format("velocity.{}.{}", buffer - workers_, first);
  }
  return fmt::format("sums.{}", first);
}

std::size_t ResidualExchange::buffer_of(const Part& part) const {
  if (part.kind == ResidualKind::kSums) return buffers() - 1;
  const auto worker = static_cast<std::size_t>(part.worker);
  return part.kind == ResidualKind::kVelocity ? workers_ + worker : worker;
}

template <class F>
void ResidualExchange::for_parts(std::size_t buffer, nn::FlatRange chunk, F&& f) const {
  for (const Part& part : parts_) {
    const std::size_t begin = std::max(part.range.first, chunk.first);
    const std::size_t end = std::min(part.range.end(), chunk.end());
    if (buffer_of(part) == buffer && begin < end) f(part, nn::FlatRange{begin, end - begin});
  }
}

template <class F>
void ResidualExchange::for_chunks(F&& f) const {
  for (std::size_t buffer = 0; buffer < buffers(); ++buffer) {
    for (std::size_t first = 0; first < elements_; first += kChunk) {
      f(buffer, nn::FlatRange{first, std::min(kChunk, elements_ - first)});
    }
  }
}

const float* ResidualExchange::read(const Part& part, const float* own, std::size_t elements) {
  if (part.device == Device{}) return own;
  copy_.resize(elements);
  memory_of(part.device)
      .copy(reinterpret_cast<std::byte*>(copy_.data()), reinterpret_cast<const std::byte*>(own),
            elements * sizeof(float));
  return copy_.data();
}

// The chunk to the leader, from those who have parts of it.
void ResidualExchange::gather(std::size_t buffer, nn::FlatRange chunk, float* to) {
  if (group_.leads()) std::fill_n(to, chunk.elements, 0.0f);
  for_parts(buffer, chunk, [&](const Part& part, nn::FlatRange range) {
    float* const own =
        part.values == nullptr ? nullptr : part.values + (range.first - part.range.first);
    if (!group_.leads()) {
      if (own == nullptr) return;
      const ConstData sent(read(part, own, range.elements), range.elements, DType::kF32);
      group_.world()->send(sent, 0);
      return;
    }
    float* const place = to + (range.first - chunk.first);
    if (own != nullptr) {
      std::copy_n(read(part, own, range.elements), range.elements, place);
    } else {
      group_.world()->receive(Data(place, range.elements, DType::kF32), part.worker);
    }
  });
}

// And back.
void ResidualExchange::scatter(std::size_t buffer, nn::FlatRange chunk, const float* from) {
  for_parts(buffer, chunk, [&](const Part& part, nn::FlatRange range) {
    float* const own =
        part.values == nullptr ? nullptr : part.values + (range.first - part.range.first);
    const bool on_host = part.device == Device{};
    const auto put = [&](const float* values) {
      if (on_host) {
        if (values != own) std::copy_n(values, range.elements, own);
        return;
      }
      memory_of(part.device)
          .copy(reinterpret_cast<std::byte*>(own), reinterpret_cast<const std::byte*>(values),
                range.elements * sizeof(float));
    };
    if (!group_.leads()) {
      if (own == nullptr) return;
      if (!on_host) copy_.resize(range.elements);
      float* const arrives = on_host ? own : copy_.data();
      group_.world()->receive(Data(arrives, range.elements, DType::kF32), 0);
      put(arrives);
      return;
    }
    const float* const place = from + (range.first - chunk.first);
    if (own != nullptr) {
      put(place);
    } else {
      group_.world()->send(ConstData(place, range.elements, DType::kF32), part.worker);
    }
  });
}

std::unique_ptr<io::SyncedFile> ResidualExchange::write(const std::filesystem::path& path) {
  const Buffer memory(std::min(kChunk, elements_) * sizeof(float));
  std::vector<io::NamedTensor> tensors;
  for_chunks([&](std::size_t buffer, nn::FlatRange chunk) {
    tensors.push_back(
        {.name = tensor_name(buffer, chunk.first), .tensor = chunk_tensor(memory, chunk.elements)});
  });
  std::unique_ptr<io::SyncedFile> file;
  std::exception_ptr failure;
  const auto attempt = [&](const auto& writing) {
    if (failure) return;
    try {
      writing();
    } catch (const Error&) {
      failure = std::current_exception();  // the others are not to be left with their chunks
    }
  };
  attempt([&] {
    file = std::make_unique<io::SyncedFile>(path);
    file->write(io::safetensors_parts(tensors).header);
  });
  for_chunks([&](std::size_t buffer, nn::FlatRange chunk) {
    const Tensor tensor = chunk_tensor(memory, chunk.elements);
    gather(buffer, chunk, tensor.as<float>().data());
    attempt([&] { file->write(tensor); });
  });
  moved_ = true;
  if (failure) std::rethrow_exception(failure);
  return file;
}

void ResidualExchange::give() {
  for_chunks([&](std::size_t buffer, nn::FlatRange chunk) { gather(buffer, chunk, nullptr); });
}

bool ResidualExchange::settle(bool saved) {
  if (group_.leads() && !moved_) {
    std::vector<float> bin(std::min(kChunk, elements_));
    for_chunks([&](std::size_t buffer, nn::FlatRange chunk) { gather(buffer, chunk, bin.data()); });
  }
  const double mine = saved ? 1 : 0;
  return group_.numbers(std::span(&mine, 1)).front() != 0;
}

void ResidualExchange::restore(const std::optional<std::filesystem::path>& path,
                               const std::function<void(const std::string&)>& tell) {
  if (!any()) {
    if (path)
      tell(
          "gradients are no longer compressed with error feedback: the residuals of the checkpoint "
          "are dropped");
    return;
  }
  std::optional<io::SafetensorsFile> file;
  std::optional<StoredResiduals> stored;
  if (path) {
    file.emplace(*path);
    stored = residuals_in(*file, elements_);
    if (!stored) tell(fmt::format("{} belongs to another model and is ignored", path->string()));
  }
  const bool alike = stored && stored->workers == workers_ && stored->velocity == has_velocity_ &&
                     stored->sums == has_sums_;
  // All have to know what will come: nothing, all flat buffers, sums of residuals, of averages too.
  enum : int { kNothing, kRows, kSums, kSumsAndVelocity };
  const double mine = !stored                             ? kNothing
                      : alike                             ? kRows
                      : stored->velocity && has_velocity_ ? kSumsAndVelocity
                                                          : kSums;
  const int plan = static_cast<int>(group_.numbers(std::span(&mine, 1)).front());
  if (plan == kNothing) return;
  const Buffer memory(std::min(kChunk, elements_) * sizeof(float));
  const auto read = [&](const std::string& name, std::size_t elements) {
    const Tensor tensor = chunk_tensor(memory, elements);
    if (group_.leads()) file->read(name, tensor);
    return tensor.as<float>();
  };
  if (plan == kRows) {
    for_chunks([&](std::size_t buffer, nn::FlatRange chunk) {
      scatter(buffer, chunk, read(tensor_name(buffer, chunk.first), chunk.elements).data());
    });
    return;
  }
  if (group_.leads()) {
    tell(fmt::format(
        "the checkpoint was saved by {} workers: their residuals are distributed over {}{}",
        stored->workers, workers_,
        stored->velocity && !has_velocity_ ? "; their velocities are dropped" : ""));
  }
  std::vector<float> sum(std::min(kChunk, elements_));
  for (std::size_t first = 0; first < elements_; first += kChunk) {
    const nn::FlatRange chunk{first, std::min(kChunk, elements_ - first)};
    const auto add = [&](const std::string& name) {
      const std::span<float> values = read(name, chunk.elements);
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    };
    // From the stored flat buffers of a kind, to the workers' from `buffer` on.
    const auto share_out = [&](std::string_view kind, bool with_sums, std::size_t buffer) {
      std::ranges::fill(sum, 0.0f);
      for (std::size_t i = 0; group_.leads() && i < stored->workers; ++i) {
        add(fmt::format("{}.{}.{}", kind, i, first));
      }
      if (group_.leads() && with_sums) add(fmt::format("sums.{}", first));
      for (float& value : sum) value /= static_cast<float>(workers_);
      for (std::size_t i = 0; i < workers_; ++i) scatter(buffer + i, chunk, sum.data());
    };
    share_out("worker", stored && stored->sums, 0);
    if (plan == kSumsAndVelocity) share_out("velocity", false, workers_);
  }
}

}  // namespace lockstep::train
