// The tensors of a case, each in memory of its own, laid so that a fault shows.
//
// What an operation reads ends where its allocation ends, for the address sanitizer to see a step
// beyond; what it writes has canaries on both sides, for everyone to see one. Tensors begin at odd
// addresses, multiples of their elements' size and of nothing more.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "lockstep/bench/ops/fill.h"

namespace lockstep::ops_test {

using bench::OpCase;
using bench::OpField;
using bench::Role;
using bench::Tensors;

// Bytes that are a NaN in every floating-point type: what nobody wrote.
inline constexpr std::byte kUnwritten{0xff};
inline constexpr std::byte kCanary{0x5a};
inline constexpr std::size_t kCanaryElements = 24;

class FieldMemory {
 public:
  FieldMemory(DType dtype, const Shape& shape, bool canaries)
      : before_(size_of(dtype) * (canaries ? kCanaryElements + 1 : 1)),
        after_(canaries ? size_of(dtype) * kCanaryElements : 0),
        bytes_(before_ + Tensor::bytes_of(dtype, shape) + after_, kCanary),
        tensor_(bytes_.data() + before_, dtype, shape) {}

  const Tensor& tensor() const { return tensor_; }
  std::vector<std::byte> content() const {
    return {tensor_.data(), tensor_.data() + tensor_.bytes()};
  }
  void restore(const std::vector<std::byte>& content) {
    std::copy(content.begin(), content.end(), tensor_.data());
  }
  bool canaries_are_intact() const {
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(before_),
                       is_canary) &&
           std::all_of(bytes_.end() - static_cast<std::ptrdiff_t>(after_), bytes_.end(), is_canary);
  }

 private:
  std::size_t before_;
  std::size_t after_;
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

// Scratch memory of exactly so many bytes, aligned as a Buffer is.
class ScratchMemory {
 public:
  explicit ScratchMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(bytes == 0 ? nullptr
                         : static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {
    if (bytes > 0) std::memset(data_, static_cast<int>(kUnwritten), bytes);
  }
  ~ScratchMemory() { ::operator delete (data_, std::align_val_t{64}); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  Tensor tensor() const { return {data_, DType::kU8, Shape{static_cast<std::int64_t>(bytes_)}}; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

class CaseMemory {
 public:
  // Filled and prepared; outputs hold what nobody wrote.
  explicit CaseMemory(const OpCase& one, std::uint64_t seed = 1) : case_(one) {
    for (const OpField& field : one.fields) {
      const auto [place, is_new] = fields_.try_emplace(
          field.name,
          std::make_unique<FieldMemory>(field.dtype, field.shape, field.role != Role::kInput));
      const Tensor& tensor = place->second->tensor();
      if (field.role == Role::kOutput) {
        std::fill_n(tensor.data(), tensor.bytes(), kUnwritten);
      } else {
        bench::fill(tensor, field.fill, seed++);
      }
      tensors_.put(field.name, tensor);
    }
    if (one.prepare) one.prepare(*make_reference_ops(), tensors_);
    save();
  }

  const Tensors& tensors() const { return tensors_; }
  FieldMemory& field(const std::string& name) { return *fields_.at(name); }
  const std::vector<std::byte>& saved(const std::string& name) const { return saved_.at(name); }

  // What all fields hold now is what they begin with from now on.
  void save() {
    for (auto& [name, memory] : fields_) saved_[name] = memory->content();
  }
  void restore() {
    for (auto& [name, memory] : fields_) memory->restore(saved_.at(name));
  }

  // Runs the case with exactly the scratch memory that it says it needs.
  void run(Ops& ops) {
    const ScratchMemory scratch(case_.scratch ? case_.scratch(ops) : 0);
    ops.use_scratch(scratch.tensor());
    case_.run(ops, tensors_);
    ops.synchronize();
    ops.use_scratch({});
  }

 private:
  const OpCase& case_;
  std::map<std::string, std::unique_ptr<FieldMemory>> fields_;
  std::map<std::string, std::vector<std::byte>> saved_;
  Tensors tensors_;
};

}  // namespace lockstep::ops_test
