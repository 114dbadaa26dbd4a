// The tensors of a case, each in memory of its own, laid so that a fault shows.
//
// Inputs end where their allocation ends, so that the address sanitizer detects a read beyond.
// Outputs have canaries on both sides, which every build checks. Tensors begin at odd multiples of
// their element size.
//
// For operations of a GPU every tensor has a second place there, with canaries on both sides of
// all: a run brings everything there, canaries included, and back. Kernels that load vectors do so
// only where addresses allow it, so a case is run with tensors at odd places and at even ones.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "lockstep/bench/ops/fill.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::ops_test {

using bench::OpCase;
using bench::OpField;
using bench::Role;
using bench::RunCase;
using bench::Tensors;

// Bytes that are a NaN in every floating-point type: they mark unwritten memory.
inline constexpr std::byte kUnwritten{0xff};
inline constexpr std::byte kCanary{0x5a};
inline constexpr std::size_t kCanaryElements = 24;

// Where tensors begin on a GPU.
enum class Places { kOdd, kEven };

// Where a case lies: on the CPU, or there and on a GPU.
struct Place {
  Device device;
  Places places = Places::kOdd;

  bool is_gpu() const { return device.kind != DeviceKind::kCpu; }
};

class FieldMemory {
 public:
  FieldMemory(DType dtype, const Shape& shape, bool canaries, const Place& place = {})
      : before_(size_of(dtype) * (canaries || place.is_gpu() ? kCanaryElements + 1 : 1)),
        after_(canaries || place.is_gpu() ? size_of(dtype) * kCanaryElements : 0),
        bytes_(before_ + Tensor::bytes_of(dtype, shape) + after_, kCanary),
        tensor_(bytes_.data() + before_, dtype, shape) {
    if (!place.is_gpu()) return;
    // The tensor begins at a multiple of 256, or an element behind.
    const std::size_t start = kEven + (place.places == Places::kOdd ? size_of(dtype) : 0);
    far_ = Buffer(kEven + size_of(dtype) + bytes_.size(), place.device);
    far_bytes_ =
        far_.tensor(DType::kU8, {static_cast<std::int64_t>(bytes_.size())}, start - before_);
    far_tensor_ = Tensor(far_.data() + start, dtype, shape, place.device);
  }

  // On the CPU, and where operations take it from.
  const Tensor& tensor() const { return tensor_; }
  const Tensor& operand() const { return far_.bytes() == 0 ? tensor_ : far_tensor_; }
  void bring() {
    if (far_.bytes() > 0) copy(far_bytes_, all_bytes());
  }
  void fetch() {
    if (far_.bytes() > 0) copy(all_bytes(), far_bytes_);
  }

  std::vector<std::byte> content() const {
    return {tensor_.data(), tensor_.data() + tensor_.bytes()};
  }
  void restore(const std::vector<std::byte>& content) {
    std::copy(content.begin(), content.end(), tensor_.data());
    std::fill_n(bytes_.begin(), before_, kCanary);
    std::fill_n(bytes_.end() - static_cast<std::ptrdiff_t>(after_), after_, kCanary);
  }
  bool canaries_are_intact() const {
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(before_),
                       is_canary) &&
           std::all_of(bytes_.end() - static_cast<std::ptrdiff_t>(after_), bytes_.end(), is_canary);
  }

 private:
  static constexpr std::size_t kEven = 256;
  static_assert(kEven >= (kCanaryElements + 1) * sizeof(double));

  Tensor all_bytes() {
    return {bytes_.data(), DType::kU8, {static_cast<std::int64_t>(bytes_.size())}};
  }

  std::size_t before_;
  std::size_t after_;
  std::vector<std::byte> bytes_;
  Tensor tensor_;
  Buffer far_;  // none where the operations are the CPU's
  Tensor far_bytes_, far_tensor_;
};

// Workspace of exactly this many bytes, aligned as a Buffer is, full of NaNs. On a GPU canaries
// follow it.
class ScratchMemory {
 public:
  explicit ScratchMemory(std::size_t bytes, Device device = {}) : bytes_(bytes) {
    if (bytes == 0) return;
    if (device.kind != DeviceKind::kCpu) {
      far_ = Buffer(bytes + kCanaries, device);
      data_ = far_.data();
      std::vector<std::byte> begin(std::min(bytes, kFilled), kUnwritten);
      std::vector<std::byte> end(kCanaries, kCanary);
      copy(far_.tensor(DType::kU8, {static_cast<std::int64_t>(begin.size())}), view(begin));
      copy(canaries(), view(end));
    } else {
      data_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
      std::memset(data_, static_cast<int>(kUnwritten), bytes);
    }
  }
  ~ScratchMemory() {
    if (far_.bytes() == 0) ::operator delete (data_, std::align_val_t{64});
  }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  Tensor tensor() const {
    return {data_, DType::kU8, Shape{static_cast<std::int64_t>(bytes_)}, far_.device()};
  }
  bool canaries_are_intact() const {
    if (far_.bytes() == 0) return true;
    std::vector<std::byte> end(kCanaries);
    copy(view(end), canaries());
    return std::all_of(end.begin(), end.end(), [](std::byte byte) { return byte == kCanary; });
  }

 private:
  static constexpr std::size_t kCanaries = 256;
  static constexpr std::size_t kFilled = 1 << 20;  // more would take its time

  static Tensor view(std::vector<std::byte>& bytes) {
    return {bytes.data(), DType::kU8, {static_cast<std::int64_t>(bytes.size())}};
  }
  Tensor canaries() const { return far_.tensor(DType::kU8, {kCanaries}, bytes_); }

  std::size_t bytes_;
  std::byte* data_ = nullptr;
  Buffer far_;
};

class CaseMemory {
 public:
  // Fills inputs and prepares the case; outputs hold kUnwritten. Operations that are faster than
  // the reference may prepare a large case.
  explicit CaseMemory(const OpCase& one, std::uint64_t seed = 1, const Place& place = {},
                      Ops* preparing = nullptr)
      : case_(one), place_(place) {
    Tensors near;
    for (const OpField& field : one.fields) {
      const auto [position, is_new] = fields_.try_emplace(
          field.name, std::make_unique<FieldMemory>(field.dtype, field.shape,
                                                    field.role != Role::kInput, place));
      const Tensor& tensor = position->second->tensor();
      if (field.role == Role::kOutput) {
        std::fill_n(tensor.data(), tensor.bytes(), kUnwritten);
      } else {
        bench::fill(tensor, field.fill, seed++);
      }
      near.put(field.name, tensor);
      tensors_.put(field.name, position->second->operand());
    }
    if (one.prepare) prepare(preparing == nullptr ? *make_reference_ops() : *preparing, near);
    save();
  }

  // What the operation takes.
  const Tensors& tensors() const { return tensors_; }
  FieldMemory& field(const std::string& name) { return *fields_.at(name); }
  const std::vector<std::byte>& saved(const std::string& name) const { return saved_.at(name); }
  const Place& place() const { return place_; }

  // What all fields hold now is what they begin with from now on.
  void save() {
    for (auto& [name, memory] : fields_) saved_[name] = memory->content();
  }
  void restore() {
    for (auto& [name, memory] : fields_) memory->restore(saved_.at(name));
  }
  // From the CPU to where the operations run, and back.
  void bring() {
    for (auto& [name, memory] : fields_) memory->bring();
  }
  void fetch() {
    for (auto& [name, memory] : fields_) memory->fetch();
  }

  // Runs the case with exactly the scratch memory that it says it needs.
  void run(Ops& ops) { run(ops, case_.run); }
  // Runs something else on its tensors with that.
  void run(Ops& ops, const RunCase& what) {
    const ScratchMemory scratch(case_.scratch ? case_.scratch(ops) : 0, place_.device);
    bring();
    ops.use_scratch(scratch.tensor());
    what(ops, tensors_);
    ops.synchronize();
    ops.use_scratch({});
    fetch();
    scratch_is_intact_ = scratch.canaries_are_intact();
  }
  // Whether the last run wrote nothing behind its scratch memory, as far as one can see.
  bool scratch_is_intact() const { return scratch_is_intact_; }

 private:
  void prepare(Ops& ops, const Tensors& near) {
    const ScratchMemory scratch(case_.scratch ? case_.scratch(ops) : 0);
    ops.use_scratch(scratch.tensor());
    case_.prepare(ops, near);
    ops.use_scratch({});
  }

  const OpCase& case_;
  const Place place_;
  std::map<std::string, std::unique_ptr<FieldMemory>> fields_;
  std::map<std::string, std::vector<std::byte>> saved_;
  Tensors tensors_;
  bool scratch_is_intact_ = true;
};

}  // namespace lockstep::ops_test
