#include "lockstep/parallel/compression/compressed_all_reduce.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/sparse.h"

namespace lockstep::parallel {
namespace {

// "none" and "bf16" are all-reduces of floats of this type; the others take two stages.
std::optional<DType> wire_type(Compression compression, DType gradients) {
  if (compression == Compression::kNone) return gradients;
  if (compression == Compression::kBf16) return DType::kBF16;
  return std::nullopt;
}

// Whether every rank sends its payload of the whole bucket to all. That takes N / 2 times the bytes
// of a payload, of what an all-reduce takes; two stages take (1 + min(N, 4)) / 2 times (sparse.h).
bool takes_one_stage(Compression compression, std::size_t ranks) {
  constexpr std::size_t kFew = 4;
  return compression == Compression::kTopk && ranks <= kFew;
}

constexpr std::size_t kPartAlignment = 64;
std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

std::vector<std::size_t> sizes_of_payloads(const Codec& codec, const BucketShards& shards) {
  std::vector<std::size_t> sizes;
  for (std::size_t r = 0; r < shards.ranks; ++r) sizes.push_back(codec.bytes(shards.size(r)));
  return sizes;
}
std::size_t sum_of(const std::vector<std::size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

// The parts of the staging, in their order, each rounded up.
struct StagingParts {
  std::size_t values;
  std::size_t scratch;
  std::size_t payloads;
  std::size_t incoming;

  std::size_t bytes() const { return values + scratch + payloads + incoming; }
};

StagingParts staging_of_one_stage(const CompressionOptions& options, const BucketShards& shards,
                                  DType gradients, Device device) {
  const std::unique_ptr<Codec> codec = make_codec(options);
  const std::size_t elements = shards.elements;
  return {.values = gradients == DType::kF32 ? 0 : rounded_up(elements * sizeof(float)),
          .scratch = rounded_up(codec_scratch_bytes(options, elements, device)),
          .payloads = rounded_up(shards.ranks * codec->bytes(elements)),
          .incoming = 0};
}

StagingParts staging_of_two_stages(const CompressionOptions& options, const BucketShards& shards,
                                   DType gradients, Device device) {
  const CompressionOptions options_there = options_of_sums(options, shards.ranks);
  const std::unique_ptr<Codec> codec = make_codec(options);
  const std::unique_ptr<Codec> of_sums = make_codec(options_there);
  const std::size_t largest = shards.largest();
  return {.values = gradients == DType::kF32 ? 0 : rounded_up(largest * sizeof(float)),
          .scratch = rounded_up(std::max(codec_scratch_bytes(options, largest, device),
                                         codec_scratch_bytes(options_there, largest, device))),
          .payloads = rounded_up(std::max(sum_of(sizes_of_payloads(*codec, shards)),
                                          sum_of(sizes_of_payloads(*of_sums, shards)))),
          .incoming = rounded_up(shards.ranks * codec->bytes(largest))};
}

BucketShards checked_shards(std::size_t elements, DType gradients, int ranks) {
  if (ranks < 1)
    fail(ErrorCode::kInvalidArgument, "a compressed all-reduce needs at least one rank; got {}",
         ranks);
  if (!is_gradient_type(gradients)) {
    fail(ErrorCode::kInvalidArgument,
         "a compressed all-reduce takes gradients of f32, bf16 or f16, not of {}", name(gradients));
  }
  return {elements, static_cast<std::size_t>(ranks)};
}

Data part_of(Data data, std::size_t begin, std::size_t count) {
  return {data.bytes + begin * size_of(data.dtype), count, data.dtype};
}
std::span<float> floats_of(Data data) { return {reinterpret_cast<float*>(data.bytes), data.count}; }

Data bytes_of(std::span<std::byte> memory) { return {memory.data(), memory.size(), DType::kU8}; }

}  // namespace

CompressedAllReduce::Memory CompressedAllReduce::memory(std::size_t elements, DType gradients,
                                                        int ranks,
                                                        const CompressionOptions& options,
                                                        Device device) {
  const BucketShards shards = checked_shards(elements, gradients, ranks);
  const std::unique_ptr<Codec> codec = make_codec(options);
  if (ranks == 1 || elements == 0) return {};
  if (const auto wire = wire_type(options.compression, gradients)) {
    return {.staging_bytes = *wire == gradients ? 0 : elements * size_of(*wire)};
  }
  const std::size_t kept = takes_own_momentum(options.compression) ? 2 : 1;
  if (takes_one_stage(options.compression, shards.ranks)) {
    return {.residual_elements = kept * elements,
            .staging_bytes = staging_of_one_stage(options, shards, gradients, device).bytes()};
  }
  return {.residual_elements = codec->needs_residual() ? kept * elements + shards.largest() : 0,
          .staging_bytes = staging_of_two_stages(options, shards, gradients, device).bytes()};
}

CompressedAllReduce::CompressedAllReduce(Communicator& communicator,
                                         const CompressionOptions& options, std::size_t elements,
                                         DType gradients, std::span<float> residual,
                                         std::span<std::byte> staging, CodecDevice& device)
    : communicator_(&communicator),
      device_(&device),
      compression_(options.compression),
      codec_(device.make_codec(options)),
      shards_(checked_shards(elements, gradients, communicator.size())),
      one_stage_(takes_one_stage(options.compression, shards_.ranks)),
      own_(static_cast<std::size_t>(communicator.rank())),
      dtype_(gradients) {
  codec_of_sums_ = device.make_codec(options_of_sums(options, shards_.ranks));
  const Memory needed = memory(elements, gradients, communicator.size(), options, device.device());
  if (residual.size() != needed.residual_elements || staging.size() < needed.staging_bytes ||
      reinterpret_cast<std::uintptr_t>(staging.data()) % alignof(float) != 0) {
    fail(ErrorCode::kInvalidArgument,
         "an all-reduce of {} {} in {} over {} ranks needs a residual of {} floats and a staging "
         "buffer of {} bytes, aligned for floats; got {} floats and {} bytes",
         elements, lockstep::name(gradients), codec_->name(), communicator.size(),
         needed.residual_elements, needed.staging_bytes, residual.size(), staging.size());
  }
  device.run([&] { device.clear(residual); });
  if (!residual.empty()) {
    residual_ = residual.first(elements);
    if (takes_own_momentum(compression_)) velocity_ = residual.subspan(elements, elements);
    residual_of_sums_ = residual.subspan(elements + velocity_.size());
  }
  if (needed.staging_bytes == 0) return;
  if (wire_type(compression_, gradients)) {
    payloads_ = staging.first(needed.staging_bytes);
    return;
  }
  const StagingParts parts =
      one_stage_ ? staging_of_one_stage(options, shards_, gradients, device.device())
                 : staging_of_two_stages(options, shards_, gradients, device.device());
  if (parts.values > 0) {
    values_ = {reinterpret_cast<float*>(staging.data()), one_stage_ ? elements : shards_.largest()};
  }
  scratch_ = staging.subspan(parts.values, parts.scratch);
  if (one_stage_) {
    payload_sizes_.assign(shards_.ranks, codec_->bytes(elements));
    payloads_ = staging.subspan(parts.values + parts.scratch, sum_of(payload_sizes_));
    return;
  }
  payload_sizes_ = sizes_of_payloads(*codec_, shards_);
  sums_sizes_ = sizes_of_payloads(*codec_of_sums_, shards_);
  own_sizes_.assign(shards_.ranks, payload_sizes_[own_]);
  payloads_ = staging.subspan(parts.values + parts.scratch, parts.payloads);
  incoming_ = staging.subspan(parts.values + parts.scratch + parts.payloads, sum_of(own_sizes_));
}

std::uint64_t CompressedAllReduce::run(Data gradients, std::uint64_t seed) {
  if (gradients.count != shards_.elements || gradients.dtype != dtype_) {
    fail(ErrorCode::kInvalidArgument, "an all-reduce made for {} {} was given {} {}",
         shards_.elements, lockstep::name(dtype_), gradients.count,
         lockstep::name(gradients.dtype));
  }
  if (shards_.ranks == 1 || gradients.count == 0) return 0;
  return sent_during(*communicator_, [&] {
    if (const auto wire = wire_type(compression_, dtype_)) return run_in(*wire, gradients);
    return one_stage_ ? run_one_stage(gradients, seed) : run_two_stages(gradients, seed);
  });
}

void CompressedAllReduce::run_in(DType wire, Data gradients) {
  if (wire == dtype_) {
    communicator_->all_reduce(gradients);
  } else {
    const Data cast(payloads_.data(), gradients.count, wire);
    device_->run([&] { device_->convert(gradients, cast); });
    communicator_->all_reduce(cast);
    device_->run([&] { device_->convert(cast, gradients); });
  }
}

void CompressedAllReduce::run_one_stage(Data gradients, std::uint64_t seed) {
  const bool in_place = dtype_ == DType::kF32;
  const std::span<float> floats = in_place ? floats_of(gradients) : values_;
  const auto payload = [&](std::size_t r) {
    return payloads_.subspan(r * payload_sizes_[r], payload_sizes_[r]);
  };
  device_->run([&] {
    if (!in_place) device_->widen(gradients, floats);
    encode_own(*device_, *codec_, momentum_, floats, {residual_, velocity_}, payload(own_),
               scratch_, seed);
  });
  communicator_->run(all_gather_v(bytes_of(payload(own_)), bytes_of(payloads_), payload_sizes_));
  device_->run([&] {
    codec_->decode(payload(0), floats, seed);
    for (std::size_t r = 1; r < shards_.ranks; ++r) codec_->decode_add(payload(r), floats, seed);
    if (!in_place) device_->narrow(floats, gradients);
  });
}

void CompressedAllReduce::run_two_stages(Data gradients, std::uint64_t seed) {
  const std::size_t ranks = shards_.ranks;
  const bool in_place = dtype_ == DType::kF32;
  const auto shard = [&](std::size_t r) {
    return part_of(gradients, shards_.begin(r), shards_.size(r));
  };
  // The floats of shard r: the gradients themselves, or a buffer for them.
  const auto floats = [&](std::size_t r) {
    return in_place ? floats_of(shard(r)) : values_.first(shards_.size(r));
  };
  const auto part = [&](std::span<float> all, std::size_t r) {
    return all.empty() ? all : all.subspan(shards_.begin(r), shards_.size(r));
  };

  std::size_t sent = 0;
  device_->run([&] {
    for (std::size_t r = 0; r < ranks; ++r) {
      if (!in_place) device_->widen(shard(r), floats(r));
      encode_own(*device_, *codec_, momentum_, floats(r), {part(residual_, r), part(velocity_, r)},
                 payloads_.subspan(sent, payload_sizes_[r]), scratch_, seed);
      sent += payload_sizes_[r];
    }
  });
  communicator_->run(all_to_all_v(bytes_of(payloads_.first(sent)), payload_sizes_,
                                  bytes_of(incoming_), own_sizes_));

  // The gradients of this shard have been encoded and sent: their place is free for the sums, and
  // that of the payloads for those of sums.
  const std::span<float> sums = floats(own_);
  const std::size_t own_size = payload_sizes_[own_];
  const auto own_place = sums_sizes_.begin() + static_cast<std::ptrdiff_t>(own_);
  const auto own_payload = payloads_.subspan(
      std::accumulate(sums_sizes_.begin(), own_place, std::size_t{0}), *own_place);
  device_->run([&] {
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto contribution = incoming_.subspan(r * own_size, own_size);
      if (r == 0) codec_->decode(contribution, sums, seed);
      if (r > 0) codec_->decode_add(contribution, sums, seed);
    }
    const auto residual = residual_of_sums_.first(residual_of_sums_.empty() ? 0 : sums.size());
    codec_of_sums_->encode(sums, residual, own_payload, scratch_, seed);
  });
  communicator_->run(all_gather_v(bytes_of(own_payload),
                                  bytes_of(payloads_.first(sum_of(sums_sizes_))), sums_sizes_));

  device_->run([&] {
    std::size_t offset = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      codec_of_sums_->decode(payloads_.subspan(offset, sums_sizes_[r]), floats(r), seed);
      if (!in_place) device_->narrow(floats(r), shard(r));
      offset += sums_sizes_[r];
    }
  });
}

void CompressedAllReduce::scale_residual(float factor) {
  if (!std::isfinite(factor)) {
    fail(ErrorCode::kInvalidArgument, "a residual cannot be scaled by {}", factor);
  }
  device_->run([&] {
    for (const std::span<float> kept : {residual_, velocity_, residual_of_sums_}) {
      device_->scale(kept, factor);
    }
  });
}

}  // namespace lockstep::parallel
